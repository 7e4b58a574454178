"""Why a radius has its size: the calibration rows behind it, and how many are missing if it is infinite."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lvd._typing import Float, NDArray
from lvd.calibration.calibration_rows import Group
from lvd.engine import Queries, SortedRows
from lvd.engine.oracle import gaussian_weights, weighted_quantile
from lvd.engine.quantiles import rows_missing

DEEPEST = 1000.0
"""Depths beyond this are reported as this one: rarity doubles per unit and would overflow."""


@dataclass(frozen=True)
class Neighbor:
    """A calibration row that carries weight for a query.

    `index` is its position in the calibration set, `weight` its share of the total weight (including the
    query's own, at infinity), `similarity` its kernel value, `score` the calibrated score, `target` its y if
    known, and `label` its name if it has one. `error` is the size of its error in units of y, if known; a score
    may be something else.
    """

    index: int
    weight: float
    similarity: float
    score: float
    target: float | None = None
    label: str | None = None
    error: float | None = None


@dataclass(frozen=True)
class Evidence:
    """The evidence behind one radius.

    `rows_missing` is how many more calibration rows exactly like the query would make the radius finite, 0 if
    it is. `usual_radius` is the radius with all calibration rows weighted by their likelihood ratios only.
    `bandwidth` is the factor by which the kernel is widened at the query. With signed scores `radius` is the
    distance from the prediction to the upper end, `lower_radius` to the lower end, and `usual_radius` half the
    usual width. `group` is the query's group, if any. If scores are errors relative to the expected error,
    `expected_error` is the query's, and `usual_radius` is an error. `measure` names what a score is, and
    `half_width` is half the interval's width when it does not follow from the radius.
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
    bandwidth: float = 1.0
    expected_error: float | None = None
    measure: str = "error"
    half_width: float | None = None

    @property
    def sentence(self) -> str:
        """The evidence in one plain sentence."""
        return self._why_infinite() if math.isinf(self.radius) else self._why_finite()

    def _why_infinite(self) -> str:
        nearest = max((neighbor.similarity for neighbor in self.neighbors), default=0.0)
        where = "" if self.group is None else f" of group {self.group!r}"
        if not self.neighbors:
            known = f"there is no calibration row{where}"
        elif nearest < 0.5:
            nearest_text = f"no calibration row{where} is similar to this one"
            known = f"{nearest_text} (the nearest has a similarity of {nearest:.2g} of 1)"
        else:
            known = f"it rests on only about {_rounded(self.n_effective)} similar calibration rows{where}"
        rows = "row" if self.rows_missing == 1 else "rows"
        remedy = f"{self.rows_missing} more {rows}{where} like it would make it finite"
        return f"Infinite at {_in_percent(self.confidence_level)}: {known}; {remedy}."

    def _why_finite(self) -> str:
        level = _in_percent(self.confidence_level)
        half = self.radius if self.lower_radius is None else (self.radius + self.lower_radius) / 2.0
        rests = f"It rests on roughly {_rounded(self.n_effective)} similar calibration rows"
        if self.expected_error is not None:
            half = half * self.expected_error if self.half_width is None else self.half_width
            rests = f"The expected error here is about {self.expected_error:.3g}. {rests}"
        if self.measure == "depth":
            rarity = f"{2.0 ** min(max(self.radius, 0.0), DEEPEST):.3g}"
            shown = f"{level} of which had an error no rarer than 1 in {rarity} of the errors expected there"
        elif self.expected_error is not None:
            shown = f"{level} of which had an error of at most {self.radius:.3g} times the expected one"
        elif self.lower_radius is None:
            measure = "an error" if self.measure == "error" else f"a {self.measure}"
            shown = f"{level} of which had {measure} of at most {self.radius:.3g}"
        else:
            rest = _in_percent((1.0 - self.confidence_level) / 2.0)
            below, above = f"{-self.lower_radius:.3g}", f"{self.radius:.3g}"
            shown = f"at most {rest} of which had an error below {below}, and at most {rest} above {above}"
        return f"{_compared(half, self.usual_radius)}{rests}, {shown}."


def _compared(half: float, usual: float) -> str:
    """The interval's width compared with that of an average row."""
    if math.isinf(usual) or usual == 0.0:
        return ""
    ratio = half / usual
    if 0.9 <= ratio <= 1.1:
        return "About as wide as for an average row. "
    return f"{ratio:.2g} times as wide as for an average row. "


def _rounded(number: float) -> str:
    """A row count to three digits."""
    return f"{float(f'{number:.3g}'):,.10g}"


def _in_percent(share: float) -> str:
    return f"{100 * share:.10g}%"


def explain_radius(
    query: Queries,
    rows: SortedRows,
    level: float,
    n_neighbors: int,
    targets: Float[NDArray, "m"] | None = None,
    *,
    group: Group = None,
    two_sided: bool = False,
) -> Evidence:
    """The evidence behind the radius of one query, in scaled coordinates; `targets` in calibration order."""
    scores, ratios, order = (part.cpu().numpy() for part in (rows.scores, rows.weights, rows.order))
    # The same weights as for the radii, bit for bit.
    point, points = query.points[0].cpu().numpy(), rows.points.cpu().numpy()
    kernel, own = gaussian_weights(point, points, float(query.precisions)), float(query.above)
    weights = ratios * kernel
    total = float(weights.sum())
    nearest = np.argsort(-weights, kind="stable")[:n_neighbors]
    neighbors = tuple(
        Neighbor(
            int(order[i]),
            float(weights[i] / (total + own)),
            float(kernel[i]),
            float(scores[i]),
            None if targets is None else float(targets[order[i]]),
        )
        for i in nearest
    )
    side = (1.0 + level) / 2.0 if two_sided else level
    upper, usual = (weighted_quantile(scores, w, own, side) for w in (weights, ratios))
    lower = None
    if two_sided:
        lower, usual_lower = (weighted_quantile(-scores, w, own, side) for w in (weights, ratios))
        usual = (usual + usual_lower) / 2.0
    squares = float(np.square(weights).sum())
    return Evidence(
        confidence_level=level,
        radius=upper,
        n_effective=total**2 / squares if squares > 0.0 else 0.0,
        weight_at_infinity=own / (total + own),
        rows_missing=rows_missing(total / own, side),
        usual_radius=usual,
        neighbors=neighbors,
        lower_radius=lower,
        group=group,
        bandwidth=1.0 if query.bandwidths is None else float(query.bandwidths),
    )
