"""``lvd online``: intervals for rows that arrive over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lvd.cli import console
from lvd.cli.console import (
    ALARMED,
    Data,
    Json,
    Level,
    Model,
    argument,
    check_apart,
    check_files,
    check_free,
    check_new,
    option,
)

if TYPE_CHECKING:
    from lvd.tables.online_table import OnlineTable

online = typer.Typer(name="online", no_args_is_help=True, help="Intervals for rows that arrive over time.")
State = Annotated[Path, argument("STATE", "The folder that lvd online init wrote.")]


def _command(name: str, *examples: str) -> Callable[[Callable[..., None]], object]:
    """A command of this group, with the arguments of some examples for its help."""
    commands = (f"lvd online {name} {words}" for words in examples)
    return online.command(name, epilog=console.examples(*commands), no_args_is_help=True)


@_command(
    "init",
    "demand-model --key hour --out demand-online",
    "demand-model --key hour --half-life 720 --out demand-online",
    "demand-model --key hour --time hour --half-life 7d --half-life 30d --out demand-online",
)
def begin_online(
    model: Model,
    *,
    key: Annotated[
        str, option("COLUMN", "The column that identifies each row, so that its label can arrive later.")
    ],
    out: Annotated[Path, option("STATE", "Folder to write the state to.")],
    level: Level = None,
    adapt: Annotated[
        Literal["dtaci", "aci", "pid"],
        typer.Option(help="How the level adapts to the misses seen so far."),
    ] = "dtaci",
    half_life: Annotated[
        list[str] | None,
        option(
            "ROWS|SPAN",
            "The age at which a row counts half: a number of rows, or a span such as 12h, 30d or 2w, with --time. "
            "Repeat to choose among several.",
            "300, 1,000 and 3,000 rows",
        ),
    ] = None,
    time: Annotated[
        str | None,
        option("COLUMN", "The column of dates, for half-lives given as spans and for the page.", "none"),
    ] = None,
    max_rows: Annotated[
        int, typer.Option(min=1, help="Maximum number of calibration rows to keep.")
    ] = 10_000,
    max_infinite: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Largest acceptable share of infinite intervals.")
    ] = 0.02,
    refit_every: Annotated[
        int | None,
        option(
            "ROWS",
            "Relearn how large errors are, and where, after every this many labels; the model is not retrained.",
            "never",
            min=1,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the state at --out.")] = False,
) -> None:
    """Start intervals over time from a fitted model.

    The state contains a copy of the model, so MODEL is not needed again. Then run lvd online predict as rows
    arrive, and lvd online observe as their labels arrive, for instance from cron.
    """
    from lvd.tables.online_table import OnlineTable
    from lvd.tables.table_model import TableModel

    check_apart({"--out": out}, model)
    check_free(out, force=force)
    table = OnlineTable.of(
        TableModel.load(model),
        key,
        confidence_level=level,
        level=adapt,
        half_life="auto" if half_life is None else [_half_life(one) for one in half_life],
        time=time,
        max_rows=max_rows,
        max_infinite=max_infinite,
        refit_every=refit_every,
    )
    table.save(out, replace=force)
    console.show(f"state written to {out}; rows are named by {key!r}")


@_command(
    "predict",
    "demand-online today.csv --out today-with-intervals.csv",
)
def predict_online(
    state: State,
    data: Data,
    *,
    out: Annotated[Path, option("FILE", "Where to write: .csv, .csv.gz or .parquet.")],
    json: Json = False,
) -> None:
    """Add predictions and intervals to rows whose labels will arrive later.

    Keeps all columns and adds y_pred, lower_90 and upper_90 (90 for the level 0.9), and known: false if neither a
    training row nor a row observed since is similar. Repeated rows get the same intervals as before and are not
    counted twice: after a crash, pass the same table again.
    """
    from lvd.store import locked
    from lvd.tables.reading import read_rows

    check_files({"--out": out}, state, data)
    with locked(state):
        table = _load(state)
        with console.working("predicting"):
            report = table.predict_to(out, read_rows(data), lambda: table.save(state))
    if json:
        console.show_json({"out": str(out), **asdict(report)})
        return
    console.show(f"{report.n_rows:,} rows written to {out}; {report.n_infinite:,} intervals are infinite")
    if report.n_unknown:
        console.show(f"{report.n_unknown:,} rows are unknown: no training row or observed row is similar")


@_command(
    "observe",
    "demand-online yesterday-measured.csv",
)
def observe_online(state: State, data: Data, *, json: Json = False) -> None:
    """Take the labels of rows that were predicted earlier.

    DATA needs only the key and the target. Labels may arrive late, in any order, or never; labels that were taken
    before are ignored and counted, so it is safe to pass a table again.
    """
    from lvd.store import locked
    from lvd.tables.reading import read_rows

    with locked(state):
        table = _load(state)
        with console.working("observing"):
            report = table.observe(read_rows(data))
            table.save(state)
    if json:
        console.show_json(asdict(report))
        return
    console.show(f"{report.n_taken:,} labels taken")
    if report.n_ignored:
        console.show(f"{report.n_ignored:,} ignored: their rows were observed before, or never predicted")
    if report.n_unlabelled:
        console.show(f"{report.n_unlabelled:,} rows have no label")


@_command(
    "status",
    "demand-online",
    "demand-online --json",
)
def show_status(state: State, *, json: Json = False) -> None:
    """Show how the intervals are doing: coverage of the latest rows, the current level, the half-life, alarms.

    The exit status is 3 if there is an alarm.
    """
    table = _load(state)
    found = dict(zip(table.encoder.targets, table.online.status(), strict=True))
    alarms = {target: one.alarms for target, one in found.items() if one.alarms}
    if json:
        console.show_json(
            {
                target: asdict(one) | {"sentence": one.sentence, "alarms": one.alarms}
                for target, one in found.items()
            }
        )
    else:
        for target, one in found.items():
            console.show(f"{target}: {one.sentence}")
            low, high = one.coverage_band
            console.show_table(
                ["", ""],
                [
                    ["exact 95% band of that coverage", f"{low:.1%} to {high:.1%}"],
                    [
                        "long-run coverage is at least",
                        f"{max(0.0, one.confidence_level - one.long_run_bound):.1%}",
                    ],
                    [
                        "predicted, observed, waiting",
                        f"{one.n_predicted:,}, {one.n_observed:,}, {one.n_waiting:,}",
                    ],
                    ["infinite, unknown", f"{one.n_infinite:,}, {one.n_unknown:,}"],
                    ["mean width", f"{one.mean_width:.4g}"],
                    ["calibration rows kept", f"{one.n_rows_kept:,}"],
                ],
            )
            for alarm in one.alarms:
                console.show(f"ALARM: {alarm}")
    if alarms:
        raise typer.Exit(ALARMED)


@_command(
    "report",
    "demand-online --out demand.html",
)
def report_online(
    state: State,
    *,
    out: Annotated[Path, option("FILE", "The .html file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the page at --out.")] = False,
) -> None:
    """Write one HTML page with charts over time: coverage with a rolling band, width, and unknown rows.

    The charts start with the first observed label. The page is one file and loads nothing from any network.
    """
    from lvd.page.render import Origin, write_online_page

    check_files({"--out": out}, state)
    check_new(out, force=force or out.is_dir())
    write_online_page(_load(state), Origin.today(state.resolve().name, ""), out)
    console.show(f"page written to {out}")


def _half_life(text: str) -> float | str:
    """A number of rows, or the text of a span unchanged."""
    try:
        return float(text)
    except ValueError:
        return text


def _load(state: Path) -> OnlineTable:
    from lvd.tables.online_table import OnlineTable

    return OnlineTable.load(state)
