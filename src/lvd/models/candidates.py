"""The better of the built-in models, by cross-validation on the training rows, some of which may lack numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone

from lvd._progress import announce
from lvd._typing import ArrayLike, Float, Int, NDArray
from lvd._validation import check_matrix
from lvd.models.coding import InputCoding
from lvd.models.kinds import takes
from lvd.models.model import Evaluation, Model, RowwiseModel, takes_missing_targets
from lvd.models.scaling import refuse_unknown

N_FOLDS, FEWEST_ROWS = 5, 20
"""The folds for errors on held-out rows; with fewer rows than this the model's own errors are used."""
JUDGED_ROWS = 1000
"""Only as many folds are judged as hold this many rows."""


def held_out_folds(n_rows: int, seed: int) -> list[tuple[Int[NDArray, "a"], Int[NDArray, "b"]]]:
    """The rows inside and outside of training, fold by fold."""
    from sklearn.model_selection import KFold  # slow to load, and no prediction needs it

    return list(KFold(N_FOLDS, shuffle=True, random_state=seed).split(np.empty(n_rows)))


class Choice(NamedTuple):
    """The model that was chosen, its predictions of the rows that were judged (NaN elsewhere), and the errors.

    `errors` holds, by name, the root mean squared error on held-out rows as a share of the standard deviation of y.
    """

    model: Model
    held_out: Float[NDArray, "n t"]
    errors: dict[str, float]


@dataclass(frozen=True)
class Candidates:
    """Models of which the better is yet to be chosen, for rows in which numbers may be missing; the first one is
    preferred."""

    models: Mapping[str, Model]

    def check(self, X: ArrayLike) -> Any:
        """A matrix in which numbers may be missing."""
        return check_matrix(X, missing=True)

    @property
    def takes_missing_targets(self) -> bool:
        """Whether all of them do."""
        return all(map(takes_missing_targets, self.models.values()))

    def same_case(self, X: Any) -> NDArray:
        """As the models have it."""
        return self.first.same_case(X)

    def choose(self, X: Any, y: Float[NDArray, "n t"], seed: int) -> Choice:
        """The model with the smallest squared error on rows held out; of very few rows, the first.

        Where numbers are missing, models that do not take that see them filled in.
        """
        models = {name: accepting(model, X) for name, model in self.models.items()}
        if len(y) < FEWEST_ROWS or len(models) == 1:
            return Choice(next(iter(models.values())), np.full_like(y, np.nan), {})
        folds = held_out_folds(len(y), seed)[: int(np.ceil(N_FOLDS * min(1.0, JUDGED_ROWS / len(y))))]
        judged = np.concatenate([outside for _, outside in folds])
        refuse_unknown(y)
        scale = np.where(np.nanmax(y, axis=0) > np.nanmin(y, axis=0), np.nanstd(y, axis=0), 1.0)
        held_out = {name: np.full_like(y, np.nan) for name in models}
        for number, (inside, outside) in enumerate(folds, start=1):
            announce(f"choosing the model: fold {number} of {len(folds)}")
            for name, model in models.items():
                fitted = clone(model)
                fitted.fit(X[inside], y[inside])
                held_out[name][outside] = fitted.evaluate(X[outside]).y_pred
        errors = {
            name: float(np.sqrt(np.nanmean(((y - y_pred)[judged] / scale) ** 2)))
            for name, y_pred in held_out.items()
        }
        best = min(errors, key=errors.__getitem__)
        return Choice(models[best], held_out[best], errors)

    @property
    def first(self) -> Model:
        """The one that is preferred."""
        return next(iter(self.models.values()))


@dataclass(eq=False, repr=False)
class FilledModel(RowwiseModel, BaseEstimator):
    """The model sees the column's mean in place of what is missing and, where training rows lack it, a flag that
    tells so (:class:`InputCoding`)."""

    model: Any

    def check(self, X: ArrayLike) -> Float[NDArray, "n p"]:
        """A matrix in which numbers may be missing, with the columns of `fit`."""
        return check_matrix(X, n_columns=getattr(self, "n_features_in_", None), missing=True)

    @property
    def takes_missing_targets(self) -> bool:
        """As the model has it."""
        return takes_missing_targets(self.model)

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> FilledModel:
        """Learn what to fill in, and train the model on it."""
        self.n_features_in_, self.coding_ = X.shape[1], InputCoding.of(X)
        self.model_ = clone(self.model).fit(self.coding_(X), y)
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """The model's answer to the rows as it sees them."""
        found: Evaluation = self.model_.evaluate(self.coding_(X))
        return found._replace(inputs=self.coding_.filled_inputs(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def accepting(model: Model, X: Float[NDArray, "n p"]) -> Model:
    """The model, or, where it takes no missing numbers and some are, one that fills them in for it."""
    return FilledModel(model) if np.isnan(X).any() and not takes(model, "allow_nan") else model
