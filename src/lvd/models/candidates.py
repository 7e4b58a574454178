"""Choosing between the built-in models by cross-validation on the training rows, with missing numbers allowed."""

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
from lvd.models.level_coding import LevelCodes, TargetCoding
from lvd.models.model import Evaluation, Model, takes
from lvd.models.scaling import refuse_unknown

N_FOLDS, FEWEST_ROWS = 5, 20
"""The number of folds for held-out errors, and the number of rows below which in-sample errors are used."""
JUDGED_ROWS = 1000
"""Only enough folds are evaluated to hold this many rows."""
MORE_FOLDS, MANY_ROWS = 10, 1000
"""Calibration uses this many folds below this many rows: there a model trained without a fifth of them is
noticeably worse. Setting rows aside hurts there, too."""


Folds: TypeAlias = Sequence[tuple[Int[NDArray, "_"], Int[NDArray, "_"]]]
"""For each fold, the training rows and the held-out rows."""


def held_out_folds(n_rows: int, seed: int, n_folds: int | None = None) -> Folds:
    """Random folds."""
    from sklearn.model_selection import KFold  # slow to import, and only needed here

    return list(KFold(n_folds or N_FOLDS, shuffle=True, random_state=seed).split(np.empty(n_rows)))


@dataclass(frozen=True)
class BlockFolds:
    """Contiguous folds in time, since neighbouring rows resemble each other and would leak.

    A scikit-learn style splitter for time-ordered rows. If rows contain information about up to `gap` later
    ones, that many rows on either side of a held-out block are left out of training.
    """

    n_folds: int = N_FOLDS
    gap: int = 0

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds."""
        return self.n_folds

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Folds:
        """For each block, the training rows and the block's rows."""
        rows = np.arange(len(X))
        blocks = np.array_split(rows, self.n_folds)
        return [(rows[(rows < one[0] - self.gap) | (rows > one[-1] + self.gap)], one) for one in blocks]


def folds_of_cases(cases: NDArray, folds: Any, seed: int, groups: Labels = None) -> Folds:
    """Folds that hold out each row once and never divide a case. `folds` is a number, ``"auto"``, or a
    scikit-learn splitter, which receives the groups."""
    n_rows = len(cases)
    if n_rows < FEWEST_ROWS:
        raise InputError(
            f"cross-validated errors need at least {FEWEST_ROWS} rows, got {n_rows} sample(s); give more rows, or "
            "use calibration='split'"
        )
    if hasattr(folds, "get_n_splits"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a splitter warns if it ignores groups
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
    """The default number of folds for this many rows and cases."""
    return min(n_cases, MORE_FOLDS if n_rows < MANY_ROWS else N_FOLDS)


class Choice(NamedTuple):
    """The chosen model, its held-out predictions (NaN for rows not evaluated), and the errors.

    `errors` holds, by name, the root mean squared error on held-out rows as a share of the standard deviation of y.
    `fold_models` are the models that made the predictions, by the number of their fold, if they are kept.
    """

    model: Model
    held_out: Float[NDArray, "n t"]
    errors: dict[str, float]
    fold_models: dict[int, Model]


@dataclass(frozen=True)
class Candidates:
    """Models to choose from, for rows with missing numbers; the first one is the fallback."""

    models: Mapping[str, Model]

    def check(self, X: ArrayLike) -> Any:
        """Return a frame with categories, or else a matrix; numbers may be missing."""
        return check_inputs(X, None)

    @property
    def takes_missing_targets(self) -> bool:
        """Whether every candidate supports missing targets."""
        return all(model.takes_missing_targets for model in self.models.values())

    def same_case(self, X: Any) -> NDArray:
        """The case labels of the first candidate."""
        return self.first.same_case(X)

    def choose(
        self,
        X: Any,
        y: Float[NDArray, "n t"],
        seed: int,
        folds: Folds | None = None,
        n_jobs: int | None = None,
        *,
        keep_models: bool = False,
    ) -> Choice:
        """The model with the smallest held-out squared error; with very few rows, the first.

        Models that do not support missing numbers see them filled in.
        """
        models = {name: accepting(model, X) for name, model in self.models.items()}
        if len(y) < FEWEST_ROWS or len(models) == 1:
            return Choice(next(iter(models.values())), np.full_like(y, np.nan), {}, {})
        folds = held_out_folds(len(y), seed) if folds is None else folds
        folds = folds[: int(np.ceil(len(folds) * min(1.0, JUDGED_ROWS / len(y))))]
        judged = np.concatenate([outside for _, outside in folds])
        refuse_unknown(y)
        scale = np.where(np.nanmax(y, axis=0) > np.nanmin(y, axis=0), np.nanstd(y, axis=0), 1.0)
        held_out = {name: np.full_like(y, np.nan) for name in models}

        jobs = Jobs(
            partial(_predict_fold, list(models.values()), (X, y), folds, keep_models),
            range(len(folds)),
            lambda number: announce(f"choosing the model: fold {number + 1} of {len(folds)}"),
        )
        answers = at_once(jobs, n_jobs, X)
        for (_, outside), answer in zip(folds, answers, strict=True):
            for name, (_, y_pred) in zip(models, answer, strict=True):
                held_out[name][outside] = y_pred
        errors = {
            name: float(np.sqrt(np.nanmean(((y - y_pred)[judged] / scale) ** 2)))
            for name, y_pred in held_out.items()
        }
        best = min(errors, key=errors.__getitem__)
        of_best = [answer[list(models).index(best)] for answer in answers]
        kept = {number: model for number, (model, _) in enumerate(of_best) if model is not None}
        return Choice(models[best], held_out[best], errors, kept)

    @property
    def first(self) -> Model:
        """The first candidate."""
        return next(iter(self.models.values()))


def _predict_fold(
    models: Sequence[Model], data: tuple[Any, NDArray], folds: Folds, keep: bool, number: int
) -> list[tuple[Model | None, Float[NDArray, "k t"]]]:
    """What each model, trained without a fold of inputs and targets, predicts of it, with the model itself if it is
    to be kept."""
    found = [train_without(model, *data, folds[number]) for model in models]
    return [(model if keep else None, answer.y_pred) for model, answer in found]


def train_without(
    template: Model, X: Any, y: Float[NDArray, "n t"], fold: tuple[NDArray, NDArray], **weights: Any
) -> tuple[Model, Evaluation]:
    """A model like the template, trained on the first rows of `fold`, and its answers on the others."""
    inside, outside = fold
    model = template.untrained()
    model.fit(_safe_indexing(X, inside), y[inside], **weights)
    return model, model.evaluate(_safe_indexing(X, outside))


@dataclass(eq=False, repr=False)
class FilledModel(Model, BaseEstimator):
    """A model that sees the column mean in place of missing numbers, plus a flag if training rows lack the
    number; categories become their frequent levels (:class:`InputCoding`) and, if they have many, mean
    targets."""

    model: Model
    random_state: int = 0

    def check(self, X: ArrayLike) -> Any:
        """Return a frame with categories, or else a matrix with the columns of `fit`; numbers may be missing."""
        return check_inputs(X, getattr(self, "n_features_in_", None))

    @property
    def takes_missing_targets(self) -> bool:
        """Whether the wrapped model supports missing targets."""
        return self.model.takes_missing_targets

    @property
    def embeds_predictions(self) -> bool:
        """Whether the trained model embeds its predictions."""
        return self.model_.embeds_predictions

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> FilledModel:
        """Learn the filling, then train the model on the filled rows."""
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
        """Evaluate the model on the filled rows."""
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
    """The model, wrapped if it does not support the categories or missing numbers in the rows."""
    if not is_matrix(X):
        return model if getattr(model, "takes_levels", False) else FilledModel(model)
    return FilledModel(model) if np.isnan(X).any() and not takes(model, "allow_nan") else model


def check_inputs(X: ArrayLike, n_columns: int | None) -> Any:
    """Return a frame with categories unchanged, or else a matrix; numbers may be missing."""
    if not hasattr(X, "columns") or not InputCoding.of(X).categorical:
        return check_matrix(X, n_columns=n_columns, missing=True)
    if n_columns is not None and X.shape[1] != n_columns:
        raise InputError(f"X has {X.shape[1]} columns, but had {n_columns} in fit; give the same")
    return X
