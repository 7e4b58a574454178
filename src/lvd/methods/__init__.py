"""Interval methods, one file each, all with one contract."""

from lvd.methods.base import CalibrationWarning
from lvd.methods.lvd import LVDRegressor

__all__ = ["CalibrationWarning", "LVDRegressor"]
