"""Interval methods, one file each, all sharing one contract."""

import lvd.methods.saving  # noqa: F401  # which registers their parts
from lvd.calibration import CalibrationWarning
from lvd.methods.base import IntervalRegressor, fill_in_unknown, take_out_unknown
from lvd.methods.conformal import SharedRowsWarning
from lvd.methods.deep_ensemble import DeepEnsembleRegressor
from lvd.methods.discriminative_jackknife import DiscriminativeJackknifeRegressor
from lvd.methods.jackknife_plus import JackknifePlusRegressor
from lvd.methods.lvd import LVDRegressor
from lvd.methods.mc_dropout import MCDropoutRegressor
from lvd.methods.online_intervals import OnlineIntervals
from lvd.methods.online_saving import put_state, take_state
from lvd.methods.pbp import PBPRegressor
from lvd.methods.split import (
    ConformalizedQuantileRegressor,
    MADSplitRegressor,
    SplitConformalRegressor,
)
from lvd.store import register

ALL_METHODS: tuple[type[IntervalRegressor], ...] = (
    LVDRegressor,
    SplitConformalRegressor,
    MADSplitRegressor,
    ConformalizedQuantileRegressor,
    JackknifePlusRegressor,
    DiscriminativeJackknifeRegressor,
    DeepEnsembleRegressor,
    MCDropoutRegressor,
    PBPRegressor,
)
"""All methods: the contract test and the tables of methods iterate over them."""

for _method in ALL_METHODS:
    _ways = {"take_apart": fill_in_unknown, "complete": take_out_unknown}
    register(_method, root=True, check=IntervalRegressor._check_loaded, **_ways)
register(OnlineIntervals, root=True, take_apart=take_state, complete=put_state)

__all__ = [
    "ALL_METHODS",
    "CalibrationWarning",
    "ConformalizedQuantileRegressor",
    "DeepEnsembleRegressor",
    "DiscriminativeJackknifeRegressor",
    "IntervalRegressor",
    "JackknifePlusRegressor",
    "LVDRegressor",
    "MADSplitRegressor",
    "MCDropoutRegressor",
    "OnlineIntervals",
    "PBPRegressor",
    "SharedRowsWarning",
    "SplitConformalRegressor",
]
