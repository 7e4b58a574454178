"""The second model, which predicts the first one's absolute error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from lvd._typing import Float, NDArray
from lvd.models import Model, NetRegressor, as_model
from lvd.models.model import came_trained
from lvd.scores.score import EvaluatedRows, TrainingRows


@dataclass(frozen=True)
class ErrorModel:
    """A model of the absolute error, on the rows themselves or on the first model's embeddings."""

    model: Model
    on_embeddings: bool

    def predict(self, rows: EvaluatedRows) -> Float[NDArray, "n t"]:
        """The expected absolute error of each row and target; it may come out negative."""
        return self.model.evaluate(rows.evaluation.embeddings if self.on_embeddings else rows.inputs).y_pred


def fit_error_model(estimator: Any, training: TrainingRows, *, in_sample: bool) -> ErrorModel:
    """Fit to absolute errors on rows held out, or on the first model's own training rows.

    Without an `estimator` of its own the second model is one like the first; of a model that came trained no
    second, untrained one can be had: then the built-in MLP is trained on its embeddings.
    """
    rows = training.rows
    model = (
        None if estimator is None else as_model(estimator, device=training.device, random_state=training.seed)
    )
    if model is not None and came_trained(model):
        model.fit(rows.inputs, training.y)
        return ErrorModel(model, False)
    errors = np.abs(training.errors if in_sample else training.held_out_errors)
    if estimator is None and came_trained(training.model):
        network = NetRegressor(device=training.device, random_state=training.seed)
        return ErrorModel(network.fit(rows.evaluation.embeddings, errors), True)
    model = clone(training.model) if model is None else model
    model.fit(rows.inputs, errors)
    return ErrorModel(model, False)
