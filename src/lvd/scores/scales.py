"""How large an error to expect at each row, learned from errors on rows that the model was not trained on.

All scales are fixed by the training rows, so whatever they are, a score divided by them keeps every promise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import workers
from lvd._typing import Float, Int, NDArray
from lvd.engine.sums import WeightedRows
from lvd.models.scaling import mean_and_scale
from lvd.models.torch_modules import Parameters, forward, new_stack
from lvd.models.trees import TreeEnsemble

N_FOLDS = 5
KERNEL_ROWS, NETWORK_ROWS = 3000, 20_000
"""Of more rows a part is drawn."""
BANDWIDTHS, STRENGTHS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0), (1.0, 3.0, 10.0)
LEAST_SHARE = 0.05
"""No scale is below this share of the median error."""
MOST_TREES = 200
MOST_EPOCHS, HIDDEN = 200, (64, 64)
MANY_ROWS, ROWS_PER_BATCH, MOST_STEPS = 10_000, 80, 4000
"""Networks take more than so many rows in larger batches, and no more steps than this."""


def misfit(scale: Float[NDArray, "n"], errors: Float[NDArray, "n"]) -> float:
    """How badly a scale fits the sizes of errors: the Laplace likelihood's, at the best constant factor."""
    return float(np.log(scale).mean() + np.log((errors / scale).mean()))


def fold_numbers(n_rows: int, seed: int) -> Int[NDArray, "n"]:
    """The fold of each row."""
    from sklearn.model_selection import KFold  # slow to import, and only needed here

    numbers = np.empty(n_rows, np.int64)
    for fold, (_, rows) in enumerate(KFold(N_FOLDS, shuffle=True, random_state=seed).split(numbers)):
        numbers[rows] = fold
    return numbers


class KernelScale:
    """``s(x) = (sum_j K_h(x, x_j) e_j + a c) / (sum_j K_h(x, x_j) + a)`` with c the mean error.

    The bandwidth h and the strength a of the mean are those of the best leave-one-out likelihood. Learned in
    the errors' kernel, it knows the embedding; far from all training rows it is c.
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
        """Learn; returns the scales of the training rows without the row itself, or without its fold."""
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
    """The mean of boosted models of the error on inputs and prediction, one for each fold left out."""

    models_: list[TreeEnsemble]

    def fit(
        self,
        features: Float[NDArray, "n f"],
        errors: Float[NDArray, "n"],
        seed: int,
        folds: Int[NDArray, "n"] | None = None,
    ) -> Float[NDArray, "n"]:
        """Learn; returns the scales of the training rows, each by the model that has not seen it."""
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
        """The geometric mean of what the models expect."""
        logs = [np.log(np.maximum(model.predict(features), self.least_)) for model in self.models_]
        return np.exp(np.mean(logs, axis=0))


class NetworkScale:
    """The mean of small networks of the error on inputs and prediction, one for each fold left out, trained as one.

    Their loss is ``log s + e / s``; each stops where the loss on the rows of its fold is lowest.
    """

    parameters_: dict[str, Tensor]

    def fit(
        self,
        features: Float[NDArray, "n f"],
        errors: Float[NDArray, "n"],
        seed: int,
        fold_of: Int[NDArray, "n"] | None = None,
    ) -> Float[NDArray, "n"]:
        """Learn; returns the scales of the training rows, each by the network that was not trained on it."""
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
        """The geometric mean of what the networks expect."""
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


class Schedule(NamedTuple):
    """How networks are trained: AdamW's rate and decay, and after how many epochs without progress they stop."""

    rate: float = 2e-3
    decay: float = 1e-2
    batch: int = 128
    epochs: int = 200
    patience: int = 15


def scale_schedule(n_rows: int) -> Schedule:
    """Larger batches and a higher rate for very many rows: as good after a third of the time."""
    if n_rows <= MANY_ROWS:
        return Schedule()
    batch = min(n_rows // ROWS_PER_BATCH, 512)
    return Schedule(rate=3e-3, batch=batch, epochs=max(1, MOST_STEPS * batch // n_rows), patience=10)


def _scale_losses(outputs: Float[Tensor, "m b 1"], errors: Float[Tensor, "*m b"]) -> Float[Tensor, "m b"]:
    scale = _positive(outputs)
    return scale.log() + errors / scale


def train_fold_networks(
    fresh: Parameters,
    inputs: Float[Tensor, "n f"],
    targets: Float[Tensor, "n"],
    folds: Int[Tensor, "n"],
    losses_of: Callable[[Tensor, Tensor], Tensor],
    *,
    generator: torch.Generator,
    schedule: Schedule,
    blind: bool = False,
) -> Parameters:
    """Network f learns from the rows outside fold f, and is kept as it is when the loss on fold f is lowest.

    A `blind` one is kept when the other networks' losses on their folds are lowest: the rows of fold f, which it
    is to measure, then take no part in it, and look no better than new rows do. `losses_of` gives the losses (m, b)
    of outputs (m, b, o) for targets (b,) or (m, b).
    """
    n_folds = len(next(iter(fresh.values())))
    parameters = {name: tensor.clone().requires_grad_() for name, tensor in fresh.items()}
    optimizer = torch.optim.AdamW(parameters.values(), lr=schedule.rate, weight_decay=schedule.decay)
    rows = [(folds != fold).nonzero()[:, 0] for fold in range(n_folds)]
    counts = torch.bincount(folds, minlength=n_folds)
    judged = folds.argsort(stable=True).split(counts.tolist())
    # Folds differ by a row at most: the shorter ones are filled up with any row, which does not count.
    filled = torch.nn.utils.rnn.pad_sequence(list(judged), batch_first=True)
    counted = torch.arange(filled.shape[1]) < counts[:, None]
    size = min(len(some) for some in rows)
    best = torch.full((n_folds,), torch.inf)
    kept = {name: tensor.detach().clone() for name, tensor in parameters.items()}
    waited = 0
    for _ in range(min(schedule.epochs, MOST_EPOCHS)):
        order = torch.stack([some[torch.randperm(len(some), generator=generator)[:size]] for some in rows])
        for some in order.split(schedule.batch, dim=1):
            optimizer.zero_grad()
            losses_of(forward(parameters, inputs[some]), targets[some]).mean(1).sum().backward()
            optimizer.step()
        with torch.no_grad():
            found = losses_of(forward(parameters, inputs[filled]), targets[filled])
            losses = (found * counted).sum(1) / counts.clamp(min=1)
        if blind:
            losses = (losses.sum() - losses) / (n_folds - 1)
        better = losses < best - 1e-4
        best = torch.where(better, losses, best)
        for name, tensor in parameters.items():
            kept[name][better] = tensor.detach()[better]
        waited = 0 if bool(better.any()) else waited + 1
        if waited >= schedule.patience:
            break
    return kept
