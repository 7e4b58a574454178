"""Base models, which train, predict and embed."""

from lvd.models.boosted import TreesRegressor
from lvd.models.model import Evaluation, Model
from lvd.models.regressor import NetRegressor

__all__ = ["Evaluation", "Model", "NetRegressor", "TreesRegressor"]
