"""The second model, which predicts the first one's absolute error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lvd._typing import Float, NDArray
from lvd.nets import Evaluation, Model, NetRegressor, as_model


@dataclass(frozen=True)
class ErrorModel:
    """A model of the absolute error, on the rows themselves or on the first model's embeddings."""

    model: Model
    on_embeddings: bool

    def predict(self, X: Any, evaluation: Evaluation) -> Float[NDArray, "n t"]:
        """The expected absolute error of each row and target; it may come out negative."""
        return self.model.evaluate(evaluation.embeddings if self.on_embeddings else X).y_pred


def fit_error_model(
    estimator: Any,
    X: Any,
    evaluation: Evaluation,
    errors: Float[NDArray, "n t"],
    *,
    on_embeddings: bool,
    device: str,
    seed: int,
) -> ErrorModel:
    """Fit to the first model's absolute errors on its own training rows.

    `estimator` is trained on the rows; with `on_embeddings` the built-in MLP is trained on the embeddings
    instead: for a model given as trained, of which no second, untrained one can be had.
    """
    if on_embeddings:
        network = NetRegressor(device=device, random_state=seed)
        return ErrorModel(network.fit(evaluation.embeddings, errors), True)
    model = as_model(
        estimator, prefit=False, embedding_layer=None, embed=None, device=device, random_state=seed
    )
    model.fit(X, errors)
    return ErrorModel(model, False)
