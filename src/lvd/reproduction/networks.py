"""The networks on molecules: those that a split's methods need, trained together, kept as their outputs.

All tasks of a table share them. A network is trained once and its outputs on every molecule are stored, so that
kernels and intervals can be computed, again and elsewhere, without it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from lvd._files import atomic_path
from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError
from lvd.models.losses import ElementLoss, NormalLoss, PinballLoss, SquaredLoss
from lvd.molecules import NetworkJob, Recipe, inner_split, read_molecules, train_networks
from lvd.reproduction.bench_split import Split
from lvd.reproduction.datasets import Dataset
from lvd.reproduction.protocols import Protocol, get_protocol
from lvd.reproduction.runs import Job, grouped, has_tasks
from lvd.reproduction.stages import Stages
from lvd.tables.splits import split_indices

N_MEMBERS = 5
AT_ONCE = 18
"""Networks trained at the same time: one alone leaves a large GPU idle."""
RECIPE = Recipe()


@dataclass(frozen=True)
class Network:
    """One network: what it learns (its role), on which rows, and whether on standardised targets.

    The roles: ``base`` learns the targets, ``errors`` the base network's absolute errors, ``quantiles`` the two
    ends at `level`, and a ``member`` of a deep ensemble means and variances from a start of its own.
    """

    table: str
    seed: int
    role: str
    sizes: tuple[float, float, float]
    rows: str = "train"
    scale_target: bool = True
    level: float = 0.0
    member: int = 0

    def path(self, folder: Path) -> Path:
        """The file for its outputs, named by its content and the recipe."""
        content = json.dumps([asdict(self), asdict(RECIPE)], sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()[:12]
        return folder / "networks" / f"{self.table}-{self.seed}-{self.role}-{digest}.safetensors"


@dataclass(frozen=True)
class Outputs:
    """A network's outputs on all rows of its table; only the base network's embeddings are kept."""

    y_pred: Float[NDArray, "n o"]
    embeddings: Float[NDArray, "n h"] | None
    seconds: float


def network_of(
    role: str, table: str, seed: int, protocol: Protocol, *, level: float = 0.0, member: int = 0
) -> Network:
    """The network of that role in a split; the protocols share the base network and the second one."""
    rows = protocol.uncalibrated_rows if role == "member" else "train"
    scaled = role in ("base", "errors") or protocol.scale_target
    return Network(table, seed, role, protocol.sizes, rows, scaled, level, member)


def needed(job: Job) -> list[Network]:
    """The networks that the runs of a split need; those that others learn from come first."""
    methods = {run.method for run in job.runs}
    make = partial(network_of, table=job.table, seed=job.seed, protocol=get_protocol(job.protocol))
    networks = [make("base")]
    if "CQR" in methods:
        levels = dict.fromkeys(level for run in job.runs for level in run.levels)
        networks += [make("quantiles", level=level) for level in levels]
    if "DE" in methods:
        networks += [make("member", member=member) for member in range(N_MEMBERS)]
    if any(method.endswith("-MN") or method == "MADSplit" for method in methods):
        networks.append(make("errors"))
    return networks


def untrained(jobs: Iterable[Job], folder: Path) -> list[Network]:
    """The networks that these jobs share and that `folder` does not have yet."""
    wanted = dict.fromkeys(network for job in jobs if has_tasks(job.table) for network in needed(job))
    return [network for network in wanted if not network.path(folder).exists()]


def train_and_store(
    networks: Sequence[Network], folder: Path, tables: dict[str, Dataset], on_done: Callable[[int], None]
) -> None:
    """Train the networks, several at once, and store their outputs in `folder`."""
    for table, waiting in grouped(networks, lambda network: network.table).items():
        dataset = tables[table]
        molecules = read_molecules(dataset.X)
        while waiting:
            wave = [network for network in waiting if _ready(network, folder)][:AT_ONCE]
            start = perf_counter()
            jobs = [_training_job(network, dataset.y, folder) for network in wave]
            for network, trained in zip(wave, train_networks(molecules, jobs, RECIPE), strict=True):
                answer = trained.evaluate(molecules)
                kept = answer.embeddings if network.role == "base" else None
                write_outputs(
                    network.path(folder), Outputs(answer.y_pred, kept, (perf_counter() - start) / len(wave))
                )
                waiting.remove(network)
            on_done(len(wave))


def write_outputs(path: Path, outputs: Outputs) -> None:
    """Store outputs; a reader sees all of them or nothing."""
    tensors = {"y_pred": outputs.y_pred}
    if outputs.embeddings is not None:
        tensors["embeddings"] = outputs.embeddings.astype(np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as part:
        save_file(tensors, part, metadata={"seconds": repr(outputs.seconds)})


def read_outputs(path: Path) -> Outputs:
    """Outputs stored by :func:`write_outputs`."""
    try:
        with safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            seconds = float(file.metadata()["seconds"])
        return Outputs(tensors["y_pred"], tensors.get("embeddings"), seconds)
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise InputError(
            f"{path} does not hold a network's outputs ({error}); delete it and run again"
        ) from error


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
        super().__init__(dataset.y[:, self.task], protocol, seed)
        self.X = np.arange(len(self.y))  # a row is its number

    @property
    def estimator(self) -> Any:
        """The base network's predictions of this task, and the embeddings that all tasks share."""
        return self._functions(self.stored.read("base"), [self.task])

    @property
    def error_estimator(self) -> Any:
        """The second network's predictions of the base network's absolute error in this task."""
        return self._functions(self.stored.read("errors"), [self.task])

    def quantile_estimator(self, level: float) -> tuple[Any, bool]:
        """The lower and upper quantiles of this task."""
        return self._functions(self.stored.read("quantiles", level=level), self._pair), True

    def members(self) -> Float[NDArray, "2 m n"]:
        """Means and variances of this task by the networks of a deep ensemble."""
        outputs = (self.stored.read("member", member=member) for member in range(N_MEMBERS))
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


def rows_of(network: Network, n_rows: int) -> Int[NDArray, "a"]:
    """The rows it may learn from."""
    train, calib, _ = split_indices(n_rows, network.seed, sizes=network.sizes)
    return train if network.rows == "train" else np.concatenate([train, calib])


def _ready(network: Network, folder: Path) -> bool:
    return network.role != "errors" or _base_of(network).path(folder).exists()


def _base_of(network: Network) -> Network:
    return replace(network, role="base")


def _training_job(network: Network, y: Float[NDArray, "n t"], folder: Path) -> NetworkJob:
    rows = rows_of(network, len(y))
    train, valid, _ = inner_split(len(rows))
    targets, loss = _lesson(network, y, folder)
    return NetworkJob(
        *(targets, rows[train], rows[valid], loss), scale_target=network.scale_target, seed=network.member
    )


def _lesson(
    network: Network, y: Float[NDArray, "n t"], folder: Path
) -> tuple[Float[NDArray, "n o"], ElementLoss]:
    """What a network learns, and by which loss."""
    if network.role == "quantiles":
        return np.concatenate([y, y], axis=1), PinballLoss(network.level)
    if network.role == "member":
        return y, NormalLoss()
    if network.role == "errors":
        return np.abs(y - read_outputs(_base_of(network).path(folder)).y_pred), SquaredLoss()
    return y, SquaredLoss()
