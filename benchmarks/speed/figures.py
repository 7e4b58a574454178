"""The individual figures: a csv line for each, with the machine and the versions."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

import torch

import lvd
from benchmarks.results import date_and_machine, version_of
from experiments.paper.result_store import read_dataclasses, write_dataclasses
from lvd import InputError


@dataclass(frozen=True)
class Setting:
    """The machine and versions of a measurement."""

    date: str
    machine: str
    device: str
    python: str
    torch: str
    numpy: str
    numba: str
    triton: str
    lvd: str


@dataclass(frozen=True)
class Figure(Setting):
    """One figure: `measure` says what of `who`, in which `case` of which `section`; 0 queries or rows mean none.

    Measures are ``seconds`` (the median of repeats), ``first_seconds``, ``peak_mb``, ``equal`` and ``checked``
    (how many radii equal the oracle's, out of how many), and counts.
    """

    threads: int
    section: str
    case: str
    queries: int
    rows: int
    who: str
    measure: str
    value: float


def this_setting(device: str) -> Setting:
    """Today, this machine, these versions."""
    return Setting(
        *date_and_machine(on_gpu=device == "cuda"),
        device,
        platform.python_version(),
        *map(version_of, ("torch", "numpy", "numba", "triton")),
        lvd.__version__,
    )


class Recorder:
    """Records figures in the file as soon as they are known, and prints each."""

    def __init__(self, path: Path, setting: Setting, tell: Callable[[Figure], None]) -> None:
        self.path, self.setting, self.tell = path, setting, tell
        self.figures: list[Figure] = []

    def note(
        self, section: str, who: str, *, case: str = "", queries: int = 0, rows: int = 0, **measures: float
    ) -> None:
        """Record each of the measures under its name."""
        for measure, value in measures.items():
            figure = Figure(
                *astuple(self.setting),
                torch.get_num_threads(),
                *(section, case, queries, rows, who, measure, float(value)),
            )
            self.figures.append(figure)
            self.tell(figure)
        write_dataclasses(self.figures, self.path, Figure, digits=5)


def read_figures(paths: Iterable[Path]) -> list[Figure]:
    """Read the figures of several runs."""
    command = "python -m benchmarks.speed --out"
    figures: list[Figure] = []
    for path in paths:
        found = read_dataclasses(path, Figure, what="a file of speeds", made_by=command)
        if not found:
            raise InputError(f"{path} is empty; make one with: {command}")
        figures += found
    return figures
