"""One split of an arena table with one model, trained once for all contestants."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingRegressor

from experiments.arena.tables import ArenaTable
from experiments.paper.stages import Stages
from lvd import NetRegressor
from lvd._typing import ArrayLike, Float, NDArray
from lvd.data import split_indices
from lvd.models import Evaluation, Model
from lvd.models.candidates import held_out_folds
from lvd.wrap import as_model

ARENA_MODELS = ("network", "trees")
SIZES = (0.6, 0.2, 0.2)
MOST_OUTSIDE = 1000


class SharedModel(Model, BaseEstimator):
    """A model whose training and predictions are shared by all copies: equal rows are processed once.

    Each copy is charged the full seconds that :class:`Stages` reports.
    """

    def __init__(self, model: Model, stages: Stages) -> None:
        self.model = model
        self.stages = stages

    def __sklearn_clone__(self) -> SharedModel:
        return SharedModel(clone(self.model), self.stages)

    @property
    def interpolates(self) -> bool:
        """Whether the wrapped model interpolates."""
        return self.model.interpolates

    def check(self, X: ArrayLike) -> Any:
        """Check the inputs as the wrapped model does."""
        return self.model.check(X)

    def same_case(self, X: Any) -> NDArray:
        """The case labels of the wrapped model."""
        return self.model.same_case(X)

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> SharedModel:
        """Train a copy, or reuse one trained on these rows."""
        self.key_ = f"fit {digest(X, y)}"
        self.fitted_ = self.stages.once(self.key_, lambda: clone(self.model).fit(X, y))
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """The trained copy's evaluation."""
        return self.stages.once(f"{self.key_} {digest(X)}", lambda: self.fitted_.evaluate(X))


class ArenaSplit:
    """Training, calibration and test rows of a seed, and the model shared by post hoc contestants.

    Out-of-distribution rows, if the table has any, are in none of the three parts.
    """

    def __init__(self, table: ArenaTable, model: str, seed: int) -> None:
        self.table, self.model, self.seed, self.stages = table, model, seed, Stages()
        inside = np.setdiff1d(np.arange(len(table.y)), table.outside)
        self.train, self.calib, self.test = (
            inside[part] for part in split_indices(len(inside), seed, sizes=SIZES)
        )
        X, y = table.features(self.train), table.y
        outside = np.random.default_rng(seed).permutation(table.outside)[:MOST_OUTSIDE]
        self.X_outside, self.y_outside = X[outside], y[outside]
        self.X_train, self.X_calib, self.X_test = X[self.train], X[self.calib], X[self.test]
        self.y_train, self.y_calib, self.y_test = y[self.train], y[self.calib], y[self.test]

    @property
    def place(self) -> tuple[str, str, int]:
        """Its key in the results: table, model and seed."""
        return self.table.name, self.model, self.seed

    @property
    def estimator(self) -> SharedModel:
        """The shared model as an unfitted estimator."""
        if self.model == "network":
            return SharedModel(NetRegressor(device="cpu", random_state=self.seed), self.stages)
        return SharedModel(as_model(HistGradientBoostingRegressor(random_state=self.seed)), self.stages)

    @property
    def rows_but_test(self) -> tuple[Float[NDArray, "n p"], Float[NDArray, "n"]]:
        """Training and calibration rows, for methods that use the same rows for both."""
        return np.concatenate([self.X_train, self.X_calib]), np.concatenate([self.y_train, self.y_calib])

    @property
    def held_out_errors(self) -> Float[NDArray, "n"]:
        """The absolute out-of-fold errors of the training rows."""
        return np.abs(self.y_train - self.held_out)

    @property
    def calib_errors(self) -> Float[NDArray, "m"]:
        """The signed errors of the calibration rows."""
        return self.y_calib - self.predict(self.X_calib)

    @property
    def predict(self) -> Callable[[Float[NDArray, "n p"]], Float[NDArray, "n"]]:
        """The shared model's predictions; obtaining this function is charged the training, calling it is not."""
        model = self.estimator.fit(self.X_train, self.y_train[:, None])
        return lambda X: model.evaluate(X).y_pred[:, 0]

    @property
    def held_out(self) -> Float[NDArray, "n"]:
        """Out-of-fold predictions of the training rows."""

        def predict() -> Float[NDArray, "n"]:
            y_pred, y = np.empty(len(self.y_train)), self.y_train[:, None]
            for inside, outside in held_out_folds(len(y), self.seed):
                model = self.estimator.fit(self.X_train[inside], y[inside])
                y_pred[outside] = model.evaluate(self.X_train[outside]).y_pred[:, 0]
            return y_pred

        return self.stages.once("held out", predict)


def digest(*arrays: NDArray) -> str:
    """A digest of these numbers."""
    content = hashlib.blake2b(digest_size=16)
    for array in arrays:
        content.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return content.hexdigest()
