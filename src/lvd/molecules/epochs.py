"""Training of graph networks, several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from lvd._device import resolve_device
from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError, check_positive
from lvd.models.losses import ElementLoss, SquaredLoss
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.network import MoleculeNetwork
from lvd.molecules.run import Run, Tables
from lvd.molecules.schedule import batch_capacity, batch_orders, learning_rates
from lvd.molecules.column import Molecules
from lvd.models.scaling import mean_and_scale

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


def start_run(molecules: Molecules, job: NetworkJob, recipe: Recipe, device: torch.device) -> Run:
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
    mean, scale = _mean_and_scale(job.targets[job.train], job.scale_target)
    scaled = np.append((job.targets - mean) / scale, np.full((1, len(mean)), np.nan), axis=0)
    module = chemprop_adapter().new_mpnn(
        n_outputs=job.loss.outputs_per_target * len(mean),
        widths=(molecules.packed.atom_kinds.shape[1], molecules.packed.bond_kinds.shape[1]),
        hidden_size=recipe.hidden_size,
        depth=recipe.depth,
        generator=torch.Generator().manual_seed(job.seed),
    )
    return Run(
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


def _mean_and_scale(
    targets: Float[NDArray, "n t"], scaled: bool
) -> tuple[Float[NDArray, "t"], Float[NDArray, "t"]]:
    """Mean and standard deviation of the known targets of each column; 0 and 1 leave it as it is."""
    if not scaled:
        return np.zeros(targets.shape[1]), np.ones(targets.shape[1])
    columns = [mean_and_scale(column[~np.isnan(column), None]) for column in targets.T]
    means, scales = zip(*columns, strict=True)
    return np.concatenate(means), np.concatenate(scales)
