"""Figures of intervals: bands, and the rows they cover and miss.

Only matplotlib objects are used: no display, no global state. The colours suit colour-blind readers (Okabe and
Ito), and marks and hatches work without colour. Infinite parts are hatched up to the edge of the axes.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from lvd._files import atomic_path
from lvd._typing import Bool, Float, NDArray

DOTS_PER_INCH = 150
PANEL_INCHES = (4.7, 4.5)
MOST_COLUMNS = 4

BLUE, _ORANGE, _BLACK = "#0072B2", "#D55E00", "#111111"
BAND: dict[str, Any] = {"facecolor": "#B5D7EA", "linewidth": 0, "zorder": 1}
INFINITE: dict[str, Any] = {
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


def draw_band(
    axes: Axes, x: Float[NDArray, "g"], intervals: Float[NDArray, "g 2"], *, label: str, infinite_label: str
) -> None:
    """Draw the band at each position, filled if finite, and hatched to the edge if not."""
    finite = np.isfinite(intervals).all(axis=1)
    lower, upper = np.clip(intervals, *axes.get_ylim()).T
    middles = (x[1:] + x[:-1]) / 2.0
    edges = np.concatenate([[2.0 * x[0] - middles[0]], middles, [2.0 * x[-1] - middles[-1]]])
    axes.set_xlim(edges[0], edges[-1])
    for chosen, text, style in ((finite, label, BAND), (~finite, infinite_label, INFINITE)):
        axes.stairs(np.where(chosen, upper, np.nan), edges, baseline=lower, fill=True, label=text, **style)


def draw_rows(axes: Axes, x: Float[NDArray, "n"], y: Float[NDArray, "n"], inside: Bool[NDArray, "n"]) -> None:
    """Draw rows as dots if the interval contains y and as crosses if not, with their counts in the legend."""
    for chosen, name, style in ((inside, "covered", _COVERED), (~inside, "missed", _MISSED)):
        axes.scatter(x[chosen], y[chosen], label=f"{name} ({np.count_nonzero(chosen)})", **style)


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a PNG file atomically; the same figure gives the same bytes."""
    with atomic_path(path) as part:
        figure.savefig(part, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})


def panels_of(count: int, *, shared: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with this many panels, in balanced rows of at most `MOST_COLUMNS`."""
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
