"""Metrics as printed by ``lvd fit`` and ``lvd evaluate``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lvd.cli import console

if TYPE_CHECKING:
    from lvd.tables.reports import TargetReport

_COLUMNS = {
    "level": ("confidence_level", "g"),
    "coverage": ("marginal_coverage_rate", ".1%"),
    "tail coverage": ("tail_coverage_rate", ".1%"),
    "mean error": ("mean_absolute_deviation", ".4g"),
    "mean width": ("mean_finite_width", ".4g"),
    "finite": ("finite_fraction", ".1%"),
    "AUROC": ("residual_auroc", ".1%"),
}


def show_metrics(reports: Sequence[TargetReport], rows: str, *, by: str | None = None) -> None:
    """For each target a table of metrics on these `rows`, and one per level of the coverage `by` a column."""
    for report in reports:
        console.show(f"\n{report.target}, on {rows}")
        console.show_table(
            list(_COLUMNS),
            [
                [_text(metrics[name], spec) for name, spec in _COLUMNS.values()]
                for metrics in report.summary.rows
            ],
            text_columns=0,
        )
        for strata in report.by:
            console.show(f"\n{report.target}, coverage by {by} at level {strata.confidence_level:g}")
            console.show_table(
                ["group", "rows", "coverage", "95% band", "p", ""],
                [
                    [
                        f"{group.group:g}" if isinstance(group.group, float) else str(group.group),
                        f"{group.count:,}",
                        f"{group.coverage:.1%}",
                        f"{group.lower:.1%} to {group.upper:.1%}",
                        f"{group.p_value:.2g}",
                        "BELOW THE LEVEL" if group.below_level else "",
                    ]
                    for group in strata.groups
                ],
            )


def _text(value: float, spec: str) -> str:
    return "-" if math.isnan(value) else format(value, spec)
