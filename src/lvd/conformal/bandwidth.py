"""How far the kernel reaches: a bandwidth chosen on the training rows so that few radii would be infinite."""

from __future__ import annotations

from torch import Tensor

from lvd._typing import Float
from lvd._validation import InputError
from lvd.kernels import tiles

MOST_QUERIES = 2000
LARGEST = 1e4


def infinite_share(points: Float[Tensor, "n k"], bandwidth: float, level: float, n_calib: int) -> float:
    """The share of training rows whose radius would be infinite with `n_calib` calibration rows like them.

    A row with weights summing to S is infinite when ``S < level / (1 - level)``; S is the leave-one-out sum over
    the training rows, brought to the size of the calibration set.
    """
    shrunk = points / bandwidth
    queries = shrunk[:: max(1, len(points) // MOST_QUERIES)]
    ones = points.new_ones(len(points), 1)
    total = tiles.weighted_sums(queries, tiles.prepare_points(shrunk), ones)[:, 0] - 1.0
    expected = total * (n_calib / (len(points) - 1))
    return float((expected < level / (1.0 - level)).double().mean())


def choose_bandwidth(
    points: Float[Tensor, "n k"], *, level: float, max_infinite: float, n_calib: int, precision: float = 0.01
) -> float:
    """The smallest h >= 1, to `precision`, with which at most `max_infinite` of the training rows are infinite.

    Only training rows are used, so the calibration rows stay untouched and the guarantee holds for the widened
    kernel ``K(a, b) = exp(-||A(z_a - z_b)||^2 / (k h^2))``.
    """
    if infinite_share(points, 1.0, level, n_calib) <= max_infinite:
        return 1.0
    low, high = 1.0, 2.0
    while infinite_share(points, high, level, n_calib) > max_infinite:
        low, high = high, 2.0 * high
        if high > LARGEST:
            raise InputError(
                f"no bandwidth makes at most {max_infinite:g} of the radii infinite at confidence_level={level:g} "
                f"with {n_calib} calibration rows; give more of them, a lower level or a larger max_infinite"
            )
    while high / low > 1.0 + precision:
        middle = (low * high) ** 0.5
        low, high = (
            (low, middle)
            if infinite_share(points, middle, level, n_calib) <= max_infinite
            else (middle, high)
        )
    return high
