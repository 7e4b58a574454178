"""Rows as a fitted :class:`LVDRegressor` sees them, and how it accounts for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from lvd._typing import Float, NDArray
from lvd._validation import row_digests
from lvd.conformal import SignedResidual
from lvd.conformal.explanation import Evidence
from lvd.kernels.rows import Rows, place


@dataclass(frozen=True)
class SeenRows:
    """What one pass of the network gives: embeddings, predictions, and the units in which errors are measured."""

    inputs: Any
    embeddings: Float[NDArray, "n h"]
    y_pred: Float[NDArray, "n t"]
    units: Float[NDArray, "n t"]
    device: str

    @cached_property
    def placed(self) -> Rows:
        """The embeddings where the kernels compute, for those of all targets."""
        return place(self.embeddings, self.device)

    @property
    def keys(self) -> NDArray:
        """What random draws belong to: the inputs, as the network's last digits depend on the rows beside them."""
        return row_digests(self.inputs)

    def residual(self, target: int) -> SignedResidual:
        """The signed score of one target."""
        return SignedResidual(self.y_pred[:, target], self.units[:, target])

    def errors(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        """The signed scores of all targets."""
        return SignedResidual(self.y_pred, self.units)(y)


class Prediction(NamedTuple):
    """What :meth:`LVDRegressor.predict_with_evidence` gives for n rows, L levels and T targets.

    Parameters
    ----------
    y_pred : the predictions, (n,); for several targets (n, T).
    intervals : the prediction intervals, (n, 2, L); for several targets (n, 2, L, T).
    n_effective : how many equally weighted calibration rows the calibration rows like each row are worth, (n,);
        for several targets (n, T).
    embeddings : the network's last hidden layer, (n, h).

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    >>> reg = lvd.LVDRegressor(random_state=0).fit(X, X[:, 0])
    >>> known, far = reg.predict_with_evidence([[0.0, 0.0], [1e3, 1e3]], 0.5).n_effective
    >>> bool(known > 1.0), float(far)
    (True, 0.0)
    """

    y_pred: Any
    intervals: Any
    n_effective: Any
    embeddings: Any


@dataclass(frozen=True)
class Explanation:
    """One row's interval and what stands behind it; `label` is what the row is called where it has a name."""

    row: int
    target: int
    y_pred: float
    lower: float
    upper: float
    evidence: Evidence
    label: str | None = None

    @property
    def sentence(self) -> str:
        """Why the interval is as wide as it is, or infinite."""
        return self.evidence.sentence


def explanations(
    seen: SeenRows, intervals: Float[NDArray, "n 2 1 t"], evidence: list[list[Evidence]]
) -> list[Explanation]:
    """One for each row and target, the targets of a row side by side; `evidence` comes target by target."""
    return [
        Explanation(
            row=row,
            target=target,
            y_pred=float(seen.y_pred[row, target]),
            lower=float(intervals[row, 0, 0, target]),
            upper=float(intervals[row, 1, 0, target]),
            evidence=evidence[target][row],
        )
        for row in range(len(seen.y_pred))
        for target in range(len(evidence))
    ]
