"""The methods of the paper's tables, under their names there: public classes that share networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from experiments.paper.networks import HELD_OUT_MADSPLIT
from experiments.paper.stages import Split, StoredModel, TableSplit, TaskSplit
from lvd import (
    ConformalizedQuantileRegressor,
    LVDRegressor,
    MADSplitRegressor,
    SplitConformalRegressor,
    methods,
)
from lvd._typing import Float, Int, NDArray
from lvd.methods import ALL_METHODS, IntervalRegressor
from lvd.methods.conformal import ConformalMethod
from lvd.methods.mixture import normal_intervals
from lvd.scores import AbsoluteResidual, NormalizedResidual

FOLDS = 10
"""Folds of Jackknife+, which otherwise would train as many networks as there are rows."""


MethodOutput = tuple[Float[NDArray, "n *l"], Float[NDArray, "n 2 l"]]
"""Point predictions, of which CQR has one per level, and intervals of the test rows."""
Method = Callable[[Any, NDArray], MethodOutput]
"""Maps a split, of the type the method works on, and levels to the test rows' intervals."""


def lvd_variant(
    split: Split, levels: Float[NDArray, "l"], *, predictor: str, smoothness: bool, normalized: bool
) -> MethodOutput:
    """One of the eight variants of LVD.

    As in the paper, a second network learns the first network's errors, also around the kernel regression.
    """
    kernel = split.kernel(smoothness=smoothness)
    estimator = split.kernel_regressor(kernel) if predictor == "KR" else split.estimator
    score = NormalizedResidual(split.error_estimator) if normalized else AbsoluteResidual()
    regressor = LVDRegressor(estimator, preset="paper", conformity_score=score, kernel=kernel, prefit=True)
    return calibrated(regressor, split, levels)


def split_conformal(split: Split, levels: Float[NDArray, "l"]) -> MethodOutput:
    """Split conformal prediction."""
    return calibrated(SplitConformalRegressor(split.estimator, prefit=True), split, levels)


def madsplit(split: Split, levels: Float[NDArray, "l"]) -> MethodOutput:
    """Split conformal prediction on errors divided by the second network's prediction of them."""
    regressor = MADSplitRegressor(
        split.estimator, error_estimator=split.error_estimator, quantile=split.protocol.quantile, prefit=True
    )
    return calibrated(regressor, split, levels)


def cqr(split: Split, levels: Float[NDArray, "l"]) -> MethodOutput:
    """Conformalized quantile regression: one network for each level."""

    def make(level: float) -> ConformalMethod:
        network, trained = split.quantile_estimator(level)
        quantile = split.protocol.quantile
        return ConformalizedQuantileRegressor(
            network, quantile=quantile, confidence_level=level, prefit=trained
        )

    return by_level(make, split, levels)


def uncalibrated(
    split: TableSplit, levels: Float[NDArray, "l"], *, regressor: type[IntervalRegressor], **settings: Any
) -> MethodOutput:
    """A method without a calibration step, as its own paper defines it."""
    parts = [split.train] if split.protocol.uncalibrated_rows == "train" else [split.train, split.calib]
    rows = np.concatenate(parts)
    fitted = regressor(random_state=split.seed, **settings).fit(split.X[rows], split.y[rows])
    return fitted.predict_interval(split.X[split.test], levels)


def beyond_the_paper(
    split: TableSplit, levels: Float[NDArray, "l"], *, regressor: type[IntervalRegressor]
) -> MethodOutput:
    """A method not in the paper, with the protocol's network and kernel if it uses them."""
    given: dict[str, Any] = {
        "estimator": split.protocol.network(split.seed),
        "kernel": split.protocol.kernel(split.seed, smoothness=True, device=split.device),
        "cv": FOLDS,
        "device": split.device,
    }
    settings = {name: given[name] for name in given.keys() & regressor().get_params(deep=False).keys()}
    if issubclass(regressor, ConformalMethod):
        return by_level(lambda level: regressor(confidence_level=level, **settings), split, levels)
    return uncalibrated(split, levels, regressor=regressor, **settings)


def default_lvd(
    split: TaskSplit, levels: Float[NDArray, "l"], *, when_unknown: str | None = None
) -> MethodOutput:
    """LVD with its default settings, around networks that predict their expected errors.

    ``when_unknown="widen"`` gives finite intervals to rows unlike all training rows.
    """
    fitted = split.stages.once("default LVD", lambda: fit_on(LVDRegressor(StoredModel(split)), split))
    return fitted.set_params(when_unknown=when_unknown).predict_interval(split.X[split.test], levels)


def split_around_members(split: TaskSplit, levels: Float[NDArray, "l"]) -> MethodOutput:
    """Split conformal prediction around the networks of the default."""
    return calibrated(SplitConformalRegressor(StoredModel(split)), split, levels)


def cqr_around_members(split: TaskSplit, levels: Float[NDArray, "l"]) -> MethodOutput:
    """Conformalized quantile regression with the outer quantiles of the default's networks, at any level."""
    model = StoredModel(split)

    def outer(rows: Int[NDArray, "a"]) -> Float[NDArray, "a 2"]:
        return model.quantiles(rows)[:, [0, -1]]

    def make(level: float) -> ConformalMethod:
        return ConformalizedQuantileRegressor((outer, model.embed), confidence_level=level, prefit=True)

    return by_level(make, split, levels)


def held_out_madsplit(split: TaskSplit, levels: Float[NDArray, "l"]) -> MethodOutput:
    """MADSplit whose second network learns out-of-fold errors."""
    second = split.functions("held_out_errors")
    return calibrated(MADSplitRegressor(split.estimator, error_estimator=second, prefit=True), split, levels)


def deep_ensemble_of_tasks(split: TaskSplit, levels: Float[NDArray, "l"]) -> MethodOutput:
    """The normal with the mean and variance of the stored networks' mixture, as in :class:`DeepEnsembleRegressor`.

    Without adversarial examples, which would need inputs that can change slightly.
    """
    mean, variance = split.ensemble()[:, split.test]
    return mean, normal_intervals(mean, np.sqrt(variance), levels)


def calibrated(regressor: ConformalMethod, split: Split, levels: Float[NDArray, "l"]) -> MethodOutput:
    """The intervals of an unfitted conformal method."""
    return fit_on(regressor, split).predict_interval(split.X[split.test], levels)


def fit_on(regressor: ConformalMethod, split: Split) -> Any:
    """The method, fitted on a split's training rows and calibrated on its calibration rows."""
    regressor.set_params(calib_size=None, device=split.device, random_state=split.seed)
    regressor.fit(split.X[split.train], split.y[split.train])
    return regressor.conformalize(split.X[split.calib], split.y[split.calib])


def by_level(
    make: Callable[[float], ConformalMethod], split: Split, levels: Float[NDArray, "l"]
) -> MethodOutput:
    """A method that learns one level at a time, each with its own prediction."""
    parts = [calibrated(make(level), split, np.array([level])) for level in levels.tolist()]
    y_pred, intervals = zip(*parts, strict=True)
    return np.stack(y_pred, axis=1), np.concatenate(intervals, axis=2)


VARIANTS: dict[str, Method] = {
    f"LVD-{predictor}-{'smooth' if smoothness else 'nosmooth'}-{'MN' if normalized else 'base'}": partial(
        lvd_variant, predictor=predictor, smoothness=smoothness, normalized=normalized
    )
    for predictor, smoothness, normalized in product(("KR", "NN"), (False, True), (True, False))
}
MAIN_VARIANT = "LVD-NN-smooth-base"

_UNCALIBRATED: dict[str, type[IntervalRegressor]] = {
    "DJ": methods.DiscriminativeJackknifeRegressor,
    "DE": methods.DeepEnsembleRegressor,
    "MCDP": methods.MCDropoutRegressor,
    "PBP": methods.PBPRegressor,
}
REGRESSORS: dict[str, type[IntervalRegressor]] = {
    **dict.fromkeys(VARIANTS, LVDRegressor),
    "split": SplitConformalRegressor,
    "MADSplit": MADSplitRegressor,
    "CQR": ConformalizedQuantileRegressor,
    **_UNCALIBRATED,
}
"""The class behind each method, followed by methods not in the paper."""
_OTHERS = {
    regressor.__name__.removesuffix("Regressor"): regressor
    for regressor in ALL_METHODS
    if regressor not in REGRESSORS.values()
}
REGRESSORS |= _OTHERS

METHODS: dict[str, Method] = {
    **VARIANTS,
    "split": split_conformal,
    "MADSplit": madsplit,
    "CQR": cqr,
    **{name: partial(uncalibrated, regressor=regressor) for name, regressor in _UNCALIBRATED.items()},
    **{name: partial(beyond_the_paper, regressor=regressor) for name, regressor in _OTHERS.items()},
}
TASK_METHODS: dict[str, Method] = {
    **{name: METHODS[name] for name in (*VARIANTS, "split", "MADSplit", "CQR")},
    "DE": deep_ensemble_of_tasks,
}
"""The methods on tables with tasks, from outputs of networks shared by all tasks of a table."""
FURTHER_TASK_METHODS: dict[str, Method] = {
    "LVD": default_lvd,
    "LVD-widen": partial(default_lvd, when_unknown="widen"),
    "split-members": split_around_members,
    "CQR-members": cqr_around_members,
    HELD_OUT_MADSPLIT: held_out_madsplit,
}
"""Methods not in the paper, run only on request: they need five or six more networks."""
REPRODUCED = (*VARIANTS, "MADSplit", "CQR")
"""The methods whose printed cells the paper protocol must reproduce; the other rivals were printed from faulty
versions."""
