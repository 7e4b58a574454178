"""Errors divided by the expected error at each row, and the scales that learn the expected error.

Only the training rows decide the scales, so a score divided by them keeps every guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import Jobs, at_once, workers
from lvd._progress import announce
from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError, Parameter, check_choice, present_rows
from lvd.engine.quantiles import WeightedRows
from lvd.models.scaling import mean_and_scale
from lvd.models.torch_modules import forward, new_stack
from lvd.models.trees import TreeEnsemble
from lvd.models.validated import Schedule, fold_numbers, train_fold_networks
from lvd.scores.score import BoundResidual, ConformityScore, EvaluatedRows, TrainingRows

KERNEL_ROWS, NETWORK_ROWS = 3000, 20_000
"""Of more rows, a random sample is used."""
BANDWIDTHS, STRENGTHS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0), (1.0, 3.0, 10.0)
LEAST_SHARE = 0.05
"""No scale is below this share of the median error."""
MOST_TREES = 200
HIDDEN = (64, 64)
MANY_ROWS, ROWS_PER_BATCH, MOST_STEPS = 10_000, 80, 4000
"""With more rows than the first, networks take larger batches, but at most this many steps."""
FEWEST_ROWS = 50
"""With fewer training rows, no scale is learned."""
GAIN = 0.01
"""Scales are used if they beat a constant by this much, in log likelihood per row."""
KERNEL_WEIGHTS = (0.0, 1 / 6, 1 / 3)
"""At most a third: the kernel's metric was learned from the same errors, so it looks better than it is."""
QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


def misfit(scale: Float[NDArray, "n"], errors: Float[NDArray, "n"]) -> float:
    """The negative Laplace log likelihood of the error sizes, at the best constant factor."""
    return float(np.log(scale).mean() + np.log((errors / scale).mean()))


class KernelScale:
    """``s(x) = (sum_j K_h(x, x_j) e_j + a c) / (sum_j K_h(x, x_j) + a)`` with c the mean error.

    The bandwidth h and the strength a maximise the leave-one-out likelihood. The kernel is the one learned from
    errors, so this scale knows the embedding; far from all training rows it is c.
    """

    points_: Float[NDArray, "r k"]
    errors_: Float[NDArray, "r"]

    def fit(
        self,
        points: Float[NDArray, "n k"],
        errors: Float[NDArray, "n"],
        seed: int,
        folds: Int[NDArray, "n"] | None = None,
    ) -> Float[NDArray, "n"]:
        """Fit; returns leave-one-out scales of the training rows, or out-of-fold ones."""
        rows = np.random.default_rng(seed).permutation(len(errors))[:KERNEL_ROWS]
        self.points_, self.errors_, self.mean_ = points[rows], errors[rows], float(errors[rows].mean())
        self.__dict__.pop("_rows", None)
        own, found = np.stack([errors, np.ones(len(errors))], axis=1), []
        for bandwidth in BANDWIDTHS:
            sums = self._sums(self.points_, bandwidth) - own[rows]
            for strength in STRENGTHS:
                found.append((misfit(self._scale(sums, strength), self.errors_), bandwidth, strength))
        _, self.bandwidth_, self.strength_ = min(found)
        sums = self._sums(points, self.bandwidth_)
        if folds is None:
            sums[rows] -= own[rows]
            return self._scale(sums, self.strength_)
        scales = np.empty(len(errors))
        for fold in range(folds.max() + 1):
            inside, outside = rows[folds[rows] == fold], np.flatnonzero(folds == fold)
            queries = torch.as_tensor(points[outside])
            widths = queries.new_full((len(queries),), self.bandwidth_)
            known = WeightedRows(torch.as_tensor(points[inside]), torch.as_tensor(own[inside]))
            others = sums[outside] - (known.sums(queries, widths).numpy() if len(inside) else 0.0)
            mean = float(errors[rows[folds[rows] != fold]].mean())
            scales[outside] = self._scale(others, self.strength_, mean)
        return scales

    def predict(self, points: Float[NDArray, "n k"]) -> Float[NDArray, "n"]:
        """The scale of each row."""
        return self._scale(self._sums(points, self.bandwidth_), self.strength_)

    def _sums(self, points: Float[NDArray, "n k"], bandwidth: float) -> Float[NDArray, "n 2"]:
        queries = torch.as_tensor(points)
        return self._rows.sums(queries, queries.new_full((len(queries),), bandwidth)).numpy()

    @cached_property
    def _rows(self) -> WeightedRows:
        columns = np.stack([self.errors_, np.ones(len(self.errors_))], axis=1)
        return WeightedRows(torch.as_tensor(self.points_), torch.as_tensor(columns))

    def _scale(
        self, sums: Float[NDArray, "n 2"], strength: float, mean: float | None = None
    ) -> Float[NDArray, "n"]:
        mean = self.mean_ if mean is None else mean
        return (sums[:, 0].clip(min=0.0) + strength * mean) / (sums[:, 1].clip(min=0.0) + strength)


class BoostedScale:
    """The geometric mean of boosted models of the error, one per left-out fold, on inputs and prediction."""

    models_: list[TreeEnsemble]

    def fit(
        self,
        features: Float[NDArray, "n f"],
        errors: Float[NDArray, "n"],
        seed: int,
        folds: Int[NDArray, "n"] | None = None,
    ) -> Float[NDArray, "n"]:
        """Fit; returns out-of-fold scales of the training rows."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        strict = folds is not None
        folds = fold_numbers(len(errors), seed) if folds is None else folds
        clipped = np.minimum(errors, np.quantile(errors, 0.99))
        self.models_, crossed = [], np.empty(len(errors))
        for fold in range(folds.max() + 1):
            inside, outside = folds != fold, folds == fold
            learner = HistGradientBoostingRegressor(
                max_iter=MOST_TREES,
                learning_rate=0.05,
                max_leaf_nodes=8,
                min_samples_leaf=max(10, int(inside.sum()) // 50),
                early_stopping=inside.sum() > 1000,
                random_state=seed,
            )
            known = (
                np.minimum(errors[inside], np.quantile(errors[inside], 0.99)) if strict else clipped[inside]
            )
            model = TreeEnsemble.of(learner.fit(features[inside], known))
            crossed[outside] = model.predict(features[outside])
            self.models_.append(model)
        self.least_ = LEAST_SHARE * float(np.median(errors))
        return np.maximum(crossed, self.least_)

    def predict(self, features: Float[NDArray, "n f"]) -> Float[NDArray, "n"]:
        """The geometric mean of the models' predictions."""
        logs = [np.log(np.maximum(model.predict(features), self.least_)) for model in self.models_]
        return np.exp(np.mean(logs, axis=0))


class NetworkScale:
    """The geometric mean of small networks of the error, one per left-out fold, trained as one, on inputs and
    prediction.

    Their loss is ``log s + e / s``; each is stopped where the loss on its fold is lowest.
    """

    parameters_: dict[str, Tensor]

    def fit(
        self,
        features: Float[NDArray, "n f"],
        errors: Float[NDArray, "n"],
        seed: int,
        fold_of: Int[NDArray, "n"] | None = None,
    ) -> Float[NDArray, "n"]:
        """Fit; returns out-of-fold scales of the training rows."""
        self.x_mean_, self.x_scale_ = mean_and_scale(features)
        self.unit_ = float(errors.mean())
        clipped = np.minimum(errors, np.quantile(errors, 0.995)) / self.unit_
        inputs, targets = self._inputs(features), torch.as_tensor(clipped, dtype=torch.float32)
        folds = torch.as_tensor(fold_numbers(len(errors), seed) if fold_of is None else fold_of)
        drawn = np.random.default_rng(seed).permutation(len(errors))[:NETWORK_ROWS]
        some = torch.as_tensor(np.sort(drawn))
        with workers(1):
            generator = torch.Generator().manual_seed(seed)
            fresh = new_stack(int(folds.max()) + 1, [inputs.shape[1], *HIDDEN, 1], generator)
            self.parameters_ = train_fold_networks(
                *(fresh, inputs[some], targets[some], folds[some], _scale_losses),
                generator=generator,
                schedule=scale_schedule(len(some)),
                blind=fold_of is not None,
            )
            outputs = self._outputs(inputs)
        return outputs[folds, torch.arange(len(folds))].numpy() * self.unit_

    def predict(self, features: Float[NDArray, "n f"]) -> Float[NDArray, "n"]:
        """The geometric mean of the networks' predictions."""
        with workers(1):
            outputs = self._outputs(self._inputs(features))
        return outputs.log().mean(0).exp().numpy() * self.unit_

    def _inputs(self, features: Float[NDArray, "n f"]) -> Float[Tensor, "n f"]:
        standardised = ((features - self.x_mean_) / self.x_scale_).clip(-10.0, 10.0)
        return torch.as_tensor(standardised, dtype=torch.float32)

    def _outputs(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, "m n"]:
        with torch.no_grad():
            n_members = len(next(iter(self.parameters_.values())))
            return _positive(forward(self.parameters_, inputs.expand(n_members, -1, -1))).double()


def _positive(outputs: Float[Tensor, "m n 1"]) -> Float[Tensor, "m n"]:
    return torch.nn.functional.softplus(outputs[..., 0]) + 1e-3


def scale_schedule(n_rows: int) -> Schedule:
    """Larger batches and a higher rate for very many rows: as good in a third of the time."""
    if n_rows <= MANY_ROWS:
        return Schedule()
    batch = min(n_rows // ROWS_PER_BATCH, 512)
    return Schedule(rate=3e-3, batch=batch, epochs=max(1, MOST_STEPS * batch // n_rows), patience=10)


def _scale_losses(outputs: Float[Tensor, "m b 1"], errors: Float[Tensor, "*m b"]) -> Float[Tensor, "m b"]:
    scale = _positive(outputs)
    return scale.log() + errors / scale


SCALES: dict[str, Any] = {"kernel": KernelScale, "boosted": BoostedScale, "network": NetworkScale}


class ScaledResidual(ConformityScore):
    """``|y - y_pred| / s(x)``, with s the model's own or a geometric mean of up to three scales.

    Three scales learn the size of out-of-fold errors: a kernel regression on the embedding, and a boosted model
    and small networks on inputs and prediction; their geometric mean is more stable than each. The out-of-fold
    likelihood decides whether they enter and with which weights: on a few hundred rows a constant may win. If the
    model predicts its own errors, as :class:`lvd.ChempropEstimator` does, s is that prediction, below and above,
    and nothing is learned.

    With ``calibration="cross"`` the scales are learned from the rows that calibrate. Each row is therefore
    divided by out-of-fold scales, with weights chosen on the other folds. The kernel is left out, as its metric
    was learned from all errors. New rows get the mean over the folds.

    Parameters
    ----------
    scales : the scales to choose from, among ``"own"``, the model's if it has one, ``"kernel"``, ``"boosted"``
        and ``"network"``.

    Attributes
    ----------
    scales_, weights_ : for each target the scales in use, by name, and their weights in the mean; empty if a
        constant does as well. With ``calibration="cross"`` a constant may take part, as ``"constant"``.

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
        """Learn the scales of each target, and keep them if they beat a constant."""
        self.learn(training)

    def learn(self, training: TrainingRows) -> Float[NDArray, "n t"]:
        """Fit; returns out-of-fold scales of the training rows, or the model's own; NaN where the target is
        unknown."""
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
        """Fit; the training rows are divided by out-of-fold scales."""
        own = self.own_spread(training.rows) is not None
        if not own and not {"boosted", "network"} & set(self.scales):
            raise InputError(
                f"scales must hold 'boosted' or 'network', got {self.scales}: what the kernel expects of a row has "
                "seen its error, so it cannot serve cross calibration; add one, or use ",
                Parameter("calibration", "split"),
            )
        unit = self.learn(training)
        if own and training.held_out_spread is not None:
            return self._in_spread(training.held_out_predictions, training.held_out_spread)
        unit = np.where(np.isnan(unit), self.typical_, unit)  # rows without the target, which have no score
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
        """Errors divided by the sizes that the model itself expects below and above."""
        below, above = (np.maximum(spread[:, side], self.least_) for side in (0, 1))
        return BoundResidual(y_pred, (below + above) / 2.0, below, above)

    def own_spread(self, rows: EvaluatedRows) -> Float[NDArray, "n 2 t"] | None:
        """The error sizes that the model itself expects, if ``"own"`` is among the scales."""
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
    """Whether the geometric mean of the scales predicts the errors better than a constant.

    The kernel takes part in the decision only if there is no other scale.
    """
    judged = [name for name in crossed if name != "kernel"] or list(crossed)
    if not judged:
        return False
    together = geometric_mean(crossed, dict.fromkeys(judged, 1.0 / len(judged)))
    return misfit(together, errors) < misfit(np.ones_like(errors), errors) - GAIN


def best_weights(crossed: Mapping[str, Float[NDArray, "n"]], errors: Float[NDArray, "n"]) -> dict[str, float]:
    """The weights with the best out-of-fold likelihood; zeros are left out."""
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
    """The scale of each row, with weights chosen on the other folds, and the mean weights over the folds.

    Weights chosen on all errors would fit the calibrating rows better than new ones. Where a constant does as
    well, a fold gives it all the weight; no weights are returned if all folds do.
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
    """Predictions, and the inputs if they are numbers, otherwise the embedding."""
    inputs = rows.embeddings if rows.numbers is None else rows.numbers
    return np.concatenate([y_pred, inputs], axis=1)
