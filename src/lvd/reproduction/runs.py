"""What a run is: its content, its key, and the plan of all runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from lvd._validation import InputError, check_levels
from lvd.reproduction.names import expand, is_molecules, table_of
from lvd.reproduction.protocols import get_protocol

FORMAT = 1
MOST_SEEDS = 10_000


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
    """The runs of one split of a table, done in one process so that they share its networks."""

    protocol: str
    table: str
    seed: int
    runs: tuple[Run, ...]


def plan(
    *,
    protocol: str,
    datasets: Sequence[str],
    methods: Sequence[str] | None = None,
    seeds: Iterable[int],
    levels: Sequence[float] = (0.5, 0.9),
) -> list[Run]:
    """All runs asked for, split by split. Without `methods` each dataset gets all that there are for it."""
    from lvd.reproduction.paper_methods import METHODS
    from lvd.reproduction.molecule_methods import MOLECULE_METHODS

    get_protocol(protocol)
    checked, seeds = tuple(check_levels(list(levels)).tolist()), list(seeds)
    runs = []
    for dataset in expand(datasets):
        known = tuple(MOLECULE_METHODS if is_molecules(dataset) else METHODS)
        _check_methods(known if methods is None else methods, known, dataset)
        runs += [
            Run(protocol, dataset, method, seed, checked)
            for seed in seeds
            for method in (known if methods is None else methods)
        ]
    return runs


def group_by_split(runs: Iterable[Run]) -> list[Job]:
    """Jobs, one per split, in the order of their first run."""
    jobs: dict[tuple[str, str, int], list[Run]] = {}
    for run in runs:
        jobs.setdefault((run.protocol, table_of(run.dataset), run.seed), []).append(run)
    return [Job(*split, tuple(members)) for split, members in jobs.items()]


def parse_names(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",")]


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
            seeds = list(range(start, min(stop, start + MOST_SEEDS + 1)))
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"seeds must look like 0:10 or 0,1,2, got {text!r}") from None
    if not seeds or min(seeds) < 0 or max(seeds) >= 2**32:
        raise InputError(f"seeds must be from 0 to {2**32 - 1} and not empty, got {text!r}")
    if len(seeds) > MOST_SEEDS:
        raise InputError(f"seeds must be {MOST_SEEDS:,} at most, got {text!r}; give fewer at a time")
    return seeds


def _check_methods(given: Sequence[str], known: Sequence[str], dataset: str) -> None:
    for name in given:
        if name not in known:
            raise InputError(
                f"unknown name {name!r} in methods for {dataset}; choose from all, {', '.join(known)}"
            )
