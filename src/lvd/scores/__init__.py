"""Conformity scores: they learn from training rows, score targets and turn radii into intervals."""

from lvd.scores.distributional import DistributionalResidual
from lvd.scores.joint import JointResidual
from lvd.scores.quantile import QuantileResidual
from lvd.scores.residuals import AbsoluteResidual, NormalizedResidual, SidedResidual, SignedResidual
from lvd.scores.scaled import ScaledResidual
from lvd.scores.score import BoundScore, ConformityScore, EvaluatedRows, TrainingRows

__all__ = [
    "AbsoluteResidual",
    "BoundScore",
    "ConformityScore",
    "DistributionalResidual",
    "EvaluatedRows",
    "JointResidual",
    "NormalizedResidual",
    "QuantileResidual",
    "ScaledResidual",
    "SidedResidual",
    "SignedResidual",
    "TrainingRows",
]
