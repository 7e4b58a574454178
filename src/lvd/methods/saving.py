"""The parts of methods that may be saved and loaded; loading never runs code from the file."""

from __future__ import annotations

import lvd.molecules  # noqa: F401  # which registers its classes
from lvd.calibration.transductive import Prior
from lvd.kernels import Kernel
from lvd.kernels.regression import KernelRegressor
from lvd.methods.base import IntervalRegressor, fill_in_unknown, take_out_unknown
from lvd.models import NetRegressor, TreesRegressor
from lvd.models.adapters import FunctionModel, SklearnModel
from lvd.models.averaged import AveragedModel
from lvd.models.candidates import FilledModel
from lvd.models.coding import InputCoding
from lvd.models.frames import FrameColumns
from lvd.models.level_coding import LevelCodes, TargetCoding
from lvd.models.losses import NormalLoss, PinballLoss, QuantilesLoss, SquaredLoss
from lvd.models.model import Fitted
from lvd.models.probabilistic import ProbabilisticNet
from lvd.models.quantile_model import QuantileModel
from lvd.models.stack import NetStack
from lvd.models.trees import QuantileTrees, TreeEnsemble
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
from lvd.scores.distributional import BoostedQuantiles, ErrorShape, NetworkQuantiles
from lvd.scores.joint import LocalCovariance
from lvd.scores.residuals import ErrorModel
from lvd.scores.scaled import BoostedScale, KernelScale, NetworkScale
from lvd.store import EXTENSIBLE, register
from lvd.support import SupportRule
from lvd.support.rule import Neighborhood, PartKinds, Ranges, TrainingSupport

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
        AveragedModel,
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
register(SidedResidual, take_apart=fill_in_unknown, complete=take_out_unknown)
