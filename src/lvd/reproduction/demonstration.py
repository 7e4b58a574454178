"""The demo: fits LVD and split conformal, and writes figures, sentences and a table of intervals."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from lvd._typing import Float, NDArray
from lvd._validation import InputError
from lvd.intervals import widths
from lvd.methods import LVDRegressor, SplitConformalRegressor
from lvd.metrics import Summary, marginal_coverage_rate, summary
from lvd.models import NetRegressor
from lvd.reproduction import figures
from lvd.reproduction.datasets import Dataset, load
from lvd.reproduction.demo_findings import LocalBesideSplit, findings
from lvd.reproduction.pool import Progress, silent
from lvd.tables.splits import Parts, split_indices
from lvd.tables.writing import TableWriter

LVD, SPLIT = "LVD", "split conformal"
LEVELS = (0.5, 0.9)
SEED = 0
N_BATCHES = 1000
WEIGHT_DECAY = 0.1
"""Keeps the network from learning the noise of so few rows by heart: the best of 0, 0.01, 0.03, 0.1 and 0.3 in a
5-fold cross-validation of the diabetes training rows. On the synthetic rows less would predict as well; there it
was chosen among these for the picture that is easiest to read."""


@dataclass(frozen=True, eq=False)
class Example:
    """A dataset, the numbers of its training, calibration and test rows, and the unit of its target."""

    name: str
    data: Dataset
    parts: Parts
    unit: str


@dataclass(frozen=True, eq=False)
class Outcome:
    """Both methods, fitted to an example, and what they say of its test rows; intervals by method.

    `similar_rows` is the summed similarity of the calibration rows to each test row: what they are worth to
    it, counted in rows just like it.
    """

    example: Example
    methods: dict[str, LVDRegressor | SplitConformalRegressor]
    X: Float[NDArray, "n p"]
    y: Float[NDArray, "n"]
    y_pred: Float[NDArray, "n"]
    intervals: dict[str, Float[NDArray, "n 2 l"]]
    similar_rows: Float[NDArray, "n"]

    def summary(self, method: str) -> Summary:
        """The metrics of a method at all levels."""
        return summary(self.y, self.y_pred, self.intervals[method], LEVELS)


def load_examples() -> list[Example]:
    """The paper's synthetic data, and the diabetes table that comes with scikit-learn."""
    synthetic, diabetes = load("synthetic", random_state=SEED), load("diabetes")
    train, calib, test = np.split(np.arange(len(synthetic.y)), 3)
    parts = split_indices(len(diabetes.y), SEED, sizes=(0.4, 0.4, 0.2))
    return [
        Example("synthetic", synthetic, (train, calib, test), unit=""),
        Example("diabetes", diabetes, parts, unit=" (score)"),
    ]


def fit_and_ask(example: Example, *, progress: Progress = silent) -> Outcome:
    """Train one network, put both methods around it, and ask them about the test rows."""
    X, y = example.data.X, example.data.y
    train, calib, test = example.parts
    net = NetRegressor(n_batches=N_BATCHES, weight_decay=WEIGHT_DECAY, device="cpu", random_state=SEED)
    with progress(f"{example.name}: training the network", N_BATCHES) as advance:
        net.fit(X[train], y[train], on_batch=lambda: advance(1))
    lvd = LVDRegressor(net, prefit=True, calib_size=None, device="cpu", random_state=SEED)
    split = SplitConformalRegressor(net, prefit=True, calib_size=None, device="cpu", random_state=SEED)
    with progress(f"{example.name}: calibrating the intervals", 2) as advance:
        for method in (lvd, split):
            method.fit(X[train], y[train]).conformalize(X[calib], y[calib])
            advance(1)
    methods = {LVD: lvd, SPLIT: split}
    return Outcome(
        example,
        methods,
        X=X[test],
        y=y[test],
        y_pred=net.predict(X[test]),
        intervals={name: method.predict_interval(X[test], LEVELS)[1] for name, method in methods.items()},
        similar_rows=lvd.kernels_[0](lvd.embed(X[test]), lvd.embed(X[calib])).sum(axis=1),
    )


SHOWN = LEVELS.index(0.9)
"""The level of the figures and sentences."""
BAND_LABEL = f"{LEVELS[SHOWN]:.0%} interval"
GRID_POINTS = 800


@dataclass(frozen=True, eq=False)
class Demo:
    """The outcome on each dataset, and the files written."""

    outcomes: tuple[Outcome, ...]
    files: tuple[Path, ...]


def run_demo(out: Path, *, progress: Progress = silent) -> Demo:
    """Train, calibrate, and write figures and a table of intervals into the folder `out`."""
    with _refusing_folder(out):
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()  # a folder that takes no files is refused before the work
    outcomes = tuple(fit_and_ask(example, progress=progress) for example in load_examples())
    drawings = {out / f"{outcome.example.name}.png": demo_bands(outcome) for outcome in outcomes}
    drawings[out / "width_error.png"] = demo_widths(outcomes)
    table = out / "intervals.csv"
    with _refusing_folder(out), progress("writing the figures", len(drawings)) as advance:
        for path, figure in drawings.items():
            figures.save_figure(figure, path)
            advance(1)
        with TableWriter(table) as writer:
            writer.write(interval_table(outcomes))
    return Demo(outcomes, (*drawings, table))


def demo_sentences(outcome: Outcome) -> list[str]:
    """What to see, in plain words."""
    return findings(
        LocalBesideSplit(
            confidence_level=LEVELS[SHOWN],
            X=outcome.X,
            feature_names=outcome.example.data.feature_names,
            y=outcome.y,
            y_pred=outcome.y_pred,
            local=_shown(outcome, LVD),
            constant=_shown(outcome, SPLIT),
            similar_rows=outcome.similar_rows,
        )
    )


def interval_table(outcomes: Sequence[Outcome]) -> pa.Table:
    """One line per dataset, method, level and test row; `row` counts the rows of the dataset from 0."""
    return pa.concat_tables(
        pa.table(
            {
                "dataset": [outcome.example.name] * len(outcome.y),
                "method": [method] * len(outcome.y),
                "confidence_level": [level] * len(outcome.y),
                "row": outcome.example.parts[2],
                "y": outcome.y,
                "y_pred": outcome.y_pred,
                "lower": intervals[:, 0, place],
                "upper": intervals[:, 1, place],
            }
        )
        for outcome in outcomes
        for method, intervals in outcome.intervals.items()
        for place, level in enumerate(LEVELS)
    )


def demo_bands(outcome: Outcome) -> Figure:
    """The bands of both methods: over the input when there is one, else over the rows by width of LVD."""
    return _over_input(outcome) if outcome.X.shape[1] == 1 else _over_rows(outcome)


def demo_widths(outcomes: Sequence[Outcome]) -> Figure:
    """A panel per dataset: LVD's widths against the errors, beside split conformal's constant radius."""
    return figures.width_error_figure(
        [
            figures.WidthErrorPanel(
                title=f"LVD on {outcome.example.name}",
                x_label=f"Width of the {BAND_LABEL}{outcome.example.unit}",
                y_label=f"Absolute error{outcome.example.unit}",
                errors=np.abs(outcome.y - outcome.y_pred),
                widths=widths(_shown(outcome, LVD)),
                rival=SPLIT,
                rival_radius=float(widths(_shown(outcome, SPLIT))[0]) / 2.0,
            )
            for outcome in outcomes
        ]
    )


def _over_input(outcome: Outcome) -> Figure:
    data, (_, calib, test) = outcome.example.data, outcome.example.parts
    x = data.X[:, 0]
    drawn = x[np.concatenate([calib, test])]
    margin = 0.03 * np.ptp(drawn)
    grid = np.linspace(drawn.min() - margin, drawn.max() + margin, GRID_POINTS)
    panels = []
    for name, method in outcome.methods.items():
        y_pred, intervals = method.predict_interval(grid[:, None], LEVELS[SHOWN])
        rows = (x[test], outcome.y, _shown(outcome, name))
        panels.append(figures.BandPanel(_demo_title(outcome, name), grid, y_pred, intervals[:, :, 0], *rows))
    return figures.band_figure(
        panels,
        x_label=data.feature_names[0],
        y_label=f"{data.target_names[0]}{outcome.example.unit}",
        band_label=BAND_LABEL,
        x_calib=x[calib],
    )


def _over_rows(outcome: Outcome) -> Figure:
    order = np.argsort(widths(_shown(outcome, LVD)), kind="stable")
    places = np.arange(1.0, len(order) + 1.0)
    errors = (outcome.y - outcome.y_pred)[order]
    panels = []
    for name in outcome.methods:
        around = (_shown(outcome, name) - outcome.y_pred[:, None])[order]
        rows = (places, errors, around)
        panels.append(
            figures.BandPanel(_demo_title(outcome, name), places, np.zeros_like(places), around, *rows)
        )
    return figures.band_figure(
        panels,
        x_label="Test rows, narrowest to widest LVD interval",
        y_label=f"Actual - predicted {outcome.example.data.target_names[0]}{outcome.example.unit}",
        band_label=BAND_LABEL,
    )


def _shown(outcome: Outcome, method: str) -> Float[NDArray, "n 2"]:
    return outcome.intervals[method][:, :, SHOWN]


def _demo_title(outcome: Outcome, method: str) -> str:
    coverage = marginal_coverage_rate(outcome.y, _shown(outcome, method))
    return f"{method[0].upper()}{method[1:]}: {coverage:.0%} covered at level {LEVELS[SHOWN]:.0%}"


@contextmanager
def _refusing_folder(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write to the folder {out}: {error.strerror or error}; give another one with --out"
        ) from error
