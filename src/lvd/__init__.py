"""Locally valid and discriminative prediction intervals for any regression model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lvd._late import provide
from lvd._version import __version__


@provide
def _page_of_method(*given: Any, **named: Any) -> Any:
    """The page of a method's own intervals."""
    from lvd.page.python import report_method

    return report_method(*given, **named)


_HOMES = {
    "ChempropEstimator": "lvd.molecules",
    "InputError": "lvd._validation",
    "KernelRegressor": "lvd.kernels.regression",
    "LocalConformal": "lvd.calibration",
    "MahalanobisKernel": "lvd.kernels",
    "NetRegressor": "lvd.models",
    "TreesRegressor": "lvd.models",
    "Region": "lvd.intervals",
    "citation": "lvd.methods.citation",
    "select": "lvd.methods.predictive",
    "load": "lvd.tables.loading",
    "report": "lvd.page.python",
    "read_trusted_checkpoint": "lvd.molecules",
    "three_way_split": "lvd.tables.splits",
}
_PACKAGES = {
    "calibration": "lvd.calibration",
    "data": "lvd.data",
    "distributed": "lvd.tables.distributed",
    "metrics": "lvd.metrics",
    "mlflow": "lvd.mlflow",
    "plot": "lvd.plot",
    "scores": "lvd.scores",
    "serve": "lvd.serve",
    "kernels": "lvd.kernels",
    "shift": "lvd.calibration.shift",
    "support": "lvd.support",
    "testing": "lvd.testing",
}
_RENAMED = {
    "ConformalRegressor": "SplitConformalRegressor(conformity_score=...), or LVDRegressor with local weights",
    "LocalCQRRegressor": 'LVDRegressor(conformity_score="quantile")',
    "conformal": "lvd.calibration",
}

if TYPE_CHECKING:
    from lvd import calibration, data, kernels, metrics, plot, scores, support, testing
    from lvd._validation import InputError
    from lvd.calibration import LocalConformal, shift
    from lvd.intervals import Region
    from lvd.kernels import MahalanobisKernel
    from lvd.kernels.regression import KernelRegressor
    from lvd.methods import (
        CalibrationWarning,
        ConformalizedQuantileRegressor,
        DeepEnsembleRegressor,
        DiscriminativeJackknifeRegressor,
        JackknifePlusRegressor,
        LVDRegressor,
        MADSplitRegressor,
        MCDropoutRegressor,
        OnlineIntervals,
        PBPRegressor,
        SharedRowsWarning,
        SplitConformalRegressor,
    )
    from lvd.methods.citation import citation
    from lvd.methods.predictive import select
    from lvd.models import NetRegressor, TreesRegressor
    from lvd.molecules import ChempropEstimator, read_trusted_checkpoint
    from lvd.page.python import report
    from lvd.tables import distributed
    from lvd.tables.loading import load
    from lvd.tables.splits import three_way_split

__all__ = [
    "CalibrationWarning",
    "ChempropEstimator",
    "ConformalizedQuantileRegressor",
    "DeepEnsembleRegressor",
    "DiscriminativeJackknifeRegressor",
    "InputError",
    "JackknifePlusRegressor",
    "KernelRegressor",
    "LVDRegressor",
    "LocalConformal",
    "MADSplitRegressor",
    "MCDropoutRegressor",
    "MahalanobisKernel",
    "NetRegressor",
    "OnlineIntervals",
    "PBPRegressor",
    "Region",
    "SharedRowsWarning",
    "SplitConformalRegressor",
    "TreesRegressor",
    "__version__",
    "calibration",
    "citation",
    "data",
    "distributed",
    "kernels",
    "load",
    "metrics",
    "plot",
    "read_trusted_checkpoint",
    "report",
    "scores",
    "select",
    "shift",
    "support",
    "testing",
    "three_way_split",
]


def __getattr__(name: str) -> Any:
    """Load the heavy parts when they are first used: importing lvd stays fast."""
    if name in _PACKAGES:
        return import_module(_PACKAGES[name])
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "lvd.methods")), name)
    if name in _RENAMED:
        raise AttributeError(f"lvd.{name} was removed; use {_RENAMED[name]}")
    raise AttributeError(f"module 'lvd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
