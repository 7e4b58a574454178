"""Why a radius is what it is: the calibration rows behind it, and what is missing where it is infinite."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from lvd._typing import Float, NDArray
from lvd.conformal.engine import SortedCalibration
from lvd.conformal.oracle import gaussian_weights, weighted_quantile


@dataclass(frozen=True)
class Neighbor:
    """A calibration row that carries weight for a query.

    `index` is its place in the calibration set, `weight` its share of all the weight (the query's own, at
    infinity, counted in), `similarity` its kernel value, `score` its error, `target` its y where known.
    """

    index: int
    weight: float
    similarity: float
    score: float
    target: float | None = None


@dataclass(frozen=True)
class Evidence:
    """What stands behind one radius.

    `rows_missing` is the number of calibration rows just like the query that would make the radius finite, 0
    when it is. `usual_radius` is the radius with all calibration rows weighted equally.
    """

    confidence_level: float
    radius: float
    n_effective: float
    weight_at_infinity: float
    rows_missing: int
    usual_radius: float
    neighbors: tuple[Neighbor, ...]

    @property
    def sentence(self) -> str:
        """One plain sentence."""
        level = f"{100 * self.confidence_level:g}%"
        nearest = self.neighbors[0].similarity if self.neighbors else 0.0
        if math.isinf(self.radius):
            known = (
                "there is no calibration row"
                if not self.neighbors
                else f"no calibration row is nearly like it (the most similar has similarity {nearest:.2g} of 1)"
                if nearest < 0.5
                else f"only {self.n_effective:.3g} calibration rows' worth of evidence lies near it"
            )
            rows = "row" if self.rows_missing == 1 else "rows"
            return (
                f"Infinite at {level}: {known}, so {100 * self.weight_at_infinity:.0f}% of the weight is unknown; "
                f"{self.rows_missing} more {rows} like this one would make it finite."
            )
        if math.isinf(self.usual_radius) or self.usual_radius == 0.0:
            compared = ""
        else:
            compared = f", {self.radius / self.usual_radius:.2g} times the radius of an average row"
        return (
            f"Radius {self.radius:.4g} at {level}{compared}: the calibration rows like this one, worth "
            f"{self.n_effective:.3g} rows, carry {level} of the weight up to an error score of {self.radius:.4g}."
        )


def rows_missing(total_weight: float, level: float) -> int:
    """How many more calibration rows of weight 1 would make the radius finite.

    With weights summing to S, r such rows do when ``S + r >= level (S + r + 1)``.
    """
    count = max(0, math.ceil(level / (1.0 - level) - total_weight - 1e-9))
    while total_weight + count < level * (total_weight + count + 1.0):
        count += 1
    return count


def explain(
    query: Float[Tensor, "k"],
    calibration: SortedCalibration,
    level: float,
    n_neighbors: int,
    targets: Float[NDArray, "m"] | None = None,
) -> Evidence:
    """The evidence behind the radius of one query, in scaled coordinates; `targets` in calibration order."""
    points, scores = calibration.points.cpu().numpy(), calibration.scores.cpu().numpy()
    order = calibration.order.cpu().numpy()
    weights = gaussian_weights(query.cpu().numpy(), points)
    total = float(weights.sum())
    nearest = np.argsort(-weights, kind="stable")[:n_neighbors]
    neighbors = tuple(
        Neighbor(
            int(order[i]),
            float(weights[i] / (total + 1.0)),
            float(weights[i]),
            float(scores[i]),
            None if targets is None else float(targets[order[i]]),
        )
        for i in nearest
    )
    squares = float(np.square(weights).sum())
    return Evidence(
        confidence_level=level,
        radius=weighted_quantile(scores, weights, 1.0, level),
        n_effective=total**2 / squares if squares > 0.0 else 0.0,
        weight_at_infinity=1.0 / (total + 1.0),
        rows_missing=rows_missing(total, level),
        usual_radius=weighted_quantile(scores, np.ones_like(scores), 1.0, level),
        neighbors=neighbors,
    )
