"""Possible origins of printed figures on molecules, from the answers of ``benchmarks.molecule_questions``."""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.paper.collect import Measured, values_by_dataset
from experiments.paper.formats import MISSING, Grid, figure_text
from experiments.paper.layout import dataset_title
from experiments.paper.methods import MAIN_VARIANT
from experiments.paper.printed import printed_texts
from experiments.paper.runs import TASK_TABLES, grouped, table_of, task_of
from lvd import InputError

MORE = 3054 / 133_885
"""The share of QM9 in the paper's copy that ours lacks."""
DIFFERENCES = "isomers-differences"
Answers = dict[str, dict[str, float]]
"""The mean absolute error by question and task, averaged over the seeds."""


def read_answers(path: Path) -> Answers:
    """Read answers written by the benchmark; diverged trainings have none."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["task"]]
        return {
            question: {
                task: fmean(float(row["MAD"]) for row in same)
                for task, same in grouped(members, lambda row: row["task"]).items()
            }
            for question, members in grouped(rows, lambda row: row["question"]).items()
        }
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} does not hold answers ({error}); make some with: python -m benchmarks.molecule_questions"
        ) from error


def questions_section(rows: Sequence[Measured], answers: Answers) -> dict[str, Any]:
    """The section of a page on the answers."""
    return {
        "isomers": isomers_grid(rows, answers),
        "short": short_grids(rows, answers),
        "ensembles": ensembles_grid(rows, answers),
    }


def isomers_grid(rows: Sequence[Measured], answers: Answers) -> Grid | None:
    """The mean errors on QM9 next to those expected if some molecules have a wrong SMILES."""
    ours, differences = _our_errors(rows, MAIN_VARIANT), answers.get(DIFFERENCES, {})
    tasks = [task_of(name) for name in ours if task_of(name) in differences]
    if not tasks:
        return None
    printed = printed_texts("qm_discrimination", "MAD")
    prefix = "isomers-qm9-"
    trained = [name for name in ("as-they-are", "swapped") if tasks[0] in answers.get(f"{prefix}{name}", {})]
    lines = []
    for task in tasks:
        name = f"qm9({task})"
        expected = ours[name] + MORE * (differences[task] - ours[name])
        numbers = (ours[name], expected, *(answers[f"{prefix}{one}"][task] for one in trained))
        lines.append(_line(task, printed.get((dataset_title(name), MAIN_VARIANT)), *numbers))
    return Grid(
        "QM9 with 3,054 molecules more: mean error",
        "The paper's table has 3,054 molecules whose geometry became that of another molecule than their SMILES "
        "names; our copy leaves them out. With them: the error to expect if their values are as far from the "
        "prediction as those of two molecules of the same formula are from each other."
        + (" Trained: networks on our copy, as it is and with as many SMILES swapped." if trained else ""),
        ("", "printed", "ours", "with them", *trained),
        lines,
    )


def short_grids(rows: Sequence[Measured], answers: Answers) -> list[Grid]:
    """CQR's errors after a few hundred batches next to the printed ones, task by task, for each table."""
    ours, printed = _our_errors(rows, "CQR"), printed_texts("qm_discrimination", "MAD")
    grids = []
    for table in TASK_TABLES:
        short = _short_trainings(answers, table, "CQR")
        names = {task: f"{table}({task})" for errors in short.values() for task in errors}
        lines = [
            _line(
                *(task, printed.get((dataset_title(name), "CQR")), ours.get(name)),
                *(errors.get(task) for errors in short.values()),
            )
            for task, name in names.items()
        ]
        if lines:
            title = f"CQR on {table.upper()}, trained more briefly: mean error"
            caption = (
                "Targets not standardised. Columns: batches of 50 molecules and their rate; ours: 30 epochs."
            )
            grids.append(Grid(title, caption, ("", "printed", "ours", *map(_setting_text, short)), lines))
    return grids


def ensembles_grid(rows: Sequence[Measured], answers: Answers) -> Grid | None:
    """The same for a deep ensemble's network, mean over tasks, with two ways to make a variance of an output."""
    ours, printed = _our_errors(rows, "DE"), printed_texts("discrimination", "MAD")
    kinds = {"softplus": "DE", "absolute value": "DE-absolute"}
    short = {
        table: {kind: _short_trainings(answers, table, method) for kind, method in kinds.items()}
        for table in TASK_TABLES
    }
    settings = sorted({setting for found in short.values() for one in found.values() for setting in one})
    lines = [
        _line(
            f"{table.upper()}, {kind}",
            printed.get((dataset_title(table), "DE")),
            _mean_if_any([value for name, value in ours.items() if table_of(name) == table]),
            *(_mean_if_any(one.get(setting, {}).values()) for setting in settings),
        )
        for table, found in short.items()
        if any(found.values())
        for kind, one in found.items()
    ]
    if not lines:
        return None
    return Grid(
        "A network of a deep ensemble, trained more briefly: mean error",
        "Mean over tasks. The variance is the softplus of an output, or its absolute value.",
        ("", "printed", "ours", *map(_setting_text, settings)),
        lines,
    )


def _our_errors(rows: Sequence[Measured], method: str) -> dict[str, float]:
    """Our errors under the paper protocol, by dataset."""
    found = values_by_dataset(rows, "paper", method, 0.9, "MAD")
    return {dataset: fmean(values) for dataset, values in found.items()}


def _short_trainings(answers: Answers, table: str, method: str) -> dict[tuple[float, int], dict[str, float]]:
    """The errors of ``short-qm8-CQR-500-0.001`` and the like, by learning rate and number of batches."""
    found, prefix = {}, f"short-{table}-{method}-"
    for question, errors in answers.items():
        steps, _, rate = question.removeprefix(prefix).partition("-")
        if question.startswith(prefix) and steps.isdigit():
            found[float(rate), int(steps)] = errors
    return dict(sorted(found.items()))


def _setting_text(setting: tuple[float, int]) -> str:
    rate, steps = setting
    return f"{steps} at {rate:g}"


def _mean_if_any(values: Collection[float]) -> float | None:
    return fmean(values) if values else None


def _line(label: str, printed: str | None, *errors: float | None) -> list[str]:
    return [label, printed or MISSING, *(figure_text(error, ".3g") for error in errors)]
