"""The contract of support rules: which rows are known, and why the others are not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from lvd._typing import Bool, NDArray
from lvd.scores import EvaluatedRows


class Reason(NamedTuple):
    """Why a row is unknown; `column` is the number of the input that decides it alone, where one does."""

    text: str
    column: int | None = None

    def named(self, name: str) -> str:
        """The text, with the input called by its name."""
        return self.text if self.column is None else self.text.replace(f"input {self.column + 1}", name, 1)


class Support(NamedTuple):
    """Which rows are known, and by its index the reason for each row that is not.

    Examples
    --------
    >>> import numpy as np
    >>> from lvd.support import Support
    >>> support = Support.of(np.array([True, False]), "it was measured after the sensor failed")
    >>> support.reasons[1].text
    'it was measured after the sensor failed'
    """

    known: Bool[NDArray, "n"]
    reasons: dict[int, Reason]

    @classmethod
    def of(cls, known: NDArray, reason: str | Callable[[int], Reason]) -> Support:
        """From a mask and one reason for all unknown rows, or a function from their indices to reasons."""
        give = (lambda row: Reason(reason)) if isinstance(reason, str) else reason
        return cls(known, {row: give(row) for row in np.flatnonzero(~known).tolist()})

    @classmethod
    def all_of(cls, found: Sequence[Support]) -> Support:
        """Known where all are; the reason is that of the first which does not know the row."""
        reasons: dict[int, Reason] = {}
        for one in reversed(found):
            reasons |= one.reasons
        return cls(np.logical_and.reduce([one.known for one in found]), reasons)


class SupportRule(BaseEstimator, ABC):
    """Decides whether training rows support a prediction: the constructor stores settings, `fit` learns.

    A rule sees the training rows alone, never the calibration rows, so that every promise about intervals stays.
    The rows offer `inputs`, as the model takes them; `numbers`, the same as a matrix, or None where they are not
    numbers; `embeddings`, the model's last hidden layer; and `y_pred`. :func:`lvd.testing.check_support` tests a
    rule of your own.
    """

    @abstractmethod
    def fit(self, rows: EvaluatedRows, seed: int) -> Any:
        """Learn from the training rows."""

    @abstractmethod
    def check(self, rows: EvaluatedRows) -> Support:
        """Which rows are known, and why the others are not."""
