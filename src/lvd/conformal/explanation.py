"""Why a radius is what it is: the calibration rows behind it, and what is missing where it is infinite."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from lvd._typing import Float, NDArray
from lvd.conformal.engine import SortedCalibration
from lvd.conformal.floor import ROOM
from lvd.conformal.oracle import gaussian_weights, weighted_quantile
from lvd.conformal.rows import Group


@dataclass(frozen=True)
class Neighbor:
    """A calibration row that carries weight for a query.

    `index` is its place in the calibration set, `weight` its share of all the weight (the query's own, at
    infinity, and a floor of the kernel counted in), `similarity` its kernel value without a floor, `score` its
    error, `target` its y where known, `label` what it is called where it has a name, as molecules have.
    """

    index: int
    weight: float
    similarity: float
    score: float
    target: float | None = None
    label: str | None = None


@dataclass(frozen=True)
class Evidence:
    """What stands behind one radius.

    `rows_missing` is the number of calibration rows just like the query that would make the radius finite, 0
    when it is. `usual_radius` is the radius with all calibration rows weighted by their likelihood ratios alone.
    With signed scores `radius` is how far the upper end lies above the prediction, `lower_radius` how far the
    lower end lies below, and `usual_radius` half the usual width. `group` is the query's group where there are
    groups, `floor_needed` the kernel floor that would make the radius finite where one is set but too low.
    """

    confidence_level: float
    radius: float
    n_effective: float
    weight_at_infinity: float
    rows_missing: int
    usual_radius: float
    neighbors: tuple[Neighbor, ...]
    lower_radius: float | None = None
    group: Group = None
    floor_needed: float | None = None

    @property
    def sentence(self) -> str:
        """One plain sentence."""
        return self._why_infinite() if math.isinf(self.radius) else self._why_finite()

    def _why_infinite(self) -> str:
        nearest = max((neighbor.similarity for neighbor in self.neighbors), default=0.0)
        where = "" if self.group is None else f" of group {self.group!r}"
        if not self.neighbors:
            known = f"there is no calibration row{where}"
        elif nearest < 0.5:
            similarity = f"the most similar has similarity {nearest:.2g} of 1"
            known = f"no calibration row{where} is nearly like it ({similarity})"
        else:
            known = f"only {self.n_effective:.3g} calibration rows' worth of evidence{where} lies near it"
        rows = "row" if self.rows_missing == 1 else "rows"
        remedy = f"{self.rows_missing} more {rows}{where} like this one would make it finite"
        if self.floor_needed is not None:
            remedy += f", and so would a kernel_floor of {self.floor_needed:.2g}"
        unknown = f"{100 * self.weight_at_infinity:.0f}% of the weight is unknown"
        return f"Infinite at {_percent(self.confidence_level)}: {known}, so {unknown}; {remedy}."

    def _why_finite(self) -> str:
        level = _percent(self.confidence_level)
        half = self.radius if self.lower_radius is None else (self.radius + self.lower_radius) / 2.0
        what = "radius" if self.lower_radius is None else "width"
        if math.isinf(self.usual_radius) or self.usual_radius == 0.0:
            compared = ""
        else:
            compared = f", {half / self.usual_radius:.2g} times the {what} of an average row"
        rows = f"the calibration rows like this one, worth {self.n_effective:.3g} rows, carry"
        if self.lower_radius is None:
            return (
                f"Radius {self.radius:.4g} at {level}{compared}: {rows} {level} of the weight up to an error score "
                f"of {self.radius:.4g}."
            )
        return (
            f"From {-self.lower_radius:.4g} to {self.radius:.4g} at {level}{compared}: {rows} at most "
            f"{_percent((1.0 - self.confidence_level) / 2.0)} of the weight past either of these error scores."
        )


def _percent(share: float) -> str:
    return f"{100 * share:.10g}%"


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
    *,
    self_weight: float = 1.0,
    group: Group = None,
    two_sided: bool = False,
) -> Evidence:
    """The evidence behind the radius of one query, in scaled coordinates; `targets` in calibration order."""
    points, scores, ratios = (
        part.cpu().numpy() for part in (calibration.points, calibration.scores, calibration.weights)
    )
    order, kernel = calibration.order.cpu().numpy(), gaussian_weights(query.cpu().numpy(), points)
    weights = ratios * ((1.0 - calibration.floor) * kernel + calibration.floor)
    total = float(weights.sum())
    nearest = np.argsort(-weights, kind="stable")[:n_neighbors]
    neighbors = tuple(
        Neighbor(
            int(order[i]),
            float(weights[i] / (total + self_weight)),
            float(kernel[i]),
            float(scores[i]),
            None if targets is None else float(targets[order[i]]),
        )
        for i in nearest
    )
    side = (1.0 + level) / 2.0 if two_sided else level
    upper, usual = (weighted_quantile(scores, w, self_weight, side) for w in (weights, ratios))
    lower = None
    if two_sided:
        lower, usual_lower = (weighted_quantile(-scores, w, self_weight, side) for w in (weights, ratios))
        usual = (usual + usual_lower) / 2.0
    squares, largest = float(np.square(weights).sum()), float(ratios.sum())
    needed = (1.0 + ROOM) * side / (1.0 - side) * self_weight / largest if largest > 0.0 else math.inf
    return Evidence(
        confidence_level=level,
        radius=upper,
        n_effective=total**2 / squares if squares > 0.0 else 0.0,
        weight_at_infinity=self_weight / (total + self_weight),
        rows_missing=rows_missing(total / self_weight, side),
        usual_radius=usual,
        neighbors=neighbors,
        lower_radius=lower,
        group=group,
        floor_needed=needed if math.isinf(upper) and calibration.floor > 0.0 and needed <= 1.0 else None,
    )
