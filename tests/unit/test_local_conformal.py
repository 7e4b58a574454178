"""LocalConformal: radii from embeddings and scores alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

import lvd
from lvd.conformal.oracle import weighted_quantile


@pytest.fixture(scope="module")
def kernel():
    rng = np.random.default_rng(0)
    components = 0.4 * rng.normal(size=(2, 3))
    return lvd.MahalanobisKernel.from_components(components, mean=[1.0, 2.0, 3.0], scale=[1.0, 0.5, 2.0])


@pytest.fixture(scope="module")
def calibration():
    rng = np.random.default_rng(1)
    return rng.normal(loc=2.0, size=(150, 3)), rng.gamma(1.0, size=150)


@pytest.fixture(scope="module")
def conformal(kernel, calibration):
    return lvd.LocalConformal(kernel).conformalize(*calibration)


def test_the_radius_is_the_quantile_weighted_by_the_kernel(conformal, kernel, calibration):
    embeddings, scores = calibration
    queries = embeddings[:20] + 0.2
    expected = [weighted_quantile(scores, weights, 1.0, 0.8) for weights in kernel(queries, embeddings)]
    np.testing.assert_array_equal(conformal.radius(queries, 0.8), expected)


def test_shapes(conformal, calibration):
    queries = calibration[0][:5]
    assert conformal.radius(queries).shape == (5,)
    assert conformal.radius(queries, confidence_level=[0.5]).shape == (5, 1)
    assert conformal.radius(queries, np.array([0.5, 0.7, 0.9])).shape == (5, 3)
    assert conformal.effective_sample_size(queries).shape == (5,)


def test_far_from_everything_the_radius_is_infinite(conformal):
    assert conformal.radius([[1e3, 1e3, 1e3]], 0.1)[0] == np.inf
    assert conformal.effective_sample_size([[1e3, 1e3, 1e3]])[0] == 0.0


def test_the_effective_sample_size_is_that_of_the_weights(conformal, kernel, calibration):
    weights = kernel(calibration[0][:9], calibration[0])
    expected = weights.sum(1) ** 2 / np.square(weights).sum(1)
    np.testing.assert_allclose(conformal.effective_sample_size(calibration[0][:9]), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_in_torch_out(conformal, calibration, dtype):
    queries = torch.tensor(calibration[0][:6], dtype=dtype)
    for result in (conformal.radius(queries), conformal.effective_sample_size(queries)):
        assert (result.dtype, result.shape) == (dtype, (6,))


def test_a_new_calibration_set_replaces_the_former(kernel, calibration, conformal):
    embeddings, scores = calibration
    again = (
        lvd.LocalConformal(kernel).conformalize(embeddings, 10.0 * scores).conformalize(embeddings, scores)
    )
    np.testing.assert_array_equal(again.radius(embeddings), conformal.radius(embeddings))


@pytest.mark.parametrize("call", ["radius", "effective_sample_size"])
def test_use_before_conformalize(kernel, calibration, call):
    with pytest.raises(
        NotFittedError, match=r"no calibration set yet: call conformalize\(embeddings, scores\)"
    ):
        getattr(lvd.LocalConformal(kernel), call)(calibration[0])


def test_an_unfitted_kernel(calibration):
    with pytest.raises(NotFittedError, match="This MahalanobisKernel instance is not fitted yet"):
        lvd.LocalConformal(lvd.MahalanobisKernel()).conformalize(*calibration)


def test_refused_calibration_sets(kernel, calibration):
    embeddings, scores = calibration
    refuse = lvd.LocalConformal(kernel).conformalize
    holed = np.where(np.arange(150) == 4, np.nan, scores)
    for given, message in [
        (
            (np.where(embeddings == embeddings[3, 1], np.nan, embeddings), scores),
            "embeddings .* at row 3, column 1",
        ),
        ((embeddings, holed), "scores contains 1 NaN or infinity values .* at row 4"),
        ((embeddings, scores[1:]), "embeddings has 150, scores has 149"),
        ((embeddings[:0], scores[:0]), "embeddings is empty"),
        ((embeddings[:, 0], scores), "embeddings must be a 2-d array"),
        ((embeddings[:, :2], scores), "embeddings has 2 features, but lvd is expecting 3"),
    ]:
        with pytest.raises(lvd.InputError, match=message):
            refuse(*given)


def test_refused_queries(conformal, calibration):
    embeddings, _ = calibration
    with pytest.raises(lvd.InputError, match="embeddings has 2 features, but lvd is expecting 3"):
        conformal.radius(embeddings[:, :2])
    with pytest.raises(
        lvd.InputError, match=r"confidence_level must lie in \(0, 1\), got 90; did you mean 0.9\?"
    ):
        conformal.radius(embeddings, 90.0)
