"""What a comparison of LVD with split conformal shows, in plain words; every figure in them is computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lvd._typing import Bool, Float, NDArray
from lvd.intervals import covered, widths
from lvd.metrics import residual_auroc

MOST_STRETCHES = 3


@dataclass(frozen=True, eq=False)
class Comparison:
    """LVD and split conformal at one level, on the same rows, which neither has seen before.

    `similar_rows` is the summed similarity of the calibration rows to each row: what they are worth to it,
    counted in rows just like it.
    """

    confidence_level: float
    X: Float[NDArray, "n p"]
    feature_names: tuple[str, ...]
    y: Float[NDArray, "n"]
    y_pred: Float[NDArray, "n"]
    local: Float[NDArray, "n 2"]
    constant: Float[NDArray, "n 2"]
    similar_rows: Float[NDArray, "n"]

    @property
    def wider(self) -> Bool[NDArray, "n"]:
        """Whether LVD is wider by more than rounding; an infinite interval is wider than any other."""
        return widths(self.local) > (1.0 + 1e-9) * widths(self.constant)

    @property
    def finite(self) -> Bool[NDArray, "n"]:
        """Whether LVD is finite."""
        return np.isfinite(self.local).all(axis=1)


def findings(comparison: Comparison) -> list[str]:
    """Sentences on coverage, width, error and infinity."""
    return [
        coverage_sentence(comparison),
        width_sentence(comparison),
        error_sentence(comparison),
        infinity_sentence(comparison),
    ]


def coverage_sentence(comparison: Comparison) -> str:
    """How many rows each method covers."""
    local, constant = (
        int(covered(comparison.y, intervals).sum()) for intervals in (comparison.local, comparison.constant)
    )
    return (
        f"At level {comparison.confidence_level:.0%} LVD covers {local} of {len(comparison.y)} test rows, "
        f"split conformal {constant}."
    )


def width_sentence(comparison: Comparison) -> str:
    """How wide the intervals are, and where LVD is wider."""
    text = f"Split conformal is {widths(comparison.constant).mean():.3g} wide everywhere"
    finite = comparison.finite
    if not finite.any():
        return f"{text}."
    local, wider = widths(comparison.local)[finite], finite & comparison.wider
    text += (
        f"; LVD, where it is finite, is {local.min():.3g} to {local.max():.3g} wide, "
        f"and wider than split conformal on {wider.sum()} of {finite.sum()} rows"
    )
    return f"{text}: {where(wider, comparison.X, comparison.feature_names)}." if wider.any() else f"{text}."


def error_sentence(comparison: Comparison) -> str:
    """Whether the errors are larger where LVD is wider."""
    errors, wider = np.abs(comparison.y - comparison.y_pred), comparison.wider
    auroc = residual_auroc(comparison.y, comparison.y_pred, comparison.local)
    ranked = (
        f"Of two rows, one with an error above the median and one below, LVD gives the former the wider interval "
        f"in {auroc:.0%} of the cases (50% is chance)"
    )
    if wider.all() or not wider.any():
        return f"{ranked}."
    return (
        f"{ranked}; the mean error is {errors[wider].mean():.3g} where LVD is wider than split conformal or "
        f"infinite, and {errors[~wider].mean():.3g} elsewhere."
    )


def infinity_sentence(comparison: Comparison) -> str:
    """Where LVD is infinite, why, and how split conformal fares there.

    With calibration rows worth S, the query's own weight of 1 sits at +inf, so that a finite radius takes
    ``S / (S + 1) >= level``.
    """
    level, infinite, worth = comparison.confidence_level, ~comparison.finite, comparison.similar_rows
    needed = f"A finite {level:.0%} interval takes calibration rows worth {level / (1.0 - level):.3g} rows like its own"
    if not infinite.any():
        return f"{needed}: every test row has at least {worth.min():.3g}, so no LVD interval is infinite."
    missed = ~covered(comparison.y, comparison.constant) & infinite
    return (
        f"LVD is infinite on {infinite.sum()} rows: {where(infinite, comparison.X, comparison.feature_names)}. "
        f"{needed}; these rows have {worth[infinite].min():.2g} to {worth[infinite].max():.2g}. "
        f"Split conformal is no wider there than elsewhere, and misses {missed.sum()} of them."
    )


def where(chosen: Bool[NDArray, "n"], X: Float[NDArray, "n p"], names: tuple[str, ...]) -> str:
    """Where the chosen rows lie: stretches of a single input, else the input that sets them apart most."""
    if chosen.all():
        return "everywhere"
    if len(names) == 1:
        found = stretches(chosen, X[:, 0])
        longest = sorted(sorted(found, key=lambda stretch: -stretch[2])[:MOST_STRETCHES])
        listed = " and ".join(f"from {low:.2f} to {high:.2f} ({count})" for low, high, count in longest)
        return f"{'mostly ' if len(longest) < len(found) else ''}at {names[0]} {listed}"
    inside, outside, spread = X[chosen].mean(0), X[~chosen].mean(0), X.std(0)
    most = int(np.argmax(np.abs(inside - outside) / np.where(spread > 0, spread, np.inf)))
    return f"what sets them apart most is {names[most]}, {inside[most]:.3g} on average against {outside[most]:.3g}"


def stretches(chosen: Bool[NDArray, "n"], x: Float[NDArray, "n"]) -> list[tuple[float, float, int]]:
    """First x, last x and number of rows of each run of chosen rows, in the order of x."""
    order = np.argsort(x, kind="stable")
    places = np.flatnonzero(chosen[order])
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    return [(float(x[order[run[0]]]), float(x[order[run[-1]]]), len(run)) for run in runs]
