"""Transductive rescaling against full conformal prediction by brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lvd
from lvd.calibration.transductive import Prior, sum_others, transductive_radius
from lvd.engine import SortedRows

LEVELS = np.array([0.5, 0.8, 0.9])


def conforms(v, points, scores, prior, level):
    """Whether score v of the last point is among the smallest when every score is divided by its neighbours'
    mean."""
    kernel = np.exp(-np.square(points[:, None] - points[None]).sum(-1) / prior.bandwidth**2)
    np.fill_diagonal(kernel, 0.0)
    everything = np.append(scores, v)
    counted = everything if prior.most is None else np.minimum(everything, prior.most)
    means = (kernel @ counted + prior.strength * prior.size) / (kernel.sum(1) + prior.strength)
    scaled = everything / means
    rank = int(min(np.ceil((len(scores) + 1) * level), len(scores) + 1))
    return scaled[-1] <= np.append(np.sort(scaled[:-1]), np.inf)[rank - 1]


@pytest.mark.parametrize("most", [None, 0.3, 2.0])
@pytest.mark.parametrize("seed", range(30))
def test_the_radius_is_where_conformity_ends(seed, most):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(5, 40))
    points, scores, query = rng.normal(size=(m, 2)), rng.gamma(1.0, size=m), rng.normal(size=(1, 2))
    prior = Prior(rng.uniform(0.5, 2.0), float(rng.choice([1, 3, 10])), rng.uniform(0.5, 2.0), most)
    rows = SortedRows.of(torch.as_tensor(points), torch.as_tensor(scores))
    found = transductive_radius(torch.as_tensor(query), rows, sum_others(rows, prior), LEVELS)[0]
    both = np.concatenate([points, query])
    for radius, level in zip(found.tolist(), LEVELS, strict=True):
        if np.isinf(radius):
            assert conforms(1e6, both, scores, prior, level)
        else:
            assert conforms(radius * (1 - 1e-9), both, scores, prior, level)
            assert not conforms(radius * (1 + 1e-9), both, scores, prior, level)


def first(rows):
    return np.exp(2.0 * rows[:, 0])


def beside(rows):
    return rows[:, 2:4]


def test_a_few_wrong_rows_do_not_widen_the_intervals_of_others():
    """Where a tiny error is to be expected, a wrong value scores in the hundreds; its neighbours may be of any
    size."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(1539, 128))
    train, calib, test = np.split(np.arange(1539), 3)
    y = X[:, 1] + first(X) * rng.normal(size=1539)
    wrong = rng.uniform(size=1539) < 0.1
    y[wrong] += rng.choice([-10.0, 10.0], size=wrong.sum())
    y[train] = X[train, 1]
    network = lvd.NetRegressor(hidden_sizes=(16,), random_state=0).fit(X[train], y[train])
    kernel = lvd.MahalanobisKernel.from_components(
        3.0 * np.eye(2), mean=np.zeros(2), scale=np.ones(2), embeddings=beside(X[train]), y=y[train]
    )
    settings = {"kernel": kernel, "kernel_target": "y", "when_unknown": "widen", "random_state": 0}
    score = lvd.scores.NormalizedResidual(first)
    reg = lvd.LVDRegressor((network.predict, beside), conformity_score=score, **settings)
    split = lvd.SplitConformalRegressor(network.predict)
    for method in (reg, split):
        method.fit(X[train], y[train]).conformalize(X[calib], y[calib])

    def losses(method, **choices):
        _, intervals = method.predict_interval(X[test], [0.5, 0.9], **choices)
        scores = [
            lvd.metrics.winkler_score(y[test], intervals[:, :, at], level)
            for at, level in enumerate((0.5, 0.9))
        ]
        return np.array(scores)

    usual = losses(split)
    assert (losses(reg, guarantee="transductive") < 0.95 * usual).all()
    conformal = reg.calibrators_[0]
    reg.calibrators_[0] = lvd.LocalConformal(
        kernel, bandwidth="adaptive", prior=Prior(), confidence_level=0.9
    ).conformalize(beside(X[calib]), np.abs(y[calib] - network.predict(X[calib])) / first(X[calib]))
    assert conformal.prior.most == 3.0
    assert (losses(reg, guarantee="transductive") > 1.5 * usual).all()


def make(**settings):
    kernel = lvd.MahalanobisKernel.from_components([[1.0]], mean=[0.0], scale=[1.0])
    return lvd.LocalConformal(kernel, **settings)


def test_finite_from_nine_rows_on_at_ninety_percent():
    far = [[99.0]]
    for m, finite in ((8, False), (9, True)):
        conformal = make(prior=Prior()).conformalize(np.zeros((m, 1)), np.ones(m))
        assert np.isfinite(conformal.radius(far, 0.9, guarantee="transductive"))[0] == finite


def test_within_groups():
    groups = np.repeat(["a", "b"], 20)
    conformal = make(prior=Prior()).conformalize(np.zeros((40, 1)), np.repeat([1.0, 5.0], 20), groups=groups)
    small, large, unseen = conformal.radius(
        [[0.0]] * 3, 0.5, guarantee="transductive", groups=["a", "b", "c"]
    )
    assert unseen == np.inf
    assert large > 2 * small


def test_what_it_cannot_do_is_refused():
    with pytest.raises(lvd.InputError, match="needs prior="):
        make().conformalize([[0.0]], [1.0]).radius([[0.0]], guarantee="transductive")
    weighted = make(prior=Prior()).conformalize([[0.0]], [1.0], weights=[1.0])
    with pytest.raises(lvd.InputError, match="without weights="):
        weighted.radius([[0.0]], guarantee="transductive", weights=[1.0])
    with pytest.raises(lvd.InputError, match="not be negative"):
        make(prior=Prior()).conformalize([[0.0]], [-1.0]).radius([[0.0]], guarantee="transductive")
