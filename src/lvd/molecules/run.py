"""One network in training, in steps of fixed shape that a GPU replays as a CUDA graph.

A step takes its rows and its learning rate from tables on the device, by a counter on the device, and needs
nothing from the host. On a GPU it is captured once and replayed; every network has a stream, a graph and a memory
pool of its own, so that the small kernels of several networks run side by side. On the CPU the same step runs as
it is.

Sums over atoms and bonds are added up in no fixed order on a GPU: two trainings agree up to rounding, which grows
with the steps. On the CPU the same seed gives the same bits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError
from lvd.models.losses import ElementLoss
from lvd.molecules.forward import fingerprints, predictions
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.network import MoleculeNetwork, run_all
from lvd.molecules.packed import Molecules, PackedMolecules, gather

EAGER_STEPS = 3
"""Steps that run as they are before the capture, so that the libraries are set up; they count as training."""


@dataclass(frozen=True)
class Tables:
    """What the steps read, on the device; the molecule behind the last one is empty, its targets unknown.

    Parameters
    ----------
    rows : where each molecule is among the packed ones.
    targets, known : scaled targets, and 0 instead of 1 where one is not known.
    orders, rates : the molecules and the learning rate of every step.
    capacity : atoms and bonds of a batch, the same for all steps.
    """

    packed: PackedMolecules
    rows: Int[Tensor, "m"]
    targets: Float[Tensor, "m t"]
    known: Float[Tensor, "m t"]
    orders: Int[Tensor, "steps b"]
    rates: Float[Tensor, "steps"]
    capacity: tuple[int, int]


class TrainingRun:
    """A network, its optimizer, and how far it has come."""

    def __init__(
        self,
        module: Any,
        loss: ElementLoss,
        tables: Tables,
        *,
        steps_per_epoch: int,
        valid: Molecules,
        valid_positions: Int[Tensor, "v"],
        y_mean: Float[NDArray, "t"],
        y_scale: Float[NDArray, "t"],
    ) -> None:
        self.module, self.loss, self.tables = module, loss, tables
        self.steps_per_epoch = steps_per_epoch
        self.valid, self.valid_positions = valid, valid_positions
        self.y_mean, self.y_scale = y_mean, y_scale
        self.validation: list[float] = []
        self.best: dict[str, Tensor] = {}
        self._best_value = float("inf")
        device = tables.rows.device
        on_gpu = device.type == "cuda"
        self._route = chemprop_adapter().find_route(module)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._rate = tables.rates[0].clone()
        self._optimizer = torch.optim.Adam(module.parameters(), lr=self._rate, fused=True, capturable=on_gpu)
        self._n_eager = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def advance(self) -> None:
        """One step; on a GPU it is only started."""
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
        """The value that the epoch is judged by; on a GPU it may not be computed yet."""
        with self._on_stream(), torch.no_grad():
            outputs, _ = run_all(self.module, self.valid)
            known = self.tables.known[self.valid_positions]
            elements = self.loss.elements(outputs, self.tables.targets[self.valid_positions])
            means = (elements * known).sum(0) / known.sum(0).clamp(min=1.0)
            return self.loss.summary(means, means.new_tensor(self.y_scale))

    def finish_validation(self, pending: Float[Tensor, ""]) -> float:
        """Wait for the value; the weights of the best epoch are kept."""
        with self._on_stream():
            value = float(pending)
            if value < self._best_value:
                self._best_value = value
                self.best = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
        self.validation.append(value)
        return value

    def finish(self) -> MoleculeNetwork:
        """The network with the weights of its best epoch."""
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
        """Gather a batch, take the gradient, move the weights, and count; nothing waits for the device."""
        tables = self.tables
        molecules = tables.orders.index_select(0, self._step)[0]
        self._rate.copy_(tables.rates.index_select(0, self._step)[0])
        graphs = gather(tables.packed, tables.rows.index_select(0, molecules), *tables.capacity)
        outputs = predictions(self.module, fingerprints(self.module, graphs, self._route))
        elements = self.loss.elements(outputs, tables.targets.index_select(0, molecules))
        known = tables.known.index_select(0, molecules)
        self._optimizer.zero_grad(set_to_none=True)
        ((elements * known).sum() / known.sum().clamp(min=1.0)).backward()
        self._optimizer.step()
        self._step += 1

    def _on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
