"""The three charts of the page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lvd._typing import Bool, Float, NDArray
from lvd.intervals import widths
from lvd.metrics import CalibrationCurve
from lvd.metrics.strata import quantile_bins
from lvd.page.axes import (
    LEFT,
    Chart,
    Shape,
    area,
    line,
    nice_ticks,
    polyline,
    ticks,
    x_scale,
    y_scale,
)
from lvd.page.evaluation import Evaluated
from lvd.page.numbers import Digits
from lvd.page.verdict import percent

MOST_DOTS, ROWS_PER_BIN = 700, 20


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
