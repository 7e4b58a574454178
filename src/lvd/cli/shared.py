"""Arguments, options and tables of metrics that several commands share."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lvd.cli import console
from lvd.cli.console import argument, option

if TYPE_CHECKING:
    from lvd.tables.reports import TargetReport, Together
    from lvd.tables.table_model import TableModel
    from lvd.tables.verdict import Verdict


ALARMED = 3
"""The exit status when there is an alarm."""
Guarantee = Literal["local", "calibrated", "randomized", "transductive"]
"""What intervals promise: the guarantees of :meth:`lvd.LocalConformal.radius`."""
Model = Annotated[Path, argument("MODEL", "The folder that lvd fit wrote.")]
Data = Annotated[Path, argument("DATA", "A table with a header: .csv, .csv.gz or .parquet.")]
Levels = Annotated[
    list[float] | None,
    option(
        "LEVEL",
        "Confidence level between 0 and 1; repeat for several levels.",
        "that of lvd fit",
        "--level",
    ),
]
GuaranteeOfFit = Annotated[
    Guarantee | None,
    typer.Option(
        "--guarantee", show_default="that of lvd fit", help="What the intervals promise; see lvd fit --help."
    ),
]
Trust = Annotated[
    list[str] | None,
    option(
        "MODULE:CLASS",
        "Trust a class of your own that is a part of the model, as lvd fit --kernel was given it: its code runs. "
        "Repeat for several.",
        "none, and none of its code runs",
        "--trust",
    ),
]
Level = Annotated[
    float | None, typer.Option(show_default="that of lvd fit", help="Confidence level between 0 and 1.")
]
SkipInvalid = Annotated[
    bool,
    typer.Option(
        "--skip-invalid",
        help="Leave out and count rows that the model cannot read; otherwise they are an error.",
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help='Print JSON for machines; infinite numbers are the strings "Infinity" and "-Infinity", undefined ones '
        "null.",
    ),
]
_COLUMNS = {
    "level": ("confidence_level", "g"),
    "coverage": ("marginal_coverage_rate", ".1%"),
    "tail coverage": ("tail_coverage_rate", ".1%"),
    "mean error": ("mean_absolute_deviation", ".4g"),
    "mean width": ("mean_finite_width", ".4g"),
    "finite": ("finite_fraction", ".1%"),
    "AUROC": ("residual_auroc", ".1%"),
}


def own_class(name: str) -> type[Any]:
    """The class MODULE:CLASS that an option names, of a module in the current folder or of an installed package."""
    from lvd.store import class_named

    folder = str(Path.cwd())
    if folder not in sys.path:  # which an installed command does not look in
        sys.path.append(folder)
    return class_named(name)


def load_fitted(
    folder: Path,
    trust: Sequence[str] | None,
    *,
    skip_invalid: bool = False,
    guarantee: Guarantee | None = None,
) -> TableModel:
    """The model with the classes that are trusted, and another guarantee where one is given."""
    from lvd.tables.table_model import TableModel

    trusted = [own_class(name) for name in trust or ()]
    fitted = TableModel.load(folder, skip_invalid=skip_invalid, trusted=trusted)
    return fitted if guarantee is None else replace(fitted, guarantee=guarantee)


def check_files(
    files: Mapping[str, Path | None], *inputs: str | Path | None, model: Path | None = None
) -> None:
    """All that a command reads and writes, before the work: the `files` that options name can be written.

    See :func:`check_apart`; `model` is the folder of --out.
    """
    from lvd._files import check_output

    check_apart({"--out": model} | dict(files), *inputs)
    for file in filter(None, files.values()):
        check_output(file)


def check_apart(written: Mapping[str, Path | None], *inputs: str | Path | None) -> None:
    """Nothing that is written is an input, or written twice, by whatever name, or is in a folder that is."""
    from lvd._files import overlap
    from lvd._validation import InputError

    outputs = [(name, out) for name, out in written.items() if out is not None]
    for number, (name, out) in enumerate(outputs):
        others = [f"{other} {str(place)!r}" for other, place in outputs[:number] if overlap(out, place)]
        others += [
            f"its own input {str(given)!r}" for given in inputs if given is not None and overlap(out, given)
        ]
        if others:
            raise InputError(f"{name} {str(out)!r} would overwrite {others[0]}; give another name")


def check_free(out: Path, *, force: bool) -> None:
    """A model may be written there: nothing is there, or, with --force, an older model."""
    from lvd import store

    check_new(out, force=force)
    store.check_replaceable(out)


def check_new(out: Path, *, force: bool) -> None:
    """Nothing is there yet, or --force allows to replace it."""
    from lvd._validation import InputError

    if os.path.exists(out) and not force:  # noqa: PTH110  (Path.exists fails for a name that is too long)
        raise InputError(f"{out} exists already; give --force to replace it, or another name")


def warn_of_training_rows(
    n_repeated: int, n_rows: int, fitted: TableModel, consequence: str, *, n_calibrating: int = 0
) -> None:
    """What the model does on rows that it was trained or calibrated on says nothing about others."""
    from lvd.calibration import CalibrationWarning

    warned = []
    if n_repeated:
        known = f"{n_repeated} of {n_rows} rows {fitted.encoder.repeated}"
        warned.append(f"{known}: where the model was trained on them, {consequence}")
    if n_calibrating:
        warned.append(
            f"{n_calibrating} of {n_rows} rows are calibration rows of the model: its intervals were made to "
            "contain them; use rows that it has not seen"
        )
    for text in warned:
        warnings.warn(text, CalibrationWarning, stacklevel=1)


def show_metrics(reports: Sequence[TargetReport], rows: str, n_rows: int, *, by: str | None = None) -> None:
    """For each target a table of metrics on these `rows`, and one per level of the coverage `by` a column."""
    for report in reports:
        some = "" if report.n_rows == n_rows else f"; {report.n_rows:,} of {n_rows:,} have it"
        console.show(f"\n{report.target}, on {rows}{some}")
        console.show_table(
            list(_COLUMNS),
            [
                [_metric_text(metrics[name], spec) for name, spec in _COLUMNS.values()]
                for metrics in report.summary.rows
            ],
            text_columns=0,
        )
        for verdict in report.verdicts:
            console.show(f"level {verdict.confidence_level:g}: {verdict_line(verdict)}")
        if report.distribution is not None:
            whole, pit = report.distribution, report.distribution.pit
            console.show(
                f"whole distributions: CRPS {whole.crps:.4g}; they {pit.finding} (PIT test on {pit.n_rows:,} rows: "
                f"p = {pit.p_value:.2g})"
            )
        for strata in report.by:
            console.show(f"\n{report.target}, coverage by {by} at level {strata.confidence_level:g}")
            console.show_table(
                ["group", "rows", "coverage", "95% band", "p", ""],
                [
                    [
                        f"{group.group:g}" if isinstance(group.group, float) else str(group.group),
                        f"{group.count:,}",
                        f"{group.coverage:.1%}",
                        f"{group.lower:.1%} to {group.upper:.1%}",
                        f"{group.p_value:.2g}",
                        "BELOW THE LEVEL" if group.below_level else "",
                    ]
                    for group in strata.groups
                ],
            )


def together_lines(together: Sequence[Together], joint: str | None) -> Iterator[str]:
    """How often all targets are covered at once, and whether the intervals are made for that."""
    from lvd.tables.verdict import percent

    made = (
        "each interval is made for its target alone; lvd fit --joint box makes them hold together"
        if joint is None
        else f"the intervals are made to hold together (joint {joint}), so each alone covers more"
    )
    for one in together:
        yield (
            f"all targets together: {percent(one.coverage, 1)} of {one.n_rows:,} rows have every true value inside "
            f"at level {one.confidence_level:g} (band {percent(one.lower, 1)} to {percent(one.upper, 1)}); {made}"
        )


def verdict_line(verdict: Verdict) -> str:
    """The verdict and the figures that it compares, beside those of one width for all rows."""
    figures = [
        f"interval score {verdict.interval_score:.4g} (one width for all: {verdict.split_interval_score:.4g})"
    ]
    if verdict.ert is not None and verdict.split_ert is not None:
        figures.append(f"ERT {verdict.ert:.3f} ({verdict.split_ert:.3f})")
    if verdict.unknown:
        figures.append(f"{verdict.unknown:.1%} unknown or infinite")
    return f"{verdict.kind}; {', '.join(figures)}"


def _metric_text(value: float, spec: str) -> str:
    return "-" if math.isnan(value) else format(value, spec)
