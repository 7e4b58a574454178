"""Networks that predict two quantiles of y for each confidence level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import InputError
from lvd.models.losses import PinballLoss
from lvd.models.model import Evaluation, Model


@dataclass(frozen=True, eq=False)
class QuantileModel(Model):
    """One model per level, which predicts all lower quantiles, then all upper ones.

    The prediction is the midpoint of the first level's quantiles, and the embedding is that model's.
    """

    models: tuple[Model, ...]

    @classmethod
    def of(cls, model: Model, levels: Float[NDArray, "l"]) -> QuantileModel:
        """Untrained copies of the model with the pinball loss; a trained model serves a single level."""
        if not model.prefit:
            return cls(tuple(model.with_loss(PinballLoss(level)) for level in levels.tolist()))
        if len(levels) > 1:
            raise InputError(
                "a prefit estimator gives the quantiles of one level, got "
                f"confidence_level={levels.tolist()!r}; give that level alone"
            )
        return cls((model,))

    @property
    def prefit(self) -> bool:
        """Whether the models are already trained."""
        return all(model.prefit for model in self.models)

    def untrained(self) -> QuantileModel:
        """Untrained copies of the models."""
        return QuantileModel(tuple(map(clone, self.models)))

    def check(self, X: ArrayLike) -> Any:
        """Check the inputs as the models do."""
        return self.models[0].check(X)

    def same_case(self, X: Any) -> NDArray:
        """The case labels of the models."""
        return self.models[0].same_case(X)

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> QuantileModel:
        """Train all models."""
        for model in self.models:
            model.fit(X, np.concatenate([y, y], axis=1))
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """The first level's midpoint, its model's embedding, and all quantiles, sorted to remove crossings."""
        answers = [model.evaluate(X) for model in self.models]
        ends = [np.sort(np.split(answer.y_pred, 2, axis=1), axis=0) for answer in answers]
        quantiles = np.stack(ends, axis=2)  # (2, n, l, t)
        middle = (ends[0][0] + ends[0][1]) / 2.0
        return answers[0]._replace(y_pred=middle, quantiles=np.moveaxis(quantiles, 0, 1))
