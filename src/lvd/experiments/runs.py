"""What a run is: its content, its key, and the plan of all runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from lvd._validation import InputError, check_levels
from lvd.experiments.protocols import get_protocol

SMALL_DATASETS = ("yacht", "housing", "energy", "bike", "kin8nm", "concrete")
FORMAT = 1


@dataclass(frozen=True)
class Run:
    """One method on one split of one dataset under one protocol."""

    protocol: str
    dataset: str
    method: str
    seed: int
    levels: tuple[float, ...] = (0.5, 0.9)

    @property
    def key(self) -> str:
        """A name made of the run's content: the protocol's choices, not only its name, are part of it."""
        choices = asdict(get_protocol(self.protocol))
        del choices["interval_ends"]  # how intervals are judged does not change them
        content = asdict(self) | {"protocol": choices, "format": FORMAT}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.protocol}-{self.dataset}-{self.method}-{self.seed}-{digest}"


@dataclass(frozen=True)
class Job:
    """The runs of one split, done in one process so that they share its networks."""

    protocol: str
    dataset: str
    seed: int
    runs: tuple[Run, ...]


def plan(
    *,
    protocol: str,
    datasets: Sequence[str],
    methods: Sequence[str],
    seeds: Iterable[int],
    levels: Sequence[float] = (0.5, 0.9),
) -> list[Run]:
    """All runs asked for, split by split."""
    from lvd.experiments.methods import METHODS

    get_protocol(protocol)
    known = (*SMALL_DATASETS, "synthetic", "diabetes")
    _check_names("datasets", datasets, known)
    _check_names("methods", methods, tuple(METHODS))
    checked = tuple(check_levels(list(levels)).tolist())
    return [
        Run(protocol, dataset, method, seed, checked)
        for dataset in datasets
        for seed in seeds
        for method in methods
    ]


def group_by_split(runs: Iterable[Run]) -> list[Job]:
    """Jobs, one per split, in the order of their first run."""
    jobs: dict[tuple[str, str, int], list[Run]] = {}
    for run in runs:
        jobs.setdefault((run.protocol, run.dataset, run.seed), []).append(run)
    return [Job(*split, tuple(members)) for split, members in jobs.items()]


def parse_names(text: str, everything: Sequence[str]) -> list[str]:
    """``"all"``, or names separated by commas."""
    return list(everything) if text == "all" else [name.strip() for name in text.split(",")]


def parse_levels(text: str) -> list[float]:
    """Levels separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"levels must look like 0.5,0.9, got {text!r}") from None


def parse_seeds(text: str) -> list[int]:
    """``"0:10"`` is 0 to 9; ``"0,3,7"`` and ``"4"`` are what they say."""
    try:
        if ":" in text:
            start, stop = (int(part) for part in text.split(":"))
            seeds = list(range(start, stop))
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"seeds must look like 0:10 or 0,1,2, got {text!r}") from None
    if not seeds or min(seeds) < 0:
        raise InputError(f"seeds must be non-negative and not empty, got {text!r}")
    return seeds


def _check_names(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise InputError(f"unknown name {name!r} in {what}; choose from all, {', '.join(known)}")
