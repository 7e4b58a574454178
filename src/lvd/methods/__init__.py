"""Interval methods, one file each, all with one contract."""

from lvd.methods.base import CalibrationWarning, IntervalRegressor
from lvd.methods.cqr import ConformalizedQuantileRegressor
from lvd.methods.jackknife_plus import JackknifePlusRegressor
from lvd.methods.lvd import LVDRegressor
from lvd.methods.madsplit import MADSplitRegressor
from lvd.methods.split import SplitConformalRegressor

ALL_METHODS: tuple[type[IntervalRegressor], ...] = (
    LVDRegressor,
    SplitConformalRegressor,
    MADSplitRegressor,
    ConformalizedQuantileRegressor,
    JackknifePlusRegressor,
)

__all__ = [
    "ALL_METHODS",
    "CalibrationWarning",
    "ConformalizedQuantileRegressor",
    "IntervalRegressor",
    "JackknifePlusRegressor",
    "LVDRegressor",
    "MADSplitRegressor",
    "SplitConformalRegressor",
]
