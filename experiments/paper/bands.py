"""The paper's bands of intervals along one input, and widths against errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lvd._typing import Bool, Float, NDArray
from lvd.demo.figures import BAND, BLUE, INFINITE, draw_band, draw_rows, panels_of
from lvd.intervals import covered


@dataclass(frozen=True, eq=False)
class Band:
    """Predictions and intervals at ascending positions `x`, and the test rows."""

    x: Float[NDArray, "g"]
    y_pred: Float[NDArray, "g"]
    intervals: Float[NDArray, "g 2"]
    x_rows: Float[NDArray, "n"]
    y_rows: Float[NDArray, "n"]
    row_intervals: Float[NDArray, "n 2"]

    @property
    def covered(self) -> Bool[NDArray, "n"]:
        """Whether each row is covered."""
        return covered(self.y_rows, self.row_intervals)


def band_figure(bands: Mapping[str, Band], level: float, *, x_label: str = "x") -> Figure:
    """One panel per title, all with the same axes."""
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
        axes.plot(band.x, band.y_pred, color=BLUE, linewidth=1.6, label="prediction", zorder=3)
        draw_rows(axes, band.x_rows, band.y_rows, band.covered)
        _legend_below(axes)
    figure.supylabel("y", fontsize="medium")
    return figure


def draw_width_error(
    axes: Axes, errors: Float[NDArray, "n"], widths: Float[NDArray, "n"], split_radius: float
) -> None:
    """Absolute errors against widths: a row is missed if its error exceeds half the width of its interval.

    Split conformal has one radius for all rows.
    """
    finite = np.isfinite(widths)
    edge = 1.1 * max(float(widths[finite].max(initial=0.0)), 2.0 * split_radius)
    infinity, end = 1.06 * edge, 1.12 * edge
    axes.set_xlabel("width of the interval")
    axes.set_ylabel("absolute error")
    axes.set_xlim(0.0, end)
    axes.set_ylim(0.0, 1.08 * float(errors.max()))
    axes.fill_between([0.0, edge], [0.0, edge / 2.0], label="error within half the width", **BAND)
    axes.axvspan(edge, end, label=f"infinite interval ({np.count_nonzero(~finite)})", **INFINITE)
    axes.axhline(
        split_radius,
        color=BLUE,
        linestyle="--",
        linewidth=1.4,
        label=f"split conformal misses all above ({np.count_nonzero(errors > split_radius)})",
        zorder=2,
    )
    draw_rows(axes, np.where(finite, widths, infinity), errors, errors <= widths / 2.0)
    ticks = [float(tick) for tick in axes.get_xticks() if 0.0 <= tick < 0.97 * edge]
    axes.set_xticks([*ticks, infinity], [*(f"{tick:g}" for tick in ticks), "∞"])
    _legend_below(axes)


def _legend_below(axes: Axes) -> None:
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        ncols=2,
        frameon=False,
        fontsize="small",
        borderaxespad=0.0,
    )
