"""Scores, local weights, quantiles; the fast engine and the float64 oracle it is tested against."""

from lvd.conformal.calibration import CalibrationWarning
from lvd.conformal.floor import smallest_floor
from lvd.conformal.local import LocalConformal
from lvd.conformal.quantiles import conformal_quantile, jackknife_plus_intervals
from lvd.conformal.scores import (
    AbsoluteResidual,
    NormalizedResidual,
    QuantileResidual,
    SidedResidual,
    SignedResidual,
)
from lvd.conformal.summary import LocalSummary

__all__ = [
    "AbsoluteResidual",
    "CalibrationWarning",
    "LocalConformal",
    "LocalSummary",
    "NormalizedResidual",
    "QuantileResidual",
    "SidedResidual",
    "SignedResidual",
    "conformal_quantile",
    "jackknife_plus_intervals",
    "smallest_floor",
]
