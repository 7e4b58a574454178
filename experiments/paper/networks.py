"""The networks on molecules: those that a split's methods need, trained together and stored as their outputs.

All tasks of a table share them. A network is trained once and its outputs on every molecule are stored, so that
kernels and intervals can be recomputed anywhere without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from experiments.paper.protocols import Protocol, get_protocol
from experiments.paper.runs import Job, content_digest, grouped, has_tasks
from lvd import InputError
from lvd._files import atomic_path
from lvd._typing import Float, Int, NDArray
from lvd.data import Dataset, split_indices
from lvd.models import candidates
from lvd.models.candidates import held_out_folds
from lvd.models.losses import ElementLoss, NormalLoss, PinballLoss, QuantilesLoss, SquaredLoss
from lvd.molecules import NetworkJob, Recipe, inner_split, read_molecules, train_networks
from lvd.tables.splits import Parts, split_group_indices

N_MEMBERS = 5
AT_ONCE = 18
"""How many networks to train in parallel: a single one leaves a large GPU idle."""
RECIPE = Recipe()
HELD_OUT_MADSPLIT = "MADSplit-held-out"
AROUND_MEMBERS = ("LVD", "LVD-widen", "split-members", "CQR-members")
"""The methods around the networks of lvd's own default."""
_MEMBERS = ("member", "quantile_member")
_ALWAYS_SCALED = ("base", "fold", "errors", "held_out_errors", "quantile_member")


@dataclass(frozen=True)
class Network:
    """One network: what it learns (its role), on which rows, and whether targets are standardised.

    The roles: ``base`` learns the targets, ``errors`` the base network's absolute errors, ``quantiles`` both
    ends at `level`, and a ``member`` of a deep ensemble means and variances from its own initial weights; a
    ``quantile_member`` is one like those of :class:`lvd.ChempropEstimator`, on the same rows. A ``fold`` is a
    base network without one fold of the training rows, whose number is `member`, and ``held_out_errors`` learns
    the out-of-fold errors of the folds' networks.
    """

    table: str
    seed: int
    role: str
    sizes: tuple[float, float, float]
    rows: str = "train"
    scale_target: bool = True
    level: float = 0.0
    member: int = 0
    split: str = "random"

    def path(self, folder: Path) -> Path:
        """The file for its outputs, named by its content and the recipe."""
        about = asdict(self)
        if self.split == "random":
            del about["split"]
        digest = content_digest([about, asdict(RECIPE)])
        return folder / "networks" / f"{self.table}-{self.seed}-{self.role}-{digest}.safetensors"


@dataclass(frozen=True)
class Outputs:
    """A network's outputs on all rows of its table; embeddings are kept for the base network and the first
    quantile network."""

    y_pred: Float[NDArray, "n o"]
    embeddings: Float[NDArray, "n h"] | None


def network_of(
    role: str, table: str, seed: int, protocol: Protocol, *, level: float = 0.0, member: int = 0
) -> Network:
    """The network with this role in a split; protocols share the base network and the second one."""
    rows = protocol.uncalibrated_rows if role == "member" else "train"
    scaled = role in _ALWAYS_SCALED or protocol.scale_target
    return Network(table, seed, role, protocol.sizes, rows, scaled, level, member, protocol.split)


def needed(job: Job) -> list[Network]:
    """The networks that a split's runs need, ordered so that those others learn from come first."""
    methods = {run.method for run in job.runs}
    make = partial(network_of, table=job.table, seed=job.seed, protocol=get_protocol(job.protocol))
    networks = [make("base")] if methods - set(AROUND_MEMBERS) else []
    if "CQR" in methods:
        levels = dict.fromkeys(level for run in job.runs for level in run.levels)
        networks += [make("quantiles", level=level) for level in levels]
    if "DE" in methods:
        networks += [make("member", member=member) for member in range(N_MEMBERS)]
    if any(method.endswith("-MN") or method == "MADSplit" for method in methods):
        networks.append(make("errors"))
    if methods & set(AROUND_MEMBERS):
        networks += [make("quantile_member", member=member) for member in range(N_MEMBERS)]
    if HELD_OUT_MADSPLIT in methods:
        networks += [make("fold", member=fold) for fold in range(candidates.N_FOLDS)]
        networks.append(make("held_out_errors"))
    return networks


def untrained(jobs: Iterable[Job], folder: Path) -> list[Network]:
    """The networks that these jobs share and that `folder` lacks."""
    wanted = dict.fromkeys(network for job in jobs if has_tasks(job.table) for network in needed(job))
    return _missing(wanted, folder)


def _missing(networks: Iterable[Network], folder: Path) -> list[Network]:
    return [network for network in networks if not network.path(folder).exists()]


def train_and_store(
    networks: Sequence[Network], folder: Path, tables: dict[str, Dataset], on_done: Callable[[int], None]
) -> None:
    """Train the networks, several in parallel, and store their outputs in `folder`."""
    for table, waiting in grouped(networks, lambda network: network.table).items():
        dataset = tables[table]
        molecules = read_molecules(dataset.X)
        while waiting:
            ready = [network for network in waiting if not _missing(_learns_from(network), folder)]
            wave = ready[:AT_ONCE]
            start = perf_counter()
            jobs = [_training_job(network, dataset, folder) for network in wave]
            for network, trained in zip(wave, train_networks(molecules, jobs, RECIPE), strict=True):
                answer = trained.evaluate(molecules)
                embeds = network.role in {"base", "quantile_member"} and network.member == 0
                outputs = Outputs(answer.y_pred, answer.embeddings if embeds else None)
                write_outputs(network.path(folder), outputs, (perf_counter() - start) / len(wave))
                waiting.remove(network)
            on_done(len(wave))


def write_outputs(path: Path, outputs: Outputs, seconds: float) -> None:
    """Atomically store outputs, and what they took."""
    tensors = {"y_pred": outputs.y_pred}
    if outputs.embeddings is not None:
        tensors["embeddings"] = outputs.embeddings.astype(np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as part:
        save_file(tensors, part, metadata={"seconds": repr(seconds)})


def read_outputs(path: Path) -> Outputs:
    """Outputs stored by :func:`write_outputs`."""
    try:
        with safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        return Outputs(tensors["y_pred"], tensors.get("embeddings"))
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise InputError(
            f"{path} does not hold a network's outputs ({error}); delete it and run again"
        ) from error


def parts_of(dataset: Dataset, split: str, seed: int, sizes: Sequence[float]) -> Parts:
    """The training, calibration and test rows of a seed, random or by scaffold."""
    if split == "random":
        return split_indices(len(dataset.y), seed, sizes=sizes)
    assert dataset.scaffolds is not None
    return split_group_indices(dataset.scaffolds, seed, sizes=sizes)


def rows_of(network: Network, dataset: Dataset) -> Int[NDArray, "a"]:
    """The rows this network may learn from."""
    train, calib, _ = parts_of(dataset, network.split, network.seed, network.sizes)
    if network.role == "fold":
        inside, _ = held_out_folds(len(train), network.seed)[network.member]
        return train[inside]
    return train if network.rows == "train" else np.concatenate([train, calib])


def held_out_predictions(network: Network, dataset: Dataset, folder: Path) -> Float[NDArray, "n t"]:
    """Out-of-fold predictions of the training rows by the folds' networks; NaN for all other rows."""
    predictions = np.full(dataset.y.shape, np.nan)
    train, _, _ = parts_of(dataset, network.split, network.seed, network.sizes)
    for fold, (_, outside) in zip(
        _learns_from(network), held_out_folds(len(train), network.seed), strict=True
    ):
        predictions[train[outside]] = read_outputs(fold.path(folder)).y_pred[train[outside]]
    return predictions


def _learns_from(network: Network) -> list[Network]:
    """The networks whose errors this one learns."""
    if network.role == "errors":
        return [replace(network, role="base")]
    if network.role == "held_out_errors":
        return [replace(network, role="fold", member=fold) for fold in range(candidates.N_FOLDS)]
    return []


def _training_job(network: Network, dataset: Dataset, folder: Path) -> NetworkJob:
    rows = rows_of(network, dataset)
    train, valid, _ = inner_split(len(rows))
    targets, loss = _lesson(network, dataset, folder)
    seed = network.member if network.role in _MEMBERS else 0
    return NetworkJob(
        *(targets, rows[train], rows[valid], loss), scale_target=network.scale_target, seed=seed
    )


def _lesson(network: Network, dataset: Dataset, folder: Path) -> tuple[Float[NDArray, "n o"], ElementLoss]:
    """What a network learns, and with which loss."""
    y = dataset.y
    if network.role == "quantiles":
        return np.concatenate([y, y], axis=1), PinballLoss(network.level)
    if network.role == "errors":
        (base,) = _learns_from(network)
        return np.abs(y - read_outputs(base.path(folder)).y_pred), SquaredLoss()
    if network.role == "held_out_errors":
        return np.abs(y - held_out_predictions(network, dataset, folder)), SquaredLoss()
    losses: dict[str, ElementLoss] = {"member": NormalLoss(), "quantile_member": QuantilesLoss()}
    return y, losses.get(network.role, SquaredLoss())
