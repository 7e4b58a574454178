"""Errors divided by the error to expect at each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lvd._parallel import Jobs, at_once
from lvd._progress import announce
from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError, Parameter, check_choice, present_rows
from lvd.scores.residuals import BoundResidual
from lvd.scores.scales import LEAST_SHARE, BoostedScale, KernelScale, NetworkScale, misfit
from lvd.scores.score import ConformityScore, EvaluatedRows, TrainingRows

SCALES: dict[str, Any] = {"kernel": KernelScale, "boosted": BoostedScale, "network": NetworkScale}
FEWEST_ROWS = 50
"""With fewer training rows than this no scale is learned."""
GAIN = 0.01
"""Scales are used if they predict the errors better than a constant by so much, in log likelihood a row."""
KERNEL_WEIGHTS = (0.0, 1 / 6, 1 / 3)
"""A third at most: the kernel's metric was learned from the same errors, which flatters it."""
QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


class ScaledResidual(ConformityScore):
    """``|y - y_pred| / s(x)``, s the model's own, or a geometric mean of up to three scales of held-out errors.

    A kernel regression of the errors knows the embedding, a boosted model and small networks know inputs and
    prediction; the mean of their logarithms is steadier than each. Whether they enter, and with which weights, is
    decided on the training rows, by the likelihood of errors on rows that they have not seen: on a few hundred rows
    a constant may win. Of a model that tells itself which errors to expect, as :class:`lvd.ChempropEstimator` does,
    that is s, below and above the prediction, and nothing is learned.

    With ``calibration="cross"`` the rows that calibrate are those that the scales were learned from, so each row
    is measured by what has not seen its fold: by its fold's scales, with weights that the other folds choose. The
    kernel takes no part, as its metric was learned from all errors. New rows get the mean of the folds.

    Parameters
    ----------
    scales : which scales may enter, among ``"own"``, which is the model's where it has one, ``"kernel"``,
        ``"boosted"`` and ``"network"``.

    Attributes
    ----------
    scales_, weights_ : for each target the scales that enter, by name, and their weights in the mean; none where a
        constant does as well. With ``calibration="cross"`` a constant may enter, as ``"constant"``.

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
    weights_: list[dict[str, float]]
    typical_: list[float]
    least_: list[float]
    learns_errors = True

    def __init__(self, scales: tuple[str, ...] = ("own", "kernel", "boosted", "network")) -> None:
        self.scales = scales

    def _check_parameters(self) -> None:
        for name in self.scales:
            check_choice(name, "scales", ("own", *SCALES))

    @property
    def typical(self) -> float:
        """Errors are in units of the expected ones."""
        return 1.0

    def fit(self, training: TrainingRows) -> None:
        """Learn the scales of each target, and keep them where they are worth it."""
        self.learn(training)

    def learn(self, training: TrainingRows) -> Float[NDArray, "n t"]:
        """Fit; returns the scales of the training rows, by models that have not seen them, unless they are the
        model's own; NaN where the target is not known."""
        self.scales_, self.weights_, self.typical_, self.least_ = [], [], [], []
        spread = self.own_spread(training.rows)
        if spread is not None:
            self.least_ = [LEAST_SHARE * float(np.median(side)) or 1.0 for side in spread.T]
            return self.bind(training.rows).unit
        features = features_of(training.rows, training.held_out_predictions)
        crossed, known = np.full_like(training.y, np.nan), []
        for column in np.abs(training.held_out_errors).T:
            rows = present_rows(column)
            errors = column[rows]
            self.typical_.append(float(errors.mean()) or 1.0)
            self.least_.append(LEAST_SHARE * float(np.median(errors)) or self.typical_[-1])
            known.append((rows, errors))
        found = self._learn_scales(training, features, known)
        for target, ((rows, errors), scales) in enumerate(zip(known, found, strict=True)):
            weights, crossed[rows, target] = self._weigh(training, target, rows, errors, scales)
            self.scales_.append({name: scales[name][0] for name in weights if name in scales})
            self.weights_.append(weights)
        return crossed

    def fit_crossed(self, training: TrainingRows) -> BoundResidual:
        """Learn; the training rows are measured by scales that have not seen their fold."""
        own = self.own_spread(training.rows) is not None
        if not own and not {"boosted", "network"} & set(self.scales):
            raise InputError(
                f"scales must hold 'boosted' or 'network', got {self.scales}: what the kernel expects of a row has "
                "seen its error, so it cannot serve ",
                *(Parameter("calibration", "cross"), "; add one, or use calibration='split'"),
            )
        unit = self.learn(training)
        if own and training.held_out_spread is not None:
            return self._in_spread(training.held_out_predictions, training.held_out_spread)
        return BoundResidual(training.held_out_predictions, unit, unit, unit)

    def bind(self, rows: EvaluatedRows) -> BoundResidual:
        """The errors in units of the expected ones."""
        spread = self.own_spread(rows)
        if spread is not None:
            return self._in_spread(rows.y_pred, spread)
        features = features_of(rows, rows.y_pred)
        columns = [self._scale(rows, features, target) for target in range(rows.y_pred.shape[1])]
        unit = np.stack(columns, axis=1)
        return BoundResidual(rows.y_pred, unit, unit, unit)

    def _in_spread(self, y_pred: Float[NDArray, "n t"], spread: Float[NDArray, "n 2 t"]) -> BoundResidual:
        """Errors in units of what the model expects below and above."""
        below, above = (np.maximum(spread[:, side], self.least_) for side in (0, 1))
        return BoundResidual(y_pred, (below + above) / 2.0, below, above)

    def own_spread(self, rows: EvaluatedRows) -> Float[NDArray, "n 2 t"] | None:
        """What the model itself expects, where that is asked for."""
        return rows.evaluation.spread if "own" in self.scales else None

    def _learn_scales(
        self, training: TrainingRows, features: Float[NDArray, "n f"], known: Sequence[tuple[Any, NDArray]]
    ) -> list[dict[str, tuple[Any, NDArray]]]:
        """For each target the scales by name, each with what it expects of the rows that have the target, of which
        `known` holds the rows and the sizes of their errors."""
        folds, seed = training.fold_of, training.seed
        left_out = {"own"} if folds is None and training.rows.kernels else {"own", "kernel"}
        names = [name for name in self.scales if name not in left_out]
        points = [training.rows.coordinates(t) if "kernel" in names else features for t in range(len(known))]

        learnable = [len(errors) >= FEWEST_ROWS and errors.any() for _, errors in known]
        items = [(target, name) for target, enough in enumerate(learnable) if enough for name in names]
        learn = partial(_learn_scale, points, features, known, (folds, seed))
        jobs = Jobs(learn, items, lambda job: announce(f"learning how large errors are: {job[1]} scale"))
        found: list[dict[str, tuple[Any, NDArray]]] = [{} for _ in known]
        for (target, name), (scale, own) in zip(items, at_once(jobs, None, features), strict=True):
            found[target][name] = scale, np.maximum(own, self.least_[target])
        return found

    def _weigh(
        self,
        training: TrainingRows,
        target: int,
        rows: Any,
        errors: Float[NDArray, "k"],
        scales: Mapping[str, tuple[Any, NDArray]],
    ) -> tuple[dict[str, float], Float[NDArray, "k"]]:
        """The weights of the scales of one target that are used, and the rows' own scales."""
        constant, folds = np.full(len(errors), self.typical_[target]), training.fold_of
        if len(errors) < FEWEST_ROWS or not errors.any():
            return {}, constant
        crossed = {name: own for name, (_, own) in scales.items()}
        if folds is not None:
            own, weights = weighed_by_other_folds(crossed, errors, folds[rows])
            return weights, np.maximum(own, self.least_[target])
        if not worth_scaling(crossed, errors):
            return {}, constant
        weights = best_weights(crossed, errors)
        return weights, np.maximum(geometric_mean(crossed, weights), self.least_[target])

    def _scale(
        self, rows: EvaluatedRows, features: Float[NDArray, "n f"], target: int
    ) -> Float[NDArray, "n"]:
        if not self.scales_[target]:
            return np.full(len(rows.y_pred), self.typical_[target])
        scales = {
            name: scale.predict(rows.coordinates(target) if name == "kernel" else features)
            for name, scale in self.scales_[target].items()
        }
        if "constant" in self.weights_[target]:
            scales["constant"] = np.full(len(rows.y_pred), self.typical_[target])
        return np.maximum(geometric_mean(scales, self.weights_[target]), self.least_[target])


def _learn_scale(
    points: Sequence[NDArray],
    features: Float[NDArray, "n f"],
    known: Sequence[tuple[Any, NDArray]],
    settings: tuple[Int[NDArray, "n"] | None, int],
    job: tuple[int, str],
) -> tuple[Any, Float[NDArray, "k"]]:
    """A scale of a target, and what it expects of the rows that it learned from; `settings` are folds and seed."""
    (folds, seed), (target, name) = settings, job
    rows, errors = known[target]
    inputs = (points[target] if name == "kernel" else features)[rows]
    scale = SCALES[name]()
    return scale, scale.fit(inputs, errors, seed, None if folds is None else folds[rows])


def geometric_mean(
    scales: Mapping[str, Float[NDArray, "n"]], weights: Mapping[str, float]
) -> Float[NDArray, "n"]:
    """The mean of the scales that have a weight."""
    return np.exp(np.sum([weight * np.log(scales[name]) for name, weight in weights.items()], axis=0))


def worth_scaling(crossed: Mapping[str, Float[NDArray, "n"]], errors: Float[NDArray, "n"]) -> bool:
    """Whether the mean of the scales predicts the errors better than a constant does.

    The kernel takes part in the decision only where there is no other.
    """
    judged = [name for name in crossed if name != "kernel"] or list(crossed)
    if not judged:
        return False
    together = geometric_mean(crossed, dict.fromkeys(judged, 1.0 / len(judged)))
    return misfit(together, errors) < misfit(np.ones_like(errors), errors) - GAIN


def best_weights(crossed: Mapping[str, Float[NDArray, "n"]], errors: Float[NDArray, "n"]) -> dict[str, float]:
    """The weights of the best likelihood of errors on rows that the scales have not seen; zeros are left out."""
    others = [name for name in crossed if name != "kernel"]
    of_kernel = KERNEL_WEIGHTS if others and "kernel" in crossed else (float("kernel" in crossed),)
    of_others = [(first, 1.0 - first) for first in QUARTERS] if len(others) == 2 else [(1.0,) * len(others)]
    found = [
        {"kernel": kernel}
        | {name: (1.0 - kernel) * share for name, share in zip(others, shares, strict=True)}
        for kernel in of_kernel
        for shares in of_others
    ]
    taken = [{name: weight for name, weight in weights.items() if weight > 0.0} for weights in found]
    return min(taken, key=lambda weights: misfit(geometric_mean(crossed, weights), errors))


def weighed_by_other_folds(
    crossed: Mapping[str, Float[NDArray, "n"]], errors: Float[NDArray, "n"], folds: Int[NDArray, "n"]
) -> tuple[Float[NDArray, "n"], dict[str, float]]:
    """The scale of each row, with weights chosen by the errors of the other folds, and the folds' mean weights.

    Chosen by all errors, the weights would suit those that calibrate better than any new ones. Where a constant
    does as well, a fold gives it all the weight; none is returned if all folds do.
    """
    n_folds = int(folds.max()) + 1
    every = {**crossed, "constant": np.full_like(errors, errors.mean())}
    scales, mean = np.empty_like(errors), dict.fromkeys(every, 0.0)
    for fold in range(n_folds):
        inside, outside = folds != fold, folds == fold
        known = {name: scale[inside] for name, scale in crossed.items()}
        worth = worth_scaling(known, errors[inside])
        weights = best_weights(known, errors[inside]) if worth else {"constant": 1.0}
        scales[outside] = geometric_mean({name: scale[outside] for name, scale in every.items()}, weights)
        for name, weight in weights.items():
            mean[name] += weight / n_folds
    used = {name: weight for name, weight in mean.items() if weight > 0.0}
    return scales, {} if set(used) == {"constant"} else used


def features_of(rows: EvaluatedRows, y_pred: Float[NDArray, "n t"]) -> Float[NDArray, "n f"]:
    """Predictions, and the inputs where they are numbers, else the embedding."""
    inputs = rows.embeddings if rows.numbers is None else rows.numbers
    return np.concatenate([y_pred, inputs], axis=1)
