"""The charts of the page as data: positions in the drawing, for the template to draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
        """The position, to a tenth of a unit; values outside are drawn on the border."""
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


def nice_ticks(low: float, high: float, n_most: int = 6) -> list[float]:
    """Round numbers from low to high, at most `n_most` of them."""
    step = 10.0 ** math.floor(math.log10((high - low) / n_most))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if (high - low) / (step * factor) < n_most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * number for number in range(first, last + 1)]


def ticks(
    scale: Scale, values: Sequence[float], text: Callable[[float], str]
) -> tuple[tuple[float, str], ...]:
    """Positions of values with their texts."""
    return tuple((scale(value), text(value)) for value in values)


_UNIT = x_scale(0.0, 1.0), y_scale(0.0, 1.0)
_X_FIFTHS, _Y_FIFTHS = (ticks(scale, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], percent) for scale in _UNIT)


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
    shapes = [
        area("band", *_UNIT, main.levels, (main.lower, main.upper)),
        polyline("ideal", *_UNIT, ends, ends),
        *_against_level(confidence_level, main.levels, [curve.coverage for _, curve in curves], tips),
    ]
    label = f"Coverage of {name} against the level, with its 95% band; on the diagonal they are equal. {said}"
    return Chart(label, "level", "coverage", _X_FIFTHS, _Y_FIFTHS, tuple(shapes))


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
    end = min(x_high, 2.0 * y_high)  # where the line leaves the drawing
    shapes = [line("ideal", LEFT, y(0.0), x(end), y(end / 2.0))]
    sample = np.random.default_rng(0).permutation(finite)[:MOST_DOTS]
    for row in sample[np.argsort(~is_covered[sample], kind="stable")].tolist():
        css = "dot covered" if is_covered[row] else "dot missed"
        tip = f"row {row + 1}: width {digits.text(width[row])}, error {digits.text(error[row])}"
        shapes.append(Shape("circle", css, {"cx": x(width[row]), "cy": y(error[row]), "r": 2.6}, tip))
    middle = _median_errors(width[finite], error[finite])
    if len(middle) > 1:
        shapes.append(polyline("curve s0", x, y, middle[:, 0], middle[:, 1]))
    return Chart(
        f"Absolute error against width of {len(sample):,} rows. The median error is "
        f"{digits.text(middle[0, 1])} among the narrowest intervals and {digits.text(middle[-1, 1])} among the "
        "widest finite ones.",
        "width",
        "absolute error",
        ticks(x, nice_ticks(0.0, x_high), "{:g}".format),
        ticks(y, nice_ticks(0.0, y_high), "{:g}".format),
        tuple(shapes),
    )


def finite_chart(
    levels: Float[NDArray, "l"], shares: Sequence[tuple[str, Float[NDArray, "l"]]], confidence_level: float
) -> Chart:
    """The share of intervals that say something, against the level; the first method is the model's own."""
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
    shapes = _against_level(confidence_level, levels, [share for _, share in shares], tips)
    label = f"Share of finite intervals of {name} against the level. {said}"
    return Chart(label, "level", "finite intervals", _X_FIFTHS, _Y_FIFTHS, tuple(shapes))


def _against_level(
    marked: float, levels: Float[NDArray, "l"], curves: Sequence[Float[NDArray, "l"]], tips: Sequence[str]
) -> list[Shape]:
    """A line at the marked level, and the curves; the first one is on top, with a dot and a tip at each level."""
    x, y = _UNIT
    numbered = reversed(list(enumerate(curves)))
    dots = zip(levels.tolist(), curves[0].tolist(), tips, strict=True)
    return [
        line("reference", x(marked), y(0.0), x(marked), y(1.0)),
        *(polyline(f"curve s{number}", x, y, levels, curve) for number, curve in numbered),
        *(Shape("circle", "dot s0", {"cx": x(a), "cy": y(b), "r": 3}, tip) for a, b, tip in dots),
    ]


def _room(usual: float, largest: float) -> float:
    """Where an axis ends: at the largest value, or, where a few are far out, where nearly all are."""
    high = float(largest if largest <= 1.5 * usual else usual)
    return 1.05 * high if high > 0.0 else 1.0


def _median_errors(width: Float[NDArray, "n"], error: Float[NDArray, "n"]) -> Float[NDArray, "b 2"]:
    """Median width and median error of equally full bins of width, ten where there are the rows for it."""
    bins = quantile_bins(width, max(1, min(10, len(width) // ROWS_PER_BIN)))
    inside = [bins == number for number in range(bins.max() + 1)]
    return np.array([(np.median(width[rows]), np.median(error[rows])) for rows in inside])
