"""The interface of conformity scores, and the rows they see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing

from lvd._parallel import Jobs, at_once
from lvd._progress import announce
from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError, Parameter, is_matrix, row_digests, to_numpy
from lvd.kernels import Kernel
from lvd.kernels.mahalanobis import Embeddings, place
from lvd.models import Evaluation, Model
from lvd.models.candidates import FEWEST_ROWS, Folds, held_out_folds, train_without

NEIGHBOR_ROWS, SMALL_ERROR = 2000, 0.1
EVERY_ROW = slice(None)
FEWEST_HELD_OUT = 1000
"""With at least this many held-out rows a kernel is learned from them alone; learning from all takes far longer."""
LEARNED_ROWS = 50_000
"""Scales and shapes are learned from at most this many rows: more do not help."""


@dataclass(frozen=True, eq=False)
class EvaluatedRows:
    """Rows after one pass of the model, with the kernels that compare them.

    `unknown` marks rows that the caller knows to be unlike all training rows.
    """

    inputs: Any
    evaluation: Evaluation
    kernels: Sequence[Kernel] = ()
    unknown: Bool[NDArray, "n"] | None = None

    def __getitem__(self, indices: Int[NDArray, "k"]) -> EvaluatedRows:
        """Some of the rows."""
        answers: Any = (None if part is None else part[indices] for part in self.evaluation)
        return replace(
            self,
            inputs=_safe_indexing(self.inputs, indices),
            evaluation=Evaluation(*answers),
            unknown=None if self.unknown is None else self.unknown[indices],
        )

    @property
    def y_pred(self) -> Float[NDArray, "n t"]:
        """The model's predictions."""
        return self.evaluation.y_pred

    @property
    def numbers(self) -> Float[NDArray, "n p"] | None:
        """The inputs if they are a matrix of numbers, with missing values filled in."""
        if self.evaluation.inputs is not None:
            return self.evaluation.inputs
        return self.inputs if is_matrix(self.inputs) else None

    @property
    def embeddings(self) -> Float[NDArray, "n h"]:
        """The model's embeddings."""
        return self.evaluation.embeddings

    @cached_property
    def placed(self) -> Embeddings:
        """The embeddings on the kernels' device, copied there once for all targets."""
        return place(self.embeddings, self.kernels[0].device if self.kernels else "cpu")

    def coordinates(self, target: int) -> Float[NDArray, "n k"]:
        """The rows' coordinates in a target's kernel; a single kernel serves all targets."""
        kernel = self.kernels[0 if len(self.kernels) == 1 else target]
        return to_numpy(kernel.coordinates(self.placed))

    @property
    def keys(self) -> NDArray:
        """The keys of random draws: digests of the inputs, as the last digits of embeddings depend on the
        processor."""
        return row_digests(self.inputs)


class OutOfFold(NamedTuple):
    """The out-of-fold evaluation of rows, and the models behind it by the number of their fold, if kept."""

    evaluation: Evaluation
    models: dict[int, Model]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """What a score may learn from: the training rows, the model fitted to them, and the random seed."""

    rows: EvaluatedRows
    y: Float[NDArray, "n t"]
    model: Model
    device: str
    seed: int
    crossed: Float[NDArray, "n t"] | None = None
    """Out-of-fold predictions of some rows, NaN elsewhere; the missing ones are computed."""
    folds: Folds | None = None
    """The folds whose out-of-fold errors calibrate; None if rows set aside do."""
    sample_weight: Float[NDArray, "n"] | None = None
    """The weight of each row in training."""
    n_jobs: int | None = None
    """How many models are trained at the same time."""
    held_out: Folds | None = None
    """The folds for out-of-fold errors if rows set aside calibrate; None for random folds."""
    fold_models: Mapping[int, Model] | None = None
    """The models behind out-of-fold predictions that are trained already, by the number of the fold they have not
    seen; None if no such model is kept."""

    @property
    def errors(self) -> Float[NDArray, "n t"]:
        """The model's signed errors on its own training rows."""
        return self.y - self.rows.y_pred

    @property
    def held_out_errors(self) -> Float[NDArray, "n t"]:
        """Signed out-of-fold errors; of a prefit model, its own errors."""
        return self.y - self.held_out_predictions

    @property
    def held_out_predictions(self) -> Float[NDArray, "n t"]:
        """Predictions by models like this one, each trained without the fold that it predicts."""
        return self._held_out.evaluation.y_pred

    @property
    def held_out_spread(self) -> Float[NDArray, "n 2 t"] | None:
        """The expected errors of those models, if they predict them."""
        return self._held_out.evaluation.spread

    def fold_models_in_order(self) -> list[Model]:
        """Those models in the order of their folds, if they are kept."""
        return [model for _, model in sorted(self._held_out.models.items())]

    @cached_property
    def _held_out(self) -> OutOfFold:
        """Out-of-fold evaluations of the rows: by full models if they calibrate, otherwise by lighter ones.

        The embeddings are those of the model trained on all rows: every model has its own coordinates.
        """
        if self.model.prefit or len(self.y) < FEWEST_ROWS:
            return OutOfFold(self.rows.evaluation, {})
        return self._held_out_by(self.folds or self.held_out or held_out_folds(len(self.y), self.seed))

    def _held_out_by(self, folds: Folds) -> OutOfFold:
        """The same with these folds alone; predictions of rows in none of them are NaN."""
        own = self.rows.evaluation
        predictions = np.full_like(self.y, np.nan) if self.crossed is None else self.crossed.copy()
        found = own._replace(
            y_pred=predictions,
            quantiles=None if own.quantiles is None else np.empty_like(own.quantiles),
            spread=None if own.spread is None else np.empty_like(own.spread),
        )

        template = self.model.lighter() if self.folds is None else self.model.untrained()
        left = [number for number, fold in enumerate(folds) if not np.isfinite(predictions[fold[1]]).all()]
        data = self.rows.inputs, self.y, self.sample_weight
        jobs = Jobs(
            partial(_evaluate_fold, template, data, folds, self.fold_models is not None),
            left,
            lambda number: announce(f"errors on rows held out: fold {number + 1} of {len(folds)}"),
        )
        models = dict(self.fold_models or {})
        for number, (model, answer) in zip(left, at_once(jobs, self.n_jobs, self.rows.inputs), strict=True):
            for name in ("y_pred", "quantiles", "spread"):
                if getattr(found, name) is not None:
                    getattr(found, name)[folds[number][1]] = getattr(answer, name)
            if model is not None:
                models[number] = model
        return OutOfFold(found, models)

    @property
    def fold_of(self) -> Int[NDArray, "n"] | None:
        """The fold that holds each row out; None for random folds."""
        if self.folds is None:
            return None
        numbers = np.empty(len(self.y), np.int64)
        for number, (_, outside) in enumerate(self.folds):
            numbers[outside] = number
        return numbers

    @property
    def held_out_rows(self) -> EvaluatedRows:
        """The rows with out-of-fold predictions."""
        return replace(
            self.rows, evaluation=self._held_out.evaluation._replace(y_pred=self.held_out_predictions)
        )

    def out_of_fold_errors(self, *, joint: bool) -> Float[NDArray, "n t"]:
        """Signed errors for a kernel to learn from; NaN for rows not used.

        If the model predicts no spread, or if out-of-fold errors calibrate, they are the out-of-fold errors of
        all rows. Otherwise they are the model's errors on rows it was not trained on, provided that at least
        `FEWEST_HELD_OUT` of them have the target (all targets for a `joint` score), and else its errors on all
        rows.
        """
        if self.rows.evaluation.spread is None or self.folds is not None:
            return self.held_out_errors
        unseen = np.zeros((len(self.y), 1), bool)
        unseen[self.model.rows_held_out] = True
        known = np.isfinite(self.y.sum(axis=1, keepdims=True) if joint else self.y)
        enough = (unseen & known).sum(axis=0) >= FEWEST_HELD_OUT
        return np.where(unseen | ~enough, self.errors, np.nan)

    def part_to_learn_from(self) -> TrainingRows:
        """At most `LEARNED_ROWS` rows, with out-of-fold predictions, which take fewer models; all rows if
        out-of-fold errors calibrate or the model predicts its own spread."""
        n_rows = len(self.y)
        if n_rows <= LEARNED_ROWS or self.folds is not None or self.rows.evaluation.spread is not None:
            return self
        if self.model.prefit:
            return self._part(np.random.default_rng(self.seed).permutation(n_rows)[:LEARNED_ROWS], None)
        folds = self.held_out or held_out_folds(n_rows, self.seed)
        n_needed = len(folds) if self.held_out else -(-len(folds) * LEARNED_ROWS // n_rows)
        predictions = self._held_out_by(folds[:n_needed]).evaluation.y_pred
        found = np.flatnonzero(np.isfinite(predictions).all(axis=1))
        some = np.random.default_rng(self.seed).permutation(found)[:LEARNED_ROWS]
        return self._part(some, predictions[some])

    def _part(self, some: Int[NDArray, "k"], predictions: Float[NDArray, "k t"] | None) -> TrainingRows:
        inputs = _safe_indexing(self.rows.inputs, some)
        rows = replace(self.rows, inputs=inputs, evaluation=self.model.evaluate(inputs))
        weight = None if self.sample_weight is None else self.sample_weight[some]
        found: dict[str, Any] = {"crossed": predictions, "sample_weight": weight, "held_out": None}
        return replace(self, rows=rows, y=self.y[some], **found)

    def located(self, kernels: Sequence[Kernel]) -> TrainingRows:
        """The same rows with kernels; out-of-fold predictions are kept."""
        moved = replace(self, rows=replace(self.rows, kernels=kernels))
        if "_held_out" in vars(self):
            vars(moved)["_held_out"] = self._held_out
        return moved

    def with_held_out_embeddings(self) -> TrainingRows:
        """The same rows, whose embeddings hold out-of-fold predictions if they hold predictions at all.

        Otherwise a model that interpolates would embed the targets of these rows, and no others.
        """
        if not self.model.embeds_predictions:
            return self
        found, models = self._held_out
        embeddings = found.embeddings.copy()
        embeddings[:, -found.y_pred.shape[1] :] = found.y_pred
        own = self.rows.evaluation._replace(embeddings=embeddings)
        moved = replace(self, rows=replace(self.rows, evaluation=own))
        vars(moved)["_held_out"] = OutOfFold(found._replace(embeddings=embeddings), models)
        return moved


def _evaluate_fold(
    template: Model, data: tuple[Any, NDArray, NDArray | None], folds: Folds, keep: bool, number: int
) -> tuple[Model | None, Evaluation]:
    """What a model like the template, trained without a fold of inputs, targets and weights, says of it, with the
    model itself if it is to be kept."""
    (inputs, y, sample_weight), fold = data, folds[number]
    model, answer = train_without(template, inputs, y, fold, **weights_for(sample_weight, fold[0]))
    return model if keep else None, answer


def weights_for(
    sample_weight: Float[NDArray, "n"] | None, rows: Int[NDArray, "k"] | slice = EVERY_ROW
) -> dict[str, Float[NDArray, "k"]]:
    """The weights of these rows as keyword arguments of `fit`; empty if there are none."""
    return {} if sample_weight is None else {"sample_weight": sample_weight[rows]}


def interpolates(training: TrainingRows) -> bool:
    """Whether the model's training errors are too small to say anything about new rows.

    They are for models that interpolate, such as trees, and if they are tiny compared with the differences of y
    between nearest neighbours.
    """
    if training.model.interpolates:
        return True
    embeddings = training.rows.embeddings[:NEIGHBOR_ROWS]
    if len(embeddings) < 2:
        return False
    from sklearn.neighbors import NearestNeighbors  # slow to import, and only needed here

    nearest = NearestNeighbors(n_neighbors=2).fit(embeddings).kneighbors(embeddings)[1][:, 1]
    y, errors = training.y[: len(embeddings)], np.abs(training.errors[: len(embeddings)])
    differences = np.abs(y - y[nearest])
    known = np.isfinite(errors).any(axis=0) & np.isfinite(differences).any(axis=0)
    if not known.any():
        return False
    # Each target separately, as units differ.
    errors, differences = errors[:, known], differences[:, known]
    small = np.nanmedian(errors, axis=0) < SMALL_ERROR * np.nanmedian(differences, axis=0)
    return bool(small.mean() > 0.5)


class Plan(NamedTuple):
    """Which columns of a score answer a confidence level, and the quantile level of each."""

    columns: tuple[int, ...]
    level: float


@dataclass(frozen=True, eq=False)
class BoundScore(ABC):
    """A score bound to rows: it scores targets, and tells which targets score at most a radius.

    Intervals are centred at `y_pred`, and errors are measured in `unit`.
    """

    y_pred: Float[NDArray, "n t"]
    unit: Float[NDArray, "n t"]

    @abstractmethod
    def __call__(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n c t"]:
        """The columns of scores of each row and target."""

    @abstractmethod
    def intervals(
        self, radius: Float[NDArray, "n s l t"], levels: Float[NDArray, "l"]
    ) -> Float[NDArray, "n 2 l t"]:
        """All y whose scores are at most the radii of the columns of each level; see :class:`Plan`."""

    def __getitem__(self, rows: slice | Int[NDArray, "k"]) -> Any:
        """The score bound to some of the rows; only arrays of two or more dimensions are per row."""

        def some(part: Any) -> Any:
            if isinstance(part, tuple):
                return tuple(map(some, part))
            own = isinstance(part, BoundScore) or (isinstance(part, np.ndarray) and part.ndim > 1)
            return part[rows] if own else part

        return replace(self, **{one.name: some(getattr(self, one.name)) for one in fields(self)})

    def signed(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        """A score that increases with y: by default the error in units."""
        return (y - self.y_pred) / self.unit

    def targets_at(self, signed: Float[NDArray, "n j t"]) -> Float[NDArray, "n j t"]:
        """The y of these signed scores; infinite on overflow."""
        with np.errstate(over="ignore"):
            return self.y_pred[:, None] + signed * self.unit[:, None]

    def remark(self, row: int, target: int) -> str | None:
        """One sentence about the errors of a row; by default None."""
        return None


@dataclass(frozen=True, eq=False)
class NarrowedScore(BoundScore):
    """A bound score with intervals of this `share` of their width, narrowed towards the prediction."""

    inner: BoundScore
    share: Float[NDArray, "t"]

    @classmethod
    def of(cls, inner: BoundScore, share: Float[NDArray, "t"]) -> NarrowedScore:
        """The narrowed score."""
        return cls(inner.y_pred, inner.unit * share, inner, share)

    def __call__(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n c t"]:
        """The scores of targets that are farther away by as much."""
        return self.inner(self._moved_away(y))

    def intervals(
        self, radius: Float[NDArray, "n s l t"], levels: Float[NDArray, "l"]
    ) -> Float[NDArray, "n 2 l t"]:
        """The narrowed intervals."""
        y_pred = self.y_pred[:, None, None]
        return y_pred + self.share * (self.inner.intervals(radius, levels) - y_pred)

    def signed(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        """The signed scores of targets that are farther away by as much."""
        return self.inner.signed(self._moved_away(y))

    def targets_at(self, signed: Float[NDArray, "n j t"]) -> Float[NDArray, "n j t"]:
        """The y of these signed scores, nearer to the prediction."""
        y_pred = self.y_pred[:, None]
        return y_pred + self.share * (self.inner.targets_at(signed) - y_pred)

    def remark(self, row: int, target: int) -> str | None:
        """What the score says of the errors of a row."""
        return self.inner.remark(row, target)

    def _moved_away(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        return self.y_pred + (y - self.y_pred) / self.share


@dataclass(frozen=True, eq=False)
class BoundResidual(BoundScore):
    """``max((y_pred - y) / below, (y - y_pred) / above)``: one radius moves both ends, each in its own unit."""

    below: Float[NDArray, "n t"]
    above: Float[NDArray, "n t"]

    def __call__(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n 1 t"]:
        """One column."""
        error = y - self.y_pred
        return np.maximum(-error / self.below, error / self.above)[:, None]

    def intervals(
        self, radius: Float[NDArray, "n 1 l t"], levels: Float[NDArray, "l"]
    ) -> Float[NDArray, "n 2 l t"]:
        """All y whose score is at most `radius`; if that is negative, the empty set shrinks to the prediction."""
        at_least_0, y_pred = np.maximum(radius[:, 0], 0.0), self.y_pred[:, None]
        below, above = (times(at_least_0, measure[:, None]) for measure in (self.below, self.above))
        return np.stack([y_pred - below, y_pred + above], axis=1)


def times(scores: NDArray, unit: NDArray) -> NDArray:
    """The product; infinite on overflow."""
    with np.errstate(over="ignore"):
        return np.asarray(scores * unit)


class ConformityScore(BaseEstimator, ABC):
    """A conformity score. The constructor sets parameters; names of what `fit` learns end in an underscore."""

    joint: ClassVar[bool] = False
    """Whether all targets of a row share one score."""
    measure: ClassVar[str] = "error"
    """What a score is called in explanations: an error, in units of y or of the expected error, or something
    else."""

    @property
    def learns_errors(self) -> bool:
        """Whether `fit` learns from out-of-fold errors."""
        return False

    @property
    def only_levels(self) -> Float[NDArray, "l"] | None:
        """The only levels that can be asked for, if `fit` learned them; None for any."""
        return None

    @property
    def typical(self) -> float | None:
        """The typical size of a score, known before calibration; None if unknown."""
        return None

    def measure_of(self, target: int) -> str:
        """What a target's score is called."""
        return self.measure

    def error_sizes(self, errors: Float[NDArray, "n t"]) -> Float[NDArray, "n r"]:
        """The error sizes that a kernel of the errors learns: one column per kernel."""
        return np.abs(errors)

    def prepare(self, model: Model, levels: Float[NDArray, "l"]) -> Model:
        """The model that this score needs, by default the given one; checks parameters before training."""
        self._check_parameters()
        return model

    def plan(self, level: float) -> Plan:
        """How to answer a confidence level: by default with one column at the level itself."""
        return Plan((0,), level)

    def _check_parameters(self) -> None:
        """Refuse parameters that cannot work."""

    def fit(self, training: TrainingRows) -> None:
        """Learn from the training rows, by default nothing; calibration rows are never seen."""

    @abstractmethod
    def bind(self, rows: EvaluatedRows) -> BoundScore:
        """The score of these rows."""

    def fit_crossed(self, training: TrainingRows) -> BoundScore:
        """Fit, and bind the training rows out of fold: with models, scales and shapes that have not seen their
        fold."""
        self.check_crossed()
        return self.bind(training.held_out_rows)

    def check_crossed(self) -> None:
        """Raise unless the score can be bound to the rows it learns from."""
        own = type(self)
        if own.fit is not ConformityScore.fit and own.fit_crossed is ConformityScore.fit_crossed:
            raise InputError(
                f"{own.__name__} has no out-of-fold scores of the rows it learns from, so it cannot serve cross "
                "calibration; use 'distributional', 'scaled' or 'absolute' scores, or ",
                Parameter("calibration", "split"),
            )
