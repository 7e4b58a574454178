"""Locally valid and discriminative prediction intervals for any regression model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lvd._version import __version__

_HOMES = {
    "CalibrationWarning": "lvd.methods",
    "ChempropEstimator": "lvd.nets.molecules",
    "ConformalizedQuantileRegressor": "lvd.methods",
    "DeepEnsembleRegressor": "lvd.methods",
    "DiscriminativeJackknifeRegressor": "lvd.methods",
    "InputError": "lvd._validation",
    "JackknifePlusRegressor": "lvd.methods",
    "LVDRegressor": "lvd.methods",
    "LocalConformal": "lvd.conformal",
    "MADSplitRegressor": "lvd.methods",
    "MCDropoutRegressor": "lvd.methods",
    "MahalanobisKernel": "lvd.kernels",
    "NetRegressor": "lvd.nets",
    "PBPRegressor": "lvd.methods",
    "SharedRowsWarning": "lvd.methods",
    "SplitConformalRegressor": "lvd.methods",
    "load": "lvd.methods.saving",
    "read_trusted_checkpoint": "lvd.nets.molecules",
    "three_way_split": "lvd.data",
}
_PACKAGES = ("conformal", "data", "distributed", "metrics", "shift")

if TYPE_CHECKING:
    from lvd import conformal, data, distributed, metrics, shift
    from lvd._validation import InputError
    from lvd.conformal import LocalConformal
    from lvd.data import three_way_split
    from lvd.kernels import MahalanobisKernel
    from lvd.methods import (
        CalibrationWarning,
        ConformalizedQuantileRegressor,
        DeepEnsembleRegressor,
        DiscriminativeJackknifeRegressor,
        JackknifePlusRegressor,
        LVDRegressor,
        MADSplitRegressor,
        MCDropoutRegressor,
        PBPRegressor,
        SharedRowsWarning,
        SplitConformalRegressor,
    )
    from lvd.methods.saving import load
    from lvd.nets import NetRegressor
    from lvd.nets.molecules import ChempropEstimator, read_trusted_checkpoint

__all__ = [
    "CalibrationWarning",
    "ChempropEstimator",
    "ConformalizedQuantileRegressor",
    "DeepEnsembleRegressor",
    "DiscriminativeJackknifeRegressor",
    "InputError",
    "JackknifePlusRegressor",
    "LVDRegressor",
    "LocalConformal",
    "MADSplitRegressor",
    "MCDropoutRegressor",
    "MahalanobisKernel",
    "NetRegressor",
    "PBPRegressor",
    "SharedRowsWarning",
    "SplitConformalRegressor",
    "__version__",
    "conformal",
    "data",
    "distributed",
    "load",
    "metrics",
    "read_trusted_checkpoint",
    "shift",
    "three_way_split",
]


def __getattr__(name: str) -> Any:
    """Load the heavy parts when they are first used: importing lvd stays fast."""
    if name in _PACKAGES:
        return import_module(f"lvd.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'lvd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
