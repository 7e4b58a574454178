"""LocalConformal: radii from embeddings and scores alone."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

import lvd
from lvd.engine import compiled
from lvd.engine.oracle import weighted_quantile


@pytest.fixture(scope="module")
def kernel():
    rng = np.random.default_rng(0)
    components = 0.4 * rng.normal(size=(2, 3))
    return lvd.MahalanobisKernel.from_components(components, mean=[1.0, 2.0, 3.0], scale=[1.0, 0.5, 2.0])


PLANE = lvd.MahalanobisKernel.from_components(
    np.eye(2), mean=[0.0, 0.0], scale=[1.0, 1.0], distance="sum", device="cpu"
)


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


@pytest.mark.parametrize("call", ["radius", "effective_sample_size", "summary"])
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
        ((embeddings[:0], scores[:0]), "scores is empty; give at least one row"),
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


class TestCertificate:
    """Whether no rounding could have changed a radius."""

    @pytest.fixture
    def on_the_edge(self, kernel, calibration):
        """A query, and levels a hair above the cumulative shares of its weights: float32 cannot decide there."""
        embeddings, scores = calibration
        query, order = embeddings[:1] + 0.2, np.argsort(scores)
        weights = kernel(query, embeddings)[0]
        levels = weights[order].cumsum() / (1.0 + weights.sum()) + 1e-12
        return query, levels, [weighted_quantile(scores, weights, 1.0, level) for level in levels]

    def test_few_rows_are_settled(self, conformal, on_the_edge):
        query, levels, expected = on_the_edge
        summary = conformal.summary(query, levels)
        np.testing.assert_array_equal(summary.radius[0], expected)
        assert summary.exact.tolist() == [True]

    def test_would_be_wrong_without_the_bound_on_errors(self, kernel, calibration, on_the_edge, monkeypatch):
        query, levels, expected = on_the_edge
        monkeypatch.setitem(compiled.ROUNDING, np.dtype(np.float32), (0.0, 0.0))
        conformal = lvd.LocalConformal(kernel).conformalize(*calibration)
        assert any(
            conformal.radius(query, level) != [radius] for level, radius in zip(levels, expected, strict=True)
        )

    @pytest.mark.parametrize("spread", [1e4, 1e6, 1e20, 1e120])
    def test_rows_very_far_apart(self, spread):
        rng = np.random.default_rng(0)
        points, scores = spread * rng.normal(size=(1500, 2)), rng.exponential(size=1500)
        summary = lvd.LocalConformal(PLANE).conformalize(points, scores).summary(points[:200], 0.4)
        np.testing.assert_array_equal(summary.radius, scores[:200])
        assert summary.exact.all()

    @pytest.mark.parametrize("distance", [1e6, 1e9, 1e15, 1e30, 1e200])
    def test_one_row_very_far_away_changes_nothing(self, distance):
        rng = np.random.default_rng(0)
        points, scores = rng.normal(size=(1500, 2)), rng.exponential(size=1500)
        points[0] = distance
        conformal = lvd.LocalConformal(PLANE).conformalize(points, scores)
        without = lvd.LocalConformal(PLANE).conformalize(points[1:], scores[1:])
        expected = without.radius(points[1:30], 0.9)
        np.testing.assert_array_equal(conformal.radius(points[1:30], 0.9), expected)

    def test_tensors_give_tensors(self, conformal, calibration):
        exact = conformal.summary(torch.tensor(calibration[0][:3])).exact
        assert exact.dtype == torch.bool
        assert exact.all()


class TestSummary:
    """The radius, the effective sample size and the mean of values, all of the same weights."""

    @pytest.mark.parametrize("level", [0.8, [0.5, 0.8]])
    def test_is_what_the_weights_say(self, conformal, kernel, calibration, level):
        embeddings, scores = calibration
        queries, values = embeddings[:20] + 0.2, np.cos(scores)
        summary, weights = conformal.summary(queries, level, values=values), kernel(queries, embeddings)
        np.testing.assert_array_equal(summary.radius, conformal.radius(queries, level))
        np.testing.assert_array_equal(summary.n_effective, conformal.effective_sample_size(queries))
        np.testing.assert_allclose(summary.mean, weights @ values / weights.sum(1), rtol=1e-5, atol=1e-6)

    def test_without_values_there_is_no_mean(self, conformal, calibration):
        assert conformal.summary(calibration[0][:3]).mean is None

    def test_far_from_everything(self, conformal, calibration):
        summary = conformal.summary([[1e3, 1e3, 1e3]], 0.1, values=calibration[1])
        assert (summary.radius[0], summary.n_effective[0]) == (np.inf, 0.0)
        assert np.isnan(summary.mean[0])

    def test_groups_see_their_own_values_alone(self, kernel, calibration):
        embeddings, scores = calibration
        groups, asked = np.arange(150) % 3, np.array([0, 1, 2, 1, 7])
        conformal = lvd.LocalConformal(kernel).conformalize(embeddings, scores, groups=groups)
        summary = conformal.summary(embeddings[:5], 0.5, values=np.sin(scores), groups=asked)
        for place, group in enumerate(asked[:4]):
            own = groups == group
            alone = lvd.LocalConformal(kernel).conformalize(embeddings[own], scores[own])
            expected = alone.summary(embeddings[place : place + 1], 0.5, values=np.sin(scores[own]))
            assert summary.radius[place] == expected.radius[0]
            assert summary.n_effective[place] == pytest.approx(expected.n_effective[0])
            assert summary.mean[place] == pytest.approx(expected.mean[0], rel=1e-5)
        assert (summary.radius[4], summary.n_effective[4]) == (np.inf, 0.0)
        assert np.isnan(summary.mean[4])

    def test_likelihood_ratios_multiply_the_kernel(self, kernel, calibration, rng):
        embeddings, scores = calibration
        ratios, own = rng.gamma(1.0, size=150) + 0.1, rng.gamma(1.0, size=9)
        conformal = lvd.LocalConformal(kernel).conformalize(embeddings, scores, weights=ratios)
        summary = conformal.summary(embeddings[:9], 0.5, values=scores, weights=own)
        weights = ratios * kernel(embeddings[:9], embeddings)
        np.testing.assert_array_equal(summary.radius, conformal.radius(embeddings[:9], 0.5, weights=own))
        np.testing.assert_allclose(summary.mean, weights @ scores / weights.sum(1), rtol=1e-5)

    def test_large_values_keep_their_digits(self, conformal, calibration):
        queries, values = calibration[0][:20], calibration[1]
        near, far = (conformal.summary(queries, values=values + shift).mean - shift for shift in (0.0, 1e8))
        np.testing.assert_allclose(far, near, rtol=1e-5)

    def test_values_follow_their_rows_through_update_and_forget(self, kernel, calibration, conformal):
        embeddings, scores = calibration
        grown = lvd.LocalConformal(kernel).conformalize(embeddings[:60], scores[:60])
        grown.update(embeddings[60:], scores[60:])
        ours, expected = (one.summary(embeddings[:9], values=np.arange(150.0)) for one in (grown, conformal))
        np.testing.assert_array_equal(ours.mean, expected.mean)
        newest = grown.forget(40).summary(embeddings[:9], values=np.arange(40.0))
        weights = kernel(embeddings[:9], embeddings[110:])
        np.testing.assert_allclose(newest.mean, weights @ np.arange(40.0) / weights.sum(1), rtol=1e-5)

    def test_torch_in_torch_out(self, conformal, calibration):
        queries = torch.tensor(calibration[0][:6], dtype=torch.float32)
        summary = conformal.summary(queries, [0.5, 0.9], values=torch.tensor(calibration[1]))
        assert summary.radius.shape == (6, 2)
        for part in (summary.radius, summary.n_effective, summary.mean):
            assert part.dtype == torch.float32

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            (np.ones(149), "calibration has 150, values has 149"),
            (np.full(150, np.nan), "values contains 150 NaN"),
            (np.ones((150, 2)), "values must be 1-d"),
        ],
        ids=["length", "nan", "shape"],
    )
    def test_refused_values(self, conformal, calibration, values, message):
        with pytest.raises(lvd.InputError, match=message):
            conformal.summary(calibration[0], values=values)


class TestExactOnRequest:
    """What the CPU always is, a GPU must be told; how it obeys is tested there."""

    def test_is_told_to_all_calibration_sets(self, kernel, calibration, tmp_path):
        embeddings, scores = calibration
        plain = lvd.LocalConformal(kernel).conformalize(embeddings, scores)
        exact = lvd.LocalConformal(kernel, exact=True).conformalize(embeddings, scores)
        exact.save(tmp_path / "saved")
        updated = copy.deepcopy(exact).update(embeddings[:5], scores[:5])
        shorter, saved = copy.deepcopy(updated).forget(20), lvd.load(tmp_path / "saved")
        for one in (exact, updated, shorter, exact.rescored(scores), saved):
            assert one.calibration_.groups[None][0].exact
        assert not plain.calibration_.groups[None][0].exact
        np.testing.assert_array_equal(exact.radius(embeddings, 0.9), plain.radius(embeddings, 0.9))

    def test_must_be_yes_or_no(self, kernel, calibration):
        conformal = lvd.LocalConformal(kernel)
        conformal.exact = "yes"
        with pytest.raises(lvd.InputError, match="exact must be True or False, got 'yes'"):
            conformal.conformalize(*calibration)
