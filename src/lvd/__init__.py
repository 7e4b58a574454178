"""Locally valid and discriminative prediction intervals for any regression model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lvd._version import __version__

_HOMES = {
    "CalibrationWarning": "lvd.methods",
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
    "SplitConformalRegressor": "lvd.methods",
    "load": "lvd.methods.saving",
    "three_way_split": "lvd.data",
}
_PACKAGES = ("data", "metrics")

if TYPE_CHECKING:
    from lvd import data, metrics
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
        SplitConformalRegressor,
    )
    from lvd.methods.saving import load
    from lvd.nets import NetRegressor

__all__ = [
    "CalibrationWarning",
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
    "SplitConformalRegressor",
    "__version__",
    "data",
    "load",
    "metrics",
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
