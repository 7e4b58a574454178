"""The worst slab across several features at once, in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lvd._typing import Float, NDArray
from lvd.metrics import binomial_band, worst_slab_coverage

LEAST_ROWS = 200
SEARCHED_ROWS, SEARCHED_SHARE = 2500, 0.25
N_NAMED = 3


@dataclass(frozen=True)
class JointSlab:
    """Coverage between two parallel planes: found on some rows, judged on `count` others, with its exact band.

    `along` names the features that turn the planes most, with their share of the direction.
    """

    coverage: float
    lower: float
    upper: float
    count: int
    n_searched: int
    along: tuple[tuple[str, float], ...]


def joint_slab(
    X: Float[NDArray, "n p"],
    feature_names: tuple[str, ...],
    y: Float[NDArray, "n"],
    intervals: Float[NDArray, "n 2"],
) -> JointSlab | None:
    """The worst slab with a tenth of the rows, over directions in the standardised features.

    The search sees a quarter of the rows, at most 2,500; all others judge. None where there are too few rows to
    do both, or no judged row lies in the slab, or fewer than two features vary.
    """
    spread = X.std(axis=0)
    varies = np.flatnonzero(spread > 0)
    if len(X) < LEAST_ROWS or len(varies) < 2:
        return None
    standardised = (X[:, varies] - X[:, varies].mean(axis=0)) / spread[varies]
    share = min(SEARCHED_SHARE, SEARCHED_ROWS / len(X))
    slab = worst_slab_coverage(standardised, y, intervals, search_fraction=share, random_state=0)
    if slab.count == 0:
        return None
    lower, upper = binomial_band(round(slab.coverage * slab.count), slab.count)
    largest = np.argsort(-np.abs(slab.direction), kind="stable")[:N_NAMED]
    along = tuple((feature_names[varies[i]], float(slab.direction[i])) for i in largest)
    return JointSlab(slab.coverage, float(lower), float(upper), slab.count, round(share * len(X)), along)
