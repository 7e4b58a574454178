"""The contract of conformity scores, and the rows they see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from lvd._typing import Float, NDArray
from lvd._validation import row_digests
from lvd.kernels import MahalanobisKernel
from lvd.kernels.rows import Rows, place
from lvd.models import Evaluation, Model


@dataclass(frozen=True, eq=False)
class EvaluatedRows:
    """Rows after one pass of the model, with the kernels in whose coordinates they can be compared."""

    inputs: Any
    evaluation: Evaluation
    kernels: Sequence[MahalanobisKernel] = ()

    @property
    def y_pred(self) -> Float[NDArray, "n t"]:
        """The model's predictions."""
        return self.evaluation.y_pred

    @cached_property
    def embeddings(self) -> Rows:
        """The embeddings where the kernels compute, brought there once for all targets."""
        device = self.kernels[0].device if self.kernels else "cpu"
        return place(self.evaluation.embeddings, device)

    @property
    def keys(self) -> NDArray:
        """What random draws belong to: the inputs, as the last digits of an embedding depend on the processor."""
        return row_digests(self.inputs)


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """What a score may learn from: the training rows, the model fitted to them, and the seed of what is random."""

    rows: EvaluatedRows
    y: Float[NDArray, "n t"]
    model: Model
    device: str
    seed: int

    @property
    def errors(self) -> Float[NDArray, "n t"]:
        """The model's signed errors on its own training rows."""
        return self.y - self.rows.y_pred


class Plan(NamedTuple):
    """Which of a score's columns answer a confidence level, and at which level each of them is taken."""

    columns: tuple[int, ...]
    level: float


class BoundScore(ABC):
    """A score bound to rows: what their targets score, and which targets score at most a radius.

    `y_pred` is where intervals are centred, and `unit` what an error is measured by.
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
        """All y that score at most the radii of the columns that each level asks for; see :class:`Plan`."""


class ConformityScore(ABC):
    """What is calibrated. Parameters are set by the constructor, and what `fit` learns ends in an underscore."""

    @abstractmethod
    def prepare(self, model: Model, levels: Float[NDArray, "l"]) -> Model:
        """The model that this score needs, made of the one for the estimator."""

    @abstractmethod
    def fit(self, training: TrainingRows) -> None:
        """Learn from the training rows; the calibration rows stay unseen."""

    @abstractmethod
    def bind(self, rows: EvaluatedRows) -> BoundScore:
        """The score of these rows."""

    @abstractmethod
    def plan(self, level: float) -> Plan:
        """How a confidence level is answered."""
