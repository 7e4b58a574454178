"""Tests on means over seeds, and which cells of a row they emphasise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True)
class Sample:
    """Mean and standard deviation (ddof 1) of `n` figures; NaN if there are too few."""

    mean: float
    std: float
    n: int


def sample_of(values: list[float]) -> Sample:
    """Mean and standard deviation of the figures that are not NaN."""
    known = [value for value in values if not math.isnan(value)]
    n = len(known)
    if n == 0:
        return Sample(math.nan, math.nan, 0)
    if min(known) == max(known):  # equal figures have zero spread, not rounding noise
        return Sample(known[0], math.nan if n == 1 else 0.0, n)
    mean = math.fsum(known) / n
    return Sample(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (n - 1)), n)


def p_below(sample: Sample, target: float) -> float:
    """One-sided t-test: the p-value of figures this low under a mean of `target` or more."""
    from scipy.stats import t

    if not _testable(sample):
        return math.nan
    if sample.std == 0.0:
        return 0.0 if sample.mean < target else 1.0
    return float(t.cdf((sample.mean - target) / (sample.std / math.sqrt(sample.n)), sample.n - 1))


def p_above(sample: Sample, target: float) -> float:
    """One-sided t-test: the p-value of figures this high under a mean of `target` or less."""
    return p_below(Sample(-sample.mean, sample.std, sample.n), -target)


def p_different(a: Sample, b: Sample, alternative: str = "two-sided") -> float:
    """Welch's test: the p-value of two samples this far apart under equal means.

    ``alternative="less"`` is one-sided: the p-value of `a` this far below `b` if its mean is not lower.
    """
    from scipy.stats import ttest_ind_from_stats

    if not (_testable(a) and _testable(b)):
        return math.nan
    if a.std == b.std == 0.0:  # scipy divides by the spread
        return 0.0 if a.mean < b.mean or (alternative == "two-sided" and a.mean > b.mean) else 1.0
    stats = (a.mean, a.std, a.n, b.mean, b.std, b.n)
    return float(ttest_ind_from_stats(*stats, equal_var=False, alternative=alternative).pvalue)


def _testable(sample: Sample) -> bool:
    return sample.n >= 2 and math.isfinite(sample.mean) and math.isfinite(sample.std)


P_VALUE = 0.05

Emphasis = str
"""``"bold"``, ``"underline"`` or ``""``."""
Rule = Callable[[Sequence[Sample]], list[Emphasis]]
"""Maps the samples of a row (NaN if missing) to their emphasis."""


def nothing(row: Sequence[Sample]) -> list[Emphasis]:
    """Emphasise no cell."""
    return [""] * len(row)


def not_below_level(row: Sequence[Sample]) -> list[Emphasis]:
    """Emphasise coverage rates not significantly below 90%."""
    return ["bold" if p_below(sample, 90.0) >= P_VALUE else "" for sample in row]


def above_chance(row: Sequence[Sample]) -> list[Emphasis]:
    """Emphasise AUROCs significantly above 50%."""
    return ["bold" if p_above(sample, 50.0) < P_VALUE else "" for sample in row]


def lowest_if_significant(row: Sequence[Sample]) -> list[Emphasis]:
    """Emphasise the lowest mean if significantly below the second-lowest; equal samples share their rank."""
    ranked = sorted({sample for sample in row if sample.n}, key=lambda sample: sample.mean)
    if len(ranked) > 1 and p_different(ranked[0], ranked[1], "less") < P_VALUE:
        return ["bold" if sample == ranked[0] else "" for sample in row]
    return nothing(row)


def _extreme(row: Sequence[Sample], choose: Callable[..., float], emphasis: Emphasis) -> list[Emphasis]:
    best = choose((sample.mean for sample in row if sample.n), default=None)
    return [emphasis if sample.mean == best else "" for sample in row]


highest: Rule = partial(_extreme, choose=max, emphasis="bold")
lowest: Rule = partial(_extreme, choose=min, emphasis="bold")
lowest_count: Rule = partial(_extreme, choose=min, emphasis="underline")
"""Underline the lowest count, the number of rows on which widths were compared."""
