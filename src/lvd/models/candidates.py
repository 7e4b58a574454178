"""Choosing between the built-in models by cross-validation on the training rows, where numbers may be missing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing

from lvd._parallel import Jobs, at_once
from lvd._progress import announce
from lvd._typing import ArrayLike, Float, Int, Labels, NDArray
from lvd._validation import InputError, check_matrix, is_matrix
from lvd.models.coding import MOST_LEVELS, InputCoding
from lvd.models.kinds import takes
from lvd.models.level_coding import LevelCodes, TargetCoding
from lvd.models.model import Evaluation, Model
from lvd.models.scaling import refuse_unknown

N_FOLDS, FEWEST_ROWS = 5, 20
"""The folds for errors on held-out rows; with fewer rows than this the model's own errors are used."""
JUDGED_ROWS = 1000
"""Only as many folds are judged as hold this many rows."""
MORE_FOLDS, MANY_ROWS = 10, 1000
"""So many folds calibrate fewer rows than this: there a model without a fifth of them errs noticeably more.
Rows set aside are missed there, too."""


Folds: TypeAlias = Sequence[tuple[Int[NDArray, "_"], Int[NDArray, "_"]]]
"""For each fold the rows that train and the rows that are held out."""


def held_out_folds(n_rows: int, seed: int, n_folds: int | None = None) -> Folds:
    """Folds at random."""
    from sklearn.model_selection import KFold  # slow to import, and only needed here

    return list(KFold(n_folds or N_FOLDS, shuffle=True, random_state=seed).split(np.empty(n_rows)))


@dataclass(frozen=True)
class BlockFolds:
    """Folds that follow each other in time: neighbours in time are alike, and would tell of each other.

    A splitter as scikit-learn has them, for rows in the order of time. Where rows know of `gap` later ones, so many
    on either side of a block that is held out do not train.
    """

    n_folds: int = N_FOLDS
    gap: int = 0

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """How many folds there are."""
        return self.n_folds

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Folds:
        """For each block the rows that train, and those of the block."""
        rows = np.arange(len(X))
        blocks = np.array_split(rows, self.n_folds)
        return [(rows[(rows < one[0] - self.gap) | (rows > one[-1] + self.gap)], one) for one in blocks]


def folds_of_cases(cases: NDArray, folds: Any, seed: int, groups: Labels = None) -> Folds:
    """Folds that hold each row out once and divide no case: so many, ``"auto"``, or those of a scikit-learn
    splitter, which is given the groups."""
    n_rows = len(cases)
    if n_rows < FEWEST_ROWS:
        raise InputError(
            f"cross-validated errors need at least {FEWEST_ROWS} rows, got {n_rows} sample(s); give more rows, or "
            "use calibration='split'"
        )
    if hasattr(folds, "get_n_splits"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that a splitter has no use for groups
                pairs = list(folds.split(np.empty(n_rows), groups=groups))
        except (TypeError, ValueError) as error:
            raise InputError(
                f"folds: {type(folds).__name__} cannot divide these {n_rows} rows: {error}; give another splitter, "
                "or fit the groups= it asks for"
            ) from error
        found = [(np.asarray(inside), np.asarray(outside)) for inside, outside in pairs]
        if not np.array_equal(np.sort(np.concatenate([outside for _, outside in found])), np.arange(n_rows)):
            raise InputError(
                f"folds must hold each row out once, which {type(folds).__name__} does not; use KFold or GroupKFold"
            )
        return found
    if isinstance(folds, str) and folds == "auto":
        folds = number_of_folds(n_rows, len(np.unique(cases)))
    if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= n_rows:
        raise InputError(
            "folds must be 'auto', a whole number from 2 to the number of rows, or a scikit-learn splitter, got "
            f"{folds!r}"
        )
    names, case_of = np.unique(cases, return_inverse=True)
    if len(names) == n_rows:
        return held_out_folds(n_rows, seed, folds)
    if len(names) < folds:
        raise InputError(f"folds must be at most the number of different cases, {len(names)}, got {folds}")
    outside = [np.isin(case_of, held) for _, held in held_out_folds(len(names), seed, folds)]
    return [(np.flatnonzero(~mask), np.flatnonzero(mask)) for mask in outside]


def number_of_folds(n_rows: int, n_cases: int) -> int:
    """How many folds calibrate so many rows of so many cases."""
    return min(n_cases, MORE_FOLDS if n_rows < MANY_ROWS else N_FOLDS)


class Choice(NamedTuple):
    """The model that was chosen, its predictions of the rows that were judged (NaN elsewhere), and the errors.

    `errors` holds, by name, the root mean squared error on held-out rows as a share of the standard deviation of y.
    """

    model: Model
    held_out: Float[NDArray, "n t"]
    errors: dict[str, float]


@dataclass(frozen=True)
class Candidates:
    """Models to choose from, for rows in which numbers may be missing; the first one is preferred."""

    models: Mapping[str, Model]

    def check(self, X: ArrayLike) -> Any:
        """A frame with categories, or else a matrix, in which numbers may be missing."""
        return check_inputs(X, None)

    @property
    def takes_missing_targets(self) -> bool:
        """Whether every candidate takes them."""
        return all(model.takes_missing_targets for model in self.models.values())

    def same_case(self, X: Any) -> NDArray:
        """As the models have it."""
        return self.first.same_case(X)

    def choose(
        self,
        X: Any,
        y: Float[NDArray, "n t"],
        seed: int,
        folds: Folds | None = None,
        n_jobs: int | None = None,
    ) -> Choice:
        """The model with the smallest squared error on rows held out; of very few rows, the first.

        Where numbers are missing, models that do not take that see them filled in.
        """
        models = {name: accepting(model, X) for name, model in self.models.items()}
        if len(y) < FEWEST_ROWS or len(models) == 1:
            return Choice(next(iter(models.values())), np.full_like(y, np.nan), {})
        folds = held_out_folds(len(y), seed) if folds is None else folds
        folds = folds[: int(np.ceil(len(folds) * min(1.0, JUDGED_ROWS / len(y))))]
        judged = np.concatenate([outside for _, outside in folds])
        refuse_unknown(y)
        scale = np.where(np.nanmax(y, axis=0) > np.nanmin(y, axis=0), np.nanstd(y, axis=0), 1.0)
        held_out = {name: np.full_like(y, np.nan) for name in models}

        jobs = Jobs(
            partial(_predict_fold, list(models.values()), X, y, folds),
            range(1, len(folds) + 1),
            lambda number: announce(f"choosing the model: fold {number} of {len(folds)}"),
        )
        for (_, outside), predictions in zip(folds, at_once(jobs, n_jobs, X), strict=True):
            for name, y_pred in zip(models, predictions, strict=True):
                held_out[name][outside] = y_pred
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


def _predict_fold(
    models: Sequence[Model], X: Any, y: Float[NDArray, "n t"], folds: Folds, number: int
) -> list[Float[NDArray, "k t"]]:
    """What each model, trained without a fold, predicts of it."""
    inside, outside = folds[number - 1]
    trained = (clone(model).fit(_safe_indexing(X, inside), y[inside]) for model in models)
    return [model.evaluate(_safe_indexing(X, outside)).y_pred for model in trained]


@dataclass(eq=False, repr=False)
class FilledModel(Model, BaseEstimator):
    """The model sees the column's mean in place of what is missing and, where training rows lack it, a flag that
    tells so; for a category its frequent levels (:class:`InputCoding`) and, of many levels, their mean targets."""

    model: Model
    random_state: int = 0

    def check(self, X: ArrayLike) -> Any:
        """A frame with categories, or else a matrix, in which numbers may be missing, with the columns of `fit`."""
        return check_inputs(X, getattr(self, "n_features_in_", None))

    @property
    def takes_missing_targets(self) -> bool:
        """As the model has it."""
        return self.model.takes_missing_targets

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> FilledModel:
        """Learn what to fill in, and train the model on it."""
        self.n_features_in_, self.coding_, self.means_ = X.shape[1], InputCoding.of(X), None
        coded = self.coding_(X)
        if self.coding_.categorical:
            refuse_unknown(y)
            many = LevelCodes.of(X, self.coding_, fewest=MOST_LEVELS + 1)
            self.means_, means = TargetCoding.fit(many, X, y, self.random_state)
            coded = np.column_stack([coded, means])
        self.model_ = clone(self.model).fit(coded, y)
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """The model's answer to the rows as it sees them."""
        coded = self.coding_(X)
        if self.means_ is None:
            found: Evaluation = self.model_.evaluate(coded)
            return found._replace(inputs=self.coding_.filled_inputs(X))
        coded = np.column_stack([coded, self.means_(X)])
        found = self.model_.evaluate(coded)
        return found._replace(inputs=coded)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def accepting(model: Model, X: Any) -> Model:
    """The model, or one that codes the categories or missing numbers that there are and it does not take."""
    if not is_matrix(X):
        return model if getattr(model, "takes_levels", False) else FilledModel(model)
    return FilledModel(model) if np.isnan(X).any() and not takes(model, "allow_nan") else model


def check_inputs(X: ArrayLike, n_columns: int | None) -> Any:
    """A frame with categories as it is, or else a matrix, in which numbers may be missing."""
    if not hasattr(X, "columns") or not InputCoding.of(X).categorical:
        return check_matrix(X, n_columns=n_columns, missing=True)
    if n_columns is not None and X.shape[1] != n_columns:
        raise InputError(f"X has {X.shape[1]} columns, but had {n_columns} in fit; give the same")
    return X
