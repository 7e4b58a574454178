"""Coverage within functional groups as tables to read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lvd._typing import Bool, NDArray
from lvd._validation import InputError
from lvd.intervals import covered
from lvd.molecules.smiles import parse_smiles
from lvd.reproduction.collect import judged_targets
from lvd.reproduction.datasets import Dataset
from lvd.reproduction.formats import MISSING, Grid, GridEntry
from lvd.reproduction.layout import dataset_title, method_title
from lvd.reproduction.paper_methods import MAIN_VARIANT
from lvd.reproduction.pool import map_processes
from lvd.reproduction.printed import PrintedCell, printed_cells
from lvd.reproduction.result_store import (
    Result,
    files_by_split,
    read_dataclasses,
    read_result,
    read_run,
    write_dataclasses,
)
from lvd.reproduction.runs import is_molecules, table_of, task_of
from lvd.reproduction.significance import P_VALUE


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
    results = [read_result(file) for file in files]
    return [
        count
        for result in results
        if result.error is None and is_molecules(result.run.dataset) and confidence_level in result.run.levels
        for count in _count_result(result, presence[table_of(result.run.dataset)], confidence_level)
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


def _count_result(result: Result, presence: Presence, confidence_level: float) -> list[GroupCount]:
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
    write_dataclasses(counts, path, GroupCount)


def read_counts(path: Path) -> list[GroupCount]:
    """Counts written by :func:`write_counts`."""
    try:
        return read_dataclasses(path, GroupCount)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not a table of group counts ({error}); make one with: lvd bench groups"
        ) from error


LEVEL = 0.9
FEWEST = 200
"""The paper leaves out groups with fewer test rows than this in some split; we do so over all splits together."""
PRINTED = "functional_groups"
_RULE_TEXT = {
    "text": "the molecule's SMILES contains the group's text, as the paper judged it",
    "molecule": "the molecule has the group, judged by its SMARTS pattern",
}


def group_grids(counts: Iterable[GroupCount], protocol: str, table: str) -> list[Grid]:
    """A grid per rule and method: groups down, tasks across, coverage in percent pooled over the seeds."""
    pooled = _pooled(counts, protocol, table)
    methods = list(dict.fromkeys(count.method for count in pooled))
    return [
        _grid([count for count in pooled if (count.rule, count.method) == (rule, method)], rule, method)
        for rule in RULES
        for method in methods
    ]


def beside_printed(counts: Iterable[GroupCount], protocol: str = "paper") -> Grid:
    """LVD's coverage within the groups as the paper judged them, beside the printed figures."""
    ours = {
        (count.dataset, count.group): count
        for count in pool_seeds(counts)
        if (count.protocol, count.method, count.rule, count.confidence_level)
        == (protocol, MAIN_VARIANT, "text", LEVEL)
    }
    tasks = list(dict.fromkeys(dataset for dataset, _ in ours))
    printed = {(cell.dataset, cell.method): cell for cell in printed_cells() if cell.table == PRINTED}
    return Grid(
        "LVD within functional groups, ours / printed",
        "MCR in percent at level 90%, pooled over the seeds; groups by the text in the SMILES.",
        ("", *(task_of(task) for task in tasks)),
        tuple(
            (GridEntry(group.name), *(_pair(ours.get((task, group.name)), printed, task) for task in tasks))
            for group in GROUPS
        ),
    )


def shares_valid(counts: Iterable[GroupCount], protocol: str, table: str) -> Grid:
    """For each method and rule, in how many groups and tasks the coverage is not significantly below the level."""
    pooled = _large(counts, protocol, table)
    rows = []
    for method in dict.fromkeys(count.method for count in pooled):
        entries = []
        for rule in RULES:
            chosen = [count for count in pooled if (count.method, count.rule) == (method, rule)]
            lowest = min((100 * count.n_covered / count.n for count in chosen), default=math.nan)
            held = sum(_holds(count) for count in chosen)
            entries += [
                GridEntry(f"{held} of {len(chosen)}"),
                GridEntry(f"{lowest:.1f}" if chosen else MISSING),
            ]
        rows.append((GridEntry(method_title(method, PRINTED)), *entries))
    headings = [heading for rule in RULES for heading in (f"held, by {rule}", f"lowest MCR, by {rule}")]
    return Grid(
        f"Groups and tasks in which coverage holds, {table.upper()} ({protocol} protocol)",
        f"Held: not significantly below 90% by the exact binomial test (p = {P_VALUE:g}); groups with at least "
        f"{FEWEST} test rows.",
        ("", *headings),
        tuple(rows),
    )


def held_of(
    counts: Iterable[GroupCount], protocol: str, table: str, method: str, rule: str
) -> tuple[int, int]:
    """In how many groups and tasks one method's coverage holds, and of how many."""
    chosen = [c for c in _large(counts, protocol, table) if (c.method, c.rule) == (method, rule)]
    return sum(_holds(count) for count in chosen), len(chosen)


def printed_held() -> str:
    """In how many groups and tasks the paper prints LVD's coverage as not significantly below the level."""
    cells = [cell for cell in printed_cells() if cell.table == PRINTED]
    return f"{sum(cell.bold for cell in cells)} of {len(cells)}"


def _large(counts: Iterable[GroupCount], protocol: str, table: str) -> list[GroupCount]:
    return [count for count in _pooled(counts, protocol, table) if count.n >= FEWEST]


def _pooled(counts: Iterable[GroupCount], protocol: str, table: str) -> list[GroupCount]:
    """What all seeds together have on the tasks of one table."""
    return [
        count
        for count in pool_seeds(counts)
        if (count.protocol, table_of(count.dataset), count.confidence_level) == (protocol, table, LEVEL)
    ]


def _grid(counts: Sequence[GroupCount], rule: str, method: str) -> Grid:
    cells = {(count.dataset, count.group): count for count in counts}
    tasks = list(dict.fromkeys(dataset for dataset, _ in cells))
    seeds = max((count.seed for count in counts), default=0)
    rows = []
    for group in GROUPS:
        n_rows = {cells[task, group.name].n for task in tasks if (task, group.name) in cells}
        label = GridEntry(f"{group.name} ({max(n_rows, default=0)})")
        rows.append((label, *(_rate(cells.get((task, group.name))) for task in tasks)))
    return Grid(
        f"{method_title(method, PRINTED)} within functional groups, by {rule}",
        f"MCR in percent at level 90%, pooled over {seeds} seed(s), test rows in parentheses; {_RULE_TEXT[rule]}. "
        f"Bold: not significantly below 90% by the exact binomial test (p = {P_VALUE:g}).",
        ("", *(dataset_title(task) for task in tasks)),
        tuple(rows),
    )


def _rate(count: GroupCount | None) -> GridEntry:
    if count is None or count.n < FEWEST:
        return GridEntry(MISSING)
    return GridEntry(f"{100 * count.n_covered / count.n:.1f}", emphasis="bold" if _holds(count) else "")


def _pair(count: GroupCount | None, printed: dict[tuple[str, str], PrintedCell], task: str) -> GridEntry:
    if count is None or count.n < FEWEST:
        return GridEntry(MISSING)
    cell = printed.get((dataset_title(task), f"{MAIN_VARIANT}|{count.group}"))
    return GridEntry(
        f"{100 * count.n_covered / count.n:.1f} / {MISSING if cell is None else f'{cell.mean:.1f}'}"
    )


def _holds(count: GroupCount) -> bool:
    """Whether so few covered rows would not surprise if every one were covered with the level's probability."""
    from scipy.stats import binom

    return bool(binom.cdf(count.n_covered, count.n, LEVEL) >= P_VALUE)
