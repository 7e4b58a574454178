"""A floor under the kernel: ``K_e = (1 - e) K + e``, so that no calibration row is without weight."""

from __future__ import annotations

from numbers import Real
from typing import Any

from lvd._typing import Levels
from lvd._validation import InputError, check_levels, check_positive

ROOM = 1e-9
"""Relative room over the exact condition, so that no rounding can undo it."""


def smallest_floor(confidence_level: Levels, n_calib: int) -> float:
    """The smallest floor of the kernel with which every radius is finite, ``e = level / ((1 - level) m)``.

    With the floor e each of the m calibration rows weighs at least e, so that together they carry the level
    against the weight 1 of the query itself when ``m e >= level (m e + 1)``. Of several levels the largest counts.
    From 1 on there is no such floor: the rows are too few for any finite radius at this level.

    The guarantee with a floor is local to the raised kernel: of a query's neighbourhood and, in a share that grows
    with e, of all rows.

    Examples
    --------
    >>> from lvd.conformal import smallest_floor
    >>> round(smallest_floor(0.9, 200), 6)
    0.045
    >>> smallest_floor(0.9, 5) > 1
    True
    """
    check_positive(n_calib, "n_calib", integer=True)
    level = float(check_levels(confidence_level).max())
    return (1.0 + ROOM) * level / ((1.0 - level) * n_calib)


def check_floor(kernel_floor: Any, *, weighted: bool) -> None:
    """A floor is a number in [0, 1), or ``"auto"`` where the weights of new rows are known to be 1."""
    if kernel_floor == "auto" and weighted:
        raise InputError(
            'kernel_floor="auto" cannot promise finite radii with weights=, as those of new rows are not known '
            "yet; give a number"
        )
    is_number = isinstance(kernel_floor, Real) and not isinstance(kernel_floor, bool)
    if kernel_floor != "auto" and not (is_number and 0.0 <= kernel_floor < 1.0):
        raise InputError(f'kernel_floor must be "auto" or lie in [0, 1), got {kernel_floor!r}')


def floor_of(kernel_floor: float | str, confidence_level: Levels, n_calib: int) -> float:
    """The floor for that many calibration rows; 1, a constant kernel, where no smaller one is enough."""
    if kernel_floor == "auto":
        return min(1.0, smallest_floor(confidence_level, n_calib))
    return float(kernel_floor)
