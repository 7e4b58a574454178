"""Coverage within functional groups: counted from results, and as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments.molecules.groups import GROUPS, RULES, Presence, group_members
from experiments.paper.collect import judged_targets
from experiments.paper.formats import MISSING, Grid, GridEntry, number_of
from experiments.paper.layout import dataset_title, method_title
from experiments.paper.methods import MAIN_VARIANT
from experiments.paper.pool import finish_jobs
from experiments.paper.printed import printed_cells, printed_texts
from experiments.paper.result_store import Result, ResultTable, files_by_split, read_result
from experiments.paper.runs import grouped, has_tasks, table_of, task_of
from experiments.paper.significance import P_VALUE
from lvd import InputError
from lvd.data import Dataset
from lvd.intervals import covered

GROUP_LEVEL = 0.9
FEWEST = 200
"""The paper omits groups with fewer test rows than this in some split; our limit is on all splits together."""
PRINTED = "functional_groups"


@dataclass(frozen=True)
class GroupCount:
    """The test rows of one run in a group, by one of the rules, and how many of them are covered."""

    protocol: str
    dataset: str
    method: str
    seed: int
    confidence_level: float
    rule: str
    group: str
    n: int
    n_covered: int

    @property
    def rate(self) -> float:
        """The coverage in percent."""
        return 100 * self.n_covered / self.n

    @property
    def holds(self) -> bool:
        """Whether a count this low is plausible if each row were covered with the level's probability."""
        from scipy.stats import binom

        return bool(binom.cdf(self.n_covered, self.n, GROUP_LEVEL) >= P_VALUE)


COUNTS = ResultTable(GroupCount, "a table of group counts", "python -m experiments groups")


def count_groups(folder: Path, load: Callable[[str], Dataset], *, workers: int = 1) -> list[GroupCount]:
    """The counts of all results on QM8 and QM9 in a folder."""
    by_split = files_by_split(folder)
    tables = dict.fromkeys(table_of(dataset) for _, dataset, _ in by_split if has_tasks(dataset))
    if not tables:
        raise InputError(
            f"no results on QM8 or QM9 in {folder}; make some with: python -m experiments run --datasets qm9"
        )
    work = partial(_count_files, presence={table: group_members(load(table).X) for table in tables})
    splits = [files for (_, dataset, _), files in by_split.items() if has_tasks(dataset)]
    return [count for counts in finish_jobs(work, splits, workers, in_order=True) for count in counts]


def _count_files(files: Sequence[Path], *, presence: dict[str, Presence]) -> list[GroupCount]:
    return [
        count
        for result in map(read_result, files)
        if result.error is None and GROUP_LEVEL in result.run.levels
        for count in _count_result(result, presence[table_of(result.run.dataset)])
    ]


def _count_result(result: Result, presence: Presence) -> list[GroupCount]:
    run, index = result.run, result.run.levels.index(GROUP_LEVEL)
    hits = covered(judged_targets(result, index), result.intervals[:, :, index])
    members = {key: member[result.rows] for key, member in presence.items()}
    place = (run.protocol, run.dataset, run.method, run.seed, GROUP_LEVEL)
    return [GroupCount(*place, *key, int(one.sum()), int(hits[one].sum())) for key, one in members.items()]


def pool_seeds(counts: Iterable[GroupCount]) -> list[GroupCount]:
    """Sum the counts over all seeds; the seed of a sum is the number of its seeds."""
    pooled = grouped(counts, lambda count: replace(count, seed=0, n=0, n_covered=0))
    return [
        replace(
            one, seed=len(members), n=sum(c.n for c in members), n_covered=sum(c.n_covered for c in members)
        )
        for one, members in pooled.items()
    ]


def groups_section(counts: Sequence[GroupCount], protocols: Sequence[str]) -> dict[str, Any]:
    """The section for a page: where coverage holds under all protocols, and every rate under the paper's."""
    printed = [cell for cell in printed_cells() if cell.table == PRINTED]
    tables = dict.fromkeys(table_of(one.dataset) for one in counts)
    present = sorted({(one.protocol, table_of(one.dataset)) for one in counts if one.protocol in protocols})
    return {
        "beside_printed": beside_printed(counts),
        "held": {
            method_title(method, PRINTED): "{} of {}".format(*held_of(counts, "paper", "qm9", method, "text"))
            for method in (MAIN_VARIANT, "split", "MADSplit")
        },
        "printed_held": f"{sum(cell.bold for cell in printed)} of {len(printed)}",
        "groups": [
            *(shares_valid(counts, *place) for place in present),
            *(grid for table in tables for grid in group_grids(counts, "paper", table)),
        ],
    }


def group_grids(counts: Iterable[GroupCount], protocol: str, table: str) -> list[Grid]:
    """A grid per rule and method: groups as rows, tasks as columns, coverage in percent pooled over the seeds."""
    chosen = grouped(_pooled(counts, protocol, table), lambda count: (count.method, count.rule))
    methods = dict.fromkeys(method for method, _ in chosen)
    return [_grid(chosen.get((method, rule), []), rule, method) for rule in RULES for method in methods]


def beside_printed(counts: Iterable[GroupCount]) -> Grid:
    """LVD's coverage within the paper's groups, next to the printed figures."""
    ours = {
        (count.dataset, count.group): count
        for count in pool_seeds(counts)
        if (count.protocol, count.method, count.rule, count.confidence_level)
        == ("paper", MAIN_VARIANT, "text", GROUP_LEVEL)
    }
    tasks = list(dict.fromkeys(dataset for dataset, _ in ours))
    printed = printed_texts(PRINTED, "MCR")

    def pair(task: str, group: str) -> str:
        count = ours.get((task, group))
        if count is None or count.n < FEWEST:
            return MISSING
        return f"{count.rate:.1f} / {printed.get((dataset_title(task), f'{MAIN_VARIANT}|{group}'), MISSING)}"

    return Grid(
        "LVD within functional groups, ours / printed",
        "MCR in percent at level 90%, pooled over the seeds; groups by the text in the SMILES.",
        ("", *(task_of(task) for task in tasks)),
        [(group.name, *(pair(task, group.name) for task in tasks)) for group in GROUPS],
    )


def shares_valid(counts: Iterable[GroupCount], protocol: str, table: str) -> Grid:
    """For each method and rule, in how many groups and tasks coverage is not significantly below the level."""
    large = _large(counts, protocol, table)
    rows = []
    for method in dict.fromkeys(method for method, _ in large):
        entries = []
        for rule in RULES:
            chosen = large.get((method, rule), [])
            lowest = f"{min(count.rate for count in chosen):.1f}" if chosen else MISSING
            entries += [f"{sum(count.holds for count in chosen)} of {len(chosen)}", lowest]
        rows.append((method_title(method, PRINTED), *entries))
    headings = [heading for rule in RULES for heading in (f"held, by {rule}", f"lowest MCR, by {rule}")]
    return Grid(
        f"Groups and tasks in which coverage holds, {table.upper()} ({protocol} protocol)",
        f"Held: not significantly below 90% by the exact binomial test (p = {P_VALUE:g}); groups with at least "
        f"{FEWEST} test rows.",
        ("", *headings),
        rows,
    )


def held_of(
    counts: Iterable[GroupCount], protocol: str, table: str, method: str, rule: str
) -> tuple[int, int]:
    """The number of groups and tasks in which one method's coverage holds, and the total."""
    chosen = _large(counts, protocol, table).get((method, rule), [])
    return sum(count.holds for count in chosen), len(chosen)


def _large(
    counts: Iterable[GroupCount], protocol: str, table: str
) -> dict[tuple[str, str], list[GroupCount]]:
    """The counts with enough rows, by method and rule."""
    large = (count for count in _pooled(counts, protocol, table) if count.n >= FEWEST)
    return grouped(large, lambda count: (count.method, count.rule))


def _pooled(counts: Iterable[GroupCount], protocol: str, table: str) -> list[GroupCount]:
    """The counts on the tasks of one table, pooled over all seeds."""
    return [
        count
        for count in pool_seeds(counts)
        if (count.protocol, table_of(count.dataset), count.confidence_level) == (protocol, table, GROUP_LEVEL)
    ]


def _grid(counts: Sequence[GroupCount], rule: str, method: str) -> Grid:
    cells = {(count.dataset, count.group): count for count in counts}
    tasks = list(dict.fromkeys(dataset for dataset, _ in cells))
    seeds = max((count.seed for count in counts), default=0)
    rows: list[list[str | GridEntry]] = []
    for group in GROUPS:
        found = [cells.get((task, group.name)) for task in tasks]
        n_rows = max((count.n for count in found if count), default=0)
        entries = [
            GridEntry(f"{count.rate:.1f}", emphasis="bold" if count.holds else "")
            if count is not None and count.n >= FEWEST
            else MISSING
            for count in found
        ]
        rows.append([f"{group.name} ({n_rows})", *entries])
    return Grid(
        f"{method_title(method, PRINTED)} within functional groups, by {rule}",
        f"MCR in percent at level 90%, pooled over {number_of(seeds, 'seed')}, test rows in parentheses; "
        f"{RULES[rule]}. Bold: not significantly below 90% by the exact binomial test (p = {P_VALUE:g}).",
        ("", *(dataset_title(task) for task in tasks)),
        rows,
    )
