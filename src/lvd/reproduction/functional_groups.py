"""Coverage within functional groups: a kind of similarity that no part of the method has been told of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lvd._typing import Bool, NDArray
from lvd._validation import InputError
from lvd.reproduction import Dataset
from lvd.molecules.smiles import parse_smiles
from lvd.reproduction.collect import judged_targets
from lvd.reproduction.csv_rows import read_rows, write_rows
from lvd.reproduction.names import is_molecules, table_of
from lvd.reproduction.pool import map_processes
from lvd.reproduction.result_store import Result, files_by_split, read, read_run
from lvd.intervals import covered


@dataclass(frozen=True)
class FunctionalGroup:
    """A group of the paper's table: the text that the paper looked for in the SMILES, and what a chemist means.

    ``COC`` is found in ``C1OC1`` but not in ``O(C)C``: the text depends on how a molecule is written down, the
    pattern does not.
    """

    name: str
    text: str
    smarts: str


GROUPS = (
    FunctionalGroup("2-butyne", "CC#CC", "[#6][CX2]#[CX2][#6]"),
    FunctionalGroup("aldehyde", "CC=O", "[#6][CX3H1]=[OX1]"),
    FunctionalGroup("amide", "C(=O)N", "[CX3](=[OX1])[NX3]"),
    FunctionalGroup("carboxylic acid", "C(=O)O", "[CX3](=[OX1])[OX2H1]"),
    FunctionalGroup("cyclopropane", "C1CC1", "[CX4]1[CX4][CX4]1"),
    FunctionalGroup("dimethyl ether", "COC", "[#6][OX2][#6]"),
    FunctionalGroup("ester", "C(=O)OC", "[CX3](=[OX1])[OX2][#6]"),
    FunctionalGroup("ethanol", "CCO", "[CX4][CX4][OX2H1]"),
    FunctionalGroup("ethene", "C=C", "[CX3]=[CX3]"),
    FunctionalGroup("ether", "COC", "[CX4][OX2][CX4]"),
    FunctionalGroup("formaldehyde", "C=O", "[CX3]=[OX1]"),
    FunctionalGroup("hydrogen cyanide", "C#N", "[CX2]#[NX1]"),
    FunctionalGroup("ketone", "CC(=O)C", "[#6][CX3](=[OX1])[#6]"),
    FunctionalGroup("prop-1-ene", "CC=C", "[#6][CX3]=[CX3]"),
    FunctionalGroup("prop-1-yne", "CC#C", "[#6][CX2]#[CX2]"),
)
RULES = ("text", "molecule")
Presence = dict[tuple[str, str], NDArray]
"""For each rule and group which molecules of a table belong to it."""


@dataclass(frozen=True)
class GroupCount:
    """How many test rows of one run are in a group, by one of the rules, and how many of them are covered."""

    protocol: str
    dataset: str
    method: str
    seed: int
    confidence_level: float
    rule: str
    group: str
    n: int
    n_covered: int


def count_groups(
    folder: Path, load: Callable[[str], Dataset], *, confidence_level: float = 0.9, workers: int = 1
) -> list[GroupCount]:
    """The counts of all results on molecules in a folder, at one level."""
    splits = files_by_split(folder)
    tables = dict.fromkeys(table_of(read_run(files[0]).dataset) for files in splits)
    presence = {table: group_members(load(table).X) for table in tables if is_molecules(table)}
    if not presence:
        raise InputError(f"no results on molecules in {folder}; make some with: lvd bench run --datasets qm9")
    work = partial(_count_files, presence=presence, confidence_level=confidence_level)
    return [count for counts in map_processes(work, splits, workers) for count in counts]


def _count_files(
    files: Sequence[Path], *, presence: dict[str, Presence], confidence_level: float
) -> list[GroupCount]:
    results = [read(file) for file in files]
    return [
        count
        for result in results
        if result.error is None and is_molecules(result.run.dataset) and confidence_level in result.run.levels
        for count in _count(result, presence[table_of(result.run.dataset)], confidence_level)
    ]


def group_members(smiles: NDArray) -> Presence:
    """Which molecules belong to each group, by each rule."""
    by_text = {group.name: np.array([group.text in one for one in smiles]) for group in GROUPS}
    molecules = parse_smiles(smiles)
    on_molecule = {group.name: _has_substructure(molecules, group.smarts) for group in GROUPS}
    return {
        (rule, name): member
        for rule, members in zip(RULES, (by_text, on_molecule), strict=True)
        for name, member in members.items()
    }


def _has_substructure(molecules: list[Any], smarts: str) -> Bool[NDArray, "n"]:
    from rdkit import Chem

    pattern = Chem.MolFromSmarts(smarts)
    return np.array([molecule.HasSubstructMatch(pattern) for molecule in molecules])


def _count(result: Result, presence: Presence, confidence_level: float) -> list[GroupCount]:
    run, index = result.run, result.run.levels.index(confidence_level)
    hits = covered(judged_targets(result, index), result.intervals[:, :, index])
    members = {key: member[result.rows] for key, member in presence.items()}
    return [
        GroupCount(
            run.protocol,
            run.dataset,
            run.method,
            run.seed,
            confidence_level,
            *key,
            int(member.sum()),
            int(hits[member].sum()),
        )
        for key, member in members.items()
    ]


def pool_seeds(counts: Iterable[GroupCount]) -> list[GroupCount]:
    """The counts of all seeds added up; the seed of a sum is the number of its seeds."""
    pooled: dict[tuple[object, ...], list[GroupCount]] = {}
    for count in counts:
        key = (count.protocol, count.dataset, count.method, count.confidence_level, count.rule, count.group)
        pooled.setdefault(key, []).append(count)
    return [
        GroupCount(
            **{
                **asdict(members[0]),
                "seed": len(members),
                "n": sum(count.n for count in members),
                "n_covered": sum(count.n_covered for count in members),
            }
        )
        for members in pooled.values()
    ]


def write_counts(counts: Sequence[GroupCount], path: Path) -> None:
    """Counts as a CSV file."""
    write_rows(counts, path, GroupCount)


def read_counts(path: Path) -> list[GroupCount]:
    """Counts written by :func:`write_counts`."""
    try:
        return read_rows(path, GroupCount)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not a table of group counts ({error}); make one with: lvd bench groups"
        ) from error
