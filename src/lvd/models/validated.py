"""The built-in network: four small networks, or eight with few rows, each stopped early on its own fold and
joined side by side into one MLP.

Each member starts from a ridge regression, carried through all layers by a pair of its ReLU units, so it is
never far behind a linear model; training updates are kept only if they help on rows the member has not seen.

The small networks that learn the size and the distribution of errors are trained likewise: each leaves out a fold,
which stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError
from lvd.models.torch_modules import Loss, Parameters, forward, layers, new_stack

MOST_MEMBERS, LEAST_WIDTH = 4, 8
FEWEST_ROWS = 20
"""Below this many rows, none are held out."""
FOLDS, LEAST_BATCH, BATCHES = 8, 64, 20
FEW_ROWS, FEW_WIDTH = 500, 24
"""Below this many training rows there is one layer of this many units per member, trained faster, and a member
for each fold, so that all rows count equally."""
RATE, FAST_RATE = 1e-2, 2e-2
ROUND, MOST_ROUNDS = 25, 100
"""Batches between evaluations on the held-out rows, and the most evaluations per rate."""
STAGES = ((1.0, 12), (0.3, 6), (0.09, 6))
"""Learning rates relative to the first one, and how many evaluations without progress end each stage."""
LEAST_GAIN = 1e-4
N_FOLDS, MOST_EPOCHS = 5, 200
"""Folds and epochs of the small networks that learn errors."""
STRENGTHS = np.logspace(-3, 5, 33)
FIRST_SHARE = 0.1
"""The initial scale of the output weights of units that do not carry the ridge regression."""


def default_sizes(n_rows: int, n_targets: int) -> tuple[int, ...]:
    """The layer widths, with room for a ridge regression of each target."""
    room = 2 * n_targets + LEAST_WIDTH
    if n_rows < FEW_ROWS:
        return (FOLDS * max(FEW_WIDTH, room),)
    return MOST_MEMBERS * max(64, room), MOST_MEMBERS * max(16, room)


def default_rate(n_rows: int) -> float:
    """The initial learning rate."""
    return FAST_RATE if n_rows < FEW_ROWS else RATE


def train_validated(
    inputs: Float[Tensor, "n p"],
    targets: Float[Tensor, "n t"],
    hidden_sizes: Sequence[int],
    *,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    loss: Loss,
    seed: int,
    on_batch: Callable[[], None] | None = None,
) -> nn.Sequential:
    """Train an MLP of these widths: the mean of its members, each with the weights that did best on its fold."""
    n_members = count_members(hidden_sizes, len(inputs))
    generator = torch.Generator().manual_seed(seed)
    folds = torch.randperm(len(inputs), generator=generator) % FOLDS
    held_out = folds == torch.arange(n_members)[:, None]
    sizes = [inputs.shape[1], *(size // n_members for size in hidden_sizes), targets.shape[1]]
    parameters = new_stack(n_members, sizes, generator)
    for member in range(n_members):
        inside = ~held_out[member]
        start_at_ridge(parameters, member, ridge_of_known(inputs[inside], targets[inside]))
    search = _Search(
        inputs, targets, held_out, loss=loss, batch_size=batch_size, generator=generator, on_batch=on_batch
    )
    return join(search.run(parameters, learning_rate, weight_decay))


def count_members(hidden_sizes: Sequence[int], n_rows: int) -> int:
    """The most members, up to four (eight with few rows), that divide all widths and keep enough units each."""
    least = {FOLDS: FEW_WIDTH} if n_rows < FEW_ROWS else {}
    least |= {MOST_MEMBERS: LEAST_WIDTH, 2: LEAST_WIDTH}
    fits = (n for n, width in least.items() if all(s % n == 0 and s // n >= width for s in hidden_sizes))
    return next(fits, 1) if hidden_sizes else 1


def ridge(inputs: Float[Tensor, "n p"], targets: Float[Tensor, "n t"]) -> Float[Tensor, "t p+1"]:
    """Weights and offset of the ridge regression, with the strength of least leave-one-out error."""
    X, y = inputs.double().cpu().numpy(), targets.double().cpu().numpy()
    x_mean, y_mean = X.mean(0), y.mean(0)
    left, size, right = np.linalg.svd(X - x_mean, full_matrices=False)
    along = left.T @ (y - y_mean)

    def error(strength: float) -> float:
        kept = size**2 / (size**2 + strength)
        leverage = left**2 @ kept + 1.0 / len(X)
        residuals = y - y_mean - left @ (kept[:, None] * along)
        return float(np.mean((residuals / (1.0 - leverage).clip(min=1e-6)[:, None]) ** 2))

    strength = min(STRENGTHS, key=error)
    weights = right.T @ ((size / (size**2 + strength))[:, None] * along)
    return torch.as_tensor(np.column_stack([weights.T, y_mean - x_mean @ weights]))


def ridge_of_known(inputs: Float[Tensor, "n p"], targets: Float[Tensor, "n t"]) -> Float[Tensor, "t p+1"]:
    """The ridge regression of each target on the rows that have it; zero for a target that no row has."""
    known = ~targets.isnan()
    if known.all():
        return ridge(inputs, targets)
    nothing = torch.zeros(1, inputs.shape[1] + 1, dtype=torch.float64)
    return torch.cat(
        [
            ridge(inputs[some], targets[some, number, None]) if some.any() else nothing
            for number, some in enumerate(known.T)
        ]
    )


def start_at_ridge(parameters: Parameters, member: int, linear: Float[Tensor, "t q"]) -> None:
    """Initialise the first units to carry the positive and negative parts of a linear prediction to the output."""
    own = [(weights[member], biases[member]) for weights, biases in layers(parameters)]
    if len(own) == 1:
        ((weight, bias),) = own
        weight[:], bias[:] = linear[:, :-1], linear[:, -1]
        return
    (first, offset), *others, (weight, bias) = own
    n_targets, pair = len(linear), slice(2 * len(linear))
    if any(len(biases) < 2 * n_targets for _, biases in own[:-1]):
        return
    signed = torch.cat([linear, -linear]).to(first)
    first[pair], offset[pair] = signed[:, :-1], signed[:, -1]
    for weights, biases in others:
        weights[pair], biases[pair] = 0.0, 0.0
        weights[pair, pair] = torch.eye(2 * n_targets)
    weight.mul_(FIRST_SHARE)
    weight[:, pair] = torch.cat([torch.eye(n_targets), -torch.eye(n_targets)], dim=1)
    bias.zero_()


class _Search:
    """Training of all members at once: each is evaluated on its held-out rows after every round of batches."""

    def __init__(
        self,
        inputs: Float[Tensor, "n p"],
        targets: Float[Tensor, "n t"],
        held_out: Bool[Tensor, "m n"],
        *,
        loss: Loss,
        batch_size: int,
        generator: torch.Generator,
        on_batch: Callable[[], None] | None,
    ) -> None:
        self.inputs, self.targets, self.loss, self.on_batch = inputs, targets, loss, on_batch
        self.inside = [(~rows).nonzero()[:, 0] for rows in held_out]
        outside = [rows.nonzero()[:, 0] for rows in held_out]
        self.n_outside = list(map(len, outside))
        # Fold sizes differ by at most one row: shorter folds are padded with row 0, which no loss counts.
        self.outside = nn.utils.rnn.pad_sequence(outside, batch_first=True).to(inputs.device)
        self.generator = generator
        self.n_rows = min(map(len, self.inside))
        self.batch_size = min(batch_size, max(LEAST_BATCH, self.n_rows // BATCHES))

    def run(self, parameters: Parameters, learning_rate: float, weight_decay: float) -> Parameters:
        """The best weights of each member, lowering the learning rate when progress stops."""
        weights = {k: v.to(self.inputs.device).requires_grad_() for k, v in parameters.items()}
        kept = {name: tensor.detach().clone() for name, tensor in weights.items()}
        optimizer = torch.optim.AdamW(
            weights.values(), lr=learning_rate, weight_decay=weight_decay, fused=True
        )
        best, batches = self._held_out_losses(weights), self._batches()
        for drop, patience in STAGES:
            optimizer.param_groups[0]["lr"] = drop * learning_rate
            waited = 0
            for _ in range(MOST_ROUNDS):
                for _ in range(max(ROUND, self.n_rows // self.batch_size)):
                    self._step(optimizer, weights, next(batches))
                losses = self._held_out_losses(weights)
                better = losses < best * (1.0 - LEAST_GAIN)
                best = torch.where(better, losses, best)
                for name, tensor in weights.items():
                    kept[name][better] = tensor.detach()[better]
                waited = 0 if bool(better.any()) else waited + 1
                if waited >= patience:
                    break
            with torch.no_grad():
                for name, tensor in weights.items():
                    tensor.copy_(kept[name])
        if not torch.isfinite(best).all():
            raise InputError(
                "training diverged: the loss of the held-out rows is not finite; lower learning_rate, or scale "
                "the inputs and the target"
            )
        return kept

    def _batches(self) -> Iterator[Int[Tensor, "m b"]]:
        """Batches of row indices, each member's in its own order."""
        while True:
            order = torch.stack(
                [
                    rows[torch.randperm(len(rows), generator=self.generator)[: self.n_rows]]
                    for rows in self.inside
                ]
            ).to(self.inputs.device)
            yield from order.split(self.batch_size, dim=1)[: max(1, self.n_rows // self.batch_size)]

    def _step(self, optimizer: torch.optim.Optimizer, weights: Parameters, rows: Int[Tensor, "m b"]) -> None:
        optimizer.zero_grad(set_to_none=True)
        outputs = forward(weights, self.inputs[rows])
        # The mean over all members' rows: each member gets its own gradient, up to a factor.
        self.loss(outputs.flatten(0, 1), self.targets[rows].flatten(0, 1)).backward()
        optimizer.step()
        if self.on_batch is not None:
            self.on_batch()

    def _held_out_losses(self, weights: Parameters) -> Float[Tensor, "m"]:
        with torch.no_grad():
            outputs = forward(weights, self.inputs[self.outside])
            return torch.stack(
                [
                    self.loss(one[:n_rows], self.targets[rows[:n_rows]])
                    for one, rows, n_rows in zip(outputs, self.outside, self.n_outside, strict=True)
                ]
            )


def join(parameters: Parameters) -> nn.Sequential:
    """One MLP, the members' layers side by side, whose output is their mean."""
    stacked, built = layers(parameters), []
    for depth, (weights, biases) in enumerate(stacked):
        if len(stacked) == 1:
            weight, bias = weights.mean(0), biases.mean(0)
        elif depth == len(stacked) - 1:
            weight, bias = torch.cat([*weights], dim=1) / len(weights), biases.mean(0)
        else:
            weight = torch.cat([*weights]) if depth == 0 else torch.block_diag(*weights)
            bias = biases.flatten()
        linear: nn.Linear = nn.utils.skip_init(nn.Linear, *reversed(weight.shape), device=weight.device)
        linear.load_state_dict({"weight": weight, "bias": bias})
        built += [linear, nn.ReLU()]
    return nn.Sequential(*built[:-1])


def fold_numbers(n_rows: int, seed: int) -> Int[NDArray, "n"]:
    """The fold of each row."""
    from sklearn.model_selection import KFold  # slow to import, and only needed here

    numbers = np.empty(n_rows, np.int64)
    for fold, (_, rows) in enumerate(KFold(N_FOLDS, shuffle=True, random_state=seed).split(numbers)):
        numbers[rows] = fold
    return numbers


class Schedule(NamedTuple):
    """How networks are trained: AdamW's rate and decay, and after how many epochs without progress they stop."""

    rate: float = 2e-3
    decay: float = 1e-2
    batch: int = 128
    epochs: int = 200
    patience: int = 15


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
