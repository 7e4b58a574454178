"""What LVD adds to networks on molecules: ``python -m benchmarks.molecule_overhead --table qm8``.

The networks of lvd's default, for all tasks together, are trained for a few epochs, from which the time of a
full training is extrapolated; LVD with default settings learns all tasks from their errors. Kernels are also
measured alone: the paper reports below 5% of its single network's training for them, and 0.65 s of extra
inference for 1,000 molecules.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.base import clone

import lvd
from benchmarks.timing import timed
from lvd._typing import NDArray
from lvd._validation import resolve_device
from lvd.data import Dataset
from lvd.methods.conformal import fit_kernels
from lvd.models.model import Evaluation, Model
from lvd.molecules import Recipe, read_molecules
from lvd.scores import AbsoluteResidual, EvaluatedRows, TrainingRows
from lvd.tables.splits import split_indices

EPOCHS, WHOLE = 3, Recipe().n_epochs
LEVEL = 0.9


def seconds(work: Callable[[], object], *, warm: bool = True) -> float:
    """The seconds of a call; with `warm`, of the second one, as the first may compile."""
    if warm:
        work()
    return timed(work, resolve_device("auto").type)[0]


class Known(Model):
    """The networks with precomputed answers, so that only LVD's own cost is measured."""

    def __init__(self, answers: Evaluation, held_out_rows: NDArray) -> None:
        self.answers, self.held_out = answers, held_out_rows

    @property
    def rows_held_out(self) -> NDArray:
        return self.held_out

    def __sklearn_clone__(self) -> Known:
        return self

    def get_params(self, deep: bool = True) -> dict[str, object]:
        return {}

    def check(self, X: NDArray) -> NDArray:
        return X

    def fit(self, X: NDArray, y: NDArray) -> Known:
        return self

    def evaluate(self, X: NDArray) -> Evaluation:
        assert self.answers.spread is not None
        return Evaluation(self.answers.y_pred[X], self.answers.embeddings[X], spread=self.answers.spread[X])


def measure(
    dataset: Dataset, n_rows: int | None, n_tasks: int | None = None, seed: int = 0
) -> dict[str, float]:
    """All figures, on the given number of molecules, in random order, and of tasks, or on all."""
    chosen = np.random.default_rng(seed).permutation(len(dataset.y))[:n_rows]
    molecules, y = read_molecules(dataset.X[chosen]), dataset.y[chosen, :n_tasks]
    train, calib, test = split_indices(len(y), seed)
    networks = lvd.ChempropEstimator(n_epochs=EPOCHS, warmup_epochs=1, progress=False, random_state=seed)
    training = seconds(lambda: networks.fit(molecules[train], y[train]), warm=torch.cuda.is_available())
    outputs = networks.evaluate(molecules)
    known = Known(outputs, networks.rows_held_out)
    rows = EvaluatedRows(train, known.evaluate(train))
    told = TrainingRows(rows, y[train], known, device="auto", seed=seed)

    regressor = lvd.LVDRegressor(known, calib_size=None, random_state=seed)
    learning = seconds(lambda: regressor.fit(train, y[train]), warm=False)

    def kernels() -> None:
        fit_kernels(clone(regressor.kernels_[0]), told, "errors", AbsoluteResidual())

    calibration = seconds(lambda: regressor.conformalize(calib, y[calib]))
    per_thousand = 1000.0 / len(test)
    return {
        "molecules": len(y),
        "tasks": y.shape[1],
        "networks": networks.n_members,
        f"networks: seconds of training ({WHOLE} epochs, from {EPOCHS})": WHOLE / EPOCHS * training,
        "kernels of all tasks: seconds of training": seconds(kernels),
        "kernels and known molecules of all tasks: seconds of training": learning,
        "calibration of all tasks: seconds": calibration,
        "networks: seconds per 1,000 molecules": per_thousand
        * seconds(lambda: networks.evaluate(molecules[test])),
        "LVD, all tasks: extra seconds per 1,000 molecules": per_thousand
        * seconds(lambda: regressor.predict_interval(test, LEVEL)),
    }


def shares(figures: dict[str, float]) -> dict[str, str]:
    """What LVD adds, relative to the networks' own time."""
    training = next(
        value for name, value in figures.items() if name.startswith("networks: seconds of training")
    )
    names = ("kernels of all tasks", "kernels and known molecules of all tasks")
    found = {
        f"{name}, as a share of the networks' training": figures[f"{name}: seconds of training"] / training
        for name in names
    }
    extra, own = (figures[name] for name in list(figures)[:-3:-1])
    found["LVD's extra time, as a share of the networks', per molecule"] = extra / own
    return {name: f"{100 * value:.1f}%" for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--table", default="qm8")
    parser.add_argument("--rows", type=int, help="so many molecules only")
    parser.add_argument("--tasks", type=int, help="so many tasks only")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", lvd.CalibrationWarning)
    figures = measure(
        lvd.data.load_dataset(options.table, data_dir=options.data_dir), options.rows, options.tasks
    )
    device = resolve_device("auto")
    name = (
        torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    )
    rows = [
        ("device", name),
        ("table", options.table),
        *(
            (key, f"{value:,}" if isinstance(value, int) else f"{value:.4g}")
            for key, value in figures.items()
        ),
        *shares(figures).items(),
    ]
    for key, value in rows:
        print(f"{key}: {value}")
    if options.out:
        with options.out.open("w", newline="") as file:
            csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main()
