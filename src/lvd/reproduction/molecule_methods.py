"""The methods on molecules, from the outputs of networks that all tasks of a table share."""

from __future__ import annotations

import numpy as np
import torch

from lvd._typing import Float, NDArray
from lvd.methods import ConformalizedQuantileRegressor
from lvd.methods.mixture import normal_intervals
from lvd.models.heads import mixture_moments
from lvd.reproduction.molecule_split import TaskSplit
from lvd.reproduction.paper_methods import METHODS, VARIANTS, Method, Prediction, by_level, same_at_all_levels


def cqr(split: TaskSplit, levels: Float[NDArray, "l"]) -> Prediction:
    """Conformalized quantile regression; the point prediction is the middle of the two quantiles."""

    def make(level: float) -> ConformalizedQuantileRegressor:
        columns = [split.task, split.n_tasks + split.task]
        functions = split.functions(split.stored.quantiles(level), columns)
        return ConformalizedQuantileRegressor(
            functions, quantile=split.protocol.quantile, confidence_level=level, prefit=True
        )

    return by_level(make, split, levels)


def deep_ensemble(split: TaskSplit, levels: Float[NDArray, "l"]) -> Prediction:
    """The normal with the mean and variance of the members' mixture.

    Without adversarial examples: a molecule cannot be moved by a hundredth of its range.
    """
    means, variances = np.stack([split.columns(outputs) for outputs in split.stored.members], axis=1)
    mean, variance = mixture_moments(torch.as_tensor(means), torch.as_tensor(variances))
    intervals = normal_intervals(mean[split.test].numpy(), variance[split.test].sqrt().numpy(), levels)
    return same_at_all_levels(mean[split.test].numpy(), intervals)


MOLECULE_METHODS: dict[str, Method] = {
    **VARIANTS,
    "split": METHODS["split"],
    "MADSplit": METHODS["MADSplit"],
    "CQR": cqr,
    "DE": deep_ensemble,
}
