"""The paper's synthetic data."""

from __future__ import annotations

import numpy as np
import pytest

from lvd._validation import InputError
from lvd.reproduction import make_synthetic


def test_shapes_and_determinism() -> None:
    X, y = make_synthetic(50, random_state=1)
    assert (X.shape, y.shape, X.dtype, y.dtype) == ((50, 1), (50,), np.float64, np.float64)
    again = make_synthetic(50, random_state=1)
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(y, again[1])
    assert not np.array_equal(X, make_synthetic(50, random_state=2)[0])


def test_distribution() -> None:
    X, y = make_synthetic(200_000, random_state=0)
    x = X[:, 0]
    rare = x > 1.0
    assert x.min() >= -1.0
    assert rare.mean() == pytest.approx(0.1, abs=0.005)
    assert np.quantile(x[~rare], [0.25, 0.5, 0.75]) == pytest.approx([-0.5, 0.0, 0.5], abs=0.02)
    assert (x[rare] - 1.0).mean() == pytest.approx(np.sqrt(2.0 / np.pi), abs=0.03)  # half-normal, sigma 1
    noise = y - x**3
    assert noise.mean() == pytest.approx(0.0, abs=0.05)
    assert noise.std() == pytest.approx(4.0, abs=0.05)
    assert noise[rare].std() == pytest.approx(4.0, abs=0.1)


def test_no_rows_is_refused() -> None:
    with pytest.raises(InputError, match="n must be a positive integer, got 0"):
        make_synthetic(0)
