"""Methods that give intervals to rows arriving one by one, each after the labels of the previous rows."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

import lvd
from experiments.over_time.sequences import Sequence
from lvd._typing import Float, NDArray
from lvd.calibration.level_adaptation import AdaptedLevel

ALPHA = 0.1
NEWEST = 1000
"""Split conformal prediction over time calibrates on this many of the newest rows."""
BLOCK = 50
"""MAPIE needs ten models' predictions to update its errors, so it gets this many rows at a time."""


@dataclass(frozen=True)
class Course:
    """The intervals of all rows that arrived, and the processor time for each."""

    ends: Float[NDArray, "n 2"]
    seconds: float


@dataclass(frozen=True, eq=False)
class Stage:
    """A sequence with the model that all methods but MAPIE's share, trained on its first rows."""

    rows: Sequence
    model: Any

    @classmethod
    def of(cls, rows: Sequence) -> Stage:
        """Train the model."""
        first, _ = rows.starts
        return cls(rows, HistGradientBoostingRegressor(random_state=0).fit(rows.X[:first], rows.y[:first]))

    def errors(self) -> Float[NDArray, "n"]:
        """Absolute errors of all rows from the first calibration row on."""
        first, _ = self.rows.starts
        return np.abs(self.rows.y[first:] - self.model.predict(self.rows.X[first:]))


def static_split(stage: Stage) -> Course:
    """A constant width, calibrated once."""
    first, begin = stage.rows.starts
    errors = np.sort(stage.errors()[: begin - first])
    return _around(stage, np.full(len(stage.rows.y) - begin, _quantile(errors, 1.0 - ALPHA)), 0.0)


def adapted_split(stage: Stage, rule: str) -> Course:
    """The width from the newest rows, at an adaptive level."""
    errors, (first, begin) = stage.errors(), stage.rows.starts
    level, radii, begun = AdaptedLevel(ALPHA, rule, 1), [], time.process_time()
    for row in range(begin - first, len(errors)):
        newest = np.sort(errors[max(0, row - NEWEST) : row])
        rate = float(level.rates[0])
        radii.append(_quantile(newest, 1.0 - rate))
        beta = (len(newest) - np.searchsorted(newest, errors[row]) + 1) / (len(newest) + 1)
        level.take(np.array([beta]), missed=bool(errors[row] > radii[-1]))
    return _around(stage, np.array(radii), time.process_time() - begun)


def split_with_pid(stage: Stage) -> Course:
    """Conformal PID with its authors' settings: a tracker of the quantile itself, and a saturating integral."""
    errors, (first, begin) = stage.errors(), stage.rows.starts
    past = errors[: begin - first]
    tracked, owed, radii, begun = _quantile(np.sort(past), 1.0 - ALPHA), 0.0, [], time.process_time()
    n_rows, rate_window = len(errors) - len(past), 100
    saturation = 2.0 / math.pi * (math.ceil(math.log(n_rows) * 0.01) - 1.0 / math.log(n_rows))
    for row in range(len(past), len(errors)):
        count = row - len(past) + 1
        largest = float(errors[max(0, row - rate_window) : row].max())
        angle = owed * math.log(count + 1) / (saturation * (count + 1))
        radius = max(0.0, tracked + largest * math.tan(min(max(angle, -1.5), 1.5)))
        missed = float(errors[row] > radius)
        radii.append(radius)
        tracked, owed = tracked + 0.1 * largest * (missed - ALPHA), owed + missed - ALPHA
    return _around(stage, np.array(radii), time.process_time() - begun)


def static_lvd(stage: Stage) -> Course:
    """LVD, calibrated once."""
    _, begin = stage.rows.starts
    regressor, begun = _calibrated(stage), time.process_time()
    ends = regressor.predict_interval(stage.rows.X[begin:])[1][..., 0]
    return Course(ends, (time.process_time() - begun) / len(ends))


def online_lvd(stage: Stage, **choices: Any) -> Course:
    """LVD over time, one row at a time."""
    _, begin = stage.rows.starts
    X, y = stage.rows.X[begin:], stage.rows.y[begin:]
    online = lvd.OnlineIntervals(_calibrated(stage), **choices)
    ends, begun = np.empty((len(y), 2)), time.process_time()
    for row in range(len(y)):
        found = online.predict_interval(X[row : row + 1])
        ends[row] = found.intervals[0, :, 0]
        online.observe(found.keys, y[row : row + 1])
    return Course(ends, (time.process_time() - begun) / len(y))


def mapie(stage: Stage, method: str) -> Course:
    """MAPIE's TimeSeriesRegressor with the settings of its own examples, trained on all rows before the first.

    The level of ACI adapts row by row, and the intervals are those used to adapt it; errors are updated by block.
    """
    from mapie.regression import TimeSeriesRegressor
    from mapie.subsample import BlockBootstrap

    made: list[Float[NDArray, "n 2"]] = []

    class Recording(TimeSeriesRegressor):
        def predict(self, X: Any, **asked: Any) -> Any:
            found = super().predict(X, **asked)
            made.append(found[1][..., 0])
            return found

    _, begin = stage.rows.starts
    X, y = stage.rows.X, stage.rows.y
    blocks = BlockBootstrap(n_resamplings=10, n_blocks=10, overlapping=False, random_state=0)
    model = Recording(clone(stage.model), method=method, cv=blocks, agg_function="mean", n_jobs=1)
    model.fit(X[:begin], y[:begin])
    made.clear()
    begun = time.process_time()
    for start in range(begin, len(y), BLOCK):
        some = slice(start, start + BLOCK)
        if method == "aci":
            model.adapt_conformal_inference(
                X[some], y[some], 0.05, ensemble=True, confidence_level=1.0 - ALPHA
            )
        else:
            model.predict(X[some], confidence_level=1.0 - ALPHA, ensemble=True, allow_infinite_bounds=True)
        model.update(X[some], y[some], ensemble=True)
    return Course(np.concatenate(made), (time.process_time() - begun) / (len(y) - begin))


RIVALS: dict[str, tuple[str, Callable[[Stage], Course]]] = {
    "lvd-online": ("**LVD over time**", online_lvd),
    "lvd-online-aci": ("LVD over time, ACI", partial(online_lvd, level="aci")),
    "lvd-online-pid": ("LVD over time, PID", partial(online_lvd, level="pid")),
    "lvd": ("LVD, calibrated once", static_lvd),
    "split": ("split, calibrated once", static_split),
    "split-dtaci": ("split, DtACI", partial(adapted_split, rule="dtaci")),
    "split-aci": ("split, ACI", partial(adapted_split, rule="aci")),
    "split-pid": ("split, conformal PID", split_with_pid),
    "mapie-aci": ("MAPIE, ACI", partial(mapie, method="aci")),
    "mapie-enbpi": ("MAPIE, EnbPI", partial(mapie, method="enbpi")),
}
"""By name, the title on the page and what the method does."""


def run_rival(stage: Stage, name: str) -> Course:
    """The course of a rival, ignoring its library's warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RIVALS[name][1](stage)


def _calibrated(stage: Stage) -> lvd.LVDRegressor:
    first, begin = stage.rows.starts
    regressor = lvd.LVDRegressor(clone(stage.model), calib_size=None, random_state=0)
    regressor.fit(stage.rows.X[:first], stage.rows.y[:first])
    return regressor.conformalize(stage.rows.X[first:begin], stage.rows.y[first:begin])


def _around(stage: Stage, radii: Float[NDArray, "n"], seconds: float) -> Course:
    _, begin = stage.rows.starts
    y_pred = stage.model.predict(stage.rows.X[begin:])
    return Course(np.stack([y_pred - radii, y_pred + radii], axis=1), seconds / len(radii))


def _quantile(rising: Float[NDArray, "m"], level: float) -> float:
    """The conformal quantile of sorted scores; infinite if there are too few."""
    rank = math.ceil((len(rising) + 1) * level)
    return math.inf if rank > len(rising) else float(rising[max(0, rank - 1)])
