"""Coverage within functional groups as tables to read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from lvd.reproduction import PrintedCell, printed_cells
from lvd.reproduction.functional_groups import GROUPS, RULES, GroupCount, pool_seeds
from lvd.reproduction.paper_methods import MAIN_VARIANT
from lvd.reproduction.names import table_of, task_of
from lvd.reproduction.emphasis import P_VALUE
from lvd.reproduction.grids import MISSING, Entry, Grid
from lvd.reproduction.layout import dataset_title, method_title

LEVEL = 0.9
FEWEST = 200
"""The paper leaves out groups with fewer test rows than this in some split; we do so over all splits together."""
PRINTED = "functional_groups"
_RULE_TEXT = {
    "text": "the group's text stands in the molecule's SMILES, as the paper judged it",
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
        "MCR in percent at level 90%, pooled over the seeds; the group's text stands in the SMILES.",
        ("", *(task_of(task) for task in tasks)),
        tuple(
            (Entry(group.name), *(_pair(ours.get((task, group.name)), printed, task) for task in tasks))
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
            entries += [Entry(f"{held} of {len(chosen)}"), Entry(f"{lowest:.1f}" if chosen else MISSING)]
        rows.append((Entry(method_title(method, PRINTED)), *entries))
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
        label = Entry(f"{group.name} ({max(n_rows, default=0)})")
        rows.append((label, *(_rate(cells.get((task, group.name))) for task in tasks)))
    return Grid(
        f"{method_title(method, PRINTED)} within functional groups, by {rule}",
        f"MCR in percent at level 90%, pooled over {seeds} seed(s), test rows in parentheses; {_RULE_TEXT[rule]}. "
        f"Bold: not significantly below 90% by the exact binomial test (p = {P_VALUE:g}).",
        ("", *(dataset_title(task) for task in tasks)),
        tuple(rows),
    )


def _rate(count: GroupCount | None) -> Entry:
    if count is None or count.n < FEWEST:
        return Entry(MISSING)
    return Entry(f"{100 * count.n_covered / count.n:.1f}", emphasis="bold" if _holds(count) else "")


def _pair(count: GroupCount | None, printed: dict[tuple[str, str], PrintedCell], task: str) -> Entry:
    if count is None or count.n < FEWEST:
        return Entry(MISSING)
    cell = printed.get((dataset_title(task), f"{MAIN_VARIANT}|{count.group}"))
    return Entry(f"{100 * count.n_covered / count.n:.1f} / {MISSING if cell is None else f'{cell.mean:.1f}'}")


def _holds(count: GroupCount) -> bool:
    """Whether so few covered rows would not surprise if every one were covered with the level's probability."""
    from scipy.stats import binom

    return bool(binom.cdf(count.n_covered, count.n, LEVEL) >= P_VALUE)
