"""Interval methods, one file each, all with one contract."""

from lvd.conformal import CalibrationWarning
from lvd.methods.base import IntervalRegressor
from lvd.methods.conformal import SharedRowsWarning
from lvd.methods.deep_ensemble import DeepEnsembleRegressor
from lvd.methods.discriminative_jackknife import DiscriminativeJackknifeRegressor
from lvd.methods.jackknife_plus import JackknifePlusRegressor
from lvd.methods.local_cqr import LocalCQRRegressor
from lvd.methods.lvd import LVDRegressor
from lvd.methods.mc_dropout import MCDropoutRegressor
from lvd.methods.pbp import PBPRegressor
from lvd.methods.saving import register_method
from lvd.methods.split import (
    ConformalizedQuantileRegressor,
    ConformalRegressor,
    MADSplitRegressor,
    SplitConformalRegressor,
)

ALL_METHODS: tuple[type[IntervalRegressor], ...] = (
    LVDRegressor,
    SplitConformalRegressor,
    MADSplitRegressor,
    ConformalizedQuantileRegressor,
    LocalCQRRegressor,
    JackknifePlusRegressor,
    DiscriminativeJackknifeRegressor,
    DeepEnsembleRegressor,
    MCDropoutRegressor,
    PBPRegressor,
)
"""Every method; the contract test runs over them all, and tables of methods are made from them."""

for _method in ALL_METHODS:
    register_method(_method)
register_method(ConformalRegressor)

__all__ = [
    "ALL_METHODS",
    "CalibrationWarning",
    "ConformalRegressor",
    "ConformalizedQuantileRegressor",
    "DeepEnsembleRegressor",
    "DiscriminativeJackknifeRegressor",
    "IntervalRegressor",
    "JackknifePlusRegressor",
    "LVDRegressor",
    "LocalCQRRegressor",
    "MADSplitRegressor",
    "MCDropoutRegressor",
    "PBPRegressor",
    "SharedRowsWarning",
    "SplitConformalRegressor",
]
