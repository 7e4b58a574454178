"""One radius for all rows: split conformal prediction."""

from __future__ import annotations

from typing import Any

import numpy as np

from lvd._typing import ArrayLike, Float, Levels, NDArray
from lvd._validation import check_choice, check_levels, check_vector
from lvd.quantiles.finite_sample import QUANTILES, conformal_quantile


class GlobalConformal:
    """Radii from calibration scores that all count the same, wherever the query is.

    Parameters
    ----------
    quantile : ``"finite_sample"``: the ``ceil((m + 1) level)``-th smallest of m scores, +inf beyond the m-th.
        ``"percentile"``: numpy's plain percentile, without the guarantee, as the paper's figures were made.
    """

    scores_: Float[NDArray, "m"]

    def __init__(self, quantile: str = "finite_sample") -> None:
        self.quantile = quantile

    def conformalize(self, embeddings: ArrayLike, scores: ArrayLike) -> GlobalConformal:
        """Take the calibration scores; where the rows are does not matter."""
        check_choice(self.quantile, "quantile", QUANTILES)
        self.scores_ = check_vector(scores, "scores")
        return self

    def radius(self, embeddings: ArrayLike, confidence_level: Levels) -> Any:
        """Radii (n, L), the same for all rows."""
        radius = conformal_quantile(self.scores_, check_levels(confidence_level), quantile=self.quantile)
        return np.broadcast_to(radius, (len(embeddings), len(radius)))
