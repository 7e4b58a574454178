"""One split of a table of the arena with one model, trained once for all contestants."""

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
    """A model whose training and answers are shared by all its copies: equal rows are learned and asked once.

    Every copy counts in full in the seconds that :class:`Stages` tells.
    """

    def __init__(self, model: Model, stages: Stages) -> None:
        self.model = model
        self.stages = stages

    def __sklearn_clone__(self) -> SharedModel:
        return SharedModel(clone(self.model), self.stages)

    @property
    def interpolates(self) -> bool:
        """As the model does."""
        return self.model.interpolates

    def check(self, X: ArrayLike) -> Any:
        """What the model accepts."""
        return self.model.check(X)

    def same_case(self, X: Any) -> NDArray:
        """As the model has it."""
        return self.model.same_case(X)

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> SharedModel:
        """Train a copy, or find it trained on these rows."""
        self.key_ = f"fit {digest(X, y)}"
        self.fitted_ = self.stages.once(self.key_, lambda: clone(self.model).fit(X, y))
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """The trained copy's answer."""
        return self.stages.once(f"{self.key_} {digest(X)}", lambda: self.fitted_.evaluate(X))


class ArenaSplit:
    """Training, calibration and test rows of a seed, and the model that post hoc contestants share.

    Rows from outside, where the table has any, are in none of the three parts.
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
        """What names it in results: table, model and seed."""
        return self.table.name, self.model, self.seed

    @property
    def estimator(self) -> SharedModel:
        """The shared model, as an estimator that is yet to be fitted."""
        if self.model == "network":
            return SharedModel(NetRegressor(device="cpu", random_state=self.seed), self.stages)
        return SharedModel(as_model(HistGradientBoostingRegressor(random_state=self.seed)), self.stages)

    @property
    def rows_but_test(self) -> tuple[Float[NDArray, "n p"], Float[NDArray, "n"]]:
        """Training and calibration rows, for methods that train and calibrate on the same ones."""
        return np.concatenate([self.X_train, self.X_calib]), np.concatenate([self.y_train, self.y_calib])

    @property
    def held_out_errors(self) -> Float[NDArray, "n"]:
        """Absolute errors of the training rows by models that have not seen them."""
        return np.abs(self.y_train - self.held_out)

    @property
    def calib_errors(self) -> Float[NDArray, "m"]:
        """Errors of the calibration rows, with their sign."""
        return self.y_calib - self.predict(self.X_calib)

    @property
    def predict(self) -> Callable[[Float[NDArray, "n p"]], Float[NDArray, "n"]]:
        """The shared model's predictions; who takes this function is counted the training, who calls it is not."""
        model = self.estimator.fit(self.X_train, self.y_train[:, None])
        return lambda X: model.evaluate(X).y_pred[:, 0]

    @property
    def held_out(self) -> Float[NDArray, "n"]:
        """Predictions of the training rows by models that have not seen them, each trained without a fold."""

        def predict() -> Float[NDArray, "n"]:
            y_pred, y = np.empty(len(self.y_train)), self.y_train[:, None]
            for inside, outside in held_out_folds(len(y), self.seed):
                model = self.estimator.fit(self.X_train[inside], y[inside])
                y_pred[outside] = model.evaluate(self.X_train[outside]).y_pred[:, 0]
            return y_pred

        return self.stages.once("held out", predict)


def digest(*arrays: NDArray) -> str:
    """A name for these numbers."""
    content = hashlib.blake2b(digest_size=16)
    for array in arrays:
        content.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return content.hexdigest()
