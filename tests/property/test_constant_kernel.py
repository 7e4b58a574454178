"""With a constant kernel every calibration row weighs the same, and LVD is split conformal, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import lvd
from lvd.conformal import AbsoluteResidual

# Few distinct values, so that scores tie often.
TARGETS = st.one_of(
    st.integers(-3, 3).map(float), st.floats(-1e6, 1e6, allow_nan=False, allow_infinity=False)
)
# Multiples of 1/20 meet (m + 1) level at whole numbers, where rounding decides.
LEVELS = st.one_of(st.integers(1, 19).map(lambda i: i / 20), st.floats(1e-3, 0.999))


def constant_kernel(n_columns):
    return lvd.MahalanobisKernel.from_components(
        np.zeros((1, n_columns)), mean=np.zeros(n_columns), scale=np.ones(n_columns), device="cpu"
    )


def linear_model(n_columns):
    return lambda X: X @ np.arange(1.0, n_columns + 1), lambda X: X


@given(data=st.data(), m=st.integers(1, 200), n_columns=st.integers(1, 3))
def test_a_constant_kernel_is_split_conformal(data, m, n_columns):
    levels = data.draw(st.lists(LEVELS, min_size=1, max_size=4))
    X = data.draw(arrays(np.float64, (m, n_columns), elements=st.integers(-5, 5).map(float)))
    y = data.draw(arrays(np.float64, m, elements=TARGETS))
    predict, embed = linear_model(n_columns)
    # The training rows stand apart from the calibration rows, and a level is asked for only afterwards.
    split = lvd.SplitConformalRegressor(
        (predict, embed), prefit=True, calib_size=None, quantile="finite_sample", confidence_level=1e-3
    )
    split.fit(np.full((2, n_columns), 99.0), np.zeros(2)).conformalize(X, y)
    local = lvd.LocalConformal(constant_kernel(n_columns))
    local.conformalize(embed(X), AbsoluteResidual(predict(X))(y))

    _, intervals = split.predict_interval(X[:3], levels)

    expected = AbsoluteResidual(predict(X[:3])).intervals(local.radius(embed(X[:3]), levels))
    np.testing.assert_array_equal(intervals, expected)
