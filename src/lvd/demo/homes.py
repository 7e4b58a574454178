"""The demo: homes in six towns, one of them noisy, as seen by LVD and split conformal."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from lvd._files import refusing
from lvd._progress import Progress, silent
from lvd._typing import Bool, Float, NDArray
from lvd.demo.figures import draw_band, draw_rows, panels_of, save_figure
from lvd.intervals import covered, widths
from lvd.methods import LVDRegressor, SplitConformalRegressor
from lvd.models import NetRegressor
from lvd.tables.writing import TableWriter

LVD, SPLIT, PAPER = "LVD", "split conformal", "LVD as in the paper"
LEVEL = 0.9
SEED = 0
N_BATCHES = 1000
SIZES = {"train": 2400, "calib": 1200, "test": 1200, "mansions": 120}
TOWNS = ("Ashby", "Barton", "Clifton", "Dunmore", "Easton", "Fairford")
NOISY, NOISE_RATIO = "Easton", 6.5
AREAS = {"homes": (40.0, 200.0), "mansions": (240.0, 300.0)}
MANSIONS = "mansions"
SHOWN_ROWS = 40
"""How many homes per place the figure shows."""


@dataclass(frozen=True, eq=False)
class Homes:
    """Area, age and town (one column each) of homes, their prices, and the name of their town."""

    X: Float[NDArray, "n p"]
    y: Float[NDArray, "n"]
    place: NDArray


def make_homes(n_rows: int, rng: np.random.Generator, kind: str = "homes") -> Homes:
    """Make homes whose prices scatter more in one town, although its mean price is like that of the others."""
    town = rng.integers(len(TOWNS), size=n_rows)
    area, age = rng.uniform(*AREAS[kind], size=n_rows), rng.uniform(0.0, 100.0, size=n_rows)
    noise = 6.0 * np.where(town == TOWNS.index(NOISY), NOISE_RATIO, 1.0)
    price = 60.0 + 2.0 * area - 0.8 * age + 20.0 * np.sin(area / 25.0) + noise * rng.normal(size=n_rows)
    place = np.array(TOWNS, object)[town] if kind == "homes" else np.full(n_rows, MANSIONS, object)
    return Homes(np.column_stack([area, age, np.eye(len(TOWNS))[town]]), price, place)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What methods around one network predict for unseen homes; intervals and `known` by method."""

    homes: Homes
    y_pred: Float[NDArray, "n"]
    intervals: dict[str, Float[NDArray, "n 2"]]
    known: dict[str, Bool[NDArray, "n"]]
    why: str
    """Why the interval of a home in the noisy town is so wide."""

    def among(self, rows: Bool[NDArray, "n"], method: str) -> Among:
        """A method's results on some of the homes; the median width includes infinite intervals."""
        intervals = self.intervals[method][rows]
        return Among(
            int(rows.sum()),
            float(covered(self.homes.y[rows], intervals).mean()),
            float(np.median(widths(intervals))),
            int((~self.known[method][rows]).sum()),
        )

    def places(self) -> dict[str, Bool[NDArray, "n"]]:
        """The groups of homes that are compared, by name."""
        place = self.homes.place
        return {
            f"in {NOISY}": place == NOISY,
            "in the other towns": (place != NOISY) & (place != MANSIONS),
            MANSIONS: place == MANSIONS,
        }


@dataclass(frozen=True)
class Among:
    """Counts and rates of a method on some homes."""

    n_rows: int
    coverage: float
    median_width: float
    n_unknown: int


def fit_and_ask(names: tuple[str, ...] = (LVD, SPLIT), *, progress: Progress = silent) -> Outcome:
    """Train one network, fit the methods around it, and predict the test rows."""
    rng = np.random.default_rng(SEED)
    train, calib, test = (make_homes(SIZES[part], rng) for part in ("train", "calib", "test"))
    mansions = make_homes(SIZES[MANSIONS], rng, MANSIONS)
    homes = Homes(*map(np.concatenate, zip(vars(test).values(), vars(mansions).values(), strict=True)))
    net = NetRegressor(n_batches=N_BATCHES, device="cpu", random_state=SEED)
    with progress("training the network", N_BATCHES) as advance:
        net.fit(train.X, train.y, on_batch=lambda: advance(1))
    around: dict[str, Any] = {"prefit": True, "calib_size": None, "confidence_level": LEVEL}
    around |= {"device": "cpu", "random_state": SEED}
    methods: dict[str, Any] = {
        LVD: LVDRegressor(net, **around),
        SPLIT: SplitConformalRegressor(net, **around),
        PAPER: LVDRegressor(net, preset="paper", **around),
    }
    intervals, known = {}, {name: np.ones(len(homes.y), bool) for name in names}
    with progress("calibrating the intervals", len(names)) as advance:
        for name in names:
            method = methods[name].fit(train.X, train.y).conformalize(calib.X, calib.y)
            intervals[name] = method.predict_interval(homes.X)[1][:, :, 0]
            if name != SPLIT:
                known[name] = method.predict_with_evidence(homes.X).known
            advance(1)
    noisy = homes.X[homes.place == NOISY]
    return Outcome(homes, net.predict(homes.X), intervals, known, methods[LVD].explain(noisy[:1])[0].sentence)


def run_demo(out: Path, *, progress: Progress = silent) -> tuple[Outcome, tuple[Path, ...]]:
    """Train, calibrate, and write a figure and a table of intervals to the folder `out`."""
    picture, table = out / "homes.png", out / "intervals.csv"
    with refusing(out):
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()  # fail before the work if the folder is not writable
    outcome = fit_and_ask(progress=progress)
    with refusing(out):
        save_figure(homes_figure(outcome), picture)
        with TableWriter(table) as writer:
            writer.write(interval_table(outcome))
    return outcome, (picture, table)


def demo_lines(outcome: Outcome) -> list[str]:
    """The results in plain words; every figure is computed."""
    noisy, others, mansions = outcome.places().values()
    in_town, elsewhere = (outcome.among(rows, LVD) for rows in (noisy, others))
    split = outcome.among(noisy | others, SPLIT)
    return [
        f"Split conformal gives every home one width, {split.median_width:.3g}, and covers {split.coverage:.0%} of "
        f"all test homes in the towns, but {outcome.among(noisy, SPLIT).coverage:.0%} of those in {NOISY}.",
        f"LVD finds the town by itself: {in_town.median_width:.3g} there, covering {in_town.coverage:.0%}, and "
        f"{elsewhere.median_width:.3g} elsewhere, covering {elsewhere.coverage:.0%}.",
        f"It calls {outcome.among(mansions, LVD).n_unknown} of {int(mansions.sum())} mansions unknown, as no "
        f"training home had more than {AREAS['homes'][1]:.0f} m²; of them split conformal covers "
        f"{outcome.among(mansions, SPLIT).coverage:.0%}.",
        f"Why so wide in {NOISY}? {outcome.why}",
    ]


def interval_table(outcome: Outcome) -> pa.Table:
    """One row per method and test home."""
    return pa.concat_tables(
        pa.table(
            {
                "method": [method] * len(outcome.y_pred),
                "home": np.arange(len(outcome.y_pred)),
                "place": outcome.homes.place.astype(str),
                "area": outcome.homes.X[:, 0],
                "price": outcome.homes.y,
                "predicted": outcome.y_pred,
                "lower": intervals[:, 0],
                "upper": intervals[:, 1],
                "known": outcome.known[method],
            }
        )
        for method, intervals in outcome.intervals.items()
    )


def homes_figure(outcome: Outcome) -> Figure:
    """A panel per method: errors and intervals town by town, with the coverage of each town above it."""
    places = (*TOWNS, MANSIONS)
    order = np.concatenate([np.flatnonzero(outcome.homes.place == one)[:SHOWN_ROWS] for one in places])
    errors = (outcome.homes.y - outcome.y_pred)[order]
    around = {name: (ends - outcome.y_pred[:, None])[order] for name, ends in outcome.intervals.items()}
    ends = np.concatenate([errors, *(values.ravel() for values in around.values())])
    edge = 1.12 * float(np.abs(ends[np.isfinite(ends)]).max())
    figure, all_axes = panels_of(len(around), shared=True)
    figure.set_size_inches(6.4 * len(around), 4.6)
    x = np.arange(len(order)) + 0.5
    for axes, (name, ends) in zip(all_axes, around.items(), strict=True):
        axes.set_ylim(-edge, 1.12 * edge)
        draw_band(axes, x, ends, label=f"{LEVEL:.0%} interval", infinite_label="infinite")
        draw_rows(axes, x, errors, covered(errors, ends))
        axes.set_title(f"{name[0].upper()}{name[1:]}")
        axes.set_xticks(SHOWN_ROWS * (np.arange(len(places)) + 0.5), places)
        axes.tick_params(axis="x", length=0)
        for number, place in enumerate(places):
            axes.axvline(SHOWN_ROWS * number, color="white", linewidth=2.0, zorder=2)
            coverage = outcome.among(outcome.homes.place == place, name).coverage
            style: dict[str, Any] = {"weight": "bold", "color": "#D55E00"} if coverage < LEVEL - 0.1 else {}
            axes.text(SHOWN_ROWS * (number + 0.5), edge, f"{coverage:.0%}", ha="center", **style)
        handles, labels = axes.get_legend_handles_labels()
        names = [label.split(" (")[0] for label in labels]
        below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.08), "ncols": 4}
        axes.legend(handles, names, frameon=False, fontsize="small", **below)
    figure.supylabel("price - predicted price", fontsize="medium")
    figure.suptitle(
        f"Coverage at level {LEVEL:.0%}, town by town: prices scatter {NOISE_RATIO} times as much in {NOISY}, "
        "and no mansion was in the training rows",
        fontsize="medium",
    )
    return figure
