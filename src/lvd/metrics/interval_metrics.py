"""What intervals are worth: how often they hold y, how wide they are, and whether they are wide where errors are;
and the table of all this at all levels of a model.

Infinite ends are results; NaN, crossed ends and empty sets are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lvd._parallel import chunk_slices
from lvd._typing import ArrayLike, Bool, Float, Levels, NDArray
from lvd._validation import (
    InputError,
    check_fraction,
    check_positive,
    check_same_length,
    check_vector,
    to_numpy,
)
from lvd.intervals import (
    Bounds,
    Region,
    binomial_band,
    check_boxes,
    check_hits,
    check_intervals,
    check_level,
    check_levels_of,
    check_one_level,
    check_targets_and_intervals,
    covered,
    log_box_volume,
    widths,
)
from lvd.metrics.conditional import excess_risk_of_target_coverage
from lvd.metrics.distribution import pit_histogram


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """Coverage at each level, with exact 95% binomial bands; a vector of length L each."""

    levels: Float[NDArray, "l"]
    coverage: Float[NDArray, "l"]
    lower: Float[NDArray, "l"]
    upper: Float[NDArray, "l"]


def marginal_coverage_rate(y: ArrayLike, intervals: ArrayLike) -> float:
    """MCR: share of rows whose closed interval holds y.

    >>> marginal_coverage_rate([0, 1, 2, 3], [[0, 1], [0, 1], [0, 1], [-float("inf"), float("inf")]])
    0.75
    """
    return float(covered(*check_targets_and_intervals(y, intervals)).mean())


def joint_coverage_rate(y: ArrayLike, region: Region | ArrayLike) -> float:
    """Share of rows whose region holds all targets: y has shape (n, t).

    `region` is what ``predict_region`` gives, or intervals of shape (n, 2, t) that are to hold together.

    >>> intervals = [[[0, 0], [1, 1]]] * 4
    >>> joint_coverage_rate([[0.5, 0.5], [0.5, 2], [2, 0.5], [1, 1]], intervals)
    0.5
    """
    return float(check_hits(y, region).mean())


def tail_coverage_rate(y: ArrayLike, intervals: ArrayLike, *, tail: float = 0.1) -> float:
    """TCR: coverage of the floor(tail n) smallest and the n - floor((1 - tail) n) largest y.

    Ties at the border of a tail go to earlier rows.

    >>> y = list(range(10))
    >>> tail_coverage_rate(y, [[1, 20]] * 10)
    0.5
    """
    targets, array = check_targets_and_intervals(y, intervals)
    check_fraction(tail, "tail")
    n = len(targets)
    # Products such as 0.29 * 100 fall just short of a whole number.
    n_low, n_rest = math.floor(tail * n + 1e-9), math.floor((1.0 - tail) * n + 1e-9)
    order = np.argsort(targets, kind="stable")
    return float(covered(targets, array)[np.union1d(order[:n_low], order[n_rest:])].mean())


def calibration_curve(
    y: ArrayLike, intervals: ArrayLike, levels: Levels, *, n_distinct: int | None = None
) -> CalibrationCurve:
    """Coverage against level: `intervals` of shape (n, 2, L), one slice per level.

    If some rows are copies, the bands are those of `n_distinct` rows.

    >>> y, intervals = [0, 1, 2, 3], [[[0, 0], [1, 3]]] * 4
    >>> curve = calibration_curve(y, intervals, [0.5, 0.9])
    >>> curve.coverage.tolist()
    [0.5, 1.0]
    """
    targets, array = check_vector(y), check_intervals(intervals)
    check_same_length(y=targets, intervals=array)
    vector = check_levels_of(array, levels)
    n_covered = covered(targets, array).sum(axis=0)
    n = len(targets)
    distinct = np.full_like(n_covered, n if n_distinct is None else n_distinct)
    lower, upper = binomial_band(n_covered * distinct / n, distinct)
    return CalibrationCurve(vector, n_covered / len(targets), lower, upper)


def finite_rows(intervals: ArrayLike, *others: ArrayLike) -> Bool[NDArray, "n"]:
    """Which rows are finite in all given intervals, so that their widths can be compared.

    >>> split, local = [[0, 1], [0, 1]], [[0, 1], [-float("inf"), float("inf")]]
    >>> finite_rows(split, local).tolist()
    [True, False]
    """
    arrays = [check_intervals(one) for one in (intervals, *others)]
    check_same_length(**{f"intervals {number}": array for number, array in enumerate(arrays, start=1)})
    finite: NDArray = np.isfinite(np.concatenate(arrays, axis=2)).all(axis=(1, 2))
    return finite


def finite_fraction(intervals: ArrayLike) -> float:
    """Share of rows whose interval is finite.

    >>> finite_fraction([[0, 1], [0, 3], [2, 3], [-float("inf"), float("inf")]])
    0.75
    """
    return float(finite_rows(check_one_level(intervals)).mean())


def mean_finite_width(intervals: ArrayLike) -> float:
    """Mean width of the finite intervals, to be read beside `finite_fraction`; NaN when none is finite.

    >>> mean_finite_width([[0, 1], [0, 3], [-float("inf"), float("inf")]])
    2.0
    """
    array = check_one_level(intervals)
    width = widths(array)[finite_rows(array)]
    return float(width.mean(dtype=np.float64)) if width.size else math.nan


def winkler_score(
    y: ArrayLike,
    intervals: ArrayLike,
    confidence_level: float,
    *,
    where: ArrayLike | None = None,
    y_range: tuple[float, float] | None = None,
) -> float:
    """Mean Winkler score: (u - l) + (2 / alpha) ((l - y)+ + (y - u)+) with alpha = 1 - confidence_level.

    An infinite interval makes its score and the mean infinite. To compare methods on all rows, give a `y_range`
    to which intervals are clipped, so that an infinite one counts as that range; or pass as `where` the rows on
    which all methods are finite, and report `finite_fraction` with it. NaN if `where` selects no row.

    >>> intervals = [[0, 2], [0, 2], [-float("inf"), float("inf")]]
    >>> winkler_score([1, 3, 0], intervals, 0.5)
    inf
    >>> winkler_score([1, 3, 0], intervals, 0.5, where=finite_rows(intervals))
    4.0
    >>> winkler_score([1, 3, 0], intervals, 0.5, y_range=(-1, 6))
    5.0
    """
    scores = winkler_scores(y, intervals, confidence_level, y_range=y_range)
    if where is not None:
        scores = scores[_check_mask(where, len(scores))]
    return float(scores.mean()) if scores.size else math.nan


def winkler_scores(
    y: ArrayLike, intervals: ArrayLike, confidence_level: float, *, y_range: tuple[float, float] | None = None
) -> Float[NDArray, "n"]:
    """The Winkler score of each row; see :func:`winkler_score`."""
    targets, array = check_targets_and_intervals(y, intervals)
    penalty = 2.0 / (1.0 - check_level(confidence_level))
    if y_range is not None:
        array = np.clip(array, *_check_bounds(y_range))
    lower, upper = array[:, 0], array[:, 1]
    misses = np.maximum(lower - targets, 0.0) + np.maximum(targets - upper, 0.0)
    return widths(array) + penalty * misses


def mean_log_volume(region: Region | ArrayLike, *, y_range: Bounds | None = None) -> float:
    """Mean of the natural logarithms of the volumes; +inf where one of the regions is infinite.

    To include infinite regions, give a `y_range`, ``(lowest, highest)``, each a number or one per target, to
    which regions are clipped: an infinite one then counts as that box, and an ellipsoid as at most the box of its
    clipped projections.

    >>> intervals = [[[0, 0], [1, 1]], [[-float("inf"), 0], [float("inf"), 1]]]
    >>> mean_log_volume(intervals)
    inf
    >>> print(round(mean_log_volume(intervals, y_range=([-2, -2], [2, 2])), 3))
    0.693
    """
    bounds = None if y_range is None else _check_bounds(y_range)
    if isinstance(region, Region):
        return float((region if bounds is None else region.within(bounds)).log_volume().mean())
    boxes = check_boxes(region)
    return float(log_box_volume(boxes if bounds is None else np.clip(boxes, *bounds)).mean())


def widened_range(y: Float[NDArray, "n"]) -> tuple[float, float]:
    """The stand-in for an infinite interval: the range of these y, a tenth wider on each side."""
    margin = 0.1 * float(np.ptp(y))
    return float(y.min()) - margin, float(y.max()) + margin


def tied_widths(intervals: Float[NDArray, "n 2"]) -> Float[NDArray, "n"]:
    """Widths for ranking: those that differ only by the rounding of their ends become equal.

    The ends y_pred - r and y_pred + r are rounded, so a constant radius r gives widths that differ in their last
    digits, which must not affect a ranking. Infinite widths stay +inf.
    """
    width = widths(intervals).astype(np.float64)
    finite = np.isfinite(width)
    ends = np.where(finite[:, None], intervals, 0.0)
    noise = np.finfo(intervals.dtype).eps * np.abs(ends).sum(axis=1)
    order = np.argsort(width, kind="stable")
    width, noise = width[order], noise[order]
    steps = width[1:] > width[:-1] + noise[1:] + noise[:-1]
    starts = np.flatnonzero(np.concatenate([[True], steps]))
    tied = np.empty_like(width)
    tied[order] = np.repeat(width[starts], np.diff(starts, append=len(width)))
    return tied


def _check_mask(where: ArrayLike, n: int) -> Bool[NDArray, "n"]:
    mask = to_numpy(where)
    if mask.dtype != np.bool_ or mask.shape != (n,):
        raise InputError(
            f"where must be {n} booleans, one per row, got shape {mask.shape} of {mask.dtype}; "
            "use finite_rows(...) or a comparison"
        )
    return mask


def _check_bounds(y_range: Bounds) -> Bounds:
    low, high = (np.asarray(to_numpy(end), dtype=np.float64) for end in y_range)
    if low.ndim and high.ndim:
        check_same_length(lowest=low, highest=high)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise InputError(f"y_range must hold finite numbers, (lowest, highest), got {y_range!r}")
    return low, high


_BLOCK = 256  # rows of the n x n kernel matrix held at once


def mean_absolute_deviation(y: ArrayLike, y_pred: ArrayLike) -> float:
    """MAD: mean of |y - y_pred|.

    >>> mean_absolute_deviation([1, 2, 3], [1, 3, 5])
    1.0
    """
    return float(_absolute_errors(y, y_pred).mean())


def residual_auroc(y: ArrayLike, y_pred: ArrayLike, intervals: ArrayLike) -> float:
    """AUROC of the width as a detector of large errors, those above the median of |y - y_pred|.

    Infinite widths rank highest, as ties. NaN if no error is above the median (all errors equal), as there is
    nothing to detect.

    >>> intervals = [[-1, 1], [-1, 1], [-4, 4], [-float("inf"), float("inf")]]
    >>> residual_auroc([0, 0.5, 3, 9], [0, 0, 0, 0], intervals)
    1.0
    """
    from scipy.stats import rankdata

    errors, width = _errors_and_widths(y, y_pred, intervals)
    large = errors > np.median(errors)
    n_large, n_small = int(large.sum()), int((~large).sum())
    if n_large == 0:
        return math.nan
    # The Mann-Whitney statistic: pairs (large, small) in which the large error has the wider interval.
    won = rankdata(width)[large].sum() - n_large * (n_large + 1) / 2
    return float(won / (n_large * n_small))


def width_error_correlation(y: ArrayLike, y_pred: ArrayLike, intervals: ArrayLike) -> float:
    """Spearman's rank correlation between width and |y - y_pred|.

    Infinite widths rank highest, as ties. NaN if all widths or all errors are equal.

    >>> intervals = [[-1, 1], [-2, 2], [-4, 4], [-float("inf"), float("inf")]]
    >>> width_error_correlation([0, 0.5, 3, 9], [0, 0, 0, 0], intervals)
    1.0
    """
    from scipy.stats import rankdata

    errors, width = _errors_and_widths(y, y_pred, intervals)
    return _pearson(rankdata(errors), rankdata(width))


def width_coverage_correlation(y: ArrayLike, intervals: ArrayLike) -> float:
    """Pearson's correlation between width and "y is covered", over the rows with finite intervals.

    It is 0 if coverage holds at every x (Feldman et al. 2021). NaN if all widths are equal, or if all rows or
    none are covered.

    >>> round(width_coverage_correlation([0, 0, 0, 9], [[-1, 1], [-2, 2], [-1, 1], [-2, 2]]), 3)
    -0.577
    """
    targets, array = check_targets_and_intervals(y, intervals)
    finite = finite_rows(array)
    return _pearson(tied_widths(array)[finite], covered(targets, array)[finite].astype(np.float64))


def hsic(
    y: ArrayLike, intervals: ArrayLike, *, width_scale: float = 1.0, covered_scale: float = 1.0
) -> float:
    """Hilbert-Schmidt independence criterion tr(K H L H) / (n - 1)^2 between width and "y is covered".

    K and L are the Gaussian kernels exp(-d^2 / scale) of the widths and of the cover indicator, H = I - 1/n.
    Infinite widths are at distance 0 from each other and infinitely far from all others. The scale of the
    widths is in squared units of y. O(n^2) time, O(n) memory.

    >>> round(hsic([0, 0, 0, 9], [[-1, 1], [-2, 2], [-1, 1], [-2, 2]]), 4)
    0.0689
    """
    targets, array = check_targets_and_intervals(y, intervals)
    check_positive(width_scale, "width_scale")
    check_positive(covered_scale, "covered_scale")
    n = len(targets)
    if n < 2:
        raise InputError("hsic needs at least 2 rows, got 1; give more rows")
    hits = covered(targets, array).astype(np.float64)
    width = tied_widths(array)
    centred, finite = hits - hits.mean(), np.isfinite(width)
    form = _gaussian_form(width[finite], centred[finite], width_scale) + centred[~finite].sum() ** 2
    # The indicator has two values, so H L H is 2 (1 - exp(-1 / scale)) times the outer square of `centred`.
    return float(2.0 * -math.expm1(-1.0 / covered_scale) * form / (n - 1) ** 2)


def _gaussian_form(points: Float[NDArray, "n"], vector: Float[NDArray, "n"], scale: float) -> float:
    """The quadratic form v' K v with K_ij = exp(-(p_i - p_j)^2 / scale), a block of rows at a time."""
    form = 0.0
    for block in chunk_slices(len(points), _BLOCK):
        kernel = np.exp(-np.square(points[block, None] - points) / scale)
        form += float(vector[block] @ kernel @ vector)
    return form


def _absolute_errors(y: ArrayLike, y_pred: ArrayLike) -> Float[NDArray, "n"]:
    targets, predictions = check_vector(y), check_vector(y_pred, "y_pred")
    check_same_length(y=targets, y_pred=predictions)
    return np.abs(targets - predictions)


def _errors_and_widths(
    y: ArrayLike, y_pred: ArrayLike, intervals: ArrayLike
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
    _, array = check_targets_and_intervals(y, intervals)
    return _absolute_errors(y, y_pred), tied_widths(array)


def _pearson(a: Float[NDArray, "n"], b: Float[NDArray, "n"]) -> float:
    """Pearson's correlation; NaN if a side is constant."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])


_COLUMNS = {
    "target": ("target", "g"),
    "confidence_level": ("level", "g"),
    "marginal_coverage_rate": ("MCR", ".1%"),
    "tail_coverage_rate": ("TCR", ".1%"),
    "residual_auroc": ("AUROC", ".1%"),
    "mean_absolute_deviation": ("MAD", ".4g"),
    "mean_finite_width": ("width", ".4g"),
    "finite_fraction": ("finite", ".1%"),
    "excess_risk_of_target_coverage": ("ERT", ".3f"),
    "crps": ("CRPS", ".4g"),
    "pit_p_value": ("PIT p", ".2g"),
}
"""Headings and formats; the first column is for several targets, the last ones are optional."""


@dataclass(frozen=True)
class Summary:
    """One row of metrics per level and target: `rows` hold fractions by function name, and printing shows
    percentages."""

    rows: tuple[dict[str, float], ...]

    def cells(self) -> list[list[str]]:
        """The table as text: a line of headings, then one line per level."""
        columns = {name: _COLUMNS[name] for name in self.rows[0]}
        return [
            [heading for heading, _ in columns.values()],
            *([_text(row[name], spec) for name, (_, spec) in columns.items()] for row in self.rows),
        ]

    def __str__(self) -> str:
        cells = self.cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells
        )

    def to_pandas(self) -> Any:
        """The rows as a pandas data frame, as fractions."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))


def summary(
    y: ArrayLike,
    y_pred: ArrayLike,
    intervals: ArrayLike,
    levels: Levels,
    *,
    X: ArrayLike | None = None,
    distribution: Any = None,
) -> Summary:
    """The paper's metrics at every level; `intervals` has shape (n, 2, L), as from `predict_interval`.

    For several targets y and y_pred have shape (n, t) and intervals (n, 2, L, t). With the inputs `X` the table
    also shows the excess risk of the target coverage, :func:`excess_risk_of_target_coverage`; with the
    `distribution` of ``predict_distribution(X)``, the mean CRPS and the p-value of :func:`pit_histogram`, both
    over known rows. The width is the mean over finite intervals, and `-` marks an undefined figure.

    >>> intervals = [[[-1, -3], [1, 3]]] * 4
    >>> print(summary([0, 0.5, 2, 2.5], [0, 0, 0, 0], intervals, [0.5, 0.9]))
    level     MCR     TCR  AUROC   MAD  width  finite
      0.5   50.0%    0.0%  50.0%  1.25      2  100.0%
      0.9  100.0%  100.0%  50.0%  1.25      6  100.0%
    """
    truth, predicted, array = np.asarray(y), np.asarray(y_pred), np.asarray(intervals)
    if truth.ndim < 2:
        (whole,) = _of_distribution(distribution, truth)
        return Summary(tuple(row | whole for row in _rows(truth, predicted, array, levels, X)))
    if array.ndim != 4 or predicted.shape != truth.shape or array.shape[3] != truth.shape[1]:
        raise InputError(
            f"y of shape {truth.shape} needs y_pred of the same shape and intervals of shape (n, 2, levels, "
            f"{truth.shape[1]}), got {predicted.shape} and {array.shape}"
        )
    return Summary(
        tuple(
            {"target": target, **row, **whole}
            for target, whole in enumerate(_of_distribution(distribution, truth))
            for row in _rows(truth[:, target], predicted[:, target], array[..., target], levels, X)
        )
    )


def _rows(
    y: ArrayLike, y_pred: ArrayLike, intervals: ArrayLike, levels: Levels, X: ArrayLike | None
) -> list[dict[str, float]]:
    """The metrics of one target, level by level."""
    targets, predictions, array = check_vector(y), check_vector(y_pred, "y_pred"), check_intervals(intervals)
    check_same_length(y=targets, y_pred=predictions, intervals=array)
    rows = []
    for level, one in zip(check_levels_of(array, levels).tolist(), array.transpose(2, 0, 1), strict=True):
        row = {
            "confidence_level": level,
            "marginal_coverage_rate": marginal_coverage_rate(targets, one),
            "tail_coverage_rate": tail_coverage_rate(targets, one),
            "residual_auroc": residual_auroc(targets, predictions, one),
            "mean_absolute_deviation": mean_absolute_deviation(targets, predictions),
            "mean_finite_width": mean_finite_width(one),
            "finite_fraction": finite_fraction(one),
        }
        if X is not None:
            row["excess_risk_of_target_coverage"] = excess_risk_of_target_coverage(
                X, targets, one, level
            ).total
        rows.append(row)
    return rows


def _of_distribution(distribution: Any, y: Float[NDArray, "n *t"]) -> list[dict[str, float]]:
    """The figures of whole distributions for each target; empty without them."""
    n_targets = 1 if y.ndim == 1 else y.shape[1]
    if distribution is None:
        return [{}] * n_targets
    scores, pit = (
        to_numpy(ask(y)).reshape(len(y), n_targets) for ask in (distribution.crps, distribution.pit)
    )
    found = []
    for target in range(n_targets):
        known = ~np.isnan(scores[:, target])
        p_value = pit_histogram(pit[known, target]).p_value if known.any() else math.nan
        mean = float(scores[known, target].mean()) if known.any() else math.nan
        found.append({"crps": mean, "pit_p_value": p_value})
    return found


def _text(value: float, spec: str) -> str:
    return "-" if math.isnan(value) else format(value, spec)
