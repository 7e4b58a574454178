"""A model that has predicted holds what it has made for that; the folder must not."""

from __future__ import annotations

import numpy as np

import lvd


def test_a_model_that_has_predicted_can_be_saved_and_loaded(tmp_path):
    X = np.random.default_rng(0).normal(size=(120, 2))
    reg = lvd.LVDRegressor(lvd.NetRegressor(n_batches=20), conformity_score="absolute", random_state=0).fit(
        X, X[:, 0]
    )
    before = reg.predict_interval(X)[1]
    reg.save(tmp_path / "model")
    np.testing.assert_array_equal(lvd.load(tmp_path / "model").predict_interval(X)[1], before)
