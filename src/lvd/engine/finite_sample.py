"""Quantiles of calibration scores with finite-sample ranks: split conformal, Jackknife+ and CV+."""

from __future__ import annotations

import math

import numpy as np

from lvd._typing import Float, Int, NDArray
from lvd._validation import check_choice

QUANTILES = ("finite_sample", "percentile")


def conformal_quantile(
    scores: Float[NDArray, "m *rest"], levels: Float[NDArray, "l"], *, quantile: str = "finite_sample"
) -> Float[NDArray, "l *rest"]:
    """The quantile of the scores along the first axis at each confidence level.

    ``"finite_sample"``: the ``ceil((m + 1) level)``-th smallest score, +inf when there are not as many. A new
    score, exchangeable with the m, is at most this large with a probability of at least `level`.
    ``"percentile"``: numpy's percentile, which interpolates and knows nothing of the new score, so that it
    falls short of the level; the paper's MADSplit and CQR figures use it.
    """
    check_choice(quantile, "quantile", QUANTILES)
    if quantile == "percentile":
        return np.percentile(scores, 100.0 * levels, axis=0)
    ranks = finite_sample_ranks(len(scores), levels)
    infinite = np.full((1, *scores.shape[1:]), np.inf)
    return np.concatenate([np.sort(scores, axis=0), infinite])[ranks - 1]


def finite_sample_ranks(n_scores: int, levels: Float[NDArray, "l"]) -> Int[NDArray, "l"]:
    """``ceil((m + 1) level)``, from 1 to m + 1, which means +inf."""
    return np.minimum(np.ceil((n_scores + 1) * levels), n_scores + 1).astype(np.int64)


def jackknife_plus_intervals(
    predictions: Float[NDArray, "m n *t"], residuals: Float[NDArray, "m *t"], levels: Float[NDArray, "l"]
) -> Float[NDArray, "n 2 l *t"]:
    """Jackknife+ and CV+ intervals (Barber, Candès, Ramdas and Tibshirani, Annals of Statistics 2021).

    `predictions` holds, for each of the m training rows, what the model fitted without it predicts for the n
    new rows, and `residuals` the absolute error of that model on it. With a = 1 - level, the lower end is the
    ``floor(a (m + 1))``-th smallest of prediction - residual and the upper end the
    ``ceil((1 - a)(m + 1))``-th smallest of prediction + residual; -inf and +inf when there are not as many.

    From level 1/2 on the median prediction is inside. Below, the two ends may cross, which means an
    empty set; keeping the median inside there too leaves nothing out and nests the intervals of all levels.
    """
    below = conformal_quantile(residuals[:, None] - predictions, levels)
    above = conformal_quantile(residuals[:, None] + predictions, levels)
    median = np.median(predictions, axis=0)
    return np.moveaxis(np.stack([np.minimum(-below, median), np.maximum(above, median)]), 2, 0)


def rows_missing(total_weight: float, level: float) -> int:
    """How many more calibration rows of weight 1 would make the radius finite.

    With weights summing to S, r such rows do when ``S + r >= level (S + r + 1)``.
    """
    count = max(0, math.ceil(level / (1.0 - level) - total_weight - 1e-9))
    while total_weight + count < level * (total_weight + count + 1.0):
        count += 1
    return count
