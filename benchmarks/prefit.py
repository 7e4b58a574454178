"""A trained LightGBM model: LVD around it, and ten lines of split conformal prediction over a model of its errors.

``python -m benchmarks.prefit --data-dir FOLDER`` prints interval scores at 90% (infinite intervals count as the
range of the calibration rows), relative to one width for all rows, and LVD's relative to those of ten lines.

Ten lines learn the errors from half of the calibration rows, as someone does who may not retrain the model;
"with held-out errors" retrains it on folds of the training rows, which LVD with a trained model does not.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from lightgbm import LGBMRegressor
from sklearn.model_selection import cross_val_predict, train_test_split

import lvd
from lvd.calibration import GlobalConformal
from lvd.intervals import from_radius
from lvd.metrics import winkler_score
from lvd.metrics.interval_metrics import widened_range

TABLES, LEVEL, MOST_ROWS = ("concrete", "kin8nm", "bike"), 0.9, 4000
MODEL = {"n_estimators": 200, "num_leaves": 15, "learning_rate": 0.05, "verbosity": -1, "n_jobs": 1}


def conformal(errors: np.ndarray, units: np.ndarray, y_pred: np.ndarray, new_units: np.ndarray) -> np.ndarray:
    """Split conformal prediction of errors in these units."""
    radius = GlobalConformal().conformalize(errors, errors / units).radius(y_pred, [LEVEL])[:, 0]
    return from_radius(y_pred, radius * new_units)


def ten_lines(model: LGBMRegressor, learned: tuple, calib: tuple, new: np.ndarray) -> np.ndarray:
    """Split conformal prediction over a boosted model of absolute errors; `learned` are its rows and errors."""
    X, errors = learned
    size = LGBMRegressor(**MODEL | {"n_estimators": 60}, random_state=0).fit(X, errors)
    least = 0.05 * np.median(errors)
    scale = [np.maximum(size.predict(rows), least) for rows in (calib[0], new)]
    return conformal(np.abs(calib[1] - model.predict(calib[0])), scale[0], model.predict(new), scale[1])


def scores(X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, float]:
    """The interval score of each method on a quarter of the rows, relative to one width's."""
    rows = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
    X_rest, X_new, y_rest, y_new = train_test_split(X[rows], y[rows], test_size=0.25, random_state=seed)
    train, calib, y_train, y_calib = train_test_split(X_rest, y_rest, test_size=0.3, random_state=seed)
    model = LGBMRegressor(**MODEL, random_state=seed).fit(train, y_train)
    errors, half = np.abs(y_calib - model.predict(calib)), len(calib) // 2
    held_out = np.abs(y_train - cross_val_predict(LGBMRegressor(**MODEL), train, y_train, cv=5))
    ones = np.ones(len(calib)), np.ones(len(X_new))
    reg = lvd.LVDRegressor(model, prefit=True, device="cpu", random_state=seed).fit(train, y_train)
    found = {
        "one width": conformal(errors, ones[0], model.predict(X_new), ones[1]),
        "ten lines": ten_lines(model, (calib[:half], errors[:half]), (calib[half:], y_calib[half:]), X_new),
        "ten lines, held-out errors": ten_lines(model, (train, held_out), (calib, y_calib), X_new),
        "LVD": reg.conformalize(calib, y_calib).predict_interval(X_new, LEVEL)[1][:, :, 0],
    }
    trained = lvd.LVDRegressor(LGBMRegressor(**MODEL), calib_size=None, device="cpu", random_state=seed)
    trained.fit(train, y_train).conformalize(calib, y_calib)
    found["LVD, trained here"] = trained.predict_interval(X_new, LEVEL)[1][:, :, 0]
    y_range = widened_range(y_calib)
    each = {name: winkler_score(y_new, one, LEVEL, y_range=y_range) for name, one in found.items()}
    return {name: score / each["one width"] for name, score in each.items()}


def main() -> None:
    """Print a line per table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in TABLES:
        data = lvd.data.load_dataset(name, data_dir=arguments.data_dir)
        each = [scores(data.X, data.y, seed) for seed in range(arguments.seeds)]
        mean = {method: float(np.exp(np.mean([np.log(one[method]) for one in each]))) for method in each[0]}
        told = "  ".join(f"{method} {score:.3f}" for method, score in mean.items())
        print(f"{name}: {told}  LVD / ten lines {mean['LVD'] / mean['ten lines']:.3f}", flush=True)


if __name__ == "__main__":
    main()
