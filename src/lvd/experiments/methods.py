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
from lvd.conformal import conformal_quantile
from lvd.experiments.split import Split, TableSplit
from lvd.methods import ConformalizedQuantileRegressor


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
    absolute = split.absolute(kernel if predictor == "KR" else None)
    calib, test = split.normalized(*absolute) if normalized else absolute
    radius = split.local_radius(kernel, calib(split.y[split.calib]), levels)
    return same_at_all_levels(test.y_pred, test.intervals(radius))


def split_conformal(split: Split, levels: Float[NDArray, "l"], *, normalized: bool) -> Prediction:
    """Split conformal prediction, and MADSplit when normalized."""
    absolute = split.absolute()
    calib, test = split.normalized(*absolute) if normalized else absolute
    quantile = split.protocol.quantile if normalized else "finite_sample"
    radius = conformal_quantile(calib(split.y[split.calib]), levels, quantile=quantile)
    return same_at_all_levels(test.y_pred, test.intervals(np.tile(radius, (len(test.y_pred), 1))))


def cqr(split: TableSplit, levels: Float[NDArray, "l"]) -> Prediction:
    """Conformalized quantile regression: one network per level."""
    predictions, intervals = [], []
    for level in levels.tolist():
        regressor = ConformalizedQuantileRegressor(
            split.protocol.network(split.seed),
            quantile=split.protocol.quantile,
            confidence_level=level,
            calib_size=None,
            device="cpu",
            random_state=split.seed,
        )
        regressor.fit(split.X[split.train], split.y[split.train])
        regressor.conformalize(split.X[split.calib], split.y[split.calib])
        y_pred, interval = regressor.predict_interval(split.X[split.test])
        predictions.append(y_pred)
        intervals.append(interval)
    return Prediction(np.stack(predictions, axis=1), np.concatenate(intervals, axis=2))


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

METHODS: dict[str, Method] = {
    **VARIANTS,
    "split": partial(split_conformal, normalized=False),
    "MADSplit": partial(split_conformal, normalized=True),
    "CQR": cqr,
    **{name: partial(uncalibrated, regressor=REGRESSORS[name]) for name in ("DJ", "DE", "MCDP", "PBP")},
}
REPRODUCED = (*VARIANTS, "MADSplit", "CQR")
"""The methods whose printed cells the paper protocol must meet; the other rivals were printed from faulty
versions."""
