"""Base models: train, predict, embed."""

from lvd.nets.model import Evaluation, Model
from lvd.nets.regressor import NetRegressor
from lvd.nets.wrap import as_model

__all__ = ["Evaluation", "Model", "NetRegressor", "as_model"]
