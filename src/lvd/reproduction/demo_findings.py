"""What a comparison of LVD with split conformal shows, in plain words; every figure in them is computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lvd._typing import Bool, Float, NDArray
from lvd.intervals import covered, widths
from lvd.metrics import residual_auroc, tail_coverage_rate

MOST_STRETCHES = 3


@dataclass(frozen=True, eq=False)
class LocalBesideSplit:
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
    def finite(self) -> Bool[NDArray, "n"]:
        """Whether LVD is finite."""
        return np.isfinite(widths(self.local))

    @property
    def narrower(self) -> Bool[NDArray, "n"]:
        """Whether LVD is narrower, by more than rounding."""
        return widths(self.local) < (1.0 - 1e-9) * widths(self.constant)

    @property
    def clearly_wider(self) -> Bool[NDArray, "n"]:
        """Whether LVD is finite and more than a tenth wider."""
        return self.finite & (widths(self.local) > 1.1 * widths(self.constant))


def findings(comparison: LocalBesideSplit) -> list[str]:
    """Sentences on coverage, width, error and infinity."""
    return [
        coverage_sentence(comparison),
        width_sentence(comparison),
        error_sentence(comparison),
        infinity_sentence(comparison),
    ]


def coverage_sentence(comparison: LocalBesideSplit) -> str:
    """How many rows each method covers, and how it does on the smallest and largest y."""
    (n_local, local_tails), (n_constant, constant_tails) = (
        (covered(comparison.y, intervals).sum(), tail_coverage_rate(comparison.y, intervals))
        for intervals in (comparison.local, comparison.constant)
    )
    return (
        f"At level {comparison.confidence_level:.0%} LVD covers {n_local} of {len(comparison.y)} test rows and "
        f"{local_tails:.0%} of those in the tails of y; split conformal {n_constant} and {constant_tails:.0%}."
    )


def width_sentence(comparison: LocalBesideSplit) -> str:
    """How wide the intervals are, and where LVD is clearly wider."""
    text = f"Split conformal is {widths(comparison.constant).mean():.3g} wide everywhere"
    finite, wider = comparison.finite, comparison.clearly_wider
    if not finite.any():
        return f"{text}."
    local = widths(comparison.local)[finite]
    text += (
        f", LVD {local.min():.3g} to {local.max():.3g} where it is finite. LVD is narrower on "
        f"{comparison.narrower.sum()} rows and more than a tenth wider on {wider.sum()}"
    )
    return f"{text}: {where(wider, comparison.X, comparison.feature_names)}." if wider.any() else f"{text}."


def error_sentence(comparison: LocalBesideSplit) -> str:
    """Whether the errors are larger where LVD is wider."""
    errors, narrower = np.abs(comparison.y - comparison.y_pred), comparison.narrower
    auroc = residual_auroc(comparison.y, comparison.y_pred, comparison.local)
    text = (
        "Of two rows, one with an error above the median and one below, LVD gives the wider interval to the first "
        f"in {auroc:.0%} of all cases (50% is chance)"
    )
    if narrower.all() or not narrower.any():
        return f"{text}."
    return (
        f"{text}; the mean error is {errors[narrower].mean():.3g} where LVD is narrower than split conformal and "
        f"{errors[~narrower].mean():.3g} elsewhere."
    )


def infinity_sentence(comparison: LocalBesideSplit) -> str:
    """Where LVD is infinite, why, and how split conformal fares there.

    With calibration rows worth S, the query's own weight of 1 sits at +inf, so that a finite radius takes
    ``S / (S + 1) >= level``.
    """
    level, infinite, worth = comparison.confidence_level, ~comparison.finite, comparison.similar_rows
    needed = (
        f"A finite {level:.0%} interval needs calibration rows that count as {level / (1.0 - level):.3g} rows like "
        "the one asked about"
    )
    if not infinite.any():
        return f"{needed}; for all test rows they count as {worth.min():.3g} or more: no LVD interval is infinite."
    missed = ~covered(comparison.y, comparison.constant) & infinite
    return (
        f"LVD is infinite on {infinite.sum()} rows: {where(infinite, comparison.X, comparison.feature_names)}. "
        f"{needed}; for these they count as {worth[infinite].min():.2g} to {worth[infinite].max():.2g}. "
        f"Split conformal, no wider there than elsewhere, misses {missed.sum()} of them."
    )


def where(chosen: Bool[NDArray, "n"], X: Float[NDArray, "n p"], names: tuple[str, ...]) -> str:
    """Where the chosen rows are: stretches of a single input, else the input that sets them apart most."""
    if chosen.all():
        return "everywhere"
    if len(names) > 1:
        inside, outside, spread = X[chosen].mean(0), X[~chosen].mean(0), X.std(0)
        most = int(np.argmax(np.abs(inside - outside) / np.where(spread > 0, spread, np.inf)))
        return (
            f"what sets them apart most is {names[most]}, "
            f"{inside[most]:.3g} on average against {outside[most]:.3g} in the others"
        )
    found = stretches(chosen, X[:, 0])
    longest = sorted(sorted(found, key=lambda stretch: -stretch[2])[:MOST_STRETCHES])
    listed = " and ".join(f"from {low:.2f} to {high:.2f}" for low, high, _ in longest)
    return f"{'mostly ' if len(longest) < len(found) else ''}at {names[0]} {listed}"


def stretches(chosen: Bool[NDArray, "n"], x: Float[NDArray, "n"]) -> list[tuple[float, float, int]]:
    """First x, last x and number of rows of each run of chosen rows, in the order of x."""
    order = np.argsort(x, kind="stable")
    places = np.flatnonzero(chosen[order])
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    return [(float(x[order[run[0]]]), float(x[order[run[-1]]]), len(run)) for run in runs if len(run)]
