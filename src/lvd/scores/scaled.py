"""Errors divided by the error to expect at each row."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from lvd._progress import announce
from lvd._typing import Float, NDArray
from lvd._validation import check_choice, present_rows
from lvd.models import Model
from lvd.scores.residuals import BoundResidual
from lvd.scores.scales import LEAST_SHARE, BoostedScale, KernelScale, NetworkScale, misfit
from lvd.scores.score import BoundScore, ConformityScore, EvaluatedRows, Plan, TrainingRows

SCALES: dict[str, Any] = {"kernel": KernelScale, "boosted": BoostedScale, "network": NetworkScale}
FEWEST_ROWS = 50
"""With fewer training rows than this no scale is learned."""
GAIN = 0.01
"""Scales must tell errors apart by so much better than a constant, in log likelihood a row, to be taken."""


class ScaledResidual(BaseEstimator, ConformityScore):
    """``|y - y_pred| / s(x)``, s the geometric mean of up to three scales, learned from held-out errors.

    A kernel regression of the errors knows the embedding, a boosted model and small networks know inputs and
    prediction; averaging their logarithms tames all. Whether they enter is decided on the training rows, by
    the likelihood of errors on rows that they have not seen: on a few hundred rows a constant may win.

    Parameters
    ----------
    scales : which scales may enter, among ``"kernel"``, ``"boosted"`` and ``"network"``.

    Attributes
    ----------
    scales_ : for each target the scales that enter, by name; none where a constant does as well.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(2000, 2))
    >>> y = X[:, 0] + (0.1 + (X[:, 1] > 0)) * rng.normal(size=2000)
    >>> score = lvd.scores.ScaledResidual(scales=("kernel", "boosted"))
    >>> reg = lvd.LVDRegressor(conformity_score=score, random_state=0).fit(X, y)
    >>> widths = np.diff(reg.predict_interval([[0.0, -0.5], [0.0, 0.5]])[1][..., 0])[:, 0]
    >>> bool(widths[1] > 3 * widths[0])
    True
    """

    scales_: list[dict[str, Any]]

    def __init__(self, scales: tuple[str, ...] = ("kernel", "boosted", "network")) -> None:
        self.scales = scales

    @property
    def learns_errors(self) -> bool:
        """Always."""
        return True

    def prepare(self, model: Model, levels: Float[NDArray, "l"]) -> Model:
        """Any model serves."""
        for name in self.scales:
            check_choice(name, "scales", tuple(SCALES))
        return model

    def fit(self, training: TrainingRows) -> None:
        """Learn the scales of each target, and keep them where they are worth it."""
        errors = np.abs(training.held_out_errors)
        features = features_of(training.rows, training.held_out_predictions)
        known = [present_rows(column) for column in errors.T]
        columns = [column[rows] for column, rows in zip(errors.T, known, strict=True)]
        self.typical_ = [float(column.mean()) or 1.0 for column in columns]
        self.least_ = [
            LEAST_SHARE * float(np.median(column)) or typical
            for column, typical in zip(columns, self.typical_, strict=True)
        ]
        self.scales_ = [
            self._learn(training, features, target, rows, column)
            for target, (rows, column) in enumerate(zip(known, columns, strict=True))
        ]

    def bind(self, rows: EvaluatedRows) -> BoundScore:
        """The errors in units of the expected ones."""
        features = features_of(rows, rows.y_pred)
        columns = [self._scale(rows, features, target) for target in range(rows.y_pred.shape[1])]
        unit = np.stack(columns, axis=1)
        return BoundResidual(rows.y_pred, unit, unit, unit)

    def plan(self, level: float) -> Plan:
        """The one column, at the level itself."""
        return Plan((0,), level)

    def _learn(
        self,
        training: TrainingRows,
        features: Float[NDArray, "n f"],
        target: int,
        rows: Any,
        errors: Float[NDArray, "k"],
    ) -> dict[str, Any]:
        """The scales of one target, from the rows that have it, by name; none where a constant does as well."""
        if len(errors) < FEWEST_ROWS or not errors.any():
            return {}
        scales, crossed = {}, {}
        for name in self.scales:
            if name == "kernel" and not training.rows.kernels:
                continue
            announce(f"learning how large errors are: {name} scale")
            inputs = (training.rows.coordinates(target) if name == "kernel" else features)[rows]
            scales[name] = SCALES[name]()
            crossed[name] = np.maximum(scales[name].fit(inputs, errors, training.seed), self.least_[target])
        return scales if worth_scaling(crossed, errors) else {}

    def _scale(
        self, rows: EvaluatedRows, features: Float[NDArray, "n f"], target: int
    ) -> Float[NDArray, "n"]:
        logs = [
            np.log(scale.predict(rows.coordinates(target) if name == "kernel" else features))
            for name, scale in self.scales_[target].items()
        ]
        if not logs:
            return np.full(len(rows.y_pred), self.typical_[target])
        return np.maximum(np.exp(np.mean(logs, axis=0)), self.least_[target])


def worth_scaling(crossed: dict[str, Float[NDArray, "n"]], errors: Float[NDArray, "n"]) -> bool:
    """Whether the mean of the scales tells errors apart better than a constant does.

    The kernel's own leave-one-out scales flatter it, as its metric was learned from the same errors: it
    enters with the others, but takes part in the decision only where there is no other.
    """
    judged = [scale for name, scale in crossed.items() if name != "kernel"] or list(crossed.values())
    together = np.exp(np.mean(np.log(judged), axis=0)) if judged else np.ones_like(errors)
    return misfit(together, errors) < misfit(np.ones_like(errors), errors) - GAIN


def features_of(rows: EvaluatedRows, y_pred: Float[NDArray, "n t"]) -> Float[NDArray, "n f"]:
    """Predictions, and the inputs where they are numbers, else the embedding."""
    inputs = rows.evaluation.embeddings if rows.numbers is None else rows.numbers
    return np.concatenate([y_pred, inputs], axis=1)
