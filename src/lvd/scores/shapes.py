"""The distribution of errors at each row, in units of the error to expect there: its quantiles, learned from errors
on rows that the model was not trained on.

Between the quantiles of `GRID` the distribution function F is linear, beyond them the tails are exponential. The
depth of z is ``log2(2 F(z))`` below the median and ``-log2(2 (1 - F(z)))`` above: at a depth of d only a share of
2^-d of the errors on its side is more extreme. Whatever shape is learned is fixed by the training rows, so depths
keep every promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import Jobs, at_once, usable_threads, workers
from lvd._typing import Float, Int, NDArray
from lvd.models.scaling import mean_and_scale
from lvd.models.torch_modules import Parameters, forward, new_stack
from lvd.scores.quantile_trees import QuantileTrees, boosted_quantiles, pinball
from lvd.scores.scales import Schedule, fold_numbers, train_fold_networks

GRID = np.array([0.01, 0.025, 0.05, 0.1, 0.175, 0.25, 0.375, 0.5, 0.625, 0.75, 0.825, 0.9, 0.95, 0.975, 0.99])
MIDDLE = len(GRID) // 2
TAIL = 2
"""Beyond the outermost quantile the tail falls as it does from the quantile so many places further in."""
LEAST_GAP = 1e-3
"""No two quantiles are closer than this share of the distance between all errors' outer quantiles."""
COARSE = np.array([0.025, 0.1, 0.3, 0.5, 0.7, 0.9, 0.975])
"""The quantiles that are boosted; what they differ from those of all rows is carried to all of `GRID`."""
FEWEST_ROWS, MOST_ROWS = 100, 20_000
"""With fewer training rows no shape is learned, and of more a part is drawn."""
GAIN = 0.002
"""A shape is used if its pinball loss is smaller by this share than that of symmetric errors."""
HIDDEN, MOST_STEPS = (32, 32), 1200
FARTHEST = 5.0


def kept_apart(quantiles: Float[NDArray, "n k"], least: float) -> Float[NDArray, "n k"]:
    """The quantiles in order, moved away from the median as far as it takes to be `least` apart."""
    ordered, steps = np.sort(quantiles, axis=1), least * np.arange(len(GRID))
    rest = ordered - steps
    above = np.maximum.accumulate(rest[:, MIDDLE:], axis=1)
    below = np.minimum.accumulate(rest[:, MIDDLE::-1], axis=1)[:, :0:-1]
    return np.concatenate([below, above], axis=1) + steps


def depth_of(z: Float[NDArray, "n"], quantiles: Float[NDArray, "n k"]) -> Float[NDArray, "n"]:
    """How deep z is in the tails of the distribution with these quantiles: negative below its median."""
    last = len(GRID) - 1
    number = (quantiles < z[:, None]).sum(axis=1)
    cell = np.clip(number, 1, last)[:, None]
    low, high = (np.take_along_axis(quantiles, cell - side, axis=1)[:, 0] for side in (1, 0))
    tau_low, tau_high = GRID[cell[:, 0] - 1], GRID[cell[:, 0]]
    share = (z - low) / (high - low)
    # Shares above the median are counted from 1 downwards, where small ones keep their digits.
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
    # The quantiles above the median are those below it, counted from the other end.
    low, high = (quantiles[rows, np.where(below, place, last - place)] for place in (cell - 1, cell))
    inside = low + share * (high - low)
    if not (size > -outer).any():
        return inside
    (start, down), (end, up) = (tuple(part[:, None] for part in side) for side in _tails(quantiles))
    inside = np.where(depth < outer, start + (depth - outer) / down, inside)
    return np.where(depth > -outer, end + (depth + outer) / up, inside)


def _tails(quantiles: Float[NDArray, "n k"]) -> tuple[tuple[NDArray, NDArray], ...]:
    """Where the tails begin, and by how much the depth grows there with each unit of z."""
    falls = np.log2(GRID[TAIL] / GRID[0])
    start, end = quantiles[:, 0], quantiles[:, -1]
    return (start, falls / (quantiles[:, TAIL] - start)), (end, falls / (end - quantiles[:, -1 - TAIL]))


def schedule_for(n_rows: int) -> Schedule:
    """Larger batches for more rows, and no more steps."""
    batch = int(np.clip(n_rows // 25, 64, 256))
    return Schedule(
        rate=5e-3, decay=0.3, batch=batch, epochs=max(1, MOST_STEPS * batch // n_rows), patience=8
    )


class NetworkQuantiles:
    """The mean of small networks of all quantiles of `GRID`, one for each fold left out, trained as one.

    Their outputs are the median and the distances between neighbouring quantiles, so that these are in order. Each
    stops where the pinball loss on the rows of its fold is lowest.
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
        """Learn; returns the quantiles of the training rows, each by the network that was not trained on it, nor,
        if `blind`, stopped by it. All rows count alike, whatever their `weights`."""
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
    """Quantiles from their median and the distances between them."""
    above = torch.nn.functional.softplus(outputs[..., 1:]).cumsum(-1)
    rising = torch.cat([torch.zeros_like(above[..., :1]), above], -1)
    return outputs[..., :1] + rising - rising[..., MIDDLE, None]


def _carrying() -> Float[NDArray, "c k"]:
    """How much of each boosted quantile's change goes to those of `GRID`: linear between, in normal quantiles."""
    at, known = ([NormalDist().inv_cdf(tau) for tau in taus.tolist()] for taus in (GRID, COARSE))
    return np.stack([np.interp(at, known, unit) for unit in np.eye(len(COARSE))])


CARRIED = _carrying()


class BoostedQuantiles:
    """Boosted quantiles of `COARSE`, and those of `GRID` that follow from them."""

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
        """Learn; returns the quantiles of the training rows, each by the trees that were not grown on it, nor, if
        `blind`, stopped by it."""
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
    """The quantiles of z, the error in units of the error to expect, at each row: a mean of up to three.

    Boosted trees and small networks of inputs, prediction and expected error, and the quantiles of all z, the same
    at every row. Which of them enter is decided by the pinball loss, in units of y, on rows not learned from.
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
        """The shape, and the quantiles of the training rows by what has not seen their fold; None where symmetric
        errors, of one distribution at every row, do as well."""
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
        """The quantiles of each row, at least a little apart."""
        found = {name: learner.predict(features) for name, learner in self.learners_.items()}
        for name in ("constant", "symmetric"):
            if name in self.weights_:
                found[name] = np.tile(vars(self)[f"{name}_"], (len(features), 1))
        return kept_apart(mixed(found, self.weights_), self.least_)


def _learn_quantiles(given: tuple[Any, ...], blind: bool, name: str) -> tuple[Any, Float[NDArray, "n k"]]:
    """A learner of quantiles, and those of the rows by what has not seen their fold."""
    learner = LEARNERS[name]()
    return learner, learner.fit(*given, blind=blind)


def symmetric_quantiles(z: Float[NDArray, "n"]) -> Float[NDArray, "k"]:
    """Those of errors that are alike on both sides."""
    return np.quantile(np.abs(z), np.abs(2.0 * GRID - 1.0)) * np.sign(GRID - 0.5)


def best_mixture(losses: Float[NDArray, "c n"]) -> int:
    """The number of the mixture with the smallest loss; 0, symmetric errors, unless another gains enough."""
    totals = losses.sum(axis=1)
    best = 1 + int(totals[1:].argmin())
    return best if totals[best] < (1.0 - GAIN) * totals[0] else 0


def chosen_by_other_folds(losses: Float[NDArray, "c n"], folds: Int[NDArray, "n"]) -> Int[NDArray, "n"]:
    """For each row the best mixture of the rows outside its fold."""
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
