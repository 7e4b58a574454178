"""One task of one split of molecules, from the stored outputs of its networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lvd._typing import Float, NDArray
from lvd.data import Dataset
from lvd.experiments import networks
from lvd.experiments.networks import Network, Outputs
from lvd.experiments.protocols import Protocol
from lvd.experiments.split import Parts, Split
from lvd.experiments.stages import Stages
from lvd.kernels.rows import place
from lvd.nets import Evaluation


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

    def embeddings(self, name: str, rows: NDArray) -> Any:
        """The base network's embeddings of one part of the split, which all tasks share.

        On a GPU, where there is one, so that no kernel has to move them again.
        """
        return self._stages.once(name, lambda: place(np.asarray(self.base.embeddings)[rows], "auto"))

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
    def base(self) -> Parts:
        """The base network's predictions of this task, and the embeddings that all tasks share."""
        return self._parts(self.stored.base)

    @property
    def errors(self) -> Parts:
        """The second network's predictions of the base network's absolute error in this task."""
        return self._parts(self.stored.errors)

    def columns(self, outputs: Outputs) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
        """The two outputs per task of a network that has so many."""
        return outputs.y_pred[:, self.task], outputs.y_pred[:, self.n_tasks + self.task]

    def _parts(self, outputs: Outputs) -> Parts:
        parts = {"train": self.train, "calib": self.calib, "test": self.test}
        return Parts(
            *(
                Evaluation(
                    outputs.y_pred[rows, self.task : self.task + 1], self.stored.embeddings(name, rows)
                )
                for name, rows in parts.items()
            )
        )
