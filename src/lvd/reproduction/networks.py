"""The networks of a split of molecules: which ones its methods need, trained together, kept as their outputs.

All tasks of a table share them. A network is trained once and what it says of every molecule is stored, so that
kernels and intervals can be computed, again and elsewhere, without it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from lvd._files import atomic_path
from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError
from lvd.models.losses import ElementLoss, NormalLoss, PinballLoss, SquaredLoss
from lvd.molecules import NetworkJob, Recipe, inner_split, read_molecules, train_networks
from lvd.reproduction.datasets import Dataset
from lvd.reproduction.protocols import Protocol, get_protocol
from lvd.reproduction.runs import Job
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
    """What a network says of all rows of its table; only the base network's embeddings are kept."""

    y_pred: Float[NDArray, "n o"]
    embeddings: Float[NDArray, "n h"] | None
    seconds: float


def needed(job: Job) -> list[Network]:
    """The networks that the runs of a split need, those first that others learn from."""
    protocol = get_protocol(job.protocol)
    methods = {run.method for run in job.runs}
    networks = [base_network(job.table, job.seed, protocol)]
    if "CQR" in methods:
        levels = dict.fromkeys(level for run in job.runs for level in run.levels)
        networks += [quantile_network(job.table, job.seed, protocol, level) for level in levels]
    if "DE" in methods:
        networks += ensemble_members(job.table, job.seed, protocol)
    if any(method.endswith("-MN") or method == "MADSplit" for method in methods):
        networks.append(error_network(job.table, job.seed, protocol))
    return networks


def base_network(table: str, seed: int, protocol: Protocol) -> Network:
    """The network that all but CQR and deep ensembles work with."""
    return Network(table, seed, "base", protocol.sizes)


def error_network(table: str, seed: int, protocol: Protocol) -> Network:
    """The second network."""
    return Network(table, seed, "errors", protocol.sizes)


def quantile_network(table: str, seed: int, protocol: Protocol, level: float) -> Network:
    """CQR's network for one level."""
    return Network(table, seed, "quantiles", protocol.sizes, scale_target=protocol.scale_target, level=level)


def ensemble_members(table: str, seed: int, protocol: Protocol) -> list[Network]:
    """The networks of a deep ensemble."""
    first = Network(
        table,
        seed,
        "member",
        protocol.sizes,
        rows=protocol.uncalibrated_rows,
        scale_target=protocol.scale_target,
    )
    return [replace(first, member=member) for member in range(N_MEMBERS)]


def train_and_store(
    networks: Sequence[Network],
    folder: Path,
    tables: dict[str, Dataset],
    on_done: Callable[[int], None],
) -> None:
    """Train the networks, several at once, and store in `folder` what they say."""
    for table in dict.fromkeys(network.table for network in networks):
        dataset = tables[table]
        molecules = read_molecules(dataset.X)
        waiting = [network for network in networks if network.table == table]
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
        self.table, self.seed, self.protocol, self.folder = table, seed, protocol, folder
        self._stages = Stages()

    @property
    def base(self) -> Outputs:
        """Of the base network."""
        return self._read(base_network(self.table, self.seed, self.protocol))

    @property
    def errors(self) -> Outputs:
        """Of the second network."""
        return self._read(error_network(self.table, self.seed, self.protocol))

    def quantiles(self, level: float) -> Outputs:
        """Of CQR's network for one level: the lower ends of all tasks, then the upper ones."""
        return self._read(quantile_network(self.table, self.seed, self.protocol, level))

    @property
    def members(self) -> list[Outputs]:
        """Of the networks of a deep ensemble: the means of all tasks, then the variances."""
        members = ensemble_members(self.table, self.seed, self.protocol)
        return [self._read(network) for network in members]

    def _read(self, network: Network) -> Outputs:
        path = network.path(self.folder)
        return self._stages.once(path.name, lambda: read_outputs(path))


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
        targets,
        rows[train],
        rows[valid],
        loss=loss,
        scale_target=network.scale_target,
        seed=network.member,
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
