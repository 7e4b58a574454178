"""With a constant kernel every calibration row weighs the same, and LVD is split conformal, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import lvd

# Multiples of 1/20 often make (m + 1) level a whole number, where rounding decides.
LEVELS = st.one_of(st.integers(1, 19).map(lambda i: i / 20), st.floats(1e-3, 0.999))


def predict(X):
    return X.sum(axis=1)


def embed(X):
    return X


@given(
    m=st.integers(1, 300),
    n_columns=st.integers(1, 3),
    levels=st.lists(LEVELS, min_size=1, max_size=4),
    ties=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@example(m=1, n_columns=1, levels=[0.5, 0.51], ties=False, seed=0)
@example(m=99, n_columns=2, levels=[0.55, 0.9, 0.99], ties=True, seed=0)
def test_a_constant_kernel_is_split_conformal(m, n_columns, levels, ties, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m + 3, n_columns))
    y = predict(X) + rng.normal(size=m + 3)
    if ties:
        X, y = np.round(X), np.round(y)
    calib, test = slice(m), slice(m, None)
    split = lvd.SplitConformalRegressor((predict, embed), prefit=True, calib_size=None, confidence_level=1e-3)
    split.fit(np.full((2, n_columns), 99.0), np.zeros(2)).conformalize(X[calib], y[calib])
    kernel = lvd.MahalanobisKernel.from_components(
        np.zeros((1, n_columns)), mean=np.zeros(n_columns), scale=np.ones(n_columns), device="cpu"
    )
    local = lvd.LocalConformal(kernel).conformalize(X[calib], np.abs(y[calib] - predict(X[calib])))

    _, intervals = split.predict_interval(X[test], levels)

    y_pred, radius = predict(X[test])[:, None], local.radius(X[test], levels)
    expected = np.stack([y_pred - radius, y_pred + radius], axis=1)
    np.testing.assert_array_equal(intervals, expected)
