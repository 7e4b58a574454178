"""Figures of intervals: bands with covered and missed rows, width against error, and PIT histograms.

Drawn with matplotlib's objects alone: no display, no global state. The colours can be told apart by
colour-blind readers (Okabe and Ito), the marks and hatches without any colour. What is infinite is drawn
hatched, to the edge of the axes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from scipy.stats import binom

from lvd._files import atomic_path
from lvd._typing import Bool, Float, NDArray
from lvd.intervals import covered

DOTS_PER_INCH = 150
PANEL_INCHES = (4.7, 4.5)
MOST_COLUMNS = 4

_BLUE, _ORANGE, _BLACK = "#0072B2", "#D55E00", "#111111"
_BAND: dict[str, Any] = {"facecolor": "#B5D7EA", "linewidth": 0, "zorder": 1}
_INFINITE: dict[str, Any] = {
    "facecolor": "#F1F1F1",
    "edgecolor": "#A8A8A8",
    "hatch": "///",
    "linewidth": 0,
    "zorder": 0,
}
_COVERED: dict[str, Any] = {"marker": "o", "s": 16, "color": _BLACK, "linewidths": 0, "zorder": 4}
_MISSED: dict[str, Any] = {
    "marker": "X",
    "s": 62,
    "color": _ORANGE,
    "edgecolors": "white",
    "linewidths": 0.7,
    "zorder": 5,
}


@dataclass(frozen=True, eq=False)
class Band:
    """Predictions and intervals at positions `x`, ascending, and the rows by which they are judged."""

    x: Float[NDArray, "g"]
    y_pred: Float[NDArray, "g"]
    intervals: Float[NDArray, "g 2"]
    x_rows: Float[NDArray, "n"]
    y_rows: Float[NDArray, "n"]
    row_intervals: Float[NDArray, "n 2"]

    @property
    def covered(self) -> Bool[NDArray, "n"]:
        """Whether each row is."""
        return covered(self.y_rows, self.row_intervals)


def band_figure(bands: Mapping[str, Band], level: float, *, x_label: str = "x") -> Figure:
    """One panel per title, all on the same axes."""
    figure, all_axes = panels_of(len(bands), shared=True)
    values = np.concatenate([[*band.intervals.ravel(), *band.y_rows] for band in bands.values()])
    low, high = values[np.isfinite(values)].min(), values[np.isfinite(values)].max()
    pad = 0.07 * (high - low)
    for axes, (title, band) in zip(all_axes, bands.items(), strict=True):
        axes.set_title(title)
        axes.set_xlabel(x_label)
        axes.set_ylim(low - pad, high + pad)
        n_infinite = int((~np.isfinite(band.row_intervals)).any(axis=1).sum())
        infinite = f"infinite interval ({n_infinite})"
        draw_band(axes, band.x, band.intervals, label=f"{level:.0%} interval", infinite_label=infinite)
        axes.plot(band.x, band.y_pred, color=_BLUE, linewidth=1.6, label="prediction", zorder=3)
        draw_rows(axes, band.x_rows, band.y_rows, band.covered)
        _legend_below(axes)
    figure.supylabel("y", fontsize="medium")
    return figure


def draw_width_error(
    axes: Axes, errors: Float[NDArray, "n"], widths: Float[NDArray, "n"], split_radius: float
) -> None:
    """Absolute errors against widths: a row is missed when its error exceeds half the width of its interval.

    Split conformal has one radius for all rows.
    """
    finite = np.isfinite(widths)
    edge = 1.1 * max(float(widths[finite].max(initial=0.0)), 2.0 * split_radius)
    infinity, end = 1.06 * edge, 1.12 * edge
    axes.set_xlabel("width of the interval")
    axes.set_ylabel("absolute error")
    axes.set_xlim(0.0, end)
    axes.set_ylim(0.0, 1.08 * float(errors.max()))
    axes.fill_between([0.0, edge], [0.0, edge / 2.0], label="error within half the width", **_BAND)
    axes.axvspan(edge, end, label=f"infinite interval ({np.count_nonzero(~finite)})", **_INFINITE)
    axes.axhline(
        split_radius,
        color=_BLUE,
        linestyle="--",
        linewidth=1.4,
        label=f"split conformal misses all above ({np.count_nonzero(errors > split_radius)})",
        zorder=2,
    )
    draw_rows(axes, np.where(finite, widths, infinity), errors, errors <= widths / 2.0)
    ticks = [float(tick) for tick in axes.get_xticks() if 0.0 <= tick < 0.97 * edge]
    axes.set_xticks([*ticks, infinity], [*(f"{tick:g}" for tick in ticks), "∞"])
    _legend_below(axes)


def pit_figure(pit: Float[NDArray, "n"], *, n_bins: int = 10, title: str = "PIT histogram") -> Figure:
    """How often each part of the predictive distributions contained y, and the range of chance if they are right.

    The range holds 95% of the counts of a bin under uniform values. A peak in the middle means that the
    distributions are too wide, peaks at both ends that they are too narrow, a slope that they are off to one side.
    """
    figure, (axes,) = panels_of(1)
    counts, edges = np.histogram(pit, bins=n_bins, range=(0.0, 1.0))
    low, high = binom.interval(0.95, len(pit), 1.0 / n_bins)
    axes.set_title(title)
    axes.set_xlabel("probability integral transform")
    axes.set_ylabel(f"rows (of {len(pit)})")
    axes.set_xlim(0.0, 1.0)
    axes.axhspan(low, high, label="95% of bins where all is right", **_BAND)
    axes.stairs(counts, edges, color=_BLUE, linewidth=1.6, label="rows", zorder=3)
    axes.set_ylim(0.0, 1.15 * max(float(counts.max()), high))
    _legend_below(axes)
    return figure


def draw_band(
    axes: Axes, x: Float[NDArray, "g"], intervals: Float[NDArray, "g 2"], *, label: str, infinite_label: str
) -> None:
    """The band around each position, filled where it is finite and hatched, to the edge, where it is not."""
    finite = np.isfinite(intervals).all(axis=1)
    lower, upper = np.clip(intervals, *axes.get_ylim()).T
    middles = (x[1:] + x[:-1]) / 2.0
    edges = np.concatenate([[2.0 * x[0] - middles[0]], middles, [2.0 * x[-1] - middles[-1]]])
    axes.set_xlim(edges[0], edges[-1])
    for chosen, text, style in ((finite, label, _BAND), (~finite, infinite_label, _INFINITE)):
        axes.stairs(np.where(chosen, upper, np.nan), edges, baseline=lower, fill=True, label=text, **style)


def draw_rows(axes: Axes, x: Float[NDArray, "n"], y: Float[NDArray, "n"], inside: Bool[NDArray, "n"]) -> None:
    """Rows as dots where the interval holds y and as crosses where not, with their counts in the legend."""
    for chosen, name, style in ((inside, "covered", _COVERED), (~inside, "missed", _MISSED)):
        axes.scatter(x[chosen], y[chosen], label=f"{name} ({np.count_nonzero(chosen)})", **style)


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a PNG file, whole or not at all; the same figure gives the same bytes."""
    with atomic_path(path) as part:
        figure.savefig(part, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})


def panels_of(count: int, *, shared: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with that many panels, in rows as equal as can be of at most `MOST_COLUMNS`."""
    (width, height), rows = PANEL_INCHES, -(-count // MOST_COLUMNS)
    columns = -(-count // rows)
    figure = Figure(figsize=(columns * width, rows * height), layout=ConstrainedLayoutEngine(wspace=0.05))
    all_axes = list(figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared).ravel())
    for axes in all_axes[count:]:
        axes.remove()
    for axes in all_axes[:count]:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelbottom=True)
    return figure, all_axes[:count]


def _legend_below(axes: Axes) -> None:
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        ncols=2,
        frameon=False,
        fontsize="small",
        borderaxespad=0.0,
    )
