"""``lvd update`` and ``lvd monitor``: a model in use."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lvd.cli import console
from lvd.cli.console import option
from lvd.cli.shared import Data, Json, Level, Model, SkipInvalid, check_free, warn_of_training_rows

if TYPE_CHECKING:
    from lvd.tables.model_card import ModelCard, Source

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
    force: Annotated[
        bool, typer.Option("--force", help="Replace the model at --out; allow a table that was added before.")
    ] = False,
    json: Json = False,
) -> None:
    """Add newly labelled rows to the calibration rows of a model, without retraining it.

    From then on the intervals also reflect the errors on the new rows. Texts that no training row has stay unknown;
    fit again to learn them. Use rows that the model was not trained on, each once: a table that was added before is
    refused. Rows without a target are left out and counted. The model's card, card.md in its folder, lists the
    tables that were added.
    """
    from lvd.tables.model_card import ModelCard, Source
    from lvd.tables.reading import read_schema, read_table
    from lvd.tables.table_model import TableModel
    from lvd.tables.watching import update

    if out is not None:
        check_free(out, force=force)
    fitted = TableModel.load(model, skip_invalid=skip_invalid)
    table = read_table(data, as_text=True)
    source = Source.of(data, table.num_rows, len(read_schema(data)))
    card = None if fitted.card is None else ModelCard.from_dict(fitted.card)
    if card is not None and not force:
        _refuse_known(card, source)
    with console.working(f"adding {table.num_rows:,} rows"):
        updated, report = update(fitted, table.to_batches(), n_newest=newest)
        if card is not None:
            updated = replace(updated, card=card.updated(source).to_dict())
        updated.save(out or model, replace=True)
    consequence = "their errors are too small, and so will the intervals be; add rows that it has not seen"
    warn_of_training_rows(report.n_repeated, report.n_added, fitted, consequence)
    if json:
        console.show_json({"model": str(out or model), **asdict(report)})
        return
    console.show(f"{report.n_added:,} rows added; there are {report.n_calib:,} calibration rows now")
    console.show_left_out(report.n_skipped, report.n_unlabelled)
    console.show_unknown(0, report.unseen, report.n_added)
    console.show(f"model written to {out or model}")


def monitor_model(
    model: Model,
    data: Data,
    *,
    level: Level = None,
    false_alarm_rate: Annotated[
        float, typer.Option(help="Highest probability of an alarm when nothing has changed.")
    ] = 0.01,
    window: Annotated[
        int, typer.Option(min=1, help="How many of the latest rows the reported coverage is over.")
    ] = 200,
    skip_invalid: SkipInvalid = False,
    json: Json = False,
) -> None:
    """Check whether a model's intervals still hold on newly labelled rows, and if not, since when.

    The rows must be in order of arrival, and must not have been used to train or calibrate the model. Their errors
    are compared with those of the calibration rows by a test martingale: if nothing has changed, the probability of
    an alarm is at most --false-alarm-rate, however many rows there are. After an alarm, lvd update --newest
    calibrates on recent rows only; if the predictions themselves have become poor, fit again.
    """
    from lvd.tables.reading import read_rows
    from lvd.tables.table_model import TableModel
    from lvd.tables.watching import watch

    fitted = TableModel.load(model, skip_invalid=skip_invalid)
    with console.working("watching"):
        report = watch(fitted, read_rows(data), level, false_alarm_rate=false_alarm_rate, window=window)
    if json:
        console.show_json(asdict(report) | {"sentence": report.monitor.sentence})
        return
    console.show(report.monitor.sentence)
    low, high = report.monitor.coverage_band
    console.show(f"exact 95% band of the recent coverage: {low:.1%} to {high:.1%}")
    console.show_left_out(report.n_skipped, report.n_unlabelled)
    console.show_unknown(report.n_unknown, report.unseen, report.monitor.n_seen)


def _refuse_known(card: ModelCard, source: Source) -> None:
    from lvd._validation import InputError

    if source.sha256 == card.source.sha256:
        raise InputError(
            f"{source.name} is the table that the model was fitted on; give rows that the model has not seen"
        )
    for day, known in card.updates:
        if source.sha256 == known.sha256:
            raise InputError(
                f"{source.name} was added to this model before, on {day} as {known.name}; give --force to add its "
                "rows once more"
            )
