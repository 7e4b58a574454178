"""One task of a table of molecules, with the stored outputs of its networks in place of the networks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lvd._typing import ArrayLike, Float, Int, NDArray
from lvd._validation import InputError
from lvd.models import Evaluation
from lvd.models.candidates import held_out_folds
from lvd.models.model import each_its_own
from lvd.reproduction import networks
from lvd.reproduction.bench_split import Split
from lvd.reproduction.datasets import Dataset
from lvd.reproduction.networks import Outputs, network_of, parts_of, read_outputs
from lvd.reproduction.protocols import Protocol
from lvd.reproduction.stages import Stages


class StoredNetworks:
    """The outputs of a split's networks, each read once for all tasks."""

    def __init__(self, table: str, seed: int, protocol: Protocol, folder: Path) -> None:
        self.folder, self._stages = folder, Stages()
        self._network = partial(network_of, table=table, seed=seed, protocol=protocol)

    def read(self, role: str, **which: Any) -> Outputs:
        """Of the network of that role; CQR's has a `level`, that of an ensemble is a `member`."""
        path = self._network(role, **which).path(self.folder)
        return self._stages.once(path.name, lambda: read_outputs(path))


class TaskSplit(Split):
    """A split for one task of a table; its networks' outputs are stored."""

    def __init__(
        self, dataset: Dataset, task: str, stored: StoredNetworks, protocol: Protocol, seed: int
    ) -> None:
        self.task, self.n_tasks = dataset.target_names.index(task), len(dataset.target_names)
        self.stored = stored
        parts = parts_of(dataset, protocol.split, seed, protocol.sizes)
        super().__init__(dataset.y[:, self.task], protocol, seed, parts)
        self.X = np.arange(len(self.y))  # a row is its number

    @property
    def estimator(self) -> Any:
        """The base network's predictions of this task, and the embeddings that all tasks share."""
        return self._functions(self.stored.read("base"), [self.task])

    @property
    def error_estimator(self) -> Any:
        """The second network's predictions of the base network's absolute error in this task."""
        return self._functions(self.stored.read("errors"), [self.task])

    @property
    def held_out_error_estimator(self) -> Any:
        """A network's predictions of the absolute error on rows that were held out."""
        return self._functions(self.stored.read("held_out_errors"), [self.task])

    @property
    def untrained(self) -> StoredModel:
        """The network as an estimator yet to be fitted: on the training rows, or on those without a fold."""
        return StoredModel(self)

    def trained_on(self, rows: Int[NDArray, "a"]) -> Outputs:
        """The stored outputs of the network that was trained on these rows."""
        if np.array_equal(rows, self.train):
            return self.stored.read("base")
        for fold, (inside, _) in enumerate(held_out_folds(len(self.train), self.seed)):
            if np.array_equal(rows, self.train[inside]):
                return self.stored.read("fold", member=fold)
        raise InputError(f"no stored network was trained on these {len(rows)} rows")

    def quantile_estimator(self, level: float) -> tuple[Any, bool]:
        """The lower and upper quantiles of this task."""
        return self._functions(self.stored.read("quantiles", level=level), self._pair), True

    def members(self) -> Float[NDArray, "2 m n"]:
        """Means and variances of this task by the networks of a deep ensemble."""
        outputs = (self.stored.read("member", member=member) for member in range(networks.N_MEMBERS))
        return np.stack([one.y_pred[:, self._pair].T for one in outputs], axis=1)

    @property
    def _pair(self) -> list[int]:
        """This task's columns of a network with two outputs for each task: all first ones, then all second ones."""
        return [self.task, self.n_tasks + self.task]

    def _functions(self, outputs: Outputs, columns: Sequence[int]) -> Any:
        """A stored network as two functions of rows; only the base network embeds."""
        embeddings = self.stored.read("base").embeddings
        assert embeddings is not None
        return lambda rows: outputs.y_pred[rows][:, columns], lambda rows: embeddings[rows]


class StoredModel:
    """A model whose training is to find the stored network that was trained on the same rows."""

    def __init__(self, split: TaskSplit) -> None:
        self.split = split

    def __sklearn_clone__(self) -> StoredModel:
        return StoredModel(self.split)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Nothing to set."""
        return {}

    def check(self, X: ArrayLike) -> Any:
        """Row numbers."""
        return X

    def same_case(self, X: Any) -> NDArray:
        """Each row is a case of its own."""
        return each_its_own(X)

    def fit(self, X: Int[NDArray, "a"], y: Float[NDArray, "a t"]) -> StoredModel:
        """Find the network of these rows."""
        self.outputs_ = self.split.trained_on(X)
        return self

    def evaluate(self, X: Int[NDArray, "a"]) -> Evaluation:
        """Its predictions of the task; the base network embeds."""
        embeddings = self.split.stored.read("base").embeddings
        assert embeddings is not None
        return Evaluation(self.outputs_.y_pred[X][:, [self.split.task]], embeddings[X].astype(np.float64))
