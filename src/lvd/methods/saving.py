"""Saving and loading of methods; loading never runs code from the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

import lvd.molecules  # noqa: F401  # which registers its classes
from lvd._validation import InputError, check_levels
from lvd.calibration.transductive import Prior
from lvd.kernels import Kernel
from lvd.kernels.regression import KernelRegressor
from lvd.methods.base import IntervalRegressor
from lvd.methods.conformal import CALIBRATION_COLUMNS
from lvd.models import NetRegressor, TreesRegressor
from lvd.models.adapters import FunctionModel, SklearnModel
from lvd.models.candidates import FilledModel
from lvd.models.coding import InputCoding
from lvd.models.frames import FrameColumns
from lvd.models.level_coding import LevelCodes, TargetCoding
from lvd.models.losses import NormalLoss, PinballLoss, QuantilesLoss, SquaredLoss
from lvd.models.model import Fitted
from lvd.models.probabilistic import ProbabilisticNet
from lvd.models.quantile_model import QuantileModel
from lvd.models.stack import NetStack
from lvd.models.trees import TreeEnsemble
from lvd.scores import (
    AbsoluteResidual,
    ConformityScore,
    DistributionalResidual,
    JointResidual,
    NormalizedResidual,
    QuantileResidual,
    ScaledResidual,
    SidedResidual,
    SignedResidual,
)
from lvd.scores.joint import LocalCovariance
from lvd.scores.quantile_trees import QuantileTrees
from lvd.scores.residuals import ErrorModel
from lvd.scores.scales import BoostedScale, KernelScale, NetworkScale
from lvd.scores.shapes import BoostedQuantiles, ErrorShape, NetworkQuantiles
from lvd.store import EXTENSIBLE, load_object, read_manifest, register
from lvd.store import save_object as save
from lvd.support import SupportRule
from lvd.support.rule import Neighborhood, PartKinds, Ranges, TrainingSupport

__all__ = ["load_columns", "load_method", "register_method", "save"]

MAY_BE_UNKNOWN = {"y_calib_", "residuals_calib_", "signed_calib_", "train_errors_"}
"""Attributes with a column per target, which hold NaN for unknown targets."""


def load_method(
    folder: str | os.PathLike[str],
    estimator: Any = None,
    *,
    trusted: Sequence[type[Any] | str] = (),
    **parts: Any,
) -> Any:
    """Load what a method's `save` wrote, without a table's columns; see :func:`lvd.load`."""
    given = {name: part for name, part in {"estimator": estimator, **parts}.items() if part is not None}
    return load_object(folder, given, trusted)


def load_columns(folder: str | os.PathLike[str]) -> Any:
    """The `columns` with which a method was saved."""
    return read_manifest(folder).get("columns")


def register_method(method: type[Any]) -> None:
    """Register a method for saving and loading."""
    register(method, root=True, check=_check_method, take_apart=_fill_in, complete=_take_out)


def _fill_in(value: Any) -> dict[str, Any]:
    """The attributes with NaN replaced by 0, since files hold no NaN, and masks of the replaced values."""
    attributes = dict(vars(value))
    for name in MAY_BE_UNKNOWN & attributes.keys():
        unknown = np.isnan(attributes[name])
        if unknown.any() and not unknown.all(axis=0).any():
            attributes |= {name: np.where(unknown, 0.0, attributes[name]), f"{name}unknown": unknown}
    return attributes


def _take_out(value: Any) -> None:
    """Restore the NaN that `_fill_in` replaced."""
    learned = vars(value)
    for name in MAY_BE_UNKNOWN & learned.keys():
        unknown = learned.pop(f"{name}unknown", None)
        if unknown is None:
            continue
        if np.shape(unknown) != np.shape(learned[name]) or unknown.dtype != bool:
            raise InputError(f"{name} and {name}unknown do not belong together")
        learned[name] = np.where(unknown, np.nan, learned[name])


def _check_method(method: Any) -> None:
    check_levels(method.confidence_level)
    method._check_bounds()
    method._check_parameters()
    learned = vars(method)
    lengths = {len(learned[name]) for name in CALIBRATION_COLUMNS & learned.keys()}
    if lengths - {learned.get("n_calib_")}:
        raise InputError("the numbers of calibration rows and of their errors differ")


EXTENSIBLE.extend([Kernel, ConformityScore, SupportRule, IntervalRegressor])
for _part in (
    *(
        NetRegressor,
        FilledModel,
        FunctionModel,
        InputCoding,
        FrameColumns,
        LevelCodes,
        TargetCoding,
        Fitted,
        QuantileModel,
        NetStack,
        ProbabilisticNet,
    ),
    *(SquaredLoss, PinballLoss, NormalLoss, QuantilesLoss),
    *(KernelRegressor, ErrorModel, AbsoluteResidual, NormalizedResidual, ScaledResidual, SignedResidual),
    *(QuantileResidual, KernelScale, BoostedScale, NetworkScale, TreeEnsemble, Prior),
    *(TrainingSupport, Neighborhood, Ranges, PartKinds, SklearnModel, TreesRegressor),
    *(JointResidual, LocalCovariance, DistributionalResidual),
    *(ErrorShape, BoostedQuantiles, NetworkQuantiles, QuantileTrees),
):
    register(_part)
register(SidedResidual, take_apart=_fill_in, complete=_take_out)
