"""Training of graph networks, several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError, check_positive, resolve_device
from lvd.models.losses import ElementLoss, SquaredLoss
from lvd.models.scaling import known_mean_and_scale
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.network import MoleculeNetwork
from lvd.molecules.packed import Molecules
from lvd.molecules.run import Tables, TrainingRun


def inner_split(
    n_rows: int, seed: int = 0, shares: tuple[float, float] = (0.8, 0.1)
) -> tuple[Int[NDArray, "a"], Int[NDArray, "b"], Int[NDArray, "c"]]:
    """Positions to learn from, to choose the epoch by, and to leave alone, as chemprop 1 splits at random."""
    order = np.random.RandomState(seed).permutation(n_rows)
    first, second = int(shares[0] * n_rows), int((shares[0] + shares[1]) * n_rows)
    return order[:first], order[first:second], order[second:]


def batch_orders(
    rows: Int[NDArray, "n"], n_epochs: int, batch_size: int, seed: int, *, filler: int
) -> Int[NDArray, "steps b"]:
    """The rows of every step: each epoch sees all of them once, its last batch filled up with `filler`."""
    rng = np.random.RandomState(seed)
    n_filled = -len(rows) % batch_size
    epochs = [np.append(rng.permutation(rows), np.full(n_filled, filler)) for _ in range(n_epochs)]
    return np.concatenate(epochs).reshape(-1, batch_size)


def learning_rates(
    n_steps: int, n_warmup: int, *, initial: float, peak: float, final: float
) -> Float[NDArray, "steps"]:
    """Linear from `initial` to `peak` in `n_warmup` steps, then exponential to `final` (chemprop 1's NoamLR)."""
    step = np.arange(1, n_steps + 1)
    rising = initial + (peak - initial) * step / max(n_warmup, 1)
    falling = peak * (final / peak) ** ((step - n_warmup) / max(n_steps - n_warmup, 1))
    return np.where(step <= n_warmup, rising, falling)


def batch_capacity(sizes: Int[NDArray, "n 2"], orders: Int[NDArray, "steps b"]) -> tuple[int, int]:
    """The atoms and bonds of the largest batch, and one dummy of each."""
    largest = sizes[orders].sum(axis=1).max(axis=0) + 1
    return int(largest[0]), int(largest[1])


OnEpoch = Callable[[int, list[float]], None]


@dataclass(frozen=True)
class Recipe:
    """Shape and training of a network; the defaults are those of chemprop 1, and of the paper."""

    hidden_size: int = 300
    depth: int = 3
    n_epochs: int = 30
    batch_size: int = 50
    warmup_epochs: float = 2.0
    initial_rate: float = 1e-4
    peak_rate: float = 1e-3
    final_rate: float = 1e-4

    def check(self) -> None:
        """Refuse what cannot work."""
        for name in ("hidden_size", "depth", "n_epochs", "batch_size"):
            check_positive(getattr(self, name), name, integer=True)
        for name in ("initial_rate", "peak_rate", "final_rate"):
            check_positive(getattr(self, name), name)
        if not 0 <= self.warmup_epochs < self.n_epochs:
            raise InputError(
                f"warmup_epochs must be at least 0 and below n_epochs={self.n_epochs}, got {self.warmup_epochs!r}"
            )


@dataclass(frozen=True)
class NetworkJob:
    """One network to be trained.

    Parameters
    ----------
    targets : of all molecules; NaN where one is not known.
    train, valid : positions of the molecules to learn from, and of those by which the best epoch is chosen.
    loss : what it learns, and how its outputs are to be read.
    scale_target : standardise with the mean and standard deviation of the known training targets.
    seed : of the initial weights and of the order of the rows.
    """

    targets: Float[NDArray, "n t"]
    train: Int[NDArray, "a"]
    valid: Int[NDArray, "b"]
    loss: ElementLoss = field(default_factory=SquaredLoss)
    scale_target: bool = True
    seed: int = 0

    def check(self, n_molecules: int) -> None:
        """Refuse what cannot be trained on."""
        if len(self.targets) != n_molecules:
            raise InputError(
                f"targets must have a row for each of {n_molecules} molecules, got {len(self.targets)}"
            )
        for name, positions in (("train", self.train), ("valid", self.valid)):
            if not len(positions):
                raise InputError(f"{name} must name at least one molecule")
        unknown = np.isnan(self.targets[self.train]).all(axis=0)
        if unknown.any():
            raise InputError(
                f"target {int(unknown.argmax()) + 1}, counting from 1, is not known for any training molecule; "
                "leave that column out"
            )


def train_networks(
    molecules: Molecules,
    jobs: Sequence[NetworkJob],
    recipe: Recipe | None = None,
    *,
    device: str | torch.device = "auto",
    on_epoch: OnEpoch | None = None,
) -> list[MoleculeNetwork]:
    """Train all networks side by side; each is what it would be if trained alone.

    `on_epoch` is called after every epoch with its number and the validation value of each network.
    """
    recipe = Recipe() if recipe is None else recipe
    recipe.check()
    for job in jobs:
        job.check(len(molecules))
    place = resolve_device(device)
    runs = [start_run(molecules, job, recipe, place) for job in jobs]
    for epoch in range(recipe.n_epochs):
        for step in range(max(run.steps_per_epoch for run in runs)):
            for run in runs:
                if step < run.steps_per_epoch:
                    run.advance()
        pending = [run.start_validation() for run in runs]
        values = [run.finish_validation(value) for run, value in zip(runs, pending, strict=True)]
        if on_epoch is not None:
            on_epoch(epoch, values)
    return [run.finish() for run in runs]


def start_run(molecules: Molecules, job: NetworkJob, recipe: Recipe, device: torch.device) -> TrainingRun:
    """The network of a job with its initial weights, and all tables that its training reads."""
    batch_size, n = min(recipe.batch_size, len(job.train)), len(molecules)
    orders = batch_orders(job.train, recipe.n_epochs, batch_size, job.seed, filler=n)
    steps_per_epoch = len(orders) // recipe.n_epochs
    rates = learning_rates(
        len(orders),
        round(recipe.warmup_epochs * steps_per_epoch),
        initial=recipe.initial_rate,
        peak=recipe.peak_rate,
        final=recipe.final_rate,
    )
    rows = np.append(molecules.rows, len(molecules.packed))
    mean, scale = known_mean_and_scale(job.targets[job.train], job.scale_target)
    scaled = np.append((job.targets - mean) / scale, np.full((1, len(mean)), np.nan), axis=0)
    module = chemprop_adapter().new_mpnn(
        n_outputs=job.loss.outputs_per_target * len(mean),
        widths=(molecules.packed.atom_kinds.shape[1], molecules.packed.bond_kinds.shape[1]),
        hidden_size=recipe.hidden_size,
        depth=recipe.depth,
        generator=torch.Generator().manual_seed(job.seed),
    )
    return TrainingRun(
        module.to(device).train(),
        job.loss,
        Tables(
            packed=molecules.packed.to(device),
            rows=torch.as_tensor(rows, device=device),
            targets=torch.as_tensor(np.nan_to_num(scaled), dtype=torch.float32, device=device),
            known=torch.as_tensor(~np.isnan(scaled), dtype=torch.float32, device=device),
            orders=torch.as_tensor(orders, device=device),
            rates=torch.as_tensor(rates, dtype=torch.float32, device=device),
            capacity=batch_capacity(molecules.packed.sizes()[rows], orders),
        ),
        steps_per_epoch=steps_per_epoch,
        valid=molecules[job.valid],
        valid_positions=torch.as_tensor(job.valid, device=device),
        y_mean=mean,
        y_scale=scale,
    )
