"""The charts of the page as data: positions in the drawing, for the template to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lvd._typing import Bool, Float, NDArray
from lvd.intervals import widths
from lvd.metrics import CalibrationCurve
from lvd.metrics.strata import quantile_bins
from lvd.page.evaluation import Evaluated
from lvd.page.numbers import Digits
from lvd.tables.verdict import percent

WIDTH, HEIGHT = 480.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 66.0, 24.0, 12.0, 46.0
MOST_DOTS, ROWS_PER_BIN = 700, 20


@dataclass(frozen=True)
class Shape:
    """A mark: its element, CSS class and attributes, and a text that is shown when it is pointed at."""

    element: str
    css: str
    attributes: dict[str, str | float]
    tip: str = ""
    text: str = ""


@dataclass(frozen=True)
class Scale:
    """From values to positions along one axis of the drawing."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """The position, to a tenth of a unit; values outside lie on the border."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.stop - self.start), 1)


@dataclass(frozen=True)
class Chart:
    """A drawing with two axes; `label` is its text alternative."""

    label: str
    x_title: str
    y_title: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    shapes: tuple[Shape, ...]
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    bottom: float = HEIGHT - BOTTOM


def x_scale(low: float, high: float) -> Scale:
    """A horizontal axis from low to high."""
    return Scale(low, high, LEFT, WIDTH - RIGHT)


def y_scale(low: float, high: float) -> Scale:
    """A vertical axis from low, below, to high."""
    return Scale(low, high, HEIGHT - BOTTOM, TOP)


def nice_ticks(high: float, n_most: int = 6) -> list[float]:
    """Round numbers from 0 to at most `high`, at most `n_most` of them."""
    step = 10.0 ** math.floor(math.log10(high / n_most))
    step *= next(factor for factor in (1, 2, 5, 10) if high / (step * factor) < n_most)
    return [step * i for i in range(math.floor(high / step + 1e-9) + 1)]


def ticks(scale: Scale, values: Sequence[float], texts: Sequence[str]) -> tuple[tuple[float, str], ...]:
    """Positions of values with their texts."""
    return tuple((scale(value), text) for value, text in zip(values, texts, strict=True))


def polyline(css: str, x: Scale, y: Scale, xs: Float[NDArray, "k"], ys: Float[NDArray, "k"]) -> Shape:
    """A line through points."""
    return Shape("polyline", css, {"points": _point_list(x, y, xs, ys)})


def area(
    css: str,
    x: Scale,
    y: Scale,
    xs: Float[NDArray, "k"],
    ends: tuple[Float[NDArray, "k"], Float[NDArray, "k"]],
) -> Shape:
    """The area between two lines."""
    lower, upper = ends
    both = _point_list(x, y, np.concatenate([xs, xs[::-1]]), np.concatenate([upper, lower[::-1]]))
    return Shape("polygon", css, {"points": both})


def line(css: str, x1: float, y1: float, x2: float, y2: float) -> Shape:
    """A straight line between two positions."""
    return Shape("line", css, {"x1": x1, "y1": y1, "x2": x2, "y2": y2})


def _point_list(x: Scale, y: Scale, xs: Float[NDArray, "k"], ys: Float[NDArray, "k"]) -> str:
    return " ".join(f"{x(a):g},{y(b):g}" for a, b in zip(xs.tolist(), ys.tolist(), strict=True))


def calibration_chart(curves: Sequence[tuple[str, CalibrationCurve]], confidence_level: float) -> Chart:
    """Coverage against level; the first curve, that of the model, with its band."""
    x, y = x_scale(0.0, 1.0), y_scale(0.0, 1.0)
    name, main = curves[0]
    ends = np.array([0.0, 1.0])
    shapes = [
        area("band", x, y, main.levels, (main.lower, main.upper)),
        polyline("ideal", x, y, ends, ends),
        line("reference", x(confidence_level), y(0.0), x(confidence_level), y(1.0)),
    ]
    for number, (_, curve) in reversed(list(enumerate(curves))):
        shapes.append(polyline(f"curve s{number}", x, y, curve.levels, curve.coverage))
    for level, coverage, lower, upper in zip(main.levels, main.coverage, main.lower, main.upper, strict=True):
        tip = (
            f"{name} at level {percent(float(level))}: coverage {percent(float(coverage), 1)}, "
            f"band {percent(float(lower), 1)} to {percent(float(upper), 1)}"
        )
        shapes.append(Shape("circle", "dot s0", {"cx": x(level), "cy": y(coverage), "r": 3}, tip))
    fifths = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    texts = [percent(share) for share in fifths]
    gap = float(np.max(main.levels - main.coverage))
    return Chart(
        f"Coverage of {name} against the level, with its 95% band; on the diagonal they are equal. "
        + (
            f"The coverage is at most {percent(gap, 1)} below the level."
            if gap > 0
            else "It is never below it."
        ),
        "level",
        "coverage",
        ticks(x, fifths, texts),
        ticks(y, fifths, texts),
        tuple(shapes),
    )


def width_error_chart(evaluated: Evaluated, is_covered: Bool[NDArray, "n"], digits: Digits) -> Chart | None:
    """Absolute error against width: above the line from the origin, error = width / 2, the interval misses.

    The line through the middle is the median error of equally full bins of width, over all rows; dots are a
    random sample. None without a finite interval.
    """
    width, error = widths(evaluated.intervals), np.abs(evaluated.y - evaluated.y_pred)
    finite = np.flatnonzero(np.isfinite(width))
    if finite.size == 0:
        return None
    x_high, y_high = (
        _room(np.quantile(values[finite], 0.99), values[finite].max()) for values in (width, error)
    )
    x, y = x_scale(0.0, x_high), y_scale(0.0, y_high)
    shapes = [_half_width_line(x_high, y_high)]
    sample = np.random.default_rng(0).permutation(finite)[:MOST_DOTS]
    for row in sample[np.argsort(~is_covered[sample], kind="stable")].tolist():
        css = "dot covered" if is_covered[row] else "dot missed"
        tip = f"row {row + 1}: width {digits.text(width[row])}, error {digits.text(error[row])}"
        shapes.append(Shape("circle", css, {"cx": x(width[row]), "cy": y(error[row]), "r": 2.6}, tip))
    middle = _median_errors(width[finite], error[finite])
    if len(middle) > 1:
        shapes.append(polyline("curve s0", x, y, middle[:, 0], middle[:, 1]))
    x_values, y_values = nice_ticks(x_high), nice_ticks(y_high)
    return Chart(
        f"Absolute error against width of {len(sample):,} rows. The median error is "
        f"{digits.text(middle[0, 1])} among the narrowest intervals and {digits.text(middle[-1, 1])} among the "
        "widest finite ones.",
        "width",
        "absolute error",
        ticks(x, x_values, [f"{value:g}" for value in x_values]),
        ticks(y, y_values, [f"{value:g}" for value in y_values]),
        tuple(shapes),
    )


def finite_chart(
    levels: Float[NDArray, "l"], shares: Sequence[tuple[str, Float[NDArray, "l"]]], confidence_level: float
) -> Chart:
    """The share of intervals that say something, against the level; the first method is the model's own."""
    x, y = x_scale(0.0, 1.0), y_scale(0.0, 1.0)
    shapes = [line("reference", x(confidence_level), y(0.0), x(confidence_level), y(1.0))]
    for number, (_, share) in reversed(list(enumerate(shares))):
        shapes.append(polyline(f"curve s{number}", x, y, levels, share))
    name, own = shares[0]
    for level, share in zip(levels.tolist(), own.tolist(), strict=True):
        tip = f"{name} at level {percent(level)}: {percent(share, 1)} finite"
        shapes.append(Shape("circle", "dot s0", {"cx": x(level), "cy": y(share), "r": 3}, tip))
    half = levels[own >= 0.5]
    fifths = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    texts = [percent(share) for share in fifths]
    return Chart(
        f"Share of finite intervals of {name} against the level. "
        + (
            f"At least half of them are finite up to level {percent(float(half.max()))}."
            if half.size
            else "Fewer than half of them are finite at every level."
        ),
        "level",
        "finite intervals",
        ticks(x, fifths, texts),
        ticks(y, fifths, texts),
        tuple(shapes),
    )


def _room(usual: float, largest: float) -> float:
    """Where an axis ends: at the largest value, or, where a few are far out, where nearly all are."""
    high = float(largest if largest <= 1.5 * usual else usual)
    return 1.05 * high if high > 0.0 else 1.0


def _half_width_line(x_high: float, y_high: float) -> Shape:
    """The line error = width / 2 up to where it leaves the drawing."""
    x, y = x_scale(0.0, x_high), y_scale(0.0, y_high)
    end = min(x_high, 2.0 * y_high)
    return line("ideal", LEFT, y(0.0), x(end), y(end / 2.0))


def _median_errors(width: Float[NDArray, "n"], error: Float[NDArray, "n"]) -> Float[NDArray, "b 2"]:
    """Median width and median error of equally full bins of width, ten where there are the rows for it."""
    bins = quantile_bins(width, max(1, min(10, len(width) // ROWS_PER_BIN)))
    inside = [bins == number for number in range(bins.max() + 1)]
    return np.array([(np.median(width[rows]), np.median(error[rows])) for rows in inside])
