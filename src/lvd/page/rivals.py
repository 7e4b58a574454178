"""Rival methods on the same rows as the model.

Split conformal needs no more than the errors of the calibration rows, which a model keeps. The others are fitted anew, on
the training and calibration rows of the table that the model was fitted on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lvd._typing import Float, NDArray
from lvd._validation import InputError, check_choice, to_numpy
from lvd.conformal import GlobalConformal
from lvd.intervals import clip, from_radius
from lvd.methods import ALL_METHODS, IntervalRegressor, LVDRegressor
from lvd.methods.conformal import ConformalBase
from lvd.page.evaluation import Evaluated
from lvd.tables.splits import split_indices
from lvd.tables.table_model import TableModel

RIVALS: dict[str, type[IntervalRegressor]] = {
    regressor.__name__.removesuffix("Regressor").removesuffix("Conformal").lower(): regressor
    for regressor in ALL_METHODS
    if regressor is not LVDRegressor
}
"""Every other method by the name that ``--compare`` takes."""
PROMISES = {"local": "near each row", "marginal": "on average", "marginal 1-2a": "on average, twice the misses"}


@dataclass(frozen=True, eq=False)
class Method:
    """A method's intervals at all levels of the page, what they promise and how they were made."""

    name: str
    promise: str
    how: str
    all_intervals: Float[NDArray, "n 2 l"]


def parse_rivals(text: str | None) -> tuple[str, ...]:
    """The names in a list separated by commas."""
    names = [] if text is None else [name.strip().lower() for name in text.split(",")]
    return tuple(dict.fromkeys(check_choice(name, "compare", tuple(RIVALS)) for name in names))


def local_method(evaluated: Evaluated) -> Method:
    """The model's own intervals."""
    return Method(
        "LVD",
        "near each row",
        "the calibration errors, weighted by their similarity to the row",
        evaluated.all_intervals,
    )


def make_rivals(
    names: Sequence[str], evaluated: Evaluated, model: TableModel, place: int, fitted_on: pa.Table | None
) -> list[Method]:
    """The named rivals at all levels of the page, for target number `place` of the model."""
    return [
        split(evaluated, model.regressor.residuals_calib_[:, place])
        if name == "split"
        else refitted(name, evaluated, model, place, fitted_on)
        for name in names
    ]


def split(evaluated: Evaluated, residuals: Float[NDArray, "m"]) -> Method:
    """Split conformal: one radius for all rows, the finite-sample quantile of the calibration errors."""
    conformal = GlobalConformal().conformalize(residuals, np.abs(residuals))
    intervals = from_radius(evaluated.y_pred, conformal.radius(evaluated.y_pred, evaluated.levels))
    return Method(
        "Split",
        PROMISES["marginal"],
        "one width for all rows, from the same calibration errors",
        clip(intervals, *evaluated.y_range),
    )


def refitted(
    name: str, evaluated: Evaluated, model: TableModel, place: int, fitted_on: pa.Table | None
) -> Method:
    """A method of lvd around the same model where it is post hoc, fitted to the table of the model."""
    if fitted_on is None:
        raise InputError(
            f"compare={name} is fitted anew, on the rows of the table that lvd fit was given: name it with --fitted-on"
        )
    if fitted_on.num_rows != model.n_rows:
        raise InputError(
            f"compare={name} needs the table that lvd fit was given, of {model.n_rows} rows; --fitted-on has "
            f"{fitted_on.num_rows}"
        )
    train, calib, _ = split_indices(model.n_rows, model.seed)
    X, y = model.inputs(fitted_on), model.encoder.target(fitted_on).reshape(model.n_rows, -1)[:, place]
    fitted = fit_rival(RIVALS[name], model.regressor, evaluated.levels, X, y, train, calib)
    intervals = to_numpy(fitted.predict_interval(evaluated.X, evaluated.levels)[1])
    return Method(
        RIVALS[name].__name__.removesuffix("Regressor"),
        PROMISES.get(fitted.guarantee, "nothing"),
        "around the same model" if fitted.post_hoc else "with networks of its own, trained on the same rows",
        clip(intervals, *evaluated.y_range),
    )


def fit_rival(
    regressor: type[IntervalRegressor],
    own: LVDRegressor,
    levels: Float[NDArray, "l"],
    X: NDArray,
    y: Float[NDArray, "n"],
    train: NDArray,
    calib: NDArray,
) -> IntervalRegressor:
    """The method, fitted; one without a calibration step learns from the calibration rows too."""
    settings = {"confidence_level": levels.tolist(), "device": own.device, "random_state": own.random_state}
    fresh = regressor(**{name: value for name, value in settings.items() if name in regressor().get_params()})
    if not isinstance(fresh, ConformalBase):
        both = np.concatenate([train, calib])
        return fresh.fit(X[both], y[both])
    if fresh.post_hoc and own.n_targets_ == 1:
        fresh.set_params(estimator=own.model_, prefit=True)
    return fresh.set_params(calib_size=None).fit(X[train], y[train]).conformalize(X[calib], y[calib])
