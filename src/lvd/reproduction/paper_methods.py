"""The methods of the paper's tables, under the names they have there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from lvd import methods
from lvd._typing import Float, NDArray
from lvd.methods import (
    ALL_METHODS,
    ConformalizedQuantileRegressor,
    IntervalRegressor,
    LVDRegressor,
    MADSplitRegressor,
    SplitConformalRegressor,
)
from lvd.methods.conformal import ConformalBase
from lvd.reproduction.table_split import Split, TableSplit
from lvd.scores import AbsoluteResidual, NormalizedResidual


@dataclass(frozen=True)
class Prediction:
    """Point predictions and intervals of the test rows; CQR has a prediction of its own at each level."""

    y_pred: Float[NDArray, "n l"]
    intervals: Float[NDArray, "n 2 l"]


Method = Callable[[Any, NDArray], Prediction]
"""From a split, of the kind that the method works on, and levels to the test rows' intervals."""


def lvd_variant(
    split: Split, levels: Float[NDArray, "l"], *, predictor: str, smoothness: bool, normalized: bool
) -> Prediction:
    """One of the eight variants of LVD."""
    kernel = split.kernel(smoothness=smoothness)
    estimator = split.kernel_regressor(kernel) if predictor == "KR" else split.estimator
    score = NormalizedResidual(split.error_estimator) if normalized else AbsoluteResidual()
    regressor = LVDRegressor(estimator, conformity_score=score, kernel=kernel, prefit=True)
    return calibrated(regressor, split, levels)


def split_conformal(split: Split, levels: Float[NDArray, "l"]) -> Prediction:
    """Split conformal prediction."""
    return calibrated(SplitConformalRegressor(split.estimator, prefit=True), split, levels)


def madsplit(split: Split, levels: Float[NDArray, "l"]) -> Prediction:
    """Split conformal prediction on errors divided by the second network's prediction of them."""
    regressor = MADSplitRegressor(
        split.estimator, error_estimator=split.error_estimator, quantile=split.protocol.quantile, prefit=True
    )
    return calibrated(regressor, split, levels)


def calibrated(regressor: ConformalBase, split: Split, levels: Float[NDArray, "l"]) -> Prediction:
    """A conformal method, fitted on the training rows and calibrated on the calibration rows of a split."""
    regressor.set_params(calib_size=None, device=split.device, random_state=split.seed)
    regressor.fit(split.X[split.train], split.y[split.train])
    regressor.conformalize(split.X[split.calib], split.y[split.calib])
    return same_at_all_levels(*regressor.predict_interval(split.X[split.test], levels))


def by_level(
    make: Callable[[float], ConformalBase], split: Split, levels: Float[NDArray, "l"]
) -> Prediction:
    """A method that learns for one level at a time, each with a prediction of its own."""
    parts = [calibrated(make(level), split, np.array([level])) for level in levels.tolist()]
    return Prediction(
        np.concatenate([part.y_pred for part in parts], axis=1),
        np.concatenate([part.intervals for part in parts], axis=2),
    )


def cqr(split: TableSplit, levels: Float[NDArray, "l"]) -> Prediction:
    """Conformalized quantile regression: one network per level."""

    def make(level: float) -> ConformalBase:
        network, quantile = split.protocol.network(split.seed), split.protocol.quantile
        return ConformalizedQuantileRegressor(network, quantile=quantile, confidence_level=level)

    return by_level(make, split, levels)


def of_the_registry(
    split: TableSplit, levels: Float[NDArray, "l"], *, regressor: type[IntervalRegressor]
) -> Prediction:
    """A method that the paper does not have, with the protocol's network where it takes one."""
    if not issubclass(regressor, ConformalBase):
        return uncalibrated(split, levels, regressor=regressor.__name__)
    network = split.protocol.network(split.seed)
    return by_level(lambda level: regressor(network, confidence_level=level), split, levels)


def uncalibrated(split: TableSplit, levels: Float[NDArray, "l"], *, regressor: str) -> Prediction:
    """A method without a calibration step, as its own paper defines it."""
    parts = [split.train] if split.protocol.uncalibrated_rows == "train" else [split.train, split.calib]
    rows = np.concatenate(parts)
    fitted = getattr(methods, regressor)(random_state=split.seed).fit(split.X[rows], split.y[rows])
    y_pred, intervals = fitted.predict_interval(split.X[split.test], levels)
    return same_at_all_levels(y_pred, intervals)


def same_at_all_levels(y_pred: Float[NDArray, "n"], intervals: Float[NDArray, "n 2 l"]) -> Prediction:
    """One point prediction for every level."""
    return Prediction(np.tile(y_pred[:, None], (1, intervals.shape[2])), intervals)


def _variant_name(predictor: str, smoothness: bool, normalized: bool) -> str:
    return f"LVD-{predictor}-{'smooth' if smoothness else 'nosmooth'}-{'MN' if normalized else 'base'}"


VARIANTS: dict[str, Method] = {
    _variant_name(predictor, smoothness, normalized): partial(
        lvd_variant, predictor=predictor, smoothness=smoothness, normalized=normalized
    )
    for predictor, smoothness, normalized in product(("KR", "NN"), (False, True), (True, False))
}
MAIN_VARIANT = "LVD-NN-smooth-base"

REGRESSORS = {
    **dict.fromkeys(VARIANTS, "LVDRegressor"),
    "split": "SplitConformalRegressor",
    "MADSplit": "MADSplitRegressor",
    "CQR": "ConformalizedQuantileRegressor",
    "DJ": "DiscriminativeJackknifeRegressor",
    "DE": "DeepEnsembleRegressor",
    "MCDP": "MCDropoutRegressor",
    "PBP": "PBPRegressor",
}
"""The name in :mod:`lvd.methods` of the class behind each method."""

OTHERS: dict[str, type[IntervalRegressor]] = {
    regressor.__name__.removesuffix("Regressor"): regressor
    for regressor in ALL_METHODS
    if regressor.__name__ not in REGRESSORS.values()
}
"""Every method of lvd that the paper does not have."""
REGRESSORS |= {name: regressor.__name__ for name, regressor in OTHERS.items()}

METHODS: dict[str, Method] = {
    **VARIANTS,
    "split": split_conformal,
    "MADSplit": madsplit,
    "CQR": cqr,
    **{name: partial(uncalibrated, regressor=REGRESSORS[name]) for name in ("DJ", "DE", "MCDP", "PBP")},
    **{name: partial(of_the_registry, regressor=regressor) for name, regressor in OTHERS.items()},
}
REPRODUCED = (*VARIANTS, "MADSplit", "CQR")
"""The methods whose printed cells the paper protocol must meet; the other rivals were printed from faulty
versions."""
