"""``lvd fit``."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lvd.cli import console
from lvd.cli.shared import Data, Guarantee, Json, SkipInvalid, show_metrics

if TYPE_CHECKING:
    from lvd.tables.reports import FitReport

FEW = 0.5
"""With a smaller share of finite intervals the report says what can be done."""
OPTIONS = {
    "address": "--address",
    "bandwidth": "--bandwidth",
    "column": "--smiles",
    "compare": "--compare",
    "confidence_level": "--level",
    "conformity_score": "--score",
    "device": "--device",
    "drop": "--drop",
    "fitted_on": "--fitted-on",
    "groups": "--groups",
    "guarantee": "--guarantee",
    "impute": "--impute",
    "preset": "--preset",
    "row": "--row",
    "skip_invalid": "--skip-invalid",
    "target": "--target",
    "when_unknown": "--when-unknown",
    "y_range": "--y-min, --y-max",
}
"""The parameters of the library that are options here."""


class PresetName(StrEnum):
    """The presets of :class:`lvd.LVDRegressor`."""

    default = "default"
    paper = "paper"


class ScoreName(StrEnum):
    """The conformity scores of :class:`lvd.LVDRegressor`."""

    absolute = "absolute"
    normalized = "normalized"
    scaled = "scaled"
    signed = "signed"
    sided = "sided"


class WhenUnknown(StrEnum):
    """What a row gets that no training row is near."""

    infinite = "infinite"
    widen = "widen"


EXAMPLES = console.examples(
    "lvd fit homes.csv --target price --out homes-model",
    "lvd fit homes.csv.gz --target price --drop id --drop street --impute median --out homes-model",
    "lvd fit homes.parquet --target price --target rent --level 0.95 --out homes-model",
    "lvd fit homes.csv --target price --preset paper --out homes-model  # the paper's method, faster",
    "lvd fit homes.csv --target price --groups district --guarantee calibrated --out homes-model",
    "lvd fit homes.csv --target price --score signed --when-unknown widen --out homes-model",
    "lvd fit molecules.csv --smiles smiles --target mu --target homo --out molecules-model",
    "lvd fit new.csv --smiles smiles --target mu --checkpoint best.pt --trust --out model  # chemprop's network",
    "lvd fit homes.csv --target price --test-out test.csv --out homes-model  # keep the test rows",
)


def fit(
    data: Data,
    target: Annotated[
        list[str],
        typer.Option(metavar="COLUMN", show_default=False, help="Column to predict; repeat it for several."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="MODEL", show_default=False, help="Folder to write the model to.")
    ],
    *,
    smiles: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            show_default=False,
            help="Column of molecules, written as SMILES of at most 10,000 characters; no other column is then an "
            "input (extra molecules).",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="With --smiles: a network that chemprop has trained, a .pt or .ckpt file of its command. "
            "DATA must hold molecules that it was not trained on. Needs --trust.",
        ),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="You trust the --checkpoint as you trust a program: reading it can run any code that is in it. "
            "The model that is written runs none.",
        ),
    ] = False,
    skip_invalid: SkipInvalid = False,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", show_default=False, help="Column to leave out; repeat it for several."
        ),
    ] = None,
    impute: Annotated[
        str | None,
        typer.Option(
            metavar="median",
            show_default="missing values are refused",
            help="Replace missing numbers with their column's median; missing text is a category of its own.",
        ),
    ] = None,
    level: Annotated[
        float, typer.Option(help="Confidence level of the report, and of lvd predict when it is given none.")
    ] = 0.9,
    y_min: Annotated[
        float | None, typer.Option(show_default=False, help="Lowest possible target; clips the intervals.")
    ] = None,
    y_max: Annotated[
        float | None, typer.Option(show_default=False, help="Highest possible target; clips the intervals.")
    ] = None,
    preset: Annotated[
        PresetName,
        typer.Option(
            help="default: errors scaled by the error to expect, a kernel of the errors, a bandwidth for each row. "
            "paper: the paper's method, absolute errors and a kernel of the target; faster, often infinite."
        ),
    ] = PresetName.default,
    score: Annotated[
        ScoreName | None,
        typer.Option(
            show_default="that of the preset",
            help="What is calibrated: absolute errors; errors scaled or normalized by the error to expect; signed "
            "ones, for errors that are not symmetric; sided ones, each side in its own units.",
        ),
    ] = None,
    guarantee: Annotated[
        Guarantee,
        typer.Option(
            help="What the intervals promise. local: near each row, by the rows like it. calibrated, randomized "
            "and transductive: on average over all rows. Kept with the model; lvd predict can choose another."
        ),
    ] = Guarantee.local,
    when_unknown: Annotated[
        WhenUnknown | None,
        typer.Option(
            show_default="that of the preset: infinite, for paper widen",
            help="The interval of a row that no training row is near: infinite, or as wide as the calibration rows "
            "say. The column known of lvd predict tells such rows either way.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            show_default=False,
            help="Column whose values are groups: each is calibrated by its own rows alone, so that the promise "
            "holds within it. It is an input too, unless left out with --drop.",
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="adaptive|NUMBER",
            show_default="that of the preset: adaptive, for paper 1",
            help="Widen the kernel: above 1, fewer intervals are infinite, and they are less local. adaptive "
            "widens it row by row, as far as a finite interval at --level should need by the training rows.",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="20, with --smiles 30, or more for small tables",
            help="Passes of the network over the training rows.",
        ),
    ] = None,
    hidden_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="300",
            help="Width of the graph network, with --smiles; narrower is faster, and less exact.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Decides the split and all that is random in training.")
    ] = 0,
    device: Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, cuda:1...")] = "auto",
    test_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="Also write the test rows, to evaluate by group."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model at --out.")] = False,
    json: Json = False,
) -> None:
    """Fit a model to a table and report how good its intervals are.

    The rows are split at random: 60% train the network and the kernel, 20% calibrate the intervals, and 20%
    test them; no step sees the test rows, and no row is left out. Numbers are scaled, text and categorical
    columns are one-hot coded. Dates must be turned into numbers first, or dropped.

    The default preset learns where errors are large from rows held out of training: it trains the network six
    times, once for good and once for each of five folds. --preset paper trains it once.

    With --groups, lvd predict needs that column too. Rows of a group that no calibration row has get infinite
    intervals, and are counted; where the column is text, leave it out of the inputs with --drop for that, as texts
    that were not there in fit are refused among inputs.

    With --smiles one graph network (chemprop's) reads the molecules and predicts all targets, and each target has a
    kernel of its own. Rows with the same molecule, however it is written, are found by their canonical SMILES, kept
    in one part of the split, and counted. The model keeps the SMILES of the calibration rows: lvd explain names
    the neighbours by them, and lvd report draws them. Without a GPU, 5,000 molecules of ten atoms take minutes.

    With --checkpoint the network is one that chemprop has trained, and stays as it is: of molecules that it has
    not seen, 60% teach the kernel and how large errors are, 20% calibrate and 20% test.
    """
    from lvd import LVDRegressor
    from lvd._files import check_output
    from lvd._validation import InputError, resolve_device
    from lvd.tables.reading import read_table
    from lvd.tables.table_model import TableModel
    from lvd.tables.writing import TableWriter

    if smiles is None and (skip_invalid or hidden_size is not None or checkpoint is not None):
        raise InputError(
            "--skip-invalid, --hidden-size and --checkpoint are about molecules; give --smiles COLUMN with them"
        )
    _check_trust(checkpoint, trust=trust, trains=epochs is not None or hidden_size is not None)
    for name, bound in (("--y-min", y_min), ("--y-max", y_max)):
        if bound is not None and not math.isfinite(bound):
            raise InputError(f"{name} must be a finite number, got {bound}")
    if y_min is not None and y_max is not None and not y_min < y_max:
        raise InputError(f"--y-min must be below --y-max, got {y_min:g} and {y_max:g}")
    _check_free(out, force=force)
    if test_out is not None:
        check_output(test_out, data, out, name="--test-out")
    resolve_device(device)
    table = read_table(data)
    regressor = LVDRegressor(
        _network(epochs, hidden_size, device, seed, of_molecules=smiles is not None)
        if checkpoint is None
        else _trained_network(checkpoint, device, target),
        prefit=checkpoint is not None,
        preset=preset.value,
        conformity_score=None if score is None else score.value,
        bandwidth=None if bandwidth is None else _as_bandwidth(bandwidth),
        when_unknown=None if when_unknown is None else when_unknown.value,
        confidence_level=level,
        y_range=None if y_min is None and y_max is None else (y_min, y_max),
        device=device,
        random_state=seed,
    )
    with nullcontext() if test_out is None else TableWriter(test_out) as test_file:
        with _showing(table.num_rows, of_molecules=smiles is not None):
            model, report = TableModel.fit(
                *(table, regressor),
                target=target,
                drop=drop or (),
                impute=impute,
                column=smiles,
                skip_invalid=skip_invalid,
                guarantee=guarantee.value,
                groups=groups,
                seed=seed,
            )
        if test_file is not None:
            test_file.write(table.take(model.test_rows - 1))
        model.save(out, replace=force)
    if json:
        console.show_json({"model": str(out), **asdict(report)})
    else:
        _show_fit(report, data, out, seed)


def _check_free(out: Path, *, force: bool) -> None:
    """A model may be written there: nothing is there, or, with --force, an older model."""
    from lvd import store
    from lvd._validation import InputError

    if os.path.exists(out) and not force:  # noqa: PTH110  (Path.exists fails for a name that is too long)
        raise InputError(f"{out} exists already; give --force to replace it, or another --out")
    store.check_replaceable(out)


def _as_bandwidth(text: str) -> float | str:
    from lvd._validation import InputError

    if text == "adaptive":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--bandwidth must be a number or adaptive, got {text!r}") from None


def _network(
    epochs: int | None, hidden_size: int | None, device: str, seed: int, *, of_molecules: bool
) -> Any:
    from lvd import ChempropEstimator, NetRegressor

    if not of_molecules:
        return NetRegressor(epochs=epochs, device=device, random_state=seed)
    network = ChempropEstimator(
        n_epochs=epochs,
        warmup_epochs=2.0 if epochs is None else min(2.0, epochs / 2),
        cache_features=False,  # rows that are predicted pass once: to keep them all would only fill the disk
        device=device,
        random_state=seed,
    )
    return network if hidden_size is None else network.set_params(hidden_size=hidden_size)


def _check_trust(checkpoint: Path | None, *, trust: bool, trains: bool) -> None:
    """A checkpoint is read only where the user has said that its code may run."""
    from lvd._validation import InputError

    if checkpoint is None:
        if trust:
            raise InputError("--trust is about a --checkpoint; leave it out")
        return
    if not trust:
        raise InputError(
            f"reading {checkpoint} can run any code that is in it; if you trust it as you trust a program, give "
            "--trust with --checkpoint"
        )
    if trains:
        raise InputError(
            "--checkpoint takes the network as it is; leave --epochs and --hidden-size out, or --checkpoint"
        )


def _trained_network(checkpoint: Path, device: str, targets: list[str]) -> Any:
    from lvd import read_trusted_checkpoint
    from lvd._validation import InputError, resolve_device

    network = read_trusted_checkpoint(checkpoint).set_params(cache_features=False)
    names = network.target_names
    if names is not None and names != tuple(targets):
        options = " ".join(f"--target {name}" for name in names)
        raise InputError(f"{checkpoint} predicts {', '.join(names)}, in this order; give {options}")
    network.module.to(resolve_device(device))
    return network


@contextmanager
def _showing(n_rows: int, *, of_molecules: bool) -> Iterator[None]:
    """The stages while it takes long; a graph network has a bar of its own, so there they are lines."""
    from lvd._progress import listening

    if of_molecules:
        console.foretell(f"reading {n_rows:,} molecules")
        with listening(console.foretell):
            yield
    else:
        with console.working(f"fitting {n_rows:,} rows") as show_stage, listening(show_stage):
            yield


def _show_fit(report: FitReport, data: Path, out: Path, seed: int) -> None:
    from lvd.tables.table_encoder import PLAIN_NUMBERS

    n_rows = report.n_train + report.n_calib + report.n_test + report.n_skipped
    inputs = f"{len(report.inputs)} input columns, {report.n_features} features"
    if not report.n_features:
        inputs = f"molecules of column {report.inputs[0]}"
    skipped = console.count_refused(report.n_skipped) if report.n_skipped else "no row"
    left_out = ", ".join(report.left_out)
    console.show(f"{data}: {n_rows:,} rows, {inputs}")
    console.show(f"left out: {skipped}, {f'the columns {left_out}' if left_out else 'no column'}")
    console.show(
        f"split (seed {seed}): {report.n_train:,} training, {report.n_calib:,} calibration "
        f"and {report.n_test:,} test rows"
    )
    for column, example in report.formatted.items():
        console.show(
            f"note: the texts of column {column!r}, such as {example!r}, are categories, not numbers; if they are "
            f"numbers, {PLAIN_NUMBERS}, and fit again"
        )
    if report.n_repeated:
        console.show(
            f"note: {report.n_repeated:,} calibration and test rows repeat the inputs of a training row; if they "
            "are copies of one record, keep one of each and fit again"
        )
    if report.n_duplicates:
        console.show(
            f"note: {report.n_duplicates:,} rows repeat the molecule of an earlier row; all rows of a molecule are "
            "in the same part, so that no molecule of the training rows calibrates or tests"
        )
    console.show_unknown(report.n_unknown, 0, report.n_test)
    show_metrics(report.targets, f"the {report.n_test:,} test rows, which no step has seen")
    if _many_infinite(report):
        console.show(
            "\nnote: many intervals are infinite: there are too few similar calibration rows"
            f"{'' if report.groups is None else ' in each group'}. More rows"
            f"{'' if report.groups is None else ', fewer groups'} or a lower --level help, and so does --bandwidth "
            "adaptive (in the default preset), which looks as far as needed for similar rows"
        )
    console.show(f"\nmodel written to {out}")


def _many_infinite(report: FitReport) -> bool:
    """Whether few intervals are finite although there are rows enough for the level."""
    from lvd.methods.conformal import rows_needed

    metrics = [row for one in report.targets for row in one.summary.rows]
    return any(
        row["finite_fraction"] < FEW and report.n_calib >= rows_needed(row["confidence_level"])
        for row in metrics
    )
