"""Local weights: calibration, guarantees, bandwidths, distributions, explanations, drift and shift."""

from lvd.conformal.calibration import CalibrationWarning, GlobalConformal
from lvd.conformal.local import LocalConformal, LocalSummary
from lvd.conformal.storing import register_calibrations

__all__ = ["CalibrationWarning", "GlobalConformal", "LocalConformal", "LocalSummary"]

register_calibrations()
