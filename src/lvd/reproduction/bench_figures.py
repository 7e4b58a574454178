"""The paper's figures: drawn from results, or from methods trained on the synthetic data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from lvd._parallel import workers
from lvd._validation import InputError
from lvd.intervals import widths
from lvd.methods import (
    DiscriminativeJackknifeRegressor,
    IntervalRegressor,
    JackknifePlusRegressor,
    SplitConformalRegressor,
)
from lvd.reproduction.bands import LEVEL, illustration, synthetic_band
from lvd.reproduction.collect import Measured, collect, compact_tables, read_results
from lvd.reproduction.figures import WidthErrorPanel, band_figure, panels_of, save_figure, width_error_figure
from lvd.reproduction.layout import dataset_order, dataset_title, method_title
from lvd.reproduction.method_grids import FEATURED
from lvd.reproduction.paper_methods import MAIN_VARIANT, REGRESSORS
from lvd.reproduction.result_store import Result, read_all
from lvd.reproduction.result_tables import only_protocol
from lvd.reproduction.runs import grouped
from lvd.reproduction.significance import sample_of

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#767676", "#111111")
_STYLES = dict(zip(FEATURED, zip(_COLOURS, "os^vDPX*", strict=True), strict=True))
"""Colours that colour-blind readers can tell apart (Okabe and Ito), and marks that need no colour."""


def coverage_level_figure(rows: Sequence[Measured]) -> Figure:
    """One panel per dataset: mean coverage over the seeds, with its standard deviation, at every level."""
    known = [row for row in rows if not row.error and row.method in FEATURED]
    coverage = grouped(known, lambda row: (dataset_title(row.dataset), row.method, row.confidence_level))
    shown = [method for method in FEATURED if any(row.method == method for row in known)]
    names = sorted({name for name, _, _ in coverage}, key=dataset_order)
    figure, all_axes = panels_of(len(names), shared=True)
    for axes, name in zip(all_axes, names, strict=True):
        axes.axline((50, 50), slope=1, color="#A8A8A8", linestyle="--", linewidth=1.0, label="level")
        for method in shown:
            colour, mark = _STYLES[method]
            levels = sorted(level for dataset, one, level in coverage if (dataset, one) == (name, method))
            samples = [sample_of([row.MCR for row in coverage[name, method, level]]) for level in levels]
            axes.errorbar(
                [100 * level for level in levels],
                [sample.mean for sample in samples],
                yerr=[0.0 if sample.n < 2 else sample.std for sample in samples],
                color=colour,
                marker=mark,
                markersize=5,
                linewidth=1.0,
                elinewidth=0.8,
                label=method_title(method, "features"),
            )
        axes.set_title(name)
        axes.set_xlabel("level (%)")
        axes.set_ylabel("covered test rows (%)")
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


_RED = "#C00000"


def synthetic() -> Figure:
    """All methods of the paper's comparison on the synthetic data; trained here, on no results."""
    return _synthetic_panels({method_title(method, "synthetic"): REGRESSORS[method] for method in FEATURED})


def jackknife() -> Figure:
    """Discriminative Jackknife, Jackknife+ and split conformal on the synthetic data; trained here."""
    return _synthetic_panels(
        {
            "Discriminative Jackknife": DiscriminativeJackknifeRegressor,
            "Jackknife+": JackknifePlusRegressor,
            "Split conformal": SplitConformalRegressor,
        }
    )


def three_bands() -> Figure:
    """The introduction's illustration: marginally valid, discriminative but not valid, locally valid."""
    bands, cluster = illustration()
    titled = {
        f"{title}: {band.covered.mean():.0%} covered,\n{band.covered[cluster].mean():.0%} of the cluster": band
        for title, band in bands.items()
    }
    figure = band_figure(titled, LEVEL, x_label="x (rings: a badly predicted cluster)")
    for axes, band in zip(figure.axes, bands.values(), strict=True):
        x, y = band.x_rows[cluster], band.y_rows[cluster]
        axes.scatter(x, y, s=70, facecolors="none", edgecolors=_RED, linewidths=1.0, zorder=6)
    return figure


def width_error(results: Sequence[Result]) -> Figure:
    """Width of LVD's interval against the error on the first split of every dataset."""
    local, constant = (_first_split(results, method) for method in (MAIN_VARIANT, "split"))
    both = sorted(local.keys() & constant.keys(), key=dataset_order)
    if not both:
        raise InputError(
            f"the figure of width against error needs runs of {MAIN_VARIANT} and split at level {LEVEL:g}"
        )
    panels = []
    for name in both:
        index, other = (one[name].run.levels.index(LEVEL) for one in (local, constant))
        panels.append(
            WidthErrorPanel(
                title=f"{name}, LVD at {LEVEL:.0%}",
                errors=np.abs(local[name].y - local[name].y_pred[:, index]),
                widths=widths(local[name].intervals[:, :, index]),
                split_radius=float(widths(constant[name].intervals[:, :, other]).max() / 2.0),
            )
        )
    return width_error_figure(panels)


@dataclass(frozen=True)
class FigureSource:
    """What figures are drawn from: metrics, and the intervals of every row, None where only tables are left."""

    rows: Sequence[Measured]
    results: Sequence[Result] | None

    def of_protocol(self, protocol: str | None) -> FigureSource:
        """What belongs to one protocol; it need not be named where there is only one."""
        chosen = only_protocol(self.rows, protocol)
        return FigureSource(
            [row for row in self.rows if row.protocol == chosen],
            self.results and [result for result in self.results if result.run.protocol == chosen],
        )


def read_source(path: Path) -> FigureSource:
    """From a folder of runs, or from compact tables."""
    if compact_tables(path):
        return FigureSource(read_results(path), None)
    results = read_all(path)
    return FigureSource(collect(results), results)


FIGURES: dict[str, Callable[[FigureSource], Figure]] = {
    "three_bands": lambda source: three_bands(),
    "synthetic": lambda source: synthetic(),
    "jackknife": lambda source: jackknife(),
    "width_error": lambda source: width_error(source.results or ()),
    "coverage_level": lambda source: coverage_level_figure(source.rows),
}
NEED_INTERVALS = ("width_error",)
"""Figures that compact tables do not suffice for."""


def draw_figure(name: str, source: FigureSource, folder: Path) -> Path:
    """Draw one of `FIGURES` from the results of one protocol into a folder; returns the file."""
    path = folder / f"{name}.png"
    save_figure(FIGURES[name](source), path)
    return path


def _synthetic_panels(regressors: dict[str, type[IntervalRegressor]]) -> Figure:
    with workers() as run:
        bands = dict(zip(regressors, run(synthetic_band, list(regressors.values())), strict=True))
    titled = {f"{title}: {band.covered.mean():.0%} covered": band for title, band in bands.items()}
    return band_figure(titled, LEVEL)


def _first_split(results: Sequence[Result], method: str) -> dict[str, Result]:
    """For each dataset the run of the method with the lowest seed."""
    fitting = [
        one for one in results if one.run.method == method and not one.error and LEVEL in one.run.levels
    ]
    latest_first = sorted(fitting, key=lambda result: -result.run.seed)
    return {dataset_title(result.run.dataset): result for result in latest_first}
