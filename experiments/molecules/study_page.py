"""Tables of the study on molecules: each method against split conformal, at random and on new scaffolds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, geometric_mean

from experiments.molecules.group_counts import FEWEST, held_of
from experiments.molecules.study import STUDY_SPLITS, MoleculeResult
from experiments.paper.formats import MISSING, Grid, number_of
from experiments.paper.methods import MAIN_VARIANT
from experiments.paper.networks import AROUND_MEMBERS, HELD_OUT_MADSPLIT
from experiments.paper.runs import TASK_TABLES, grouped, table_of

STUDY_TITLES = {
    "LVD": "LVD",
    "LVD-widen": 'LVD, `when_unknown="widen"`',
    "split-members": "split conformal, LVD's networks",
    "CQR-members": "CQR, LVD's networks",
    MAIN_VARIANT: 'LVD, `preset="paper"`',
    "split": "split conformal",
    HELD_OUT_MADSPLIT: "MADSplit, out of fold",
    "CQR": "CQR",
    "DE": "deep ensemble",
}
SPLIT_TITLES = {"random": "split at random", "scaffold": "new scaffolds"}
Scores = dict[str, dict[str, float]]
"""The interval score by method and task, averaged over the seeds."""


class StudyPart:
    """The results on one table with one kind of split, without tasks and seeds that some method lacks."""

    def __init__(self, results: Sequence[MoleculeResult], table: str, split: str) -> None:
        chosen = [
            one for one in results if (table_of(one.dataset), one.split) == (table, split) and not one.error
        ]
        self.table, self.split = table, split
        self.methods = [name for name in STUDY_TITLES if any(one.method == name for one in chosen)]
        cells = grouped(chosen, lambda one: (one.dataset, one.seed))
        whole = {place for place, members in cells.items() if len(members) == len(self.methods)}
        self.results = [one for one in chosen if (one.dataset, one.seed) in whole]
        self.tasks = list(dict.fromkeys(one.dataset for one in self.results))
        self.n_seeds = len({one.seed for one in self.results})
        by_method = grouped(self.results, lambda one: one.method)
        self.by_method = {name: by_method[name] for name in self.methods if name in by_method}
        self.scores: Scores = {
            name: {
                task: fmean(one.score for one in same)
                for task, same in grouped(members, lambda one: one.dataset).items()
            }
            for name, members in self.by_method.items()
        }

    def tasks_won(self, method: str) -> int:
        """On how many tasks its score is best; of methods around LVD's networks only one competes at a time."""
        mine = method if method in AROUND_MEMBERS else AROUND_MEMBERS[0]
        others = [name for name in self.scores if name not in AROUND_MEMBERS or name == mine]
        return sum(
            self.scores[method][task] <= min(self.scores[name][task] for name in others)
            for task in self.tasks
        )

    def shares_of_split(self, method: str) -> list[float]:
        """The score of each task relative to split conformal's."""
        return [self.scores[method][task] / self.scores["split"][task] for task in self.tasks]

    def groups_held(self, method: str, rule: str = "molecule") -> tuple[int, int]:
        """In how many functional groups and tasks coverage holds, and the total; groups by one of the rules."""
        counts = [count for one in self.by_method[method] for count in one.group_counts()]
        return held_of(counts, STUDY_SPLITS[self.split], self.table, method, rule)

    def grid(self) -> Grid:
        """One line per method."""
        return Grid(
            f"{self.table.upper()}, {SPLIT_TITLES[self.split]}",
            f"{len(self.tasks)} tasks, {number_of(self.n_seeds, 'seed')}, level 90%. Score: interval score "
            "(Winkler) relative to split conformal's, where an infinite interval counts as the whole range of y; "
            "best on: tasks on which it is the lowest. ERT: how far coverage is from the level, as predicted from "
            "fingerprints, in points. "
            f"Groups: functional groups and tasks with {FEWEST} test molecules or more in which coverage is not "
            "significantly below 90%; by text: groups as the paper judges them, by the text in the SMILES.",
            ("", "score", "best on", "ERT", "MCR", "TCR", "groups held", "by text", "finite"),
            [self._line(method) for method in self.by_method],
        )

    def _line(self, method: str) -> list[str]:
        *means, finite = (
            f"{fmean(getattr(one, name) for one in self.by_method[method]):.1f}"
            for name in ("ert", "MCR", "TCR", "finite")
        )
        return [
            STUDY_TITLES[method],
            _beside_split(method, [self]),
            str(self.tasks_won(method)),
            *means,
            *(_held_text(method, [self], rule) for rule in ("molecule", "text")),
            f"{finite}%",
        ]


def study_parts(results: Sequence[MoleculeResult]) -> list[StudyPart]:
    """A part for each table and kind of split with results."""
    parts = [StudyPart(results, table, split) for split in STUDY_SPLITS for table in TASK_TABLES]
    return [part for part in parts if part.tasks]


def overview(parts: Sequence[StudyPart]) -> Grid | None:
    """Each method's score over all tables, the number of tasks on which it is best, and where coverage holds."""
    chosen = [part for part in parts if "LVD" in part.by_method]
    splits = list(dict.fromkeys(part.split for part in chosen))
    if not chosen:
        return None
    heads = [
        f"{what}, {SPLIT_TITLES[split]}" for split in splits for what in ("score", "best on", "groups held")
    ]
    total = ["groups held, both"] * (len(splits) > 1)
    return Grid(
        "Both tables together",
        "Score: interval score at level 90% relative to split conformal's; best on: number of tasks on which it is "
        "the lowest, with one method around LVD's networks competing at a time; groups held: functional "
        "groups and tasks in which coverage is not significantly below the level.",
        ("", *heads, *total),
        [_overview_line(method, chosen, splits) for method in chosen[0].by_method],
    )


def _overview_line(method: str, parts: Sequence[StudyPart], splits: Sequence[str]) -> list[str]:
    measured = [part for part in parts if method in part.by_method]
    cells = []
    for split in splits:
        same = [part for part in measured if part.split == split]
        n_won, n_tasks = sum(part.tasks_won(method) for part in same), sum(len(part.tasks) for part in same)
        cells += [_beside_split(method, same), f"{n_won} of {n_tasks}", _held_text(method, same)]
    return [STUDY_TITLES[method], *cells, *[_held_text(method, measured)] * (len(splits) > 1)]


def _beside_split(method: str, parts: Sequence[StudyPart]) -> str:
    if not all("split" in part.scores for part in parts):
        return MISSING
    return f"{geometric_mean(share for part in parts for share in part.shares_of_split(method)):.3f}"


def _held_text(method: str, parts: Sequence[StudyPart], rule: str = "molecule") -> str:
    counts = [part.groups_held(method, rule) for part in parts]
    return f"{sum(n for n, _ in counts)} of {sum(n for _, n in counts)}"
