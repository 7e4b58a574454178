"""Tests on means over seeds, from mean, standard deviation and count alone; a count below 2 decides nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """Mean and standard deviation (ddof 1) of `n` figures; NaN where there are too few of them."""

    mean: float
    std: float
    n: int


def sample_of(values: list[float]) -> Sample:
    """Mean and standard deviation of the figures that are not NaN."""
    known = [value for value in values if not math.isnan(value)]
    n = len(known)
    if n == 0:
        return Sample(math.nan, math.nan, 0)
    mean = math.fsum(known) / n
    if n == 1 or min(known) == max(known):  # equal figures have no spread, not one of rounding
        return Sample(mean if n == 1 else known[0], math.nan if n == 1 else 0.0, n)
    return Sample(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (n - 1)), n)


def p_below(sample: Sample, target: float) -> float:
    """One-sided t-test: how easily a mean of `target` or more gives figures as low as these."""
    return 1.0 if sample.n < 2 else _p_low(sample.mean - target, *_scale([sample]))


def p_above(sample: Sample, target: float) -> float:
    """One-sided t-test: how easily a mean of `target` or less gives figures as high as these."""
    return 1.0 if sample.n < 2 else _p_low(target - sample.mean, *_scale([sample]))


def p_less(a: Sample, b: Sample) -> float:
    """One-sided Welch test: how easily `a` comes out this far below `b` when its mean is not lower."""
    return 1.0 if min(a.n, b.n) < 2 else _p_low(a.mean - b.mean, *_scale([a, b]))


def p_different(a: Sample, b: Sample) -> float:
    """Two-sided Welch test: how easily two samples of the same mean come out this far apart."""
    if min(a.n, b.n) < 2:
        return 1.0
    return min(1.0, 2.0 * _p_low(-abs(a.mean - b.mean), *_scale([a, b])))


def _scale(samples: list[Sample]) -> tuple[float, float]:
    """Standard error, and Welch-Satterthwaite degrees of freedom (n - 1 for one sample)."""
    variances = [sample.std**2 / sample.n for sample in samples]
    total = math.fsum(variances)
    if total == 0.0:
        return 0.0, 1.0
    parts = (
        (variance / total) ** 2 / (sample.n - 1) for variance, sample in zip(variances, samples, strict=True)
    )
    return math.sqrt(total), 1.0 / math.fsum(parts)


def _p_low(difference: float, error: float, degrees: float) -> float:
    """The probability of a difference this low or lower when the true one is 0."""
    from scipy.special import stdtr

    if not math.isfinite(error):  # infinite figures among finite ones: no mean to speak of
        return 1.0
    if error == 0.0:
        return 0.0 if difference < 0.0 else 1.0
    return float(stdtr(degrees, difference / error))
