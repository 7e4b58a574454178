"""One task of one split of molecules, from the stored outputs of its networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lvd._typing import Float, Int, NDArray
from lvd.reproduction import networks
from lvd.reproduction.datasets import Dataset
from lvd.reproduction.networks import Network, Outputs
from lvd.reproduction.protocols import Protocol
from lvd.reproduction.stages import Stages
from lvd.reproduction.table_split import Split


class StoredNetworks:
    """The outputs of a split's networks, each read once for all tasks."""

    def __init__(self, table: str, seed: int, protocol: Protocol, folder: Path) -> None:
        self.table, self.seed, self.protocol, self.folder = table, seed, protocol, folder
        self._stages = Stages()

    @property
    def base(self) -> Outputs:
        """Of the base network."""
        return self._read(networks.base_network(self.table, self.seed, self.protocol))

    @property
    def errors(self) -> Outputs:
        """Of the second network."""
        return self._read(networks.error_network(self.table, self.seed, self.protocol))

    def quantiles(self, level: float) -> Outputs:
        """Of CQR's network for one level: the lower ends of all tasks, then the upper ones."""
        return self._read(networks.quantile_network(self.table, self.seed, self.protocol, level))

    @property
    def members(self) -> list[Outputs]:
        """Of the networks of a deep ensemble: the means of all tasks, then the variances."""
        members = networks.ensemble_members(self.table, self.seed, self.protocol)
        return [self._read(network) for network in members]

    def _read(self, network: Network) -> Outputs:
        path = network.path(self.folder)
        return self._stages.once(path.name, lambda: networks.read(path))


class TaskSplit(Split):
    """A split as the methods see it, for one target of a table of molecules."""

    def __init__(
        self, dataset: Dataset, target: str, stored: StoredNetworks, protocol: Protocol, seed: int
    ) -> None:
        self.task, self.n_tasks = dataset.target_names.index(target), len(dataset.target_names)
        self.stored = stored
        super().__init__(dataset.y[:, self.task], protocol, seed)

    @property
    def X(self) -> Int[NDArray, "n"]:
        """A row is its number: the networks' answers are stored."""
        return np.arange(len(self.y))

    @property
    def estimator(self) -> Any:
        """The base network's predictions of this task, and the embeddings that all tasks share."""
        return self.functions(self.stored.base, [self.task])

    @property
    def error_estimator(self) -> Any:
        """The second network's predictions of the base network's absolute error in this task."""
        return self.functions(self.stored.errors, [self.task])

    def functions(self, outputs: Outputs, columns: Sequence[int]) -> Any:
        """What a stored network says, as two functions of rows; only the base network embeds."""
        embeddings = self.stored.base.embeddings
        assert embeddings is not None
        return lambda rows: outputs.y_pred[rows][:, columns], lambda rows: embeddings[rows]

    def columns(self, outputs: Outputs) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
        """The two outputs per task of a network that has so many."""
        return outputs.y_pred[:, self.task], outputs.y_pred[:, self.n_tasks + self.task]
