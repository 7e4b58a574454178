"""What a run is: its dataset, its content and its key; a task is one of several targets of a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, TypeVar

from experiments.paper.protocols import get_protocol
from lvd import InputError
from lvd.data import ENTRIES

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
SMALL_DATASETS = ("yacht", "housing", "energy", "bike", "kin8nm", "concrete")
OTHER_DATASETS = ("synthetic", "diabetes")
TASK_TABLES = ("qm8", "qm9")
"""Tables with several targets, each its own task, named like ``qm9(mu)``; their networks are shared."""


def has_tasks(dataset: str) -> bool:
    """Whether the name is a table with tasks, or one of its tasks."""
    return table_of(dataset) in TASK_TABLES


def table_of(dataset: str) -> str:
    """``"qm9"`` of ``"qm9(mu)"``."""
    return dataset.partition("(")[0]


def task_of(dataset: str) -> str:
    """``"mu"`` of ``"qm9(mu)"``."""
    return dataset.partition("(")[2].removesuffix(")")


def expand(datasets: Sequence[str]) -> list[str]:
    """The names with every table of tasks replaced by its tasks."""
    tasks = {table: [f"{table}({target})" for target in ENTRIES[table].targets] for table in TASK_TABLES}
    single = (*SMALL_DATASETS, *OTHER_DATASETS)
    expanded = [name for dataset in datasets for name in tasks.get(dataset, [dataset])]
    for name in expanded:
        if name not in (*single, *chain(*tasks.values())):
            raise InputError(
                f"unknown name {name!r} in datasets; choose from all, {', '.join((*single, *TASK_TABLES))}, "
                "or a task such as qm9(mu)"
            )
    return expanded


FORMAT = 1
MOST_SEEDS = 10_000


@dataclass(frozen=True)
class BenchRun:
    """One method on one split of one dataset under one protocol."""

    protocol: str
    dataset: str
    method: str
    seed: int
    levels: tuple[float, ...] = (0.5, 0.9)

    @property
    def split(self) -> tuple[str, str, int]:
        """Protocol, dataset and seed, which runs on the same rows share."""
        return self.protocol, self.dataset, self.seed

    @property
    def key(self) -> str:
        """A name derived from the run's content: the protocol's choices, not only its name, are part of it."""
        content = asdict(self) | {"protocol": get_protocol(self.protocol).choices, "format": FORMAT}
        return f"{self.protocol}-{self.dataset}-{self.method}-{self.seed}-{content_digest(content)}"


def content_digest(content: Any) -> str:
    """A twelve-character digest of anything that JSON can represent."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Job:
    """The runs on one dataset of one split, done in one process so that they share networks and kernels."""

    protocol: str
    table: str
    seed: int
    runs: tuple[BenchRun, ...]


def group_by_split(runs: Iterable[BenchRun]) -> list[Job]:
    """Jobs, one per dataset and split, in the order of their first run."""
    return [
        Job(protocol, table_of(dataset), seed, tuple(members))
        for (protocol, dataset, seed), members in grouped(runs, lambda run: run.split).items()
    ]


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items grouped by key, in the order in which keys first appear."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def check_names(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Raise unless all of `given` are known."""
    for name in given:
        if name not in known:
            raise InputError(f"unknown name {name!r} in {what}; choose from all, {', '.join(known)}")


def parse_names(text: str, every: Collection[str] = ("all",), what: str = "") -> list[str]:
    """Parse comma-separated names; ``all`` stands for `every` name, and if they are told, no other is allowed."""
    names = list(every) if text == "all" else [name.strip() for name in text.split(",")]
    if what:
        check_names(names, every, what)
    return names


def parse_levels(text: str) -> list[float]:
    """Parse comma-separated levels."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"levels must look like 0.5,0.9, got {text!r}") from None


def parse_seeds(text: str) -> list[int]:
    """Parse seeds: ``"0:10"`` is 0 to 9; ``"0,3,7"`` lists seeds, ``"4"`` is one."""
    try:
        if ":" in text:
            start, stop = (int(part) for part in text.split(":"))
            seeds = list(range(start, min(stop, start + MOST_SEEDS + 1)))
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"seeds must look like 0:10 or 0,1,2, got {text!r}") from None
    if not seeds or min(seeds) < 0 or max(seeds) >= 2**32:
        raise InputError(f"seeds must be from 0 to {2**32 - 1} and not empty, got {text!r}")
    if len(seeds) > MOST_SEEDS:
        raise InputError(f"at most {MOST_SEEDS:,} seeds can be run at a time, got {text!r}; give fewer")
    return seeds
