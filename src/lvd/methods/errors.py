"""The second model, which predicts the first one's absolute error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from lvd._typing import Float, NDArray
from lvd.nets import Evaluation, Model, NetRegressor, as_model
from lvd.nets.wrap import came_trained


@dataclass(frozen=True)
class ErrorModel:
    """A model of the absolute error, on the rows themselves or on the first model's embeddings."""

    model: Model
    on_embeddings: bool

    def predict(self, X: Any, evaluation: Evaluation) -> Float[NDArray, "n t"]:
        """The expected absolute error of each row and target; it may come out negative."""
        return self.model.evaluate(evaluation.embeddings if self.on_embeddings else X).y_pred


def fit_error_model(
    estimator: Any, first: Model, X: Any, y: Float[NDArray, "n t"], *, device: str, seed: int
) -> ErrorModel:
    """Fit to the `first` model's absolute errors on its own training rows.

    Without an `estimator` of its own the second model is one like the first; of a model that came trained no
    second, untrained one can be had: then the built-in MLP is trained on its embeddings.
    """
    evaluation = first.evaluate(X)
    errors = np.abs(y - evaluation.y_pred)
    if estimator is None and came_trained(first):
        network = NetRegressor(device=device, random_state=seed)
        return ErrorModel(network.fit(evaluation.embeddings, errors), True)
    model: Model = (
        clone(first) if estimator is None else as_model(estimator, device=device, random_state=seed)
    )
    model.fit(X, errors)
    return ErrorModel(model, False)
