"""Leave-one-out coverage of the calibration rows."""

from __future__ import annotations

import numpy as np

from lvd._typing import Bool, Float, Int, NDArray
from lvd.calibration.calibration_rows import Asked, GlobalConformal
from lvd.calibration.local import LocalConformal
from lvd.engine.oracle import gaussian_weights

MOST_JUDGED = 500
"""This many rows estimate a coverage to within two percent."""


def own_coverage(conformal: LocalConformal | GlobalConformal, asked: Asked, *, seed: int = 0) -> float:
    """The share of calibration rows, out of up to 500 drawn, whose score is at most the radius from the other rows.

    The row left out plays the part of a new row, with its own weight at +inf, so this estimates the coverage of
    new rows from the same distribution.

    >>> conformal = GlobalConformal().conformalize(np.empty((0, 0)), np.arange(100.0))
    >>> own_coverage(conformal, ((0,), 0.9))
    0.9
    """
    columns, level = asked
    local = None if isinstance(conformal, GlobalConformal) else conformal
    scores = conformal.scores_ if isinstance(conformal, GlobalConformal) else _scores(conformal)
    judged = np.random.default_rng(seed).permutation(len(scores))[:MOST_JUDGED]
    weights, own = np.ones((len(judged), len(scores))), np.ones(len(judged))
    if local is not None:
        weights, own = _calibration_weights(local, judged)
    weights[np.arange(len(judged)), judged] = 0.0
    inside = [_covered(scores[:, column], weights, own, judged, level) for column in columns]
    return float(np.logical_and.reduce(inside).mean())


def _scores(conformal: LocalConformal) -> Float[NDArray, "m c"]:
    return conformal.calibration_.scores.cpu().numpy()


def _covered(
    scores: Float[NDArray, "m"],
    weights: Float[NDArray, "r m"],
    own: Float[NDArray, "r"],
    judged: Int[NDArray, "r"],
    level: float,
) -> Bool[NDArray, "r"]:
    """Whether scores below the row's carry less than the level's share of weight, so that it is covered."""
    below = np.sum(weights * (scores < scores[judged, None]), axis=1)
    return below < level * (weights.sum(axis=1) + own)


def _calibration_weights(
    conformal: LocalConformal, judged: Int[NDArray, "r"]
) -> tuple[Float[NDArray, "r m"], Float[NDArray, "r"]]:
    """The weights of all calibration rows for the judged rows, and the judged rows' own."""
    rows = conformal.calibration_.rows
    points = rows.points.cpu().numpy()
    bandwidths = conformal.bandwidths_at(rows.points[judged]).cpu().numpy()
    weights = np.stack(
        [gaussian_weights(points[i], points, h**-2.0) for i, h in zip(judged, bandwidths, strict=True)]
    )
    if rows.groups is not None:
        weights *= rows.groups[judged, None] == rows.groups
    ratios = np.ones(len(points)) if rows.weights is None else rows.weights.cpu().numpy()
    return weights * ratios, ratios[judged]
