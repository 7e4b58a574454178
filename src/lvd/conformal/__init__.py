"""Scores, local weights, quantiles; the fast engine and the float64 oracle it is tested against."""

from lvd.conformal.local import LocalConformal
from lvd.conformal.quantiles import conformal_quantile, jackknife_plus_intervals
from lvd.conformal.scores import AbsoluteResidual, NormalizedResidual, QuantileResidual

__all__ = [
    "AbsoluteResidual",
    "LocalConformal",
    "NormalizedResidual",
    "QuantileResidual",
    "conformal_quantile",
    "jackknife_plus_intervals",
]
