"""The paper's one-dimensional example: a cubic with constant noise and few points on one side."""

from __future__ import annotations

import numpy as np

from lvd._typing import Float, NDArray, RandomState
from lvd._validation import check_positive, seed_from


def make_synthetic(
    n: int, *, random_state: RandomState = None
) -> tuple[Float[NDArray, "n 1"], Float[NDArray, "n"]]:
    """`n` rows of ``y = x^3 + N(0, 4^2)``.

    x is uniform on [-1, 1] with probability 0.9, else half-normal on [1, inf) with sigma 1.
    """
    check_positive(n, "n", integer=True)
    rng = np.random.default_rng(seed_from(random_state))
    common = rng.random(n) < 0.9
    x = np.where(common, rng.uniform(-1.0, 1.0, n), 1.0 + np.abs(rng.standard_normal(n)))
    return x[:, None], x**3 + 4.0 * rng.standard_normal(n)
