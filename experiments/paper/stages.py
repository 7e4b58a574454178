"""One split of one dataset, with the networks and kernels that its methods share.

On molecules, stored outputs replace the networks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any, TypeVar

import numpy as np
import torch

from experiments.paper import networks
from experiments.paper.networks import Outputs, network_of, parts_of, read_outputs
from experiments.paper.protocols import Protocol
from experiments.paper.runs import table_of, task_of
from lvd import KernelRegressor, MahalanobisKernel, NetRegressor
from lvd._typing import ArrayLike, Float, Int, NDArray
from lvd.data import Dataset, split_indices
from lvd.models import Evaluation, Model
from lvd.models.heads import mixture_moments
from lvd.models.losses import QuantilesLoss
from lvd.molecules import inner_split
from lvd.molecules.domain import MoleculeParts
from lvd.tables.splits import Parts

T = TypeVar("T")


class Stages:
    """Caches the results of shared stages, with the time of each, excluding nested stages, and its dependencies.

    This gives the time a method would have taken alone, although much of its work was already done. Seconds are
    processor time, which other programs on the machine do not lengthen.
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}
        self._needs: dict[str, set[str]] = {}
        self._watching: list[set[str]] = []

    def once(self, name: str, build: Callable[[], T]) -> T:
        """The result of `build`, computed at the first call with this name."""
        if name not in self._values:
            self._values[name], self._seconds[name], self._needs[name] = self._watch(build)
        if self._watching:
            self._watching[-1].update({name}, self._needs[name])
        return self._values[name]

    def as_if_alone(self, work: Callable[[], T]) -> tuple[T, float]:
        """The result of `work`, and its own seconds plus those of all stages it needed, done now or before."""
        value, own, used = self._watch(work)
        return value, own + sum(self._seconds[name] for name in used)

    def _watch(self, work: Callable[[], T]) -> tuple[T, float, set[str]]:
        used: set[str] = set()
        self._watching.append(used)
        start, counted = process_time(), sum(self._seconds.values())
        try:
            value = work()
        finally:
            self._watching.pop()
        return value, process_time() - start - (sum(self._seconds.values()) - counted), used


class Split(ABC):
    """Training, calibration and test rows of one seed, and what several methods share, computed once.

    `X` holds the rows as the methods take them.
    """

    device = "auto"
    X: Any

    def __init__(self, y: Float[NDArray, "n"], protocol: Protocol, seed: int, parts: Parts) -> None:
        self.y, self.protocol, self.seed, self.stages = y, protocol, seed, Stages()
        self.train, self.calib, self.test = parts

    @property
    @abstractmethod
    def estimator(self) -> Any:
        """The trained base network."""

    @property
    @abstractmethod
    def error_estimator(self) -> Any:
        """A second network as two functions, which predicts the base network's absolute error."""

    @abstractmethod
    def quantile_estimator(self, level: float) -> tuple[Any, bool]:
        """CQR's network for one level, and whether it is already trained."""

    def kernel(self, *, smoothness: bool) -> MahalanobisKernel:
        """The kernel trained with or without the smoothness term."""
        template = self.protocol.kernel(self.seed, smoothness=smoothness, device=self.device)
        return self.stages.once(f"kernel {smoothness=}", lambda: self.kernel_regressor(template).kernels_[0])

    def kernel_regressor(self, kernel: MahalanobisKernel) -> KernelRegressor:
        """The kernel regression in the base network's embedding, fitting the kernel if necessary."""
        regressor = KernelRegressor(
            self.estimator, kernel=kernel, prefit=True, device=self.device, random_state=self.seed
        )
        return regressor.fit(self.X[self.train], self.y[self.train, None])


class TableSplit(Split):
    """A split of a numeric table, whose networks are trained on demand."""

    device = "cpu"

    def __init__(self, dataset: Dataset, protocol: Protocol, seed: int) -> None:
        parts = split_indices(len(dataset.y), seed, sizes=protocol.sizes)
        super().__init__(dataset.y, protocol, seed, parts)
        self.X = dataset.X

    @property
    def estimator(self) -> NetRegressor:
        """The base network."""
        return self.stages.once("base", lambda: self._fit_network(self.y[self.train]))

    @property
    def error_estimator(self) -> Any:
        """The second network, trained on the first one's errors on their common training rows."""
        network = self.stages.once("errors", lambda: self._fit_network(self._errors()))
        return network.predict, network.embed

    def quantile_estimator(self, level: float) -> tuple[NetRegressor, bool]:
        """An untrained network for CQR."""
        return self.protocol.network(self.seed), False

    def _errors(self) -> Float[NDArray, "n"]:
        return np.abs(self.y[self.train] - self.estimator.evaluate(self.X[self.train]).y_pred[:, 0])

    def _fit_network(self, target: Float[NDArray, "n"]) -> NetRegressor:
        return self.protocol.network(self.seed).fit(self.X[self.train], target)


class TaskSplit(Split):
    """A split for one task of a table of molecules, named like ``qm9(mu)``, with stored network outputs."""

    def __init__(self, dataset: Dataset, name: str, protocol: Protocol, seed: int, folder: Path) -> None:
        self.task, self.n_tasks = dataset.target_names.index(task_of(name)), len(dataset.target_names)
        parts = parts_of(dataset, protocol.split, seed, protocol.sizes)
        super().__init__(dataset.y[:, self.task], protocol, seed, parts)
        self.X, self.smiles = np.arange(len(self.y)), dataset.X  # a row is its index
        self.table, self.folder = table_of(name), folder
        self._known: dict[Path, Outputs] = {}

    def stored(self, role: str, **which: Any) -> Outputs:
        """The stored outputs of the network with this role; CQR's has a `level`, an ensemble's is a `member`."""
        path = network_of(role, self.table, self.seed, self.protocol, **which).path(self.folder)
        if path not in self._known:
            self._known[path] = read_outputs(path)
        return self._known[path]

    @property
    def estimator(self) -> Any:
        """The base network's predictions for this task, and the embeddings that all tasks share."""
        return self.functions("base")

    @property
    def error_estimator(self) -> Any:
        """The second network's predictions of the base network's absolute error on this task."""
        return self.functions("errors")

    def quantile_estimator(self, level: float) -> tuple[Any, bool]:
        """The lower and upper quantiles of this task."""
        return self.functions("quantiles", self._pair, level=level), True

    def ensemble(self) -> Float[NDArray, "2 n"]:
        """Mean and variance for this task from the mixture of a deep ensemble's networks."""
        outputs = [self.stored("member", member=member).y_pred for member in range(networks.N_MEMBERS)]
        means, variances = np.stack([one[:, self._pair].T for one in outputs], axis=1)
        moments = mixture_moments(*(torch.as_tensor(part)[..., None] for part in (means, variances)))
        return np.stack([moment[:, 0].numpy() for moment in moments])

    def embeddings(self, role: str) -> Float[NDArray, "n h"]:
        """The embeddings of the first network with this role."""
        embeddings = self.stored(role).embeddings
        assert embeddings is not None
        return embeddings

    def functions(self, role: str, columns: Sequence[int] | None = None, **which: Any) -> Any:
        """A stored network as two functions of rows: its outputs, by default for this task, and the base
        network's embeddings, which all networks around it share."""
        y_pred, embeddings = self.stored(role, **which).y_pred, self.embeddings("base")
        chosen = [self.task] if columns is None else columns
        return lambda rows: y_pred[rows][:, chosen], lambda rows: embeddings[rows]

    @property
    def _pair(self) -> list[int]:
        """This task's columns of a network with two outputs per task: all first ones, then all second ones."""
        return [self.task, self.n_tasks + self.task]


class StoredRows(np.ndarray):
    """Row indices of a table of molecules, together with the molecules' atoms."""

    parts_are = MoleculeParts.parts_are
    smiles: NDArray

    @classmethod
    def of(cls, numbers: ArrayLike, smiles: NDArray) -> StoredRows:
        """These rows of the table with molecules `smiles`."""
        rows = np.asarray(numbers).view(cls)
        rows.smiles = smiles
        return rows

    def __array_finalize__(self, whole: Any) -> None:
        self.smiles = getattr(whole, "smiles", np.empty(0, object))

    def parts(self) -> list[list[str]]:
        """The non-hydrogen atoms of each molecule."""
        return MoleculeParts(self.smiles[np.asarray(self)].tolist()).parts()


class StoredModel(Model):
    """Networks like those of :class:`lvd.ChempropEstimator`, for one task, from stored outputs."""

    def __init__(self, split: TaskSplit) -> None:
        self.split = split

    def __sklearn_clone__(self) -> StoredModel:
        return StoredModel(self.split)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Empty: there are no parameters."""
        return {}

    @property
    def rows_held_out(self) -> Int[NDArray, "v"]:
        """The rows that the networks did not learn from."""
        return self.held_out_rows_

    def check(self, X: ArrayLike) -> Any:
        """Return row indices."""
        return StoredRows.of(X, self.split.smiles)

    def fit(self, X: Int[NDArray, "a"], y: Float[NDArray, "a t"]) -> StoredModel:
        """Find the held-out ones among the training rows `X`; there is nothing to train."""
        self.held_out_rows_ = np.concatenate(inner_split(len(X))[1:])
        return self

    def evaluate(self, X: Int[NDArray, "a"]) -> Evaluation:
        """The mean of the networks, with the first one's embedding."""
        y_pred, spread = QuantilesLoss().read(self.quantiles(X))
        return Evaluation(y_pred, self.embed(X), spread=spread)

    def quantiles(self, X: Int[NDArray, "a"]) -> Float[NDArray, "a q"]:
        """The task's quantiles in ascending order, averaged over the networks."""
        split = self.split
        columns = split.task + split.n_tasks * np.arange(QuantilesLoss.outputs_per_target)
        members = [split.stored("quantile_member", member=member) for member in range(networks.N_MEMBERS)]
        return np.mean([one.y_pred[X][:, columns] for one in members], axis=0)

    def embed(self, X: Int[NDArray, "a"]) -> Float[NDArray, "a h"]:
        """The first network's embeddings."""
        return self.split.embeddings("quantile_member")[X].astype(np.float64)
