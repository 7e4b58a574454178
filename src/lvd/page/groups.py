"""Groups of rows: values of a column, slabs of it or of all features, and how well the intervals do in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import bdtrc

from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError
from lvd.metrics import binomial_band, group_coverage, worst_slab_coverage
from lvd.metrics.strata import (
    GroupCoverage,
    count_distinct,
    holm,
    labelled_bins,
    quantile_bins,
    range_labels,
)
from lvd.page.evaluation import Evaluated
from lvd.tables.column_values import to_numbers, to_texts
from lvd.tables.dates import to_moments
from lvd.tables.reports import MAX_VALUES

MISSING, SIGNIFICANCE = "missing", 0.05
ROWS_PER_VALUE, ROWS_PER_SLAB, MOST_SLABS = 5, 40, 10
ROWS_PER_SCAFFOLD, MOST_DRAWN = 10, 12
NO_RING, RARE = "no ring", f"scaffolds of fewer than {ROWS_PER_SCAFFOLD} rows"
LEAST_ROWS, SEARCHED_ROWS, SEARCHED_SHARE, N_NAMED = 200, 2500, 0.25, 3


@dataclass(frozen=True, eq=False)
class Grouping:
    """A column's groups, and each row's group."""

    column: str
    labels: tuple[str, ...]
    codes: Int[NDArray, "n"]


@dataclass(frozen=True)
class Group(GroupCoverage):
    """One group of rows of a column: also the number of distinct rows, and the share of infinite intervals with
    its exact 95% band."""

    column: str
    label: str
    n_distinct: int
    infinite: float
    infinite_lower: float
    infinite_upper: float
    picture: str | None = None


def feature_slabs(column: str, values: pa.ChunkedArray) -> Grouping:
    """The rows grouped by value, or by slabs of it, few enough that each has enough rows to judge."""
    n_bins = max(2, min(MOST_SLABS, len(values) // ROWS_PER_SLAB))
    most_values = min(MAX_VALUES, len(values) // ROWS_PER_VALUE)
    return group_rows(column, values, n_bins=n_bins, most_values=most_values)


def group_rows(
    column: str, values: pa.ChunkedArray, *, n_bins: int, most_values: int = MAX_VALUES
) -> Grouping:
    """The rows grouped by value; a numeric column with more than `most_values` distinct values is cut into slabs
    of equal size.

    Missing values are a group of their own.
    """
    numbers = column_numbers(values)
    moments = _as_moments(values) if numbers is None else None
    if moments is not None:
        return _slabs_of_moments(column, moments, n_bins)
    if numbers is None:
        texts = pc.dictionary_encode(to_texts(values)).combine_chunks()
        labels = [text or MISSING for text in texts.dictionary.to_pylist()]
        return Grouping(column, tuple(labels), texts.indices.to_numpy().astype(np.int64))
    known = ~np.isnan(numbers)
    labels, codes = [], np.zeros(len(numbers), dtype=np.int64)
    if known.any():
        distinct, places = np.unique(numbers[known], return_inverse=True)
        if len(distinct) <= most_values:
            labels, codes[known] = range_labels(distinct[:, None]), places
        else:
            labels, codes[known] = labelled_bins(numbers[known], n_bins)
    if not known.all():
        codes[~known] = len(labels)
        labels.append(MISSING)
    return Grouping(column, tuple(labels), codes)


def _as_moments(values: pa.ChunkedArray) -> Float[NDArray, "n"] | None:
    """Dates and times with many distinct values as numbers, missing ones as NaN; None for anything else."""
    texts = to_texts(values)
    if len(texts.unique()) <= MAX_VALUES:
        return None
    try:
        return to_moments(texts)
    except InputError:
        return None


def _slabs_of_moments(column: str, moments: Float[NDArray, "n"], n_bins: int) -> Grouping:
    """Slabs of equal size, named by their first and last day; missing values are a group of their own."""
    known = ~np.isnan(moments)
    codes = np.full(len(moments), -1)
    codes[known] = quantile_bins(moments[known], n_bins)
    days = moments[known].astype("datetime64[s]").astype("datetime64[D]")
    inside = [days[codes[known] == code] for code in range(codes.max() + 1)]
    labels = [f"{one.min()} to {one.max()}" for one in inside] + [MISSING] * int(not known.all())
    codes[~known] = len(inside)
    return Grouping(column, tuple(labels), codes)


def group_scaffolds(scaffolds: NDArray) -> Grouping:
    """Rows grouped by Bemis-Murcko scaffold; scaffolds with few rows form one group."""
    names, places, counts = np.unique(scaffolds, return_inverse=True, return_counts=True)
    common = np.flatnonzero(counts >= ROWS_PER_SCAFFOLD)
    codes = np.full(len(names), len(common))
    codes[common] = np.arange(len(common))
    labels = [names[place] or NO_RING for place in common]
    if len(common) < len(names):
        labels.append(RARE)
    return Grouping("Bemis-Murcko scaffold", tuple(labels), codes[places])


def draw_worst(groups: Sequence[Group], draw: Callable[[str], str | None]) -> list[Group]:
    """The groups of scaffolds; those with the lowest coverage are drawn."""
    named = [group for group in worst_first(groups) if group.label not in (NO_RING, RARE)]
    drawn = {group.label: draw(group.label) for group in named[:MOST_DRAWN]}
    return [replace(group, picture=drawn.get(group.label)) for group in groups]


def measure_groups(grouping: Grouping, rows: Evaluated) -> list[Group]:
    """The groups of one column; `below_level` is Holm-corrected for their number."""
    strata = group_coverage(
        rows.y, rows.intervals, grouping.codes, rows.confidence_level, row_ids=rows.row_ids
    )
    counts, distinct = np.bincount(grouping.codes), count_distinct(grouping.codes, rows.row_ids)
    infinite = np.bincount(grouping.codes, weights=rows.unlimited)
    lower, upper = binomial_band(infinite * distinct / counts, distinct)
    columns = (distinct, infinite / counts, lower, upper)
    figures = zip(strata, grouping.labels, *(values.tolist() for values in columns), strict=True)
    return [
        Group(
            **vars(one),
            column=grouping.column,
            label=label,
            n_distinct=different,
            infinite=share,
            infinite_lower=low,
            infinite_upper=high,
        )
        for one, label, different, share, low, high in figures
    ]


def judged_together(groups: Sequence[Group]) -> list[Group]:
    """The groups of several columns with `below_level` Holm-corrected for all of them."""
    flags = holm(np.array([group.p_value for group in groups]), SIGNIFICANCE).tolist()
    return [replace(group, below_level=flag) for group, flag in zip(groups, flags, strict=True)]


def worst_first(groups: Sequence[Group]) -> list[Group]:
    """Sorted by coverage, ties by p-value."""
    return sorted(groups, key=lambda group: (group.coverage, group.p_value))


def most_infinite_first(groups: Sequence[Group], share: float) -> list[Group]:
    """Groups with more infinite intervals than the overall `share` explains, the highest share first.

    By the exact binomial test, Holm-corrected for the number of groups.
    """
    counts = np.array([group.n_distinct for group in groups])
    infinite = np.array([round(group.infinite * group.n_distinct) for group in groups])
    flags = holm(bdtrc(infinite - 1, counts, share), SIGNIFICANCE).tolist()
    found = [group for group, flag in zip(groups, flags, strict=True) if flag]
    return sorted(found, key=lambda group: (-group.infinite, -group.count))


@dataclass(frozen=True)
class JointSlab:
    """Coverage between two parallel planes, found on some rows and judged on `count` others, with its exact band.

    `along` names the features that determine the direction most, with their shares of it.
    """

    coverage: float
    lower: float
    upper: float
    count: int
    n_searched: int
    along: tuple[tuple[str, float], ...]


def joint_slab(
    X: Float[NDArray, "n p"],
    feature_names: Sequence[str],
    y: Float[NDArray, "n"],
    intervals: Float[NDArray, "n 2"],
) -> JointSlab | None:
    """The worst slab with a tenth of the rows, over directions in the standardised features.

    The search uses a quarter of the rows, at most 2,500, and the others judge. None if there are too few rows for
    both, if no judging row is in the slab, or if fewer than two features vary.
    """
    spread = X.std(axis=0)
    varies = np.flatnonzero(spread > 0)
    if len(X) < LEAST_ROWS or len(varies) < 2:
        return None
    standardised = (X[:, varies] - X[:, varies].mean(axis=0)) / spread[varies]
    share = min(SEARCHED_SHARE, SEARCHED_ROWS / len(X))
    slab = worst_slab_coverage(standardised, y, intervals, search_fraction=share, random_state=0)
    if slab.count == 0:
        return None
    lower, upper = binomial_band(round(slab.coverage * slab.count), slab.count)
    largest = np.argsort(-np.abs(slab.direction), kind="stable")[:N_NAMED]
    along = tuple((feature_names[varies[i]], float(slab.direction[i])) for i in largest)
    return JointSlab(slab.coverage, float(lower), float(upper), slab.count, round(share * len(X)), along)


def column_numbers(values: pa.ChunkedArray) -> Float[NDArray, "n"] | None:
    """The column as numbers, missing ones as NaN, if it is numeric; true and false count as words."""
    if pa.types.is_boolean(values.type):
        return None
    try:
        numbers = to_numbers(values)
    except InputError:
        return None
    return None if np.isnan(numbers).all() else numbers
