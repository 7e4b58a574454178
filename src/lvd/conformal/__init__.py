"""Local weights: calibration, guarantees, bandwidths, distributions, explanations, drift and shift."""

from lvd.conformal.calibration import CalibrationWarning, GlobalConformal
from lvd.conformal.local import LocalConformal
from lvd.quantiles import LocalSummary

__all__ = ["CalibrationWarning", "GlobalConformal", "LocalConformal", "LocalSummary"]
