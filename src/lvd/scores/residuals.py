"""Errors as scores: absolute, signed, normalized by a second model, or measured separately on either side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import clone

from lvd._typing import Float, NDArray
from lvd._validation import check_choice, present_rows
from lvd.engine.quantiles import WeightedRows
from lvd.models import Model
from lvd.scores.score import (
    BoundResidual,
    BoundScore,
    ConformityScore,
    EvaluatedRows,
    Plan,
    TrainingRows,
    times,
)
from lvd.wrap import as_model

ERROR_OFFSET = 1e-5


def error_unit(error_pred: Float[NDArray, "n *t"]) -> Float[NDArray, "n *t"]:
    """The unit of an error: the predicted error, kept off zero."""
    return ERROR_OFFSET + np.abs(error_pred)


@dataclass(frozen=True, eq=False)
class BoundSigned(BoundScore):
    """``(y_pred - y) / unit`` and ``(y - y_pred) / unit``: each end has its own radius."""

    def __call__(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n 2 t"]:
        """Two columns."""
        error = (y - self.y_pred) / self.unit
        return np.stack([-error, error], axis=1)

    def intervals(
        self, radius: Float[NDArray, "n 2 l t"], levels: Float[NDArray, "l"]
    ) -> Float[NDArray, "n 2 l t"]:
        """All y with both scores at most their radii; an empty set shrinks to the prediction."""
        ends = np.stack([-radius[:, 0], radius[:, 1]], axis=1)
        kept = np.where(ends[:, :1] > ends[:, 1:], 0.0, ends)
        return self.y_pred[:, None, None] + times(kept, self.unit[:, None, None])


class AbsoluteResidual(ConformityScore):
    """``|y - y_pred|``.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    >>> reg = lvd.LVDRegressor(conformity_score=lvd.scores.AbsoluteResidual(), random_state=0).fit(X, X[:, 0])
    >>> reg.predict_interval(X[:5])[1].shape
    (5, 2, 1)
    """

    def bind(self, rows: EvaluatedRows) -> BoundResidual:
        """The errors as they are."""
        ones = np.ones_like(rows.y_pred)
        return BoundResidual(rows.y_pred, ones, ones, ones)


@dataclass(frozen=True)
class ErrorModel:
    """A model of the absolute error, of the rows themselves or of the first model's embeddings."""

    model: Model
    on_embeddings: bool

    def predict(self, rows: EvaluatedRows) -> Float[NDArray, "n t"]:
        """The predicted absolute error of each row and target; it may be negative."""
        return self.model.evaluate(rows.embeddings if self.on_embeddings else rows.inputs).y_pred


class NormalizedResidual(ConformityScore):
    """``|y - y_pred| / (1e-5 + |error_pred|)``, the error predicted by a second model (MAD normalisation).

    The paper prints an interval that divides by the predicted error; it must multiply, as here.

    Parameters
    ----------
    error_estimator : the second model, fitted to the first one's absolute errors; by default a copy of the first
        or, for a prefit estimator, the built-in MLP on the embeddings. A function is used as it is.
    errors : which errors it learns from: ``"held_out"``, out-of-fold errors, if lvd trains the estimator; or
        ``"in_sample"``, errors on the training rows, which are too small but are what the paper used.
    """

    error_model_: ErrorModel

    def __init__(self, error_estimator: Any = None, errors: str = "held_out") -> None:
        self.error_estimator = error_estimator
        self.errors = errors

    def _check_parameters(self) -> None:
        check_choice(self.errors, "errors", ("held_out", "in_sample"))

    @property
    def learns_errors(self) -> bool:
        """Unless the second model is already trained, or learns from in-sample errors."""
        given = self.error_estimator
        return self.errors == "held_out" and (given is None or not as_model(given).prefit)

    @property
    def typical(self) -> float:
        """Errors are in units of the expected ones."""
        return 1.0

    def fit(self, training: TrainingRows) -> None:
        """Train the second model on absolute errors.

        A prefit model cannot be trained again as the second one: without an `error_estimator`, the built-in MLP
        is trained on its embeddings.
        """
        on_embeddings = self.error_estimator is None and training.model.prefit
        if self.error_estimator is None and not on_embeddings:
            model: Model = clone(training.model)
        else:
            model = as_model(self.error_estimator, device=training.device, random_state=training.seed)
        if model.prefit:
            learned = training.y
        else:
            learned = np.abs(training.errors if self.errors == "in_sample" else training.held_out_errors)
        model.fit(training.rows.embeddings if on_embeddings else training.rows.inputs, learned)
        self.error_model_ = ErrorModel(model, on_embeddings)

    def bind(self, rows: EvaluatedRows) -> BoundResidual:
        """The errors divided by the predicted errors."""
        unit = error_unit(self.error_model_.predict(rows))
        return BoundResidual(rows.y_pred, unit, unit, unit)


class SignedResidual(ConformityScore):
    """The signed error; each end of an interval has its own quantile at ``(1 - level) / 2``.

    For asymmetric errors. It bounds the misses on either side, and needs twice the rows.
    """

    def bind(self, rows: EvaluatedRows) -> BoundSigned:
        """The errors as they are."""
        return BoundSigned(rows.y_pred, np.ones_like(rows.y_pred))

    def plan(self, level: float) -> Plan:
        """Two columns, each with half of the miscoverage."""
        return Plan((0, 1), (1.0 + level) / 2.0)


class SidedResidual(ConformityScore):
    """Errors divided by their usual size on the same side among similar training rows.

    For asymmetric errors. One quantile serves both ends, and bounds the sum of the misses. The sizes are roots of
    kernel regressions of ``max(-error, 0)^2`` and ``max(error, 0)^2``, with weight 1 on their overall means. They
    are squared because errors that average to zero have equal means on both sides, however skewed they are.
    Without a kernel, all training rows count alike.
    """

    measure: ClassVar[str] = "score"

    train_errors_: Float[NDArray, "n t"]

    @property
    def typical(self) -> float:
        """Errors are in units of the expected ones."""
        return 1.0

    def fit(self, training: TrainingRows) -> None:
        """Store the errors of the training rows that each kernel was learned from."""
        self.train_errors_ = training.errors
        n_learned = [len(kernel.train_points_) for kernel in training.rows.kernels]
        if n_learned and n_learned != np.isfinite(self.train_errors_).sum(axis=0).tolist():
            unseen = np.isfinite(training.out_of_fold_errors(joint=False))
            self.train_errors_ = np.where(unseen, self.train_errors_, np.nan)

    def bind(self, rows: EvaluatedRows) -> BoundResidual:
        """The errors divided by their usual size on the same side."""
        ones, scales = np.ones_like(rows.y_pred), []
        if not rows.kernels:
            sides = np.maximum([-self.train_errors_, self.train_errors_], 0.0)
            below, above = error_unit(np.sqrt(np.nanmean(np.square(sides), axis=1)))
            return BoundResidual(rows.y_pred, ones, below * ones, above * ones)
        for kernel, errors in zip(rows.kernels, self.train_errors_.T, strict=True):
            queries = torch.as_tensor(kernel.coordinates(rows.placed))
            points = queries.new_tensor(kernel.train_points_)
            scales.append(_side_scales(queries, points, errors[present_rows(errors)]))
        below, above = np.moveaxis(np.array(scales), [0, 2], [2, 1])
        return BoundResidual(rows.y_pred, ones, below, above)


def _side_scales(
    queries: torch.Tensor, points: torch.Tensor, errors: Float[NDArray, "m"]
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
    given = points.new_tensor(errors)
    sides = torch.stack([(-given).clamp(min=0.0), given.clamp(min=0.0)], 1).square()
    sums = WeightedRows(points, torch.cat([sides, torch.ones_like(sides[:, :1])], 1)).sums(queries)
    local = (sums[:, :2] + sides.mean(0)) / (sums[:, 2:] + 1.0)
    below, above = error_unit(local.sqrt().cpu().numpy()).T
    return below, above
