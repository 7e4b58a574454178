"""Coverage by groups, by bins of a feature and by bins of width, with exact binomial bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr

from lvd._typing import ArrayLike, Bool, Float, Int, Labels, NDArray
from lvd._validation import (
    InputError,
    check_fraction,
    check_positive,
    check_same_length,
    check_vector,
    to_numpy,
)
from lvd.intervals import binomial_band, check_level, check_targets_and_intervals, covered
from lvd.metrics.interval_metrics import tied_widths


@dataclass(frozen=True)
class GroupCoverage:
    """Coverage of one group of rows.

    `lower` and `upper` are the exact binomial band of `coverage`. `p_value` is the probability of at most this
    many covered rows if each is covered with probability `confidence_level`; `below_level` tells whether it is
    too small to be chance, Holm-corrected for the number of groups.
    """

    group: str | int | float
    count: int
    coverage: float
    lower: float
    upper: float
    p_value: float
    below_level: bool


def group_coverage(
    y: ArrayLike,
    intervals: ArrayLike,
    groups: ArrayLike,
    confidence_level: float,
    *,
    significance: float = 0.05,
    row_ids: Labels = None,
) -> tuple[GroupCoverage, ...]:
    """Coverage of each group of rows, in the order of the sorted group names.

    Each band holds at 1 - `significance`. If every group is covered at the level, the chance that any is flagged
    is at most `significance`. Rows with the same entry of `row_ids` are copies of one row: coverage is over all
    of them, bands and tests count them once.

    >>> y, intervals = [0] * 40, [[-1, 1]] * 30 + [[1, 2]] * 10
    >>> for row in group_coverage(y, intervals, ["a"] * 20 + ["b"] * 20, confidence_level=0.9):
    ...     print(f"{row.group} {row.coverage:.2f} [{row.lower:.2f}, {row.upper:.2f}] {row.below_level}")
    a 1.00 [0.83, 1.00] False
    b 0.50 [0.27, 0.73] True
    """
    targets, array = check_targets_and_intervals(y, intervals)
    names = to_numpy(groups)
    if names.ndim != 1:
        raise InputError(f"groups must be 1-d, one name per row, got shape {names.shape}; pass one column")
    check_same_length(y=targets, groups=names)
    numeric = names.dtype.kind in "biuf"
    labels, codes = np.unique(names if numeric else names.astype(str), return_inverse=True)
    return _coverage_of(
        *(labels.tolist(), codes, covered(targets, array), confidence_level),
        significance=significance,
        row_ids=row_ids,
    )


def feature_stratified_coverage(
    y: ArrayLike,
    intervals: ArrayLike,
    feature: ArrayLike,
    confidence_level: float,
    *,
    n_bins: int = 10,
    significance: float = 0.05,
    row_ids: Labels = None,
) -> tuple[GroupCoverage, ...]:
    """Coverage in at most `n_bins` bins of one numeric feature, of equal size as far as ties allow.

    `row_ids` are those of :func:`group_coverage`.

    >>> rows = feature_stratified_coverage([0, 0, 9, 0], [[-1, 1]] * 4, [1, 2, 3, 4], 0.5, n_bins=2)
    >>> [(row.group, row.coverage) for row in rows]
    [('1 to 2', 1.0), ('3 to 4', 0.5)]
    """
    targets, array = check_targets_and_intervals(y, intervals)
    values = check_vector(feature, "feature")
    check_same_length(y=targets, feature=values)
    labels, codes = labelled_bins(values, n_bins)
    return _coverage_of(
        labels, codes, covered(targets, array), confidence_level, significance=significance, row_ids=row_ids
    )


def size_stratified_coverage(
    y: ArrayLike,
    intervals: ArrayLike,
    confidence_level: float,
    *,
    n_bins: int = 3,
    significance: float = 0.05,
    row_ids: Labels = None,
) -> tuple[GroupCoverage, ...]:
    """Coverage in at most `n_bins` bins of finite width, narrowest first; infinite widths are a last bin.

    `row_ids` are those of :func:`group_coverage`.

    >>> intervals = [[-1, 1], [-1, 1], [-2, 2], [-2, 2], [-float("inf"), float("inf")]]
    >>> rows = size_stratified_coverage([0, 3, 0, 0, 0], intervals, 0.5, n_bins=2)
    >>> [(row.group, row.coverage) for row in rows]
    [('2', 0.5), ('4', 1.0), ('infinite', 1.0)]
    """
    targets, array = check_targets_and_intervals(y, intervals)
    width = tied_widths(array)
    finite = np.isfinite(width)
    labels: list[str] = []
    codes = np.zeros(len(width), dtype=np.int64)
    if finite.any():
        labels, codes[finite] = labelled_bins(width[finite], n_bins)
    if not finite.all():
        codes[~finite] = len(labels)
        labels.append("infinite")
    return _coverage_of(
        labels, codes, covered(targets, array), confidence_level, significance=significance, row_ids=row_ids
    )


def coverage_gap(strata: Sequence[GroupCoverage], confidence_level: float) -> float:
    """Mean over groups, each counted once, of |coverage - confidence_level|.

    >>> strata = group_coverage([0, 0, 0, 9], [[-1, 1]] * 4, ["a", "a", "b", "b"], confidence_level=0.75)
    >>> coverage_gap(strata, 0.75)
    0.25
    """
    level = check_level(confidence_level)
    return float(np.mean([abs(stratum.coverage - level) for stratum in strata]))


def quantile_bins(values: Float[NDArray, "n"], n_bins: int) -> Int[NDArray, "n"]:
    """Bin numbers 0, 1, ... after cutting sorted `values` into equal parts.

    Each cut moves to the nearest gap between two different values, so equal values stay together and there may be
    fewer bins than requested. Without ties the parts are those of `numpy.array_split`.
    """
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    gaps = np.cumsum(counts)[:-1]  # how many rows are below each gap
    parts = np.arange(1, n_bins)
    size, larger = divmod(len(values), n_bins)
    wanted = parts * size + np.minimum(parts, larger)
    if gaps.size == 0:
        return np.zeros(len(values), dtype=np.int64)
    right = np.searchsorted(gaps, wanted).clip(max=gaps.size - 1)
    left = (right - 1).clip(min=0)
    cuts = np.unique(np.where(wanted - gaps[left] < gaps[right] - wanted, left, right))
    return np.searchsorted(cuts, position)


def holm(p_values: Float[NDArray, "g"], significance: float) -> Bool[NDArray, "g"]:
    """Which hypotheses Holm's step-down procedure rejects at family-wise level `significance`."""
    order = np.argsort(p_values, kind="stable")
    passes = p_values[order] <= significance / np.arange(len(p_values), 0, -1)
    rejected = np.empty(len(p_values), dtype=bool)
    rejected[order] = np.logical_and.accumulate(passes)
    return rejected


def range_labels(ends: Float[NDArray, "g e"]) -> list[str]:
    """``1 to 2``, or ``1`` if both ends are equal, with enough digits to tell different ends apart."""
    different = np.unique(ends).tolist()
    digits = next(d for d in range(4, 18) if len({f"{end:.{d}g}" for end in different}) == len(different))
    return [" to ".join(f"{end:.{digits}g}" for end in dict.fromkeys(pair)) for pair in ends.tolist()]


def labelled_bins(values: Float[NDArray, "n"], n_bins: int) -> tuple[list[str], Int[NDArray, "n"]]:
    """A label for each of :func:`quantile_bins`, from its smallest and largest value, and each row's bin."""
    check_positive(n_bins, "n_bins", integer=True)
    codes = quantile_bins(values, n_bins)
    inside = [values[codes == code] for code in range(codes.max() + 1)]
    return range_labels(np.array([(one.min(), one.max()) for one in inside])), codes


def count_distinct(codes: Int[NDArray, "n"], row_ids: Labels) -> Int[NDArray, "g"]:
    """How many different rows have each code; without ids all rows differ."""
    if row_ids is None:
        return np.bincount(codes)
    ids = to_numpy(row_ids)
    check_same_length(y=codes, row_ids=ids)
    _, places = np.unique(ids, return_inverse=True)
    return np.bincount(np.unique(np.column_stack([codes, places]), axis=0)[:, 0], minlength=codes.max() + 1)


def _coverage_of(
    labels: Sequence[str | int | float],
    codes: Int[NDArray, "n"],
    is_covered: Bool[NDArray, "n"],
    confidence_level: float,
    *,
    significance: float,
    row_ids: Labels,
) -> tuple[GroupCoverage, ...]:
    level = check_level(confidence_level)
    check_fraction(significance, "significance")
    counts = np.bincount(codes)
    hits = np.bincount(codes, weights=is_covered)
    distinct = count_distinct(codes, row_ids)
    evidence = hits * distinct / counts
    lower, upper = binomial_band(evidence, distinct, significance=significance)
    p_values = bdtr(np.ceil(evidence), distinct, level)
    columns = (counts, hits / counts, lower, upper, p_values, holm(p_values, significance))
    rows = zip(labels, *(column.tolist() for column in columns), strict=True)
    return tuple(GroupCoverage(*row) for row in rows)
