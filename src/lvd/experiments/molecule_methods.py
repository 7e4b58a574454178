"""The methods on molecules, from the outputs of networks that all tasks of a table share."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from lvd import intervals as _intervals
from lvd._typing import Float, NDArray
from lvd.conformal import QuantileResidual, conformal_quantile
from lvd.experiments.methods import METHODS, VARIANTS, Method, Prediction, same_at_all_levels
from lvd.experiments.molecule_split import TaskSplit


def cqr(split: TaskSplit, levels: Float[NDArray, "l"]) -> Prediction:
    """Conformalized quantile regression; the point prediction is the middle of the two quantiles."""
    predictions, intervals = [], []
    for level in levels.tolist():
        lower, upper = np.sort(split.columns(split.stored.quantiles(level)), axis=0)
        scores = QuantileResidual(lower[split.calib], upper[split.calib])(split.y[split.calib])
        radius = conformal_quantile(scores, np.array([level]), quantile=split.protocol.quantile)
        test = QuantileResidual(lower[split.test], upper[split.test])
        predictions.append(test.middle)
        intervals.append(test.intervals(np.tile(radius, (len(split.test), 1))))
    return Prediction(np.stack(predictions, axis=1), np.concatenate(intervals, axis=2))


def deep_ensemble(split: TaskSplit, levels: Float[NDArray, "l"]) -> Prediction:
    """The normal with the mean and variance of the members' mixture.

    Without adversarial examples: a molecule cannot be moved by a hundredth of its range.
    """
    means, variances = np.stack([split.columns(outputs) for outputs in split.stored.members], axis=1)
    mean = means.mean(0)
    deviation = np.sqrt((variances + np.square(means)).mean(0) - np.square(mean))
    radius = norm.ppf(0.5 + 0.5 * levels) * deviation[split.test, None]
    return same_at_all_levels(mean[split.test], _intervals.from_radius(mean[split.test], radius))


MOLECULE_METHODS: dict[str, Method] = {
    **VARIANTS,
    "split": METHODS["split"],
    "MADSplit": METHODS["MADSplit"],
    "CQR": cqr,
    "DE": deep_ensemble,
}
