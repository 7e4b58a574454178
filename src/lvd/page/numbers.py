"""How the page prints numbers: all those of the target with the same decimals, so that they line up."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lvd._typing import Float, NDArray

LEAST_SCALE, LARGEST_SCALE = 1e-6, 1e12
UNDEFINED, INFINITE, MINUS = "\N{EN DASH}", "\N{INFINITY}", "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Digits:
    """How numbers are printed: with this many decimals; None for scientific notation."""

    decimals: int | None

    def text(self, value: float) -> str:
        """The number; ``∞`` and ``−∞`` for infinite ones, a dash for undefined ones."""
        if math.isnan(value):
            return UNDEFINED
        if math.isinf(value):
            return INFINITE if value > 0 else f"{MINUS}{INFINITE}"
        return f"{value:.3e}" if self.decimals is None else f"{value:,.{self.decimals}f}"


def digits_for(y: Float[NDArray, "n"]) -> Digits:
    """Three significant digits of the typical deviation of y."""
    scale = float(np.median(np.abs(y - np.median(y)))) or float(np.abs(y).max()) or 1.0
    if not LEAST_SCALE <= scale <= LARGEST_SCALE or np.abs(y).max() > LARGEST_SCALE:
        return Digits(None)
    return Digits(max(0, 2 - math.floor(math.log10(scale))))


def short(value: float) -> float | None:
    """A number for JSON with few digits; None if it is infinite."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
