"""Where printed figures on molecules may come from, shown from the answers of ``benchmarks.molecule_questions``."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from lvd._validation import InputError
from lvd.reproduction.collect import Measured
from lvd.reproduction.formats import MISSING, Grid
from lvd.reproduction.paper_methods import MAIN_VARIANT
from lvd.reproduction.printed import printed_cells
from lvd.reproduction.runs import TASK_TABLES, grouped, table_of, task_of

MORE = 3054 / 133_885
"""The share of QM9 that the paper had and our copy lacks."""


@dataclass(frozen=True)
class QuestionedError:
    """The mean absolute error of one task to one question, mean over the seeds."""

    question: str
    table: str
    task: str
    error: float


def read_answers(path: Path) -> list[QuestionedError]:
    """Answers as the benchmark writes them; a training that diverged has none."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["task"]]
        places = grouped(rows, lambda row: (row["question"], row["table"], row["task"]))
        return [
            QuestionedError(*place, fmean(float(row["MAD"]) for row in same))
            for place, same in places.items()
        ]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} does not hold answers ({error}); make some with: python -m benchmarks.molecule_questions"
        ) from error


class Errors:
    """Mean absolute errors at level 90% by task: ours under the paper protocol, and the printed ones."""

    def __init__(self, rows: Sequence[Measured], method: str) -> None:
        known = [
            row
            for row in rows
            if (row.protocol, row.method, row.confidence_level, row.error) == ("paper", method, 0.9, "")
        ]
        self.ours = {
            dataset: fmean(row.MAD for row in same)
            for dataset, same in grouped(known, lambda row: row.dataset).items()
        }
        self.printed = {
            (table_of(cell.dataset).lower(), task_of(cell.dataset)): cell
            for cell in printed_cells()
            if (cell.table, cell.metric, cell.method) == ("qm_discrimination", "MAD", method)
        }

    def printed_text(self, dataset: str) -> str:
        """As the paper prints it."""
        cell = self.printed.get((table_of(dataset), task_of(dataset)))
        return MISSING if cell is None else f"{cell.mean:.{max(cell.decimals, 0)}f}"


def isomers_grid(rows: Sequence[Measured], answers: Sequence[QuestionedError]) -> Grid | None:
    """The mean errors on QM9 beside those to expect with molecules under a wrong SMILES among them."""
    found = {(one.question, one.task): one.error for one in answers}
    errors = Errors(rows, MAIN_VARIANT)
    tasks = [task_of(name) for name in errors.ours if ("isomers-differences", task_of(name)) in found]
    if not tasks:
        return None
    trained = [
        name for name in ("isomers-qm9-as-they-are", "isomers-qm9-swapped") if (name, tasks[0]) in found
    ]
    lines = []
    for task in tasks:
        ours = errors.ours[f"qm9({task})"]
        expected = ours + MORE * (found["isomers-differences", task] - ours)
        numbers = (ours, expected, *(found[name, task] for name in trained))
        lines.append([task, errors.printed_text(f"qm9({task})"), *(f"{number:.3g}" for number in numbers)])
    return Grid(
        "QM9 with 3,054 molecules more: mean error",
        "The paper's table has 3,054 molecules whose geometry became that of another molecule than their SMILES "
        "says; our copy leaves them out. With them: what is to be expected where their values are as far from the "
        "prediction as those of any two molecules of the same formula."
        + (" Trained: networks on our copy, as it is and with as many SMILES swapped." if trained else ""),
        ("", "printed", "ours", "with them", *(name.removeprefix("isomers-qm9-") for name in trained)),
        lines,
    )


def short_grids(rows: Sequence[Measured], answers: Sequence[QuestionedError]) -> list[Grid]:
    """CQR's errors after some hundred batches beside the printed ones, task by task, for each table."""
    errors = Errors(rows, "CQR")
    grids = []
    for table in TASK_TABLES:
        chosen = [one for one in answers if one.question.startswith(f"short-{table}-CQR-")]
        by_task = grouped(chosen, lambda one: one.task)
        if not chosen:
            continue
        settings = sorted({one.question for one in chosen}, key=_order)
        lines = [
            [
                task,
                errors.printed_text(f"{table}({task})"),
                _error_text(errors.ours.get(f"{table}({task})")),
                *(_error_text({one.question: one.error for one in same}.get(name)) for name in settings),
            ]
            for task, same in by_task.items()
        ]
        grids.append(
            Grid(
                f"CQR on {table.upper()}, trained for less long: mean error",
                "Targets as they are, so many batches of 50 molecules at one learning rate; ours: 30 epochs.",
                ("", "printed", "ours", *(_setting(name) for name in settings)),
                lines,
            )
        )
    return grids


def ensembles_grid(rows: Sequence[Measured], answers: Sequence[QuestionedError]) -> Grid | None:
    """The same of a deep ensemble's network, mean over the tasks, with two ways to make a variance of an output."""
    chosen = [one for one in answers if "-DE-" in one.question]
    if not chosen:
        return None
    printed = {
        cell.dataset.lower(): f"{cell.mean:.2f}"
        for cell in printed_cells()
        if (cell.table, cell.metric, cell.method) == ("discrimination", "MAD", "DE")
    }
    ours, lines = Errors(rows, "DE").ours, []
    means = {
        name: fmean(one.error for one in same)
        for name, same in grouped(chosen, lambda one: one.question).items()
    }
    settings = list(dict.fromkeys(_setting(name) for name in sorted(means, key=_order)))
    for table in dict.fromkeys(one.table for one in chosen):
        own = [value for name, value in ours.items() if table_of(name) == table]
        for kind, title in (("DE", "softplus"), ("DE-absolute", "absolute value")):
            known = {
                _setting(n): v
                for n, v in means.items()
                if n.startswith(f"short-{table}-{kind}-") and _kind(n) == kind
            }
            lines.append(
                [
                    f"{table.upper()}, {title}",
                    printed.get(table, MISSING),
                    _error_text(fmean(own) if own else None),
                ]
                + [_error_text(known.get(name)) for name in settings]
            )
    return Grid(
        "A network of a deep ensemble, trained for less long: mean error",
        "Mean over tasks. The variance is the softplus of an output, or its absolute value.",
        ("", "printed", "ours", *settings),
        lines,
    )


def _kind(question: str) -> str:
    return "DE-absolute" if "-DE-absolute-" in question else "DE"


def _setting(question: str) -> str:
    """``500 at 0.001`` of ``short-qm8-CQR-500-0.001``."""
    steps, rate = question.split("-")[-2:]
    return f"{steps} at {rate}"


def _order(question: str) -> tuple[float, int]:
    steps, rate = question.split("-")[-2:]
    return float(rate), int(steps)


def _error_text(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}"
