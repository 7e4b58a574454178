"""The metrics of one model at all its levels, as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lvd._typing import ArrayLike, Float, Levels, NDArray
from lvd._validation import InputError, check_same_length, check_vector, to_numpy
from lvd.metrics.conditional import excess_risk_of_target_coverage
from lvd.metrics.distribution import pit_histogram
from lvd.metrics.interval_metrics import (
    check_intervals,
    check_levels_of,
    finite_fraction,
    marginal_coverage_rate,
    mean_absolute_deviation,
    mean_finite_width,
    residual_auroc,
    tail_coverage_rate,
)

_COLUMNS = {
    "target": ("target", "g"),
    "confidence_level": ("level", "g"),
    "marginal_coverage_rate": ("MCR", ".1%"),
    "tail_coverage_rate": ("TCR", ".1%"),
    "residual_auroc": ("AUROC", ".1%"),
    "mean_absolute_deviation": ("MAD", ".4g"),
    "mean_finite_width": ("width", ".4g"),
    "finite_fraction": ("finite", ".1%"),
    "excess_risk_of_target_coverage": ("ERT", ".3f"),
    "crps": ("CRPS", ".4g"),
    "pit_p_value": ("PIT p", ".2g"),
}
"""Headings and formats; the first column is for several targets, the last ones are optional."""


@dataclass(frozen=True)
class Summary:
    """One row of metrics per level and target: `rows` hold fractions by function name, and printing shows
    percentages."""

    rows: tuple[dict[str, float], ...]

    def cells(self) -> list[list[str]]:
        """The table as text: a line of headings, then one line per level."""
        columns = {name: _COLUMNS[name] for name in self.rows[0]}
        return [
            [heading for heading, _ in columns.values()],
            *([_text(row[name], spec) for name, (_, spec) in columns.items()] for row in self.rows),
        ]

    def __str__(self) -> str:
        cells = self.cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells
        )

    def to_pandas(self) -> Any:
        """The rows as a pandas data frame, as fractions."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))


def summary(
    y: ArrayLike,
    y_pred: ArrayLike,
    intervals: ArrayLike,
    levels: Levels,
    *,
    X: ArrayLike | None = None,
    distribution: Any = None,
) -> Summary:
    """The paper's metrics at every level; `intervals` has shape (n, 2, L), as from `predict_interval`.

    For several targets y and y_pred have shape (n, t) and intervals (n, 2, L, t). With the inputs `X` the table
    also shows the excess risk of the target coverage, :func:`excess_risk_of_target_coverage`; with the
    `distribution` of ``predict_distribution(X)``, the mean CRPS and the p-value of :func:`pit_histogram`, both
    over known rows. The width is the mean over finite intervals, and `-` marks an undefined figure.

    >>> intervals = [[[-1, -3], [1, 3]]] * 4
    >>> print(summary([0, 0.5, 2, 2.5], [0, 0, 0, 0], intervals, [0.5, 0.9]))
    level     MCR     TCR  AUROC   MAD  width  finite
      0.5   50.0%    0.0%  50.0%  1.25      2  100.0%
      0.9  100.0%  100.0%  50.0%  1.25      6  100.0%
    """
    truth, predicted, array = np.asarray(y), np.asarray(y_pred), np.asarray(intervals)
    if truth.ndim < 2:
        (whole,) = _of_distribution(distribution, truth)
        return Summary(tuple(row | whole for row in _rows(truth, predicted, array, levels, X)))
    if array.ndim != 4 or predicted.shape != truth.shape or array.shape[3] != truth.shape[1]:
        raise InputError(
            f"y of shape {truth.shape} needs y_pred of the same shape and intervals of shape (n, 2, levels, "
            f"{truth.shape[1]}), got {predicted.shape} and {array.shape}"
        )
    return Summary(
        tuple(
            {"target": target, **row, **whole}
            for target, whole in enumerate(_of_distribution(distribution, truth))
            for row in _rows(truth[:, target], predicted[:, target], array[..., target], levels, X)
        )
    )


def _rows(
    y: ArrayLike, y_pred: ArrayLike, intervals: ArrayLike, levels: Levels, X: ArrayLike | None
) -> list[dict[str, float]]:
    """The metrics of one target, level by level."""
    targets, predictions, array = check_vector(y), check_vector(y_pred, "y_pred"), check_intervals(intervals)
    check_same_length(y=targets, y_pred=predictions, intervals=array)
    rows = []
    for level, one in zip(check_levels_of(array, levels).tolist(), array.transpose(2, 0, 1), strict=True):
        row = {
            "confidence_level": level,
            "marginal_coverage_rate": marginal_coverage_rate(targets, one),
            "tail_coverage_rate": tail_coverage_rate(targets, one),
            "residual_auroc": residual_auroc(targets, predictions, one),
            "mean_absolute_deviation": mean_absolute_deviation(targets, predictions),
            "mean_finite_width": mean_finite_width(one),
            "finite_fraction": finite_fraction(one),
        }
        if X is not None:
            row["excess_risk_of_target_coverage"] = excess_risk_of_target_coverage(
                X, targets, one, level
            ).total
        rows.append(row)
    return rows


def _of_distribution(distribution: Any, y: Float[NDArray, "n *t"]) -> list[dict[str, float]]:
    """The figures of whole distributions for each target; empty without them."""
    n_targets = 1 if y.ndim == 1 else y.shape[1]
    if distribution is None:
        return [{}] * n_targets
    scores, pit = (
        to_numpy(ask(y)).reshape(len(y), n_targets) for ask in (distribution.crps, distribution.pit)
    )
    found = []
    for target in range(n_targets):
        known = ~np.isnan(scores[:, target])
        p_value = pit_histogram(pit[known, target]).p_value if known.any() else math.nan
        mean = float(scores[known, target].mean()) if known.any() else math.nan
        found.append({"crps": mean, "pit_p_value": p_value})
    return found


def _text(value: float, spec: str) -> str:
    return "-" if math.isnan(value) else format(value, spec)
