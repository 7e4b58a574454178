"""The model compared with rival methods on the same rows.

Split conformal needs only the errors of the calibration rows, which a model keeps. The others are fitted again,
on the training and calibration rows of the table that the model was fitted on.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lvd import metrics
from lvd._typing import Float, NDArray
from lvd._validation import InputError, Parameter, check_choice, to_numpy
from lvd.intervals import covered
from lvd.methods import ALL_METHODS, CalibrationWarning, IntervalRegressor, LVDRegressor
from lvd.methods.conformal import ConformalMethod
from lvd.page.evaluation import PROMISED, Evaluated
from lvd.tables.reports import split_intervals
from lvd.tables.table_encoder import labelled_rows


def _rival_label(method: type[IntervalRegressor]) -> str:
    name = method.__name__.removesuffix("Regressor").removesuffix("Conformal")
    return name.replace("ConformalizedQuantile", "CQR")


RIVALS: dict[str, type[IntervalRegressor]] = {
    _rival_label(method).lower(): method for method in ALL_METHODS if method is not LVDRegressor
}
"""All other methods by name in lower case."""


@dataclass(frozen=True, eq=False)
class Method:
    """A method's intervals at all levels of the page, their guarantee, and how they were made."""

    name: str
    promise: str
    how: str
    all_intervals: Float[NDArray, "n 2 l"]


def check_rivals(names: Sequence[str], fitted_on: pa.Table | None) -> tuple[str, ...]:
    """The names in lower case, each once; all but split need the table of the fit."""
    known = tuple(RIVALS)
    rivals = tuple(dict.fromkeys(check_choice(name.strip().lower(), "compare", known) for name in names))
    if fitted_on is None and (refit := [name for name in rivals if name != "split"]):
        raise InputError(
            *(Parameter("compare"), " must be 'split' where ", Parameter("fitted_on", named=True)),
            f" is not given, got {refit[0]!r}, which is fitted again on that table",
        )
    return rivals


def make_methods(
    names: Sequence[str], evaluated: Evaluated, fitted_on: pa.Table | None = None
) -> list[Method]:
    """The method's own intervals, then those of the named rivals, at all levels of the page."""
    told = evaluated.described
    methods = [Method(told.name, told.promise, told.how, evaluated.all_intervals)]
    for name in names:
        if name == "split":
            intervals = split_intervals(evaluated.judged, evaluated.levels)
            promise = PROMISED["none" if told.n_calib is None else "marginal"]
            label = "One width" if told.n_calib is None else "Split"
            methods.append(Method(label, promise, f"one width for all rows, {told.one_width}", intervals))
        else:
            methods.append(_fit_rival(RIVALS[name], evaluated, fitted_on))
    return methods


def _fit_rival(rival: type[IntervalRegressor], evaluated: Evaluated, fitted_on: pa.Table) -> Method:
    """Uses the same network if the method and the targets allow it; a method without a calibration step also
    learns from the calibration rows.
    """
    model, place = evaluated.model, evaluated.place
    assert model is not None  # rivals are fitted only next to models
    if model.kept is not None and model.kept.n_added:
        raise InputError(
            *(Parameter("compare"), " must be 'split' for a model that was updated: "),
            *(Parameter("fitted_on", named=True), " lacks the new rows"),
        )
    own, usable = model.regressor, model.encoder.usable(fitted_on)
    usable &= labelled_rows(fitted_on, model.encoder.targets)
    calib, test = model.calibration_rows - 1, model.test_rows - 1
    train = np.setdiff1d(np.flatnonzero(usable), [*calib, *test])

    def read(rows: NDArray) -> tuple[Any, Float[NDArray, "k"]]:
        part = fitted_on.take(rows)
        return gapless(model.inputs(part)), model.encoder.target(part).reshape(len(rows), -1)[:, place]

    settings = {
        "confidence_level": evaluated.levels.tolist(),
        "device": own.device,
        "random_state": own.random_state,
    }
    fresh = rival(**{name: value for name, value in settings.items() if name in rival().get_params()})
    conformal, shared = isinstance(fresh, ConformalMethod), False
    estimator = None if isinstance(own.estimator, str) else own.estimator  # its own model if LVD's has a name
    if conformal and fresh.post_hoc:
        shared = (
            own.n_targets_ == 1 and not own.is_crossed
        )  # a model trained on all rows leaves none to calibrate
        fresh.set_params(estimator=own.model_ if shared else estimator, prefit=shared)
    elif not model.encoder.feature_names:
        fresh.set_params(estimator=estimator)
    gapless = (lambda X: X) if shared else model.encoder.filled
    with warnings.catch_warnings():
        # The page itself shows at which levels a method's intervals are infinite.
        warnings.simplefilter("ignore", CalibrationWarning)
        if conformal and not own.is_crossed:
            fresh.set_params(calib_size=None).fit(*read(train)).conformalize(*read(calib))
        else:
            fresh.fit(*read(np.concatenate([train, calib])))
    intervals = to_numpy(fresh.predict_interval(gapless(evaluated.X), evaluated.levels)[1])
    return Method(
        _rival_label(rival),
        PROMISED.get(fresh.guarantee, PROMISED["marginal"]),
        "around the same network" if shared else "with networks of its own, trained on the same rows",
        np.clip(intervals, *model.y_range),
    )


@dataclass(frozen=True, eq=False)
class MethodFigures(Method):
    """A method and its results.

    `common_width` is over the rows where all methods are finite, `interval_score` over all rows, where an infinite
    interval counts as the range of y.
    """

    coverage: float
    lower: float
    upper: float
    tail_coverage: float
    finite: float
    width: float
    common_width: float
    interval_score: float
    auroc: float


def compare_methods(methods: Sequence[Method], evaluated: Evaluated) -> tuple[tuple[MethodFigures, ...], int]:
    """The figures of each method at the page's level, over all rows, and the number of rows on which all are
    finite."""
    intervals = [method.all_intervals[:, :, evaluated.at_level] for method in methods]
    common, n_distinct = metrics.finite_rows(*intervals), len(evaluated.judged.distinct)
    figures = []
    for method, one in zip(methods, intervals, strict=True):
        hits = covered(evaluated.y, one)
        lower, upper = metrics.binomial_band(hits.sum() * n_distinct / len(hits), n_distinct)
        figures.append(
            MethodFigures(
                **vars(method),
                coverage=float(hits.mean()),
                lower=float(lower),
                upper=float(upper),
                tail_coverage=metrics.tail_coverage_rate(evaluated.y, one),
                finite=metrics.finite_fraction(one),
                width=metrics.mean_finite_width(one),
                common_width=metrics.mean_finite_width(one[common]) if common.any() else float("nan"),
                interval_score=metrics.winkler_score(
                    evaluated.y, one, evaluated.confidence_level, y_range=evaluated.judged.scored_range
                ),
                auroc=metrics.residual_auroc(evaluated.y, evaluated.y_pred, one),
            )
        )
    return tuple(figures), int(common.sum())
