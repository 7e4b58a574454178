"""How deep y lies in the tails of the error distribution at its row (Chernozhukov, Wüthrich and Zhu 2021).

The distribution is that of errors divided by the expected error. Its quantiles are learned from out-of-fold errors.

Between the quantiles of `GRID` the distribution function F is linear, beyond them the tails are exponential. The
depth of z is ``log2(2 F(z))`` below the median and ``-log2(2 (1 - F(z)))`` above: at a depth of d only a share of
2^-d of the errors on its side is more extreme. Only the training rows decide the shape, so depths keep every
guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import Jobs, at_once, usable_threads, workers
from lvd._progress import announce
from lvd._typing import Float, Int, NDArray
from lvd._validation import present_rows
from lvd.engine.quantiles import pinball
from lvd.models.scaling import mean_and_scale
from lvd.models.torch_modules import Parameters, forward, new_stack
from lvd.models.trees import QuantileTrees
from lvd.models.validated import Schedule, fold_numbers, train_fold_networks
from lvd.scores.scaled import ScaledResidual, features_of
from lvd.scores.score import BoundResidual, BoundScore, ConformityScore, EvaluatedRows, TrainingRows

GRID = np.array([0.01, 0.025, 0.05, 0.1, 0.175, 0.25, 0.375, 0.5, 0.625, 0.75, 0.825, 0.9, 0.95, 0.975, 0.99])
"""The quantiles that describe the distribution of errors at a row."""
COARSE = np.array([0.025, 0.1, 0.3, 0.5, 0.7, 0.9, 0.975])
"""The boosted quantiles; their differences from the quantiles of all rows are interpolated to all of `GRID`."""
MIDDLE = len(GRID) // 2
TAIL = 2
"""Beyond the outermost quantile the tail decays at the rate between it and the quantile this many places further
in."""
LEAST_GAP = 1e-3
"""No two quantiles are closer than this share of the distance between the outer quantiles of all errors."""
FEWEST_ROWS, MOST_ROWS = 100, 50_000
"""With fewer training rows no shape is learned; of more, a random sample is used."""
GAIN = 0.002
"""A shape is used if its pinball loss is this much smaller, relatively, than that of symmetric errors."""
HIDDEN, MOST_STEPS = (32, 32), 1200
FARTHEST = 5.0
QUARTER, THREE_QUARTERS, LOW, HIGH = (int(np.flatnonzero(tau == GRID)[0]) for tau in (0.25, 0.75, 0.05, 0.95))
UNEVEN = 1.5
"""Errors are called uneven if one side's are this many times as large as the other's."""


def kept_apart(quantiles: Float[NDArray, "n k"], least: float) -> Float[NDArray, "n k"]:
    """The quantiles sorted, and moved away from the median until they are `least` apart."""
    ordered, steps = np.sort(quantiles, axis=1), least * np.arange(len(GRID))
    rest = ordered - steps
    above = np.maximum.accumulate(rest[:, MIDDLE:], axis=1)
    below = np.minimum.accumulate(rest[:, MIDDLE::-1], axis=1)[:, :0:-1]
    return np.concatenate([below, above], axis=1) + steps


def depth_of(z: Float[NDArray, "n"], quantiles: Float[NDArray, "n k"]) -> Float[NDArray, "n"]:
    """How deep z lies in the tails of the distribution with these quantiles: negative below its median."""
    last = len(GRID) - 1
    number = (quantiles < z[:, None]).sum(axis=1)
    cell = np.clip(number, 1, last)[:, None]
    low, high = (np.take_along_axis(quantiles, cell - side, axis=1)[:, 0] for side in (1, 0))
    tau_low, tau_high = GRID[cell[:, 0] - 1], GRID[cell[:, 0]]
    share = (z - low) / (high - low)
    # Above the median we work with 1 - F, so that small shares keep their digits.
    below = np.clip(tau_low + share * (tau_high - tau_low), GRID[0], 0.5)
    above = np.clip((1.0 - tau_low) - share * (tau_high - tau_low), 1.0 - GRID[-1], 0.5)
    inside = np.where(number <= MIDDLE, np.log2(2.0 * below), -np.log2(2.0 * above))
    (start, down), (end, up) = _tails(quantiles)
    outer = np.log2(2.0 * GRID[0])
    inside = np.where(z < start, outer + (z - start) * down, inside)
    return np.where(z > end, (z - end) * up - outer, inside)


def error_at(depth: Float[NDArray, "n l"], quantiles: Float[NDArray, "n k"]) -> Float[NDArray, "n l"]:
    """The z of these depths, which may be infinite: the inverse of :func:`depth_of`."""
    outer, last, below = np.log2(2.0 * GRID[0]), len(GRID) - 1, depth < 0.0
    size, rows = np.abs(depth), np.arange(len(depth))[:, None]
    tail = np.exp2(-np.minimum(size, -outer)) / 2.0
    cell = np.clip(np.searchsorted(GRID[: MIDDLE + 1], tail, side="right"), 1, MIDDLE)
    share = (tail - GRID[cell - 1]) / (GRID[cell] - GRID[cell - 1])
    # Above the median the quantiles are indexed from the other end.
    low, high = (quantiles[rows, np.where(below, place, last - place)] for place in (cell - 1, cell))
    inside = low + share * (high - low)
    if not (size > -outer).any():
        return inside
    (start, down), (end, up) = (tuple(part[:, None] for part in side) for side in _tails(quantiles))
    inside = np.where(depth < outer, start + (depth - outer) / down, inside)
    return np.where(depth > -outer, end + (depth + outer) / up, inside)


def _tails(quantiles: Float[NDArray, "n k"]) -> tuple[tuple[NDArray, NDArray], ...]:
    """Where the tails begin, and how fast the depth grows with z there."""
    falls = np.log2(GRID[TAIL] / GRID[0])
    start, end = quantiles[:, 0], quantiles[:, -1]
    return (start, falls / (quantiles[:, TAIL] - start)), (end, falls / (end - quantiles[:, -1 - TAIL]))


def schedule_for(n_rows: int) -> Schedule:
    """Larger batches for more rows, at a bounded number of steps."""
    batch = int(np.clip(n_rows // 25, 64, 256))
    return Schedule(
        rate=5e-3, decay=0.3, batch=batch, epochs=max(1, MOST_STEPS * batch // n_rows), patience=8
    )


class NetworkQuantiles:
    """The mean of small networks, one per left-out fold, that predict all quantiles of `GRID`; trained as one.

    They output the median and the gaps between neighbouring quantiles, so quantiles never cross. Each is stopped
    where the pinball loss on its fold is lowest.
    """

    parameters_: Parameters

    def fit(
        self,
        features: Float[NDArray, "n f"],
        z: Float[NDArray, "n"],
        weights: Float[NDArray, "n"],
        folds: Int[NDArray, "n"],
        seed: int,
        *,
        blind: bool = False,
    ) -> Float[NDArray, "n k"]:
        """Fit; returns out-of-fold quantiles of the training rows. If `blind`, a row's fold does not stop its
        network either. All rows count alike, whatever their `weights`."""
        self.x_mean_, self.x_scale_ = mean_and_scale(features)
        start = np.quantile(z, GRID)
        self.unit_ = float(start[-3] - start[2])
        n_folds, n_rows = int(folds.max()) + 1, len(z)
        generator = torch.Generator().manual_seed(seed)
        fresh = new_stack(n_folds, [features.shape[1], *HIDDEN, len(GRID)], generator)
        weight, bias = list(fresh)[-2:]
        gaps = np.log(np.expm1(np.maximum(np.diff(start / self.unit_), 1e-3)))
        fresh[weight] *= 0.1
        fresh[bias][:] = torch.as_tensor(np.append(start[MIDDLE] / self.unit_, gaps), dtype=torch.float32)
        taus = torch.as_tensor(GRID, dtype=torch.float32)
        usual = float(pinball(z, start, GRID).mean()) / self.unit_

        def losses_of(outputs: Tensor, targets: Tensor) -> Tensor:
            rest = targets[..., None] - _in_order(outputs)
            return torch.maximum(taus * rest, (taus - 1.0) * rest).mean(-1) / usual

        inputs, of_row = self._inputs(features), torch.as_tensor(folds)
        targets = torch.as_tensor(z / self.unit_, dtype=torch.float32)
        with workers(1):
            self.parameters_ = train_fold_networks(
                *(fresh, inputs, targets, of_row, losses_of),
                generator=generator,
                schedule=schedule_for(n_rows),
                blind=blind,
            )
            self.__dict__.pop("_doubles", None)
            outputs = self._outputs(inputs)
        return outputs[of_row, torch.arange(n_rows)].numpy() * self.unit_

    def predict(self, features: Float[NDArray, "n f"]) -> Float[NDArray, "n k"]:
        """The mean of the networks' quantiles."""
        with workers(1):
            outputs = self._outputs(self._inputs(features))
        return outputs.mean(0).numpy() * self.unit_

    def _inputs(self, features: Float[NDArray, "n f"]) -> Float[Tensor, "n f"]:
        standardised = ((features - self.x_mean_) / self.x_scale_).clip(-FARTHEST, FARTHEST)
        return torch.as_tensor(standardised, dtype=torch.float32)

    def _outputs(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, "m n k"]:
        n_members = len(next(iter(self.parameters_.values())))
        with torch.no_grad():
            return _in_order(forward(self._doubles, inputs.double().expand(n_members, -1, -1)))

    @cached_property
    def _doubles(self) -> Parameters:
        return {name: tensor.double() for name, tensor in self.parameters_.items()}


def _in_order(outputs: Float[Tensor, "m b k"]) -> Float[Tensor, "m b k"]:
    """Quantiles from their median and the gaps between them."""
    above = torch.nn.functional.softplus(outputs[..., 1:]).cumsum(-1)
    rising = torch.cat([torch.zeros_like(above[..., :1]), above], -1)
    return outputs[..., :1] + rising - rising[..., MIDDLE, None]


def _carrying() -> Float[NDArray, "c k"]:
    """The weights that interpolate changes of the boosted quantiles to `GRID`, linearly in normal quantiles."""
    at, known = ([NormalDist().inv_cdf(tau) for tau in taus.tolist()] for taus in (GRID, COARSE))
    return np.stack([np.interp(at, known, unit) for unit in np.eye(len(COARSE))])


CARRIED = _carrying()


class BoostedQuantiles:
    """Boosted quantiles of `COARSE`, interpolated to those of `GRID`."""

    trees_: QuantileTrees

    def fit(
        self,
        features: Float[NDArray, "n f"],
        z: Float[NDArray, "n"],
        weights: Float[NDArray, "n"],
        folds: Int[NDArray, "n"],
        seed: int,
        *,
        blind: bool = False,
    ) -> Float[NDArray, "n k"]:
        """Fit; returns out-of-fold quantiles of the training rows. If `blind`, a row's fold does not stop its
        trees either."""
        from lvd.scores.quantile_trees import boosted_quantiles  # which needs numba

        self.constant_ = np.quantile(z, GRID) - np.quantile(z, COARSE) @ CARRIED
        self.trees_, crossed = boosted_quantiles(features, z, weights, folds, COARSE, seed=seed, blind=blind)
        return crossed @ CARRIED + self.constant_

    def predict(self, features: Float[NDArray, "n f"]) -> Float[NDArray, "n k"]:
        """The quantiles of each row."""
        return self.trees_.predict(features) @ CARRIED + self.constant_


LEARNERS: dict[str, Any] = {"boosted": BoostedQuantiles, "network": NetworkQuantiles}
SYMMETRIC: dict[str, float] = {"symmetric": 1.0}
MIXTURES: tuple[dict[str, float], ...] = (
    {"constant": 1.0},
    {"boosted": 1.0},
    {"network": 1.0},
    {"boosted": 1 / 2, "network": 1 / 2},
    {"boosted": 1 / 3, "network": 1 / 3, "constant": 1 / 3},
)


class ErrorShape:
    """The quantiles of z, the error divided by the expected error, at each row: a mixture of up to three.

    Boosted trees and small networks predict them from inputs, prediction and expected error; the third is the
    quantiles of all z, the same at every row. The out-of-fold pinball loss, in units of y, decides which of them
    enter.
    """

    learners_: dict[str, Any]
    weights_: dict[str, float]
    constant_: Float[NDArray, "k"]
    symmetric_: Float[NDArray, "k"]
    least_: float

    @classmethod
    def learned(
        cls,
        features: Float[NDArray, "n f"],
        z: Float[NDArray, "n"],
        scales: Float[NDArray, "n"],
        seed: int,
        fold_of: Int[NDArray, "n"] | None = None,
    ) -> tuple[ErrorShape, Float[NDArray, "n k"]] | None:
        """The shape and the out-of-fold quantiles of the training rows; None if one symmetric distribution for
        every row does as well."""
        every, some = features, np.arange(len(z))
        if len(z) > MOST_ROWS:
            some = np.random.default_rng(seed).permutation(len(z))[:MOST_ROWS]
        features, z, scales = features[some], z[some], scales[some]
        outer = np.quantile(z, GRID[[0, -1]]) if len(z) >= FEWEST_ROWS else np.zeros(2)
        if outer[0] == outer[1]:
            return None
        shape, weights = cls(), scales / scales.mean()
        folds = fold_numbers(len(z), seed + 1) if fold_of is None else fold_of[some]
        shape.constant_, shape.least_ = np.quantile(z, GRID), LEAST_GAP * float(outer[1] - outer[0])
        symmetric, crossed = np.empty((2, len(z), len(GRID)))
        for fold in range(folds.max() + 1):
            inside, outside = z[folds != fold], folds == fold
            crossed[outside], symmetric[outside] = np.quantile(inside, GRID), symmetric_quantiles(inside)
        found = {"symmetric": symmetric, "constant": crossed}
        blind = fold_of is not None
        learn = partial(_learn_quantiles, (features, z, weights, folds, seed), blind)
        jobs = Jobs(learn, list(LEARNERS))
        learned = dict(zip(LEARNERS, at_once(jobs, usable_threads(), features), strict=True))
        found |= {name: quantiles for name, (_, quantiles) in learned.items()}
        own = [
            mixed(found, one) if one == SYMMETRIC else kept_apart(mixed(found, one), shape.least_)
            for one in (SYMMETRIC, *MIXTURES)
        ]
        losses = np.stack([weights * pinball(z, quantiles, GRID).mean(1) for quantiles in own])
        best = chosen_by_other_folds(losses, folds) if blind else np.full(len(z), best_mixture(losses))
        if not best.any():
            return None
        shape.weights_ = _mean_mixture(best, folds)
        shape.symmetric_ = symmetric_quantiles(z)
        shape.learners_ = {name: learned[name][0] for name in shape.weights_ if name in learned}
        quantiles = shape.predict(every) if len(some) < len(every) else np.empty((len(every), len(GRID)))
        quantiles[some] = kept_apart(np.stack(own)[best, np.arange(len(z))], shape.least_)
        return shape, quantiles

    def predict(self, features: Float[NDArray, "n f"]) -> Float[NDArray, "n k"]:
        """The quantiles of each row, at least `least_` apart."""
        found = {name: learner.predict(features) for name, learner in self.learners_.items()}
        for name in ("constant", "symmetric"):
            if name in self.weights_:
                found[name] = np.tile(vars(self)[f"{name}_"], (len(features), 1))
        return kept_apart(mixed(found, self.weights_), self.least_)


def _learn_quantiles(given: tuple[Any, ...], blind: bool, name: str) -> tuple[Any, Float[NDArray, "n k"]]:
    """A fitted learner of quantiles, and the out-of-fold quantiles of the training rows."""
    learner = LEARNERS[name]()
    return learner, learner.fit(*given, blind=blind)


def symmetric_quantiles(z: Float[NDArray, "n"]) -> Float[NDArray, "k"]:
    """The quantiles of a symmetric distribution with these absolute errors."""
    return np.quantile(np.abs(z), np.abs(2.0 * GRID - 1.0)) * np.sign(GRID - 0.5)


def best_mixture(losses: Float[NDArray, "c n"]) -> int:
    """The index of the mixture with the smallest loss; 0, symmetric errors, unless another gains enough."""
    totals = losses.sum(axis=1)
    best = 1 + int(totals[1:].argmin())
    return best if totals[best] < (1.0 - GAIN) * totals[0] else 0


def chosen_by_other_folds(losses: Float[NDArray, "c n"], folds: Int[NDArray, "n"]) -> Int[NDArray, "n"]:
    """For each row the mixture that is best on the rows outside its fold."""
    best = [best_mixture(losses[:, folds != fold]) for fold in range(folds.max() + 1)]
    return np.array(best)[folds]


def _mean_mixture(best: Int[NDArray, "n"], folds: Int[NDArray, "n"]) -> dict[str, float]:
    """The mean of the folds' mixtures."""
    _, first = np.unique(folds, return_index=True)
    chosen = [(SYMMETRIC, *MIXTURES)[number] for number in best[first]]
    names = dict.fromkeys(name for one in chosen for name in one)
    return {name: sum(one.get(name, 0.0) for one in chosen) / len(chosen) for name in names}


def mixed(found: Mapping[str, Float[NDArray, "n k"]], weights: Mapping[str, float]) -> Float[NDArray, "n k"]:
    """The weighted mean of quantiles."""
    return np.sum([weight * found[name] for name, weight in weights.items()], axis=0)


@dataclass(frozen=True, eq=False)
class BoundDistribution(BoundScore):
    """The absolute depth of y; see :func:`depth_of`.

    `quantiles` are each target's error quantiles in the units of `residual`; a target without them is scored by
    `residual` itself.
    """

    residual: BoundResidual
    quantiles: tuple[Float[NDArray, "n k"] | None, ...]

    def __call__(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n 1 t"]:
        """One column."""
        scores, depths = self.residual(y), np.abs(self.signed(y))
        for target, quantiles in enumerate(self.quantiles):
            if quantiles is not None:
                scores[:, 0, target] = depths[:, target]
        return scores

    def signed(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        """The depth of y."""
        result, z = self.residual.signed(y), self._in_units(y)
        for target, quantiles in enumerate(self.quantiles):
            if quantiles is not None:
                result[:, target] = depth_of(z[:, target], quantiles)
        return result

    def targets_at(self, signed: Float[NDArray, "n j t"]) -> Float[NDArray, "n j t"]:
        """The y of these depths."""
        result = self.residual.targets_at(signed)
        for target, quantiles in enumerate(self.quantiles):
            if quantiles is not None:
                z = error_at(signed[..., target], quantiles)
                result[..., target] = self.y_pred[:, None, target] + self._times_units(z, target)
        return result

    def intervals(
        self, radius: Float[NDArray, "n 1 l t"], levels: Float[NDArray, "l"]
    ) -> Float[NDArray, "n 2 l t"]:
        """All y at most as deep as `radius`, extended to the prediction; an empty set shrinks to the prediction."""
        depth, y_pred = np.maximum(radius[:, 0], 0.0), self.y_pred[:, None]
        ends = self.targets_at(np.concatenate([-depth, depth], axis=1))
        lower, upper = np.minimum(ends[:, : len(levels)], y_pred), np.maximum(ends[:, len(levels) :], y_pred)
        result = np.where(radius < 0.0, y_pred[:, None], np.stack([lower, upper], axis=1))
        alike = [target for target, quantiles in enumerate(self.quantiles) if quantiles is None]
        if alike:
            result[..., alike] = self.residual.intervals(radius, levels)[..., alike]
        return result

    def remark(self, row: int, target: int) -> str | None:
        """One sentence: on which side of the prediction errors are larger, or that the prediction is too low or
        high."""
        quantiles = self.quantiles[target]
        if quantiles is None:
            return None
        below, above = self.residual.below[row, target], self.residual.above[row, target]
        errors = np.where(quantiles[row] < 0.0, quantiles[row] * below, quantiles[row] * above)
        if errors[QUARTER] > 0.0 or errors[THREE_QUARTERS] < 0.0:
            side = "low" if errors[MIDDLE] > 0.0 else "high"
            size = float(f"{abs(errors[MIDDLE]):.2g}")
            return f"The model predicts about {size:,.10g} too {side} here."
        smaller, larger = sorted((-errors[LOW], errors[HIGH]))
        if larger < UNEVEN * smaller or larger <= 0.0:
            return None
        sides = ("above", "below") if errors[HIGH] == larger else ("below", "above")
        ratio = f"{larger / smaller:.2g}" if smaller > 0.0 else "inf"
        times = {"2": "twice", "inf": "many times"}.get(ratio, f"{ratio} times")
        return f"Errors {sides[0]} the prediction are about {times} as large as {sides[1]}."

    def _in_units(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        error = y - self.y_pred
        return error / np.where(error < 0.0, self.residual.below, self.residual.above)

    def _times_units(self, z: Float[NDArray, "n j"], target: int) -> Float[NDArray, "n j"]:
        below, above = self.residual.below[:, None, target], self.residual.above[:, None, target]
        with np.errstate(over="ignore"):
            return z * np.where(z < 0.0, below, above)


class DistributionalResidual(ConformityScore):
    """How deep y lies in the tails of the error distribution at its row, for errors that are not symmetric.

    Errors divided by the expected error, as in :class:`ScaledResidual`, may still be distributed differently at
    each row: skewed, with heavier tails, or off zero where the model is biased. Boosted trees and small networks
    learn the quantiles of that distribution from out-of-fold errors, and are used only if they help on rows they
    were not trained on. A target whose errors are symmetric and have the same shape everywhere is scored exactly
    as by :class:`ScaledResidual`. One radius moves both ends along the distribution's quantiles; intervals are
    extended to hold the prediction.

    Parameters
    ----------
    scales : the scales to choose from, as in :class:`ScaledResidual`.

    Attributes
    ----------
    shapes_ : the :class:`ErrorShape` of each target; None where the scaled error does as well.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(2000, 2))
    >>> y = X[:, 0] + rng.exponential(size=2000)
    >>> reg = lvd.LVDRegressor("trees", conformity_score="distributional", random_state=0).fit(X, y)
    >>> y_pred, intervals = reg.predict_interval(X[:200])
    >>> below, above = np.median(np.abs(intervals[..., 0] - y_pred[:, None]), axis=0)
    >>> bool(above > 1.5 * below)
    True
    """

    residual_: ScaledResidual
    shapes_: list[ErrorShape | None]
    learns_errors = True

    def __init__(self, scales: tuple[str, ...] = ("own", "kernel", "boosted", "network")) -> None:
        self.scales = scales

    def _check_parameters(self) -> None:
        ScaledResidual(self.scales)._check_parameters()

    @property
    def typical(self) -> float:
        """The mean of a depth, which is exponential; that of a scaled error if no shape was learned."""
        return 1.0 if all(shape is None for shape in self.shapes_) else float(1.0 / np.log(2.0))

    def measure_of(self, target: int) -> str:
        """A depth if the target has a shape."""
        return self.measure if self.shapes_[target] is None else "depth"

    def fit(self, training: TrainingRows) -> None:
        """Learn the scales, and the shape of the scaled errors.

        If the model predicts its own spread, the shape is learned from rows that the model was not trained on.
        """
        self.residual_ = ScaledResidual(self.scales)
        units = self.residual_.learn(training)
        if self.residual_.own_spread(training.rows) is None:
            self._learn_shapes(training, training.held_out_predictions, units, units)
        else:
            bound = self.residual_.bind(training.rows)
            unseen = np.zeros((len(units), 1), bool)
            unseen[training.model.rows_held_out] = True
            y_pred = np.where(unseen, bound.y_pred, np.nan)
            self._learn_shapes(training, y_pred, bound.below, bound.above)

    def fit_crossed(self, training: TrainingRows) -> BoundScore:
        """Fit; training rows are scored by scales and shapes that have not seen their fold."""
        self.residual_ = ScaledResidual(self.scales)
        residual = self.residual_.fit_crossed(training)
        quantiles = self._learn_shapes(training, residual.y_pred, residual.below, residual.above)
        if all(shape is None for shape in self.shapes_):
            return residual
        return BoundDistribution(residual.y_pred, residual.unit, residual, quantiles)

    def _learn_shapes(
        self,
        training: TrainingRows,
        y_pred: Float[NDArray, "n t"],
        below: Float[NDArray, "n t"],
        above: Float[NDArray, "n t"],
    ) -> tuple[Float[NDArray, "n k"] | None, ...]:
        """Learn the shape of each target; returns the training rows' out-of-fold quantiles."""
        errors = training.y - y_pred
        z = errors / np.where(errors < 0.0, below, above)
        shared, folds = features_of(training.rows, y_pred), training.fold_of
        self.shapes_, crossed = [], []
        for target, column in enumerate(z.T):
            announce("learning the shape of errors")
            rows = present_rows(column)
            features = _features(shared, below, above, target)[rows]
            own = (below + above)[rows, target] / 2.0
            found = ErrorShape.learned(
                features, column[rows], own, training.seed, None if folds is None else folds[rows]
            )
            self.shapes_.append(None if found is None else found[0])
            crossed.append(None if found is None else _at_rows(found[1], rows, len(column)))
        return tuple(crossed)

    def bind(self, rows: EvaluatedRows) -> BoundScore:
        """The score of these rows."""
        residual = self.residual_.bind(rows)
        if all(shape is None for shape in self.shapes_):
            return residual
        shared = features_of(rows, rows.y_pred)
        quantiles = tuple(
            None
            if shape is None
            else shape.predict(_features(shared, residual.below, residual.above, target))
            for target, shape in enumerate(self.shapes_)
        )
        return BoundDistribution(residual.y_pred, residual.unit, residual, quantiles)


def _at_rows(quantiles: Float[NDArray, "m k"], rows: Any, n_rows: int) -> Float[NDArray, "n k"]:
    """The quantiles spread to all rows; rows without the target, whose score is NaN, get arbitrary ones."""
    result = np.tile(quantiles[:1], (n_rows, 1))
    result[rows] = quantiles
    return result


def _features(
    shared: Float[NDArray, "n f"], below: Float[NDArray, "n t"], above: Float[NDArray, "n t"], target: int
) -> Float[NDArray, "n g"]:
    """Predictions, inputs, and the expected errors below and above."""
    return np.column_stack([shared, np.log(below[:, target]), np.log(above[:, target])])
