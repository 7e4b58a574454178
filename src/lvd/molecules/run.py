"""Training one network in steps of fixed shape, which a GPU replays as a CUDA graph.

A step takes its rows and learning rate from tables on the device, using a counter on the device, and needs
nothing from the host. On a GPU it is captured once and replayed; every network has its own stream, graph and
memory pool, so that small kernels of several networks overlap. On the CPU the same step runs directly.

On a GPU the order of sums over atoms and bonds is not fixed: two trainings agree up to rounding, which grows
with the steps. On the CPU the same seed gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lvd._typing import Float
from lvd._validation import InputError, resolve_device
from lvd.models.losses import target_means
from lvd.models.scaling import constant_targets, known_mean_and_scale
from lvd.molecules.epochs import NetworkJob, Recipe, batch_capacity, batch_orders, learning_rates
from lvd.molecules.forward import fingerprints, predictions
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.network import MoleculeNetwork, run_all
from lvd.molecules.packed import Molecules, gather

FADING = 0.02
"""The decay per step of past losses, for losses that weight targets by their usual loss."""
EAGER_STEPS = 3
"""Uncaptured steps that initialise the libraries before the capture; they count as training."""


class TrainingRun:
    """A network, its optimizer, the device tables that its steps read, and its progress.

    An empty molecule with unknown targets follows the last one and pads the last batch of an epoch.
    """

    def __init__(self, molecules: Molecules, job: NetworkJob, recipe: Recipe, device: torch.device) -> None:
        batch_size, n = min(recipe.batch_size, len(job.train)), len(molecules)
        orders = batch_orders(job.train, recipe.n_epochs, batch_size, job.seed, filler=n)
        self.steps_per_epoch = len(orders) // recipe.n_epochs
        rates = learning_rates(
            len(orders),
            round(recipe.warmup_epochs * self.steps_per_epoch),
            initial=recipe.initial_rate,
            peak=recipe.peak_rate,
            final=recipe.final_rate,
        )
        rows = np.append(molecules.rows, len(molecules.packed))
        self.y_mean, self.y_scale = known_mean_and_scale(job.targets[job.train], job.scale_target)
        scaled = np.pad((job.targets - self.y_mean) / self.y_scale, ((0, 1), (0, 0)), constant_values=np.nan)
        if job.scale_target:
            # A constant target is known without learning, and would only disturb the others.
            constant = constant_targets(job.targets[job.train])
            self.y_scale, scaled[:, constant] = np.where(constant, 0.0, self.y_scale), np.nan
        module = chemprop_adapter().new_mpnn(
            n_outputs=job.loss.outputs_per_target * scaled.shape[1],
            widths=(molecules.packed.atom_kinds.shape[1], molecules.packed.bond_kinds.shape[1]),
            hidden_size=recipe.hidden_size,
            depth=recipe.depth,
            generator=torch.Generator().manual_seed(job.seed),
        )
        self.loss, self.module = job.loss, module.to(device).train()
        self.packed, self.rows = molecules.packed.to(device), torch.as_tensor(rows, device=device)
        self.targets = torch.as_tensor(np.nan_to_num(scaled), dtype=torch.float32, device=device)
        self.known = torch.as_tensor(~np.isnan(scaled), dtype=torch.float32, device=device)
        self.orders = torch.as_tensor(orders, device=device)
        self.rates = torch.as_tensor(rates, dtype=torch.float32, device=device)
        self.capacity = batch_capacity(molecules.packed.sizes()[rows], orders)
        self.valid, self.valid_positions = molecules[job.valid], torch.as_tensor(job.valid, device=device)
        self.validation: list[float] = []
        self.best: dict[str, Tensor] = {}
        self._best_value = float("inf")
        self._prepare_steps(device)

    def _prepare_steps(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._route = chemprop_adapter().find_route(self.module)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._rate = self.rates[0].clone()
        self._recent = self.targets.new_zeros(2, self.targets.shape[1])
        parameters = self.module.parameters()
        self._optimizer = torch.optim.Adam(parameters, lr=self._rate, fused=True, capturable=on_gpu)
        self._n_eager = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def advance(self) -> None:
        """Run one step; on a GPU it is only launched."""
        with self._on_stream():
            if self._stream is None or self._n_eager < EAGER_STEPS:
                self._take_step()
                self._n_eager += 1
                return
            if self._graph is None:
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph, stream=self._stream):
                    self._take_step()
            self._graph.replay()

    def start_validation(self) -> Float[Tensor, ""]:
        """Start computing the epoch's validation value; on a GPU it may not be ready yet."""
        with self._on_stream(), torch.no_grad():
            outputs, _ = run_all(self.module, self.valid)
            known = self.known[self.valid_positions]
            elements = self.loss.elements(outputs, self.targets[self.valid_positions])
            means = target_means(elements, known)
            return self.loss.summary(means, means.new_tensor(self.y_scale))

    def finish_validation(self, pending: Float[Tensor, ""]) -> float:
        """Wait for the value, and keep the weights if the epoch is the best so far."""
        with self._on_stream():
            value = float(pending)
            if value < self._best_value:
                self._best_value = value
                self.best = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
        self.validation.append(value)
        return value

    def finish(self) -> MoleculeNetwork:
        """Return the network with the weights of its best epoch."""
        if not self.best:
            raise InputError(
                f"training diverged: after the epochs the validation errors were {self.validation}; lower "
                "peak_rate, or scale the targets"
            )
        with self._on_stream():
            self.module.load_state_dict(self.best)
        if self._stream is not None:
            self._stream.synchronize()
        self.module.zero_grad(set_to_none=True)
        return MoleculeNetwork(
            self.module.eval(), self.loss, self.y_mean, self.y_scale, tuple(self.validation)
        )

    def _take_step(self) -> None:
        """Gather a batch, take the gradient, update weights and counter; nothing waits for the device."""
        molecules = self.orders.index_select(0, self._step)[0]
        self._rate.copy_(self.rates.index_select(0, self._step)[0])
        graphs = gather(self.packed, self.rows.index_select(0, molecules), *self.capacity)
        outputs = predictions(self.module, fingerprints(self.module, graphs, self._route))
        elements = self.loss.elements(outputs, self.targets.index_select(0, molecules))
        known = self.known.index_select(0, molecules)
        self._optimizer.zero_grad(set_to_none=True)
        self.loss.total(elements, known, self._usual_losses).backward()
        self._optimizer.step()
        self._step += 1

    def _usual_losses(self, means: Float[Tensor, "t"], seen: Float[Tensor, "t"]) -> Float[Tensor, "t"]:
        """The targets' mean losses over recent steps, including this one, with exponential decay."""
        self._recent.mul_(1.0 - FADING).add_(torch.stack([means * seen, seen]))
        losses, times = self._recent
        return losses / times.clamp(min=FADING**2)

    def _on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


def train_networks(
    molecules: Molecules,
    jobs: Sequence[NetworkJob],
    recipe: Recipe | None = None,
    *,
    device: str | torch.device = "auto",
    on_epoch: Callable[[int, list[float]], None] | None = None,
) -> list[MoleculeNetwork]:
    """Train all networks concurrently; each ends up as if trained alone.

    `on_epoch` is called after every epoch with its number and the validation value of each network.
    """
    recipe = Recipe() if recipe is None else recipe
    recipe.check()
    for job in jobs:
        job.check(len(molecules))
    place = resolve_device(device)
    runs = [TrainingRun(molecules, job, recipe, place) for job in jobs]
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
