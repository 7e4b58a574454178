"""Weighted quantiles over local weights: the float64 oracle, the engines for CPU and GPU, and one entry to them."""

from lvd.quantiles.engine import LocalSummary, Queries, SortedRows, local_quantile, similarities
from lvd.quantiles.finite_sample import conformal_quantile, jackknife_plus_intervals

__all__ = [
    "LocalSummary",
    "Queries",
    "SortedRows",
    "conformal_quantile",
    "jackknife_plus_intervals",
    "local_quantile",
    "similarities",
]
