"""``lvd update`` and ``lvd monitor``: maintaining a model in use."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from lvd.cli import console
from lvd.cli.console import (
    ALARMED,
    Data,
    Json,
    Level,
    Model,
    SkipInvalid,
    Trust,
    check_files,
    check_free,
    load_fitted,
    option,
    warn_of_training_rows,
)

UPDATE_EXAMPLES = console.examples(
    "lvd update homes-model sold-in-may.csv",
    "lvd update homes-model sold-in-may.csv --newest 2000 --out homes-model-may",
)
MONITOR_EXAMPLES = console.examples(
    "lvd monitor homes-model sold-in-may.csv",
    "lvd monitor homes-model sold-in-may.csv --false-alarm-rate 0.001 --json",
)


def update_model(
    model: Model,
    data: Data,
    *,
    out: Annotated[
        Path | None, option("MODEL", "Folder to write the model to.", "the model is replaced")
    ] = None,
    newest: Annotated[
        int | None,
        option(
            "N",
            "Keep only the N most recent calibration rows, for data that change over time.",
            "all",
            min=1,
        ),
    ] = None,
    skip_invalid: SkipInvalid = False,
    trust: Trust = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model at --out.")] = False,
    allow_repeated: Annotated[
        bool,
        typer.Option(
            "--allow-repeated",
            help="Also add rows that already train or calibrate the model, and copies of a row. This voids the "
            "guarantee: errors on training rows are too small, and copies count as several rows, so the intervals "
            "become too narrow and coverage falls below the level.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Add newly labelled rows to the calibration rows of a model, without retraining it.

    From then on the intervals also reflect the errors on the new rows. Texts that no training row has remain
    unknown; fit again to learn them. Use rows that the model has not seen, each once: rows that already train or
    calibrate it are recognised by their inputs and targets, whichever file they are in, and refused; the message
    lists their numbers. Rows without a target are left out and counted. The model's card, card.md in its folder,
    lists the tables that were added.
    """
    from lvd._progress import listening
    from lvd.store import locked
    from lvd.tables.model_card import ModelCard, Source
    from lvd.tables.reading import read_schema, read_table
    from lvd.tables.watching import update

    table = read_table(data, as_text=True)
    place = model if out is None else out
    in_place = os.path.realpath(place) == os.path.realpath(model)
    check_files({}, data, None if in_place else model, model=place)
    if out is not None:
        check_free(out, force=force)
    with listening(console.show_stage), locked(place):
        fitted = load_fitted(model, trust, skip_invalid=skip_invalid)
        source = Source.of(data, table.num_rows, len(read_schema(data)))
        card = None if fitted.card is None else ModelCard.from_dict(fitted.card)
        with console.working(f"adding {table.num_rows:,} rows"):
            updated, report = update(
                fitted, table.to_batches(), n_newest=newest, allow_repeated=allow_repeated
            )
            if card is not None:
                updated = replace(updated, card=card.updated(source).to_dict())
            updated.save(place, replace=out is None or force)
    consequence = "their errors are too small, and so will the intervals be; add rows that it has not seen"
    warn_of_training_rows(report.n_repeated, report.n_added, fitted, consequence)
    if json:
        console.show_json({"model": str(place), **asdict(report)})
        return
    console.show(f"{report.n_added:,} rows added; there are {report.n_calib:,} calibration rows now")
    if report.n_again:
        console.show(f"{report.n_again:,} of them were in use before: the intervals may be too narrow")
    console.show_left_out(report.n_skipped, report.n_unlabelled)
    console.show_unknown(0, report.unseen, report.n_added)
    console.show(f"model written to {place}")


def monitor_model(
    model: Model,
    data: Data,
    *,
    level: Level = None,
    false_alarm_rate: Annotated[
        float, typer.Option(help="Highest probability of an alarm when nothing has changed.")
    ] = 0.01,
    inputs_too: Annotated[
        bool, typer.Option("--inputs-too", help="Also exit with 3 when only the inputs have changed.")
    ] = False,
    window: Annotated[
        int, typer.Option(min=1, help="Number of latest rows over which to report the coverage.")
    ] = 200,
    skip_invalid: SkipInvalid = False,
    trust: Trust = None,
    json: Json = False,
) -> None:
    """Check whether a model's intervals still hold on newly labelled rows, and if not, since when.

    The rows must be in order of arrival, and must not have been used to train or calibrate the model. They are
    compared with the calibration rows by test martingales of their errors and of their inputs: if nothing has
    changed, the probability of a false alarm is at most --false-alarm-rate, however many rows there are. The
    report says whether the inputs, the errors or both have changed, and since when. A change in the errors is an
    alarm: the exit status is 3. A change in the inputs alone, such as every season brings, is an alarm only with
    --inputs-too. After an alarm, lvd update --newest calibrates on recent rows only; if the predictions have
    become poor, fit again.
    """
    from lvd.tables.reading import read_rows
    from lvd.tables.watching import watch

    fitted = load_fitted(model, trust, skip_invalid=skip_invalid)
    with console.working("watching"):
        report = watch(fitted, read_rows(data), level, false_alarm_rate=false_alarm_rate, window=window)
    consequence = "they cannot show drift; watch rows that it has not seen"
    warn_of_training_rows(
        *(report.n_repeated, report.monitor.n_seen, fitted, consequence), n_calibrating=report.n_calibrating
    )
    if json:
        console.show_json(asdict(report) | {"sentence": report.monitor.sentence})
    else:
        console.show(report.monitor.sentence)
        low, high = report.monitor.coverage_band
        console.show(f"exact 95% band of the recent coverage: {low:.1%} to {high:.1%}")
        console.show_left_out(report.n_skipped, report.n_unlabelled)
        console.show_unknown(report.n_unknown, report.unseen, report.monitor.n_seen)
    if report.monitor.alarm or (inputs_too and report.monitor.moved):
        raise typer.Exit(ALARMED)
