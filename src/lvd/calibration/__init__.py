"""Local weights: calibration, guarantees, bandwidths, distributions, explanations, drift and shift."""

from lvd.calibration.calibration_rows import CalibrationWarning, GlobalConformal
from lvd.calibration.local import LocalConformal
from lvd.engine import LocalSummary

__all__ = ["CalibrationWarning", "GlobalConformal", "LocalConformal", "LocalSummary"]
