"""The metrics of one model at all its levels, as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lvd._typing import ArrayLike, Levels
from lvd._validation import check_same_length, check_vector
from lvd.metrics._check import check_intervals, check_levels_of
from lvd.metrics.coverage import marginal_coverage_rate, tail_coverage_rate
from lvd.metrics.discrimination import mean_absolute_deviation, residual_auroc
from lvd.metrics.width import finite_fraction, mean_finite_width

_COLUMNS = {
    "confidence_level": ("level", "g"),
    "marginal_coverage_rate": ("MCR", ".1%"),
    "tail_coverage_rate": ("TCR", ".1%"),
    "residual_auroc": ("AUROC", ".1%"),
    "mean_absolute_deviation": ("MAD", ".4g"),
    "mean_finite_width": ("width", ".4g"),
    "finite_fraction": ("finite", ".1%"),
}


@dataclass(frozen=True)
class Summary:
    """One row of metrics per level: `rows` hold fractions under the functions' names; print shows percent."""

    rows: tuple[dict[str, float], ...]

    def cells(self) -> list[list[str]]:
        """The table as text: a line of headings, then one line per level."""
        return [
            [heading for heading, _ in _COLUMNS.values()],
            *([_text(row[name], spec) for name, (_, spec) in _COLUMNS.items()] for row in self.rows),
        ]

    def __str__(self) -> str:
        cells = self.cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells
        )

    def to_pandas(self) -> Any:
        """The rows as a pandas data frame, fractions as they are."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(_COLUMNS))


def summary(y: ArrayLike, y_pred: ArrayLike, intervals: ArrayLike, levels: Levels) -> Summary:
    """The paper's metrics at every level; `intervals` has shape (n, 2, L), as from `predict_interval`.

    The width is the mean over finite intervals, and `-` stands for what is not defined.

    >>> intervals = [[[-1, -3], [1, 3]]] * 4
    >>> print(summary([0, 0.5, 2, 2.5], [0, 0, 0, 0], intervals, [0.5, 0.9]))
    level     MCR     TCR  AUROC   MAD  width  finite
      0.5   50.0%    0.0%  50.0%  1.25      2  100.0%
      0.9  100.0%  100.0%  50.0%  1.25      6  100.0%
    """
    targets, predictions, array = check_vector(y), check_vector(y_pred, "y_pred"), check_intervals(intervals)
    check_same_length(y=targets, y_pred=predictions, intervals=array)
    vector = check_levels_of(array, levels)
    return Summary(
        tuple(
            {
                "confidence_level": float(level),
                "marginal_coverage_rate": marginal_coverage_rate(targets, one),
                "tail_coverage_rate": tail_coverage_rate(targets, one),
                "residual_auroc": residual_auroc(targets, predictions, one),
                "mean_absolute_deviation": mean_absolute_deviation(targets, predictions),
                "mean_finite_width": mean_finite_width(one),
                "finite_fraction": finite_fraction(one),
            }
            for level, one in zip(vector, array.transpose(2, 0, 1), strict=True)
        )
    )


def _text(value: float, spec: str) -> str:
    return "-" if math.isnan(value) else format(value, spec)
