"""The charts of the page as data: coordinates that the template draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import rankdata

from lvd._typing import Bool, Float, Int, NDArray
from lvd.intervals import covered, widths
from lvd.metrics import CalibrationCurve, PitHistogram
from lvd.metrics.strata import quantile_bins
from lvd.page.evaluation import Evaluated
from lvd.page.numbers import Digits
from lvd.tables.reports import percent

WIDTH, HEIGHT = 480.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 66.0, 24.0, 12.0, 46.0
MOST_DOTS, ROWS_PER_BIN, MOST_STEPS = 700, 20, 6
MOST_INTERVALS, MOST_ALONG = 100, 6


@dataclass(frozen=True)
class Shape:
    """A mark: its element, CSS class and attributes, and a tooltip."""

    element: str
    css: str
    attributes: dict[str, str | float]
    tip: str = ""


@dataclass(frozen=True)
class Axis:
    """Maps values to positions along one side of the drawing; `text` formats the values."""

    title: str
    low: float
    high: float
    start: float
    stop: float
    text: Callable[[float], str] = "{:g}".format

    def __call__(self, value: float) -> float:
        """The position, rounded to a tenth; values outside are drawn on the border."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.stop - self.start), 1)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Positions and labels of round numbers."""
        return [(self(value), self.text(value)) for value in nice_ticks(self.low, self.high)]


@dataclass(frozen=True)
class Chart:
    """A drawing with two axes; `label` is its text alternative."""

    label: str
    x: Axis
    y: Axis
    shapes: Sequence[Shape]
    width: float = WIDTH
    height: float = HEIGHT


def x_axis(title: str, low: float, high: float, text: Callable[[float], str] = "{:g}".format) -> Axis:
    """A horizontal axis from low to high."""
    return Axis(title, low, high, LEFT, WIDTH - RIGHT, text)


def y_axis(title: str, low: float, high: float, text: Callable[[float], str] = "{:g}".format) -> Axis:
    """A vertical axis from low at the bottom to high."""
    return Axis(title, low, high, HEIGHT - BOTTOM, TOP, text)


def nice_ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, at most six steps."""
    step = 10.0 ** math.floor(math.log10((high - low) / MOST_STEPS))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if (high - low) / (step * factor) < MOST_STEPS)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * number for number in range(first, last + 1)]


def axis_floor(lowers: Iterable[float]) -> float:
    """The largest multiple of 0.1 below all lower ends, so that bands are not crowded at one side."""
    return min(0.9, math.floor(10.0 * min(lowers)) / 10.0)


def polyline(css: str, x: Axis, y: Axis, xs: Float[NDArray, "k"], ys: Float[NDArray, "k"]) -> Shape:
    """A line through points."""
    places = " ".join(f"{x(a):g},{y(b):g}" for a, b in zip(xs.tolist(), ys.tolist(), strict=True))
    return Shape("polyline", css, {"points": places})


def band_area(
    x: Axis, y: Axis, xs: Float[NDArray, "k"], lower: Float[NDArray, "k"], upper: Float[NDArray, "k"]
) -> Shape:
    """The area between two lines, along the upper one and back along the lower one."""
    border = polyline("band", x, y, np.concatenate([xs, xs[::-1]]), np.concatenate([upper, lower[::-1]]))
    return replace(border, element="polygon")


def line(css: str, x1: float, y1: float, x2: float, y2: float) -> Shape:
    """A straight line between two positions."""
    return Shape("line", css, {"x1": x1, "y1": y1, "x2": x2, "y2": y2})


def outcome_dot(x: float, y: float, r: float, tip: str, *, hit: bool) -> Shape:
    """A dot for a row, covered or missed."""
    return Shape("circle", "dot covered" if hit else "dot missed", {"cx": x, "cy": y, "r": r}, tip)


def calibration_chart(curves: Sequence[tuple[str, CalibrationCurve]], confidence_level: float) -> Chart:
    """Coverage against level; the first curve, the model's, has a band."""
    name, main = curves[0]
    ends, gap = np.array([0.0, 1.0]), float(np.max(main.levels - main.coverage))
    said = (
        f"The coverage is at most {percent(gap, 1)} below the level." if gap > 0 else "It is never below it."
    )
    tips = [
        f"{name} at level {percent(level)}: coverage {percent(coverage, 1)}, "
        f"band {percent(lower, 1)} to {percent(upper, 1)}"
        for level, coverage, lower, upper in zip(
            *(values.tolist() for values in vars(main).values()), strict=True
        )
    ]
    label = f"Coverage of {name} against the level, with its 95% band; on the diagonal they are equal. {said}"
    coverages = [curve.coverage for _, curve in curves]
    chart = _against_level(
        label, "coverage", confidence_level, levels=main.levels, curves=coverages, tips=tips
    )
    band = band_area(chart.x, chart.y, main.levels, main.lower, main.upper)
    return replace(chart, shapes=[band, polyline("ideal", chart.x, chart.y, ends, ends), *chart.shapes])


def pit_chart(pit: PitHistogram) -> Chart:
    """A bar for each bin of probability integral transforms, and the band that holds most bars if they are
    uniform."""
    highest = 1.15 * max(pit.high, *pit.shares)
    x, y = (
        x_axis("share of the distribution below y", 0.0, 1.0),
        y_axis("share of rows", 0.0, highest, percent),
    )
    edges = np.linspace(0.0, 1.0, len(pit.shares) + 1).tolist()
    bars = []
    for left, right, share in zip(edges[:-1], edges[1:], pit.shares, strict=True):
        place: dict[str, str | float] = {
            "x": x(left) + 1.0,
            "y": y(share),
            "width": round(x(right) - x(left) - 2.0, 1),
            "height": round(y(0.0) - y(share), 1),
        }
        tip = f"{left:g} to {right:g}: {percent(share, 1)} of the rows"
        bars.append(Shape("rect", "share", place, tip))
    level, ends = 1.0 / len(pit.shares), np.array([0.0, 1.0])
    band = band_area(x, y, ends, np.array([pit.low, pit.low]), np.array([pit.high, pit.high]))
    label = (
        f"Histogram of probability integral transforms of {pit.n_rows:,} rows: the distributions {pit.finding}. "
        f"The largest of {len(pit.shares)} bins holds {percent(max(pit.shares), 1)}, the smallest "
        f"{percent(min(pit.shares), 1)}."
    )
    return Chart(label, x, y, [*bars, band, polyline("ideal", x, y, ends, np.array([level, level]))])


def interval_chart(
    evaluated: Evaluated, rows: Int[NDArray, "k"], positions: Float[NDArray, "k"], title: str, digits: Digits
) -> Chart:
    """A few rows' intervals as vertical lines at these positions, with the true values.

    The axis covers all true values and nearly all ends; what is infinite or beyond it is drawn at its border.
    """
    y, ends = evaluated.y[rows], evaluated.intervals[rows]
    is_covered = np.asarray(covered(y, ends))
    finite = np.asarray(np.isfinite(ends).all(axis=1))
    usual = np.quantile(ends[finite], [0.01, 0.99]) if finite.any() else y[[0, 0]]
    low, high = min(y.min(), usual[0]), max(y.max(), usual[1])
    room = 0.03 * (high - low) or 1.0
    across = x_axis(title, *_with_room(positions))
    up = y_axis(evaluated.target, float(low - room), float(high + room))
    shapes = []
    for place, (row, at) in enumerate(zip(rows.tolist(), positions.tolist(), strict=True)):
        (lower, upper), hit = ends[place].tolist(), bool(is_covered[place])
        css = "interval" if not finite[place] else "interval covered" if hit else "interval missed"
        shapes.append(line(css, across(at), up(lower), across(at), up(upper)))
        number, interval = evaluated.row_numbers[row], f"{digits.text(lower)} to {digits.text(upper)}"
        tip = f"row {number}: {digits.text(y[place])}, interval {interval}"
        shapes.append(outcome_dot(across(at), up(y[place]), 2.4, tip, hit=hit))
    label = (
        f"The intervals of {len(rows)} rows with their true values, {title}; {int(is_covered.sum())} of them hold "
        "the true value."
    )
    return Chart(label, across, up, shapes)


def sorted_intervals(evaluated: Evaluated, digits: Digits) -> Chart:
    """Intervals of random rows, sorted by prediction."""
    rows = np.random.default_rng(0).permutation(len(evaluated.y))[:MOST_INTERVALS]
    rows = rows[np.argsort(evaluated.y_pred[rows], kind="stable")]
    return interval_chart(
        evaluated, rows, np.arange(1.0, len(rows) + 1.0), "rows, sorted by prediction", digits
    )


def intervals_along(
    evaluated: Evaluated, columns: Mapping[str, Float[NDArray, "n"]], digits: Digits
) -> tuple[tuple[str, Chart], ...]:
    """Intervals along each numeric column, those most correlated with the width first."""
    width = rankdata(widths(evaluated.intervals))
    found = []
    for name, values in columns.items():
        known = np.flatnonzero(~np.isnan(values))
        if len(np.unique(values[known])) <= 2:
            continue
        slope = np.corrcoef(width[known], rankdata(values[known]))[0, 1] if np.ptp(width[known]) else 0.0
        rows = np.random.default_rng(0).permutation(known)[:MOST_INTERVALS]
        found.append((-abs(slope), name, rows))
    return tuple(
        (name, interval_chart(evaluated, rows, columns[name][rows], name, digits))
        for _, name, rows in sorted(found, key=lambda one: one[:2])[:MOST_ALONG]
    )


def _with_room(values: Float[NDArray, "k"]) -> tuple[float, float]:
    """The ends of an axis for these values, with a little room."""
    room = 0.02 * float(np.ptp(values)) or 1.0
    return float(values.min()) - room, float(values.max()) + room


def width_error_chart(evaluated: Evaluated, is_covered: Bool[NDArray, "n"], digits: Digits) -> Chart | None:
    """Absolute error against width: above the line from the origin, error = width / 2, the interval misses.

    The line through the middle is the median error in equal-sized bins of width, over all rows; dots are a random
    sample. None without a finite interval.
    """
    width, error = widths(evaluated.intervals), np.abs(evaluated.y - evaluated.y_pred)
    finite = np.flatnonzero(np.isfinite(width))
    if finite.size == 0:
        return None
    x_high, y_high = (
        _room(np.quantile(values[finite], 0.99), values[finite].max()) for values in (width, error)
    )
    x, y = x_axis("width", 0.0, x_high), y_axis("absolute error", 0.0, y_high)
    end = min(x_high, 2.0 * y_high)  # where the line leaves the plot
    shapes = [line("ideal", LEFT, y(0.0), x(end), y(end / 2.0))]
    sample = np.random.default_rng(0).permutation(finite)[:MOST_DOTS]
    for row in sample[np.argsort(~is_covered[sample], kind="stable")].tolist():
        number = evaluated.row_numbers[row]
        tip = f"row {number}: width {digits.text(width[row])}, error {digits.text(error[row])}"
        shapes.append(outcome_dot(x(width[row]), y(error[row]), 2.6, tip, hit=bool(is_covered[row])))
    middle = _median_errors(width[finite], error[finite])
    if len(middle) > 1:
        shapes.append(polyline("curve s0", x, y, middle[:, 0], middle[:, 1]))
    return Chart(
        f"Absolute error against width of {len(sample):,} rows. The median error is "
        f"{digits.text(middle[0, 1])} among the narrowest intervals and {digits.text(middle[-1, 1])} among the "
        "widest finite ones.",
        x,
        y,
        shapes,
    )


def finite_chart(
    levels: Float[NDArray, "l"], shares: Sequence[tuple[str, Float[NDArray, "l"]]], confidence_level: float
) -> Chart:
    """The share of finite intervals against the level; the first method is the model's own."""
    name, own = shares[0]
    tips = [
        f"{name} at level {percent(level)}: {percent(share, 1)} finite"
        for level, share in zip(levels.tolist(), own.tolist(), strict=True)
    ]
    half = levels[own >= 0.5]
    said = (
        f"At least half of them are finite up to level {percent(float(half.max()))}."
        if half.size
        else "Fewer than half of them are finite at every level."
    )
    label = f"Share of finite intervals of {name} against the level. {said}"
    curves = [share for _, share in shares]
    return _against_level(
        label, "finite intervals", confidence_level, levels=levels, curves=curves, tips=tips
    )


def _against_level(
    label: str,
    title: str,
    marked: float,
    *,
    levels: Float[NDArray, "l"],
    curves: Sequence[Float[NDArray, "l"]],
    tips: Sequence[str],
) -> Chart:
    """A line at the marked level, and the curves; the first one is on top, with a dot and a tooltip at each
    level."""
    x, y = x_axis("level", 0.0, 1.0, percent), y_axis(title, 0.0, 1.0, percent)
    numbered = reversed(list(enumerate(curves)))
    dots = zip(levels.tolist(), curves[0].tolist(), tips, strict=True)
    shapes = [
        line("reference", x(marked), y(0.0), x(marked), y(1.0)),
        *(polyline(f"curve s{number}", x, y, levels, curve) for number, curve in numbered),
        *(Shape("circle", "dot s0", {"cx": x(a), "cy": y(b), "r": 3}, tip) for a, b, tip in dots),
    ]
    return Chart(label, x, y, shapes)


def _room(usual: float, largest: float) -> float:
    """The end of an axis: the largest value or, with outliers, one that nearly all values are below."""
    high = float(largest if largest <= 1.5 * usual else usual)
    return 1.05 * high if high > 0.0 else 1.0


def _median_errors(width: Float[NDArray, "n"], error: Float[NDArray, "n"]) -> Float[NDArray, "b 2"]:
    """Median width and median error in equal-sized bins of width, ten if there are enough rows."""
    bins = quantile_bins(width, max(1, min(10, len(width) // ROWS_PER_BIN)))
    inside = [bins == number for number in range(bins.max() + 1)]
    return np.array([(np.median(width[rows]), np.median(error[rows])) for rows in inside])
