"""The mean of a model and its fold models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lvd._typing import Float, NDArray
from lvd.models.candidates import Folds
from lvd.models.model import Evaluation, Fitted, Model

AVERAGED = ("y_pred", "quantiles", "spread")
"""What is averaged of the models' evaluations."""
LEAST_ERROR_SHARE = 0.8
"""No estimate of what averaging gains goes below this share."""


@dataclass(frozen=True, eq=False)
class AveragedModel(Fitted):
    """A trained model that predicts the mean of its own predictions and those of its fold models, each trained
    without a fold of the same rows.

    Embeddings and inputs are the model's own, since every model has its own coordinates.
    """

    fold_models: Sequence[Model]

    def evaluate(self, X: Any) -> Evaluation:
        """The model's evaluation, with the mean of all models' predictions."""
        every = [model.evaluate(X) for model in (self.model, *self.fold_models)]
        parts = {name: [getattr(one, name) for one in every] for name in AVERAGED}
        means = {name: np.mean(part, axis=0) for name, part in parts.items() if part[0] is not None}
        return every[0]._replace(**means)

    def error_share(
        self, X: Any, y_pred: Float[NDArray, "n t"], errors: Float[NDArray, "n t"], folds: Folds
    ) -> Float[NDArray, "t"]:
        """How large the errors of the mean are, for each target, as a share of the out-of-fold `errors` of the fold
        models on the rows of training, of which the model itself predicts `y_pred`.

        The squared error of a mean is the models' mean squared error less the spread of their predictions (Krogh
        and Vedelsby, 1995). The spread of a row is that of the models that were trained with it.
        """
        every = np.stack([y_pred, *(model.evaluate(X).y_pred for model in self.fold_models)])
        seen = np.ones(every.shape[:2], bool)
        for number, (_, outside) in enumerate(folds, start=1):
            seen[number, outside] = False
        spread = np.var(every, axis=0, where=seen[..., None]).mean(axis=0)
        squares = np.nanmean(errors**2, axis=0)
        gained = np.divide(spread, squares, out=np.zeros_like(spread), where=squares > 0.0)
        share: Float[NDArray, "t"] = np.sqrt(np.maximum(1.0 - gained, LEAST_ERROR_SHARE**2))
        return share
