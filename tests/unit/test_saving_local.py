"""Groups, weights, bandwidths and scores come back from disk with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import lvd

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = X[:, 0] + RNG.gamma(1.0, size=120) * np.abs(X[:, 1])
GROUPS = {"texts": np.where(X[:, 2] > 0, "up", "down"), "numbers": (X[:, 2] > 0).astype(int), "none": None}
WEIGHTS = {"weighted": np.exp(0.2 * X[:, 0]), "unweighted": None}


@pytest.fixture(autouse=True)
def short_training(monkeypatch):
    monkeypatch.setattr("lvd.models.regressor.LEAST_BATCHES", 5)
    monkeypatch.setattr("lvd.models.regressor.LEAST_EPOCHS", 1)


def identity_kernel():
    return lvd.MahalanobisKernel.from_components(np.eye(3), mean=np.zeros(3), scale=np.ones(3))


def round_trip(model, folder):
    model.save(folder / "model")
    return lvd.load(folder / "model")


def some(labels, rows):
    return {name: None if values is None else values[rows] for name, values in labels.items()}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("groups", GROUPS)
def test_local_conformal(groups, weights, tmp_path):
    labels = {"groups": GROUPS[groups], "weights": WEIGHTS[weights]}
    conformal = lvd.LocalConformal(identity_kernel(), bandwidth=2.0).conformalize(X, Y, **labels)
    loaded = round_trip(conformal, tmp_path)
    rows = slice(40)
    for guarantee in ("local", "calibrated"):
        np.testing.assert_array_equal(
            *(c.radius(X[rows], guarantee=guarantee, **some(labels, rows)) for c in (conformal, loaded))
        )
    np.testing.assert_array_equal(*(c.interval(X[rows], **some(labels, rows)) for c in (conformal, loaded)))
    assert repr(loaded.explain(X[:3], **some(labels, slice(3)))) == repr(
        conformal.explain(X[:3], **some(labels, slice(3)))
    )
    loaded.update(X[rows], Y[rows], **some(labels, rows)).forget(100)


@pytest.mark.parametrize("score", ["absolute", "signed", "sided"])
@pytest.mark.parametrize("groups", GROUPS)
def test_regressor(score, groups, tmp_path):
    labels = {"groups": GROUPS[groups], "weights": None}
    reg = lvd.LVDRegressor(
        lvd.NetRegressor(hidden_sizes=(5,), n_batches=20),
        conformity_score=score,
        bandwidth="adaptive",
        kernel=lvd.MahalanobisKernel(n_components=2, max_iter=5),
        calib_size=0.5,
        random_state=0,
    ).fit(X, np.stack([Y, -Y], axis=1), **labels)
    loaded = round_trip(reg, tmp_path)
    assert vars(loaded).keys() == vars(reg).keys()
    np.testing.assert_array_equal(*(r.predict_interval(X, [0.5, 0.9], **labels)[1] for r in (reg, loaded)))
    np.testing.assert_array_equal(*(r.predict_quantiles(X, [0.2, 0.7], **labels) for r in (reg, loaded)))
    np.testing.assert_array_equal(
        *(r.predict_distribution(X, **labels).pit(np.stack([Y, -Y], axis=1)) for r in (reg, loaded))
    )
    assert repr(loaded.explain(X[:3], **some(labels, slice(3)))) == repr(
        reg.explain(X[:3], **some(labels, slice(3)))
    )


def test_a_regressor_with_weights(tmp_path):
    reg = lvd.LVDRegressor(lvd.NetRegressor(hidden_sizes=(5,), n_batches=20), calib_size=0.5, random_state=0)
    reg.fit(X, Y, weights=WEIGHTS["weighted"])
    loaded = round_trip(reg, tmp_path)
    np.testing.assert_array_equal(
        *(r.predict_interval(X, weights=WEIGHTS["weighted"])[1] for r in (reg, loaded))
    )
