"""The names of datasets in runs: a table has one target, a task is a target of a table of molecules."""

from __future__ import annotations

from collections.abc import Sequence

from lvd._validation import InputError
from lvd.reproduction.registry import ENTRIES

SMALL_DATASETS = ("yacht", "housing", "energy", "bike", "kin8nm", "concrete")
OTHER_DATASETS = ("synthetic", "diabetes")
MOLECULE_DATASETS = ("qm8", "qm9")


def is_molecules(dataset: str) -> bool:
    """Whether the name is that of a table of molecules or of one of its tasks."""
    return table_of(dataset) in MOLECULE_DATASETS


def table_of(dataset: str) -> str:
    """``"qm9"`` of ``"qm9(mu)"``."""
    return dataset.partition("(")[0]


def task_of(dataset: str) -> str:
    """``"mu"`` of ``"qm9(mu)"``."""
    return dataset.partition("(")[2].removesuffix(")")


def expand(datasets: Sequence[str]) -> list[str]:
    """The names with every table of molecules replaced by its tasks."""
    expanded = [
        name
        for dataset in datasets
        for name in (_tasks(dataset) if dataset in MOLECULE_DATASETS else [dataset])
    ]
    known = {
        *SMALL_DATASETS,
        *OTHER_DATASETS,
        *(task for table in MOLECULE_DATASETS for task in _tasks(table)),
    }
    for name in expanded:
        if name not in known:
            listed = ", ".join((*SMALL_DATASETS, *OTHER_DATASETS, *MOLECULE_DATASETS))
            raise InputError(
                f"unknown name {name!r} in datasets; choose from all, {listed}, or a task such as qm9(mu)"
            )
    return expanded


def _tasks(table: str) -> list[str]:
    return [f"{table}({target})" for target in ENTRIES[table].targets]
