"""The plot of the bench page: prediction time against calibration rows and against queries, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

from benchmarks.contestants import CONTESTANTS, OURS
from benchmarks.results import Cell, duration, select
from lvd.demo.figures import panels_of

# Okabe and Ito's colours, and markers that can be distinguished without colour.
_BLUE, _GREY = "#0072B2", "#555555"
STYLES: dict[str, dict[str, Any]] = {
    OURS: {"color": _BLUE, "marker": "o", "linewidth": 3.2, "markersize": 7, "zorder": 6},
    "lvd-local": {"color": "#56B4E9", "marker": "o", "markerfacecolor": "white", "zorder": 7},
    "rows": {"color": "#D55E00", "marker": "s"},
    "torch": {"color": "#E69F00", "marker": "^", "markersize": 6},
    "crepes": {"color": "#009E73", "marker": "D", "markersize": 4.5},
    "mapie": {"color": "#CC79A7", "marker": "v", "markersize": 6},
    "mapie-conditional": {"color": "#8B3A73", "marker": "X", "markersize": 6},
    "floor-exp": {"color": _GREY, "linestyle": "--", "linewidth": 1.5, "zorder": 2},
    "floor-copy": {"color": _GREY, "linestyle": ":", "linewidth": 1.5, "zorder": 2},
}


def growth_figure(cells: Sequence[Cell]) -> Figure:
    """One panel per sweep, one line per contestant; lvd thick, the floors dashed and grey."""
    sweeps = list(dict.fromkeys(cell.sweep for cell in cells))
    figure, panels = panels_of(len(sweeps))
    for axes, sweep in zip(panels, sweeps, strict=True):
        fixed = next(cell for cell in cells if cell.sweep == sweep)
        if sweep == "rows":
            axes.set(xlabel="calibration rows", title=f"{fixed.queries:,} queries, more and more rows")
        else:
            axes.set(xlabel="queries", title=f"{fixed.rows:,} rows, more and more queries")
        for name in CONTESTANTS:
            series = [cell for cell in select(cells, sweep, name) if cell.measured]
            axes.plot(
                [cell.size for cell in series],
                [cell.predict_seconds for cell in series],
                label=CONTESTANTS[name].title if series else None,
                **{"linewidth": 1.6, "markersize": 5, "zorder": 4} | STYLES[name],
            )
        _logarithmic(axes)
    panels[0].set_ylabel("time of one prediction of all queries")
    named = {
        text: line for axes in panels for line, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    titles = [contestant.title for contestant in CONTESTANTS.values() if contestant.title in named]
    figure.legend(
        [named[title] for title in titles], titles, loc="outside lower center", ncols=3, frameon=False
    )
    return figure


def _logarithmic(axes: Axes) -> None:
    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=12))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
