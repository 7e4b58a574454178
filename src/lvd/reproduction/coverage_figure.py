"""Coverage against level: the diagonal is what was promised."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from lvd.reproduction.collect import Measured
from lvd.reproduction.features import FEATURED
from lvd.reproduction.figures import panels_of
from lvd.reproduction.layout import dataset_order, dataset_title, method_title
from lvd.reproduction.significance import sample_of

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#767676", "#111111")
_STYLES = dict(zip(FEATURED, zip(_COLOURS, "os^vDPX*", strict=True), strict=True))
"""Colours that colour-blind readers can tell apart (Okabe and Ito), and marks for those who see none."""


def coverage_level_figure(rows: Sequence[Measured]) -> Figure:
    """One panel per dataset: mean coverage over the seeds, with its standard deviation, at every level."""
    coverage: dict[str, dict[str, dict[float, list[float]]]] = {}
    for row in rows:
        if not row.error and row.method in FEATURED:
            by_level = coverage.setdefault(dataset_title(row.dataset), {}).setdefault(row.method, {})
            by_level.setdefault(row.confidence_level, []).append(row.MCR)
    shown = [method for method in FEATURED if any(method in by_method for by_method in coverage.values())]
    figure, all_axes = panels_of(len(coverage), shared=True)
    for axes, name in zip(all_axes, sorted(coverage, key=dataset_order), strict=True):
        axes.axline((50, 50), slope=1, color="#A8A8A8", linestyle="--", linewidth=1.0, label="level")
        for method in shown:
            colour, mark = _STYLES[method]
            by_level = coverage[name].get(method, {})
            levels = sorted(by_level)
            samples = [sample_of(by_level[level]) for level in levels]
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
