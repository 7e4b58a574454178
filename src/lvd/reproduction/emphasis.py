"""Which cells of a row stand out: the rules of the paper's captions, all at p = 0.05. One seed allows no test."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lvd.reproduction.significance import Sample, p_above, p_below, p_less

P_VALUE = 0.05

Emphasis = str
"""``"bold"``, ``"underline"`` or ``""``."""
Rule = Callable[[Sequence[Sample]], list[Emphasis]]
"""From the samples of a row (NaN where there is none) to what stands out of them."""


def nothing(row: Sequence[Sample]) -> list[Emphasis]:
    """No cell."""
    return [""] * len(row)


def not_below_level(row: Sequence[Sample]) -> list[Emphasis]:
    """Coverage rates not significantly below 90%."""
    return ["bold" if p_below(sample, 90.0) >= P_VALUE else "" for sample in row]


def above_chance(row: Sequence[Sample]) -> list[Emphasis]:
    """AUROCs significantly above 50%."""
    return ["bold" if p_above(sample, 50.0) < P_VALUE else "" for sample in row]


def lowest_if_significant(row: Sequence[Sample]) -> list[Emphasis]:
    """The lowest mean, where significantly below the second-lowest; equal samples share their place."""
    ranked = sorted({sample for sample in row if sample.n}, key=lambda sample: sample.mean)
    if len(ranked) > 1 and p_less(ranked[0], ranked[1]) < P_VALUE:
        return ["bold" if sample == ranked[0] else "" for sample in row]
    return nothing(row)


def highest(row: Sequence[Sample]) -> list[Emphasis]:
    """The highest mean."""
    best = max((sample.mean for sample in row if sample.n), default=None)
    return ["bold" if sample.mean == best else "" for sample in row]


def lowest(row: Sequence[Sample]) -> list[Emphasis]:
    """The lowest mean."""
    return _at_minimum(row, "bold")


def lowest_count(row: Sequence[Sample]) -> list[Emphasis]:
    """The lowest count, underlined: it says on how many rows the widths were compared."""
    return _at_minimum(row, "underline")


def _at_minimum(row: Sequence[Sample], emphasis: Emphasis) -> list[Emphasis]:
    best = min((sample.mean for sample in row if sample.n), default=None)
    return [emphasis if sample.mean == best else "" for sample in row]
