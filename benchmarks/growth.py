"""How times grow with size: the slope on logarithmic axes, and the predicted time of the next size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ABOVE_OVERHEAD = 2.0
"""Times at least this multiple of the shortest one are considered above the constant overhead."""


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The exponent p of ``seconds ~ size^p``, by least squares on logarithms; nan with fewer than two times.

    It is fitted over the sizes that take at least twice the shortest time; if fewer than two do, over the last
    two. 1 is proportional growth, 0 none: overhead dominates.
    """
    known = [(size, second) for size, second in zip(sizes, seconds, strict=True) if second > 0.0]
    if len(known) < 2:
        return float("nan")
    shortest = min(second for _, second in known)
    above = [(size, second) for size, second in known if second >= ABOVE_OVERHEAD * shortest]
    logs = np.log(above if len(above) >= 2 else known[-2:])
    centred = logs - logs.mean(0)
    return float((centred[:, 0] @ centred[:, 1]) / (centred[:, 0] @ centred[:, 0]))


def expected_seconds(sizes: Sequence[float], seconds: Sequence[float], size: float) -> float:
    """The time of `size`: as measured, or extrapolated from the last two measured sizes, never less than the last.

    After one size, growth is assumed proportional; before the first, there is no estimate.
    """
    if size in sizes:
        return seconds[sizes.index(size)]
    if not sizes:
        return 0.0
    power = 1.0
    if len(sizes) > 1:
        power = max(0.0, np.log(seconds[-1] / seconds[-2]) / np.log(sizes[-1] / sizes[-2]))
    return float(seconds[-1] * (size / sizes[-1]) ** power)
