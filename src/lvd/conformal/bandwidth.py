"""How far the kernel reaches: a bandwidth chosen on the training rows so that few radii would be infinite."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from lvd._typing import Float
from lvd._validation import InputError, check_positive
from lvd.kernels import tiles

MOST_QUERIES = 2000
LARGEST = 1e4


def infinite_share(
    points: Float[Tensor, "n k"], bandwidth: float, level: float, n_calib: int, floor: float = 0.0
) -> float:
    """The share of training rows whose radius would be infinite with `n_calib` calibration rows like them.

    A row with weights summing to S is infinite when ``S < level / (1 - level)``; S is the leave-one-out sum over
    the training rows, brought to the size of the calibration set, of the kernel raised to its `floor`.
    """
    shrunk = points / bandwidth
    queries = shrunk[:: max(1, len(points) // MOST_QUERIES)]
    ones = points.new_ones(len(points), 1)
    total = tiles.weighted_sums(queries, tiles.prepare_points(shrunk), ones)[:, 0] - 1.0
    expected = (1.0 - floor) * total * (n_calib / (len(points) - 1)) + floor * n_calib
    return float((expected < level / (1.0 - level)).double().mean())


def check_bandwidth(bandwidth: Any, max_infinite: Any) -> None:
    """A bandwidth is a positive number, or ``"auto"``."""
    if bandwidth != "auto":
        check_positive(bandwidth, "bandwidth")
        if not math.isfinite(bandwidth):
            raise InputError(
                f"bandwidth must be finite, got {bandwidth}; to weigh all rows alike is split conformal"
            )
    elif not 0.0 < max_infinite < 1.0:
        raise InputError(f"max_infinite must lie in (0, 1), got {max_infinite!r}")


def choose_bandwidth(
    points: Float[Tensor, "n k"],
    *,
    level: float,
    max_infinite: float,
    n_calib: int,
    floor: float = 0.0,
    precision: float = 0.01,
) -> float:
    """The smallest h >= 1, to `precision`, with which at most `max_infinite` of the training rows are infinite.

    Only training rows are used, so the calibration rows stay untouched and the guarantee holds for the widened
    kernel ``K(a, b) = exp(-||A(z_a - z_b)||^2 / (k h^2))``.
    """

    def few_enough(bandwidth: float) -> bool:
        return infinite_share(points, bandwidth, level, n_calib, floor) <= max_infinite

    if few_enough(1.0):
        return 1.0
    low, high = 1.0, 2.0
    while not few_enough(high):
        low, high = high, 2.0 * high
        if high > LARGEST:
            raise InputError(
                f"no bandwidth makes at most {max_infinite:g} of the radii infinite at confidence_level={level:g} "
                f"with {n_calib} calibration rows; give more of them, a lower level or a larger max_infinite"
            )
    while high / low > 1.0 + precision:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if few_enough(middle) else (middle, high)
    return high
