"""Weighted quantiles over local weights: the float64 oracle, the engines for CPU and GPU, and one entry to them."""

from lvd.engine.quantiles import (
    LocalSummary,
    Queries,
    SortedRows,
    conformal_quantile,
    jackknife_plus_intervals,
    local_quantile,
    similarities,
)

__all__ = [
    "LocalSummary",
    "Queries",
    "SortedRows",
    "conformal_quantile",
    "jackknife_plus_intervals",
    "local_quantile",
    "similarities",
]
