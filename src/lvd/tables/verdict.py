"""Whether intervals hold on these rows, and whether they beat one width for all rows, in one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from lvd._typing import Bool, Float, Int, NDArray
from lvd.calibration import GlobalConformal
from lvd.intervals import covered, from_radius
from lvd.metrics import binomial_band, excess_risk_of_target_coverage
from lvd.metrics.width import widened_range, winkler_scores

Finding: TypeAlias = Literal[
    "holds, and tells rows apart",
    "holds, but no better than one width for all",
    "too many unknown",
    "cannot tell",
    "does not hold",
]

LARGEST_SHORTFALL = 0.05
MOST_UNKNOWN = 0.05
"""Above this share of unknown rows or infinite intervals, the verdict is about these."""
BY_CHANCE = 1.645
"""How many standard errors below split conformal the interval score must be: a one-sided test at 5%."""
ERT_ROWS, MOST_ERT_ROWS = 600, 20_000
"""The fewest rows for the excess risk of the target coverage, and the most it uses, the first ones."""
ERT_NOISE = 0.01
"""An excess risk above split conformal's by no more than this may be chance."""


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows with their true values for one target, and what the comparison with split conformal needs.

    `features` distinguish rows when coverage is estimated row by row; the first :data:`MOST_ERT_ROWS` suffice.
    `y_range` is the range of y, infinite if unknown. Rows with equal `row_ids` are copies of one row; without
    ids all rows are distinct.
    """

    y: Float[NDArray, "n"]
    y_pred: Float[NDArray, "n"]
    known: Bool[NDArray, "n"]
    features: Float[NDArray, "k p"]
    y_calib: Float[NDArray, "m"]
    residuals_calib: Float[NDArray, "m"]
    y_range: tuple[float, float]
    row_ids: Int[NDArray, "n"] | None = None

    @cached_property
    def distinct(self) -> Int[NDArray, "d"]:
        """The first row of each id."""
        if self.row_ids is None:
            return np.arange(len(self.y))
        return np.sort(np.unique(self.row_ids, return_index=True)[1])

    @property
    def scored_range(self) -> tuple[float, float]:
        """What replaces an infinite interval: the calibration rows' range of y, a tenth wider on each side."""
        return widened_range(self.y_calib)


@dataclass(frozen=True)
class Verdict:
    """What follows from the coverage, with its exact 95% band, and from the comparison with split conformal.

    `unknown` is the share of rows that are unknown or have an infinite interval. Interval scores count infinite
    intervals as the range of y. `ert` is the excess risk of the target coverage, None with fewer than 600 rows.
    """

    kind: Finding
    sentence: str
    confidence_level: float
    coverage: float
    lower: float
    upper: float
    unknown: float
    interval_score: float
    split_interval_score: float
    ert: float | None
    split_ert: float | None

    @property
    def tone(self) -> str:
        """``"good"``, ``"warn"`` or ``"bad"``."""
        tones = {"holds, and tells rows apart": "good", "does not hold": "bad"}
        return tones.get(self.kind, "warn")


class Comparison(NamedTuple):
    """The interval score and, with enough rows, the excess risk, each compared with split conformal's."""

    score: float
    split_score: float
    ert: float | None
    split_ert: float | None
    is_better: bool

    @property
    def words(self) -> str:
        """The comparison as the end of a sentence."""
        ratio, why = f"{self.score / self.split_score:.3g} times" if self.split_score else "not below", ""
        if self.score < self.split_score and not self.is_better:
            why = ", which may be chance"
            if self.ert is not None and self.split_ert is not None and self.ert > self.split_ert + ERT_NOISE:
                why = ", but coverage differs more from row to row than with one width"
        return f"their interval score is {ratio} that of one width for all rows{why}"


def tolerated(confidence_level: float) -> float:
    """The lowest coverage that still passes: 5 points below, or half of the distance to 0 or 1, if that is less.

    At level 99% it is 98.5%: one and a half times the promised errors.
    """
    return confidence_level - min(LARGEST_SHORTFALL, confidence_level / 2.0, (1.0 - confidence_level) / 2.0)


def says_nothing(intervals: Float[NDArray, "n 2 *l"], y_range: tuple[float, float]) -> Bool[NDArray, "n *l"]:
    """Whether an interval is the whole range of y: infinite, or clipped to the range."""
    bottom, top = y_range
    limited: NDArray = (intervals[:, 0] > bottom) | (intervals[:, 1] < top)
    return ~limited


def split_intervals(rows: JudgedRows, levels: Float[NDArray, "l"]) -> Float[NDArray, "n 2 l"]:
    """Intervals with one radius for all rows, the finite-sample quantile of the calibration errors."""
    conformal = GlobalConformal().conformalize(rows.residuals_calib, np.abs(rows.residuals_calib))
    return np.clip(from_radius(rows.y_pred, conformal.radius(rows.y_pred, levels)), *rows.y_range)


def judge(rows: JudgedRows, intervals: Float[NDArray, "n 2"], confidence_level: float) -> Verdict:
    """The verdict on the intervals at one level.

    Does not hold: the coverage band lies below the level. Too many unknown: more than 5% of rows are unknown or
    have an infinite interval. Cannot tell: the band does not exclude coverage below `tolerated`. Otherwise the
    intervals hold and are compared with one width for all. Shares and means are over all rows; sampling error
    is computed from the distinct ones.
    """
    n, hits, n_distinct = len(rows.y), int(covered(rows.y, intervals).sum()), len(rows.distinct)
    lower, upper = (float(end) for end in binomial_band(hits * n_distinct / n, n_distinct))
    unknown = float((~rows.known | says_nothing(intervals, rows.y_range)).mean())
    compared, enough = compare_with_split(rows, intervals, confidence_level), tolerated(confidence_level)
    contain = (
        f"at level {percent(confidence_level)} they contain {percent(hits / n, 1)} of {n:,} true values "
        f"{'' if n_distinct == n else f'in {n_distinct:,} different rows '}"
        f"(exact 95% band {percent(lower, 1)} to {percent(upper, 1)})"
    )
    kind: Finding
    if upper < confidence_level:
        kind = "does not hold"
        sentence = f"The intervals do not hold: {contain}, and chance does not explain so few."
    elif unknown > MOST_UNKNOWN:
        kind = "too many unknown"
        sentence = (
            f"Too many unknown: {percent(unknown, 1)} of {n:,} rows are unlike all training rows or have an "
            f"infinite interval, which says nothing; {contain}."
        )
    elif lower < enough:
        kind = "cannot tell"
        sentence = (
            f"These rows cannot tell whether the intervals hold: {contain}, which does not exclude a "
            f"coverage below {percent(enough)}; that takes about {rows_to_tell(confidence_level):,} rows where the "
            "level is just met."
        )
    elif compared.is_better:
        kind = "holds, and tells rows apart"
        sentence = f"The intervals hold, and tell rows apart: {contain}, and {compared.words}."
    else:
        kind = "holds, but no better than one width for all"
        sentence = (
            f"The intervals hold, but are no better than one width for all: {contain}, and {compared.words}."
        )
    scores = compared.score, compared.split_score, compared.ert, compared.split_ert
    return Verdict(kind, sentence, confidence_level, hits / n, lower, upper, unknown, *scores)


def compare_with_split(
    rows: JudgedRows, intervals: Float[NDArray, "n 2"], confidence_level: float
) -> Comparison:
    """Better means a significantly lower interval score, and no larger excess risk beyond its noise."""
    split = split_intervals(rows, np.array([confidence_level]))[:, :, 0]
    own, others = (
        winkler_scores(rows.y, one, confidence_level, y_range=rows.scored_range) for one in (intervals, split)
    )
    gains = others - own
    n_distinct = len(rows.distinct)
    error = float(gains.std(ddof=1)) / math.sqrt(n_distinct) if n_distinct > 1 else math.inf
    is_better = float(gains.mean()) > BY_CHANCE * error
    ert = split_ert = None
    if n_distinct >= ERT_ROWS:
        # It would learn the answers from copies in the other folds.
        some = rows.distinct[rows.distinct < MOST_ERT_ROWS]
        ert, split_ert = (
            excess_risk_of_target_coverage(
                rows.features[some], rows.y[some], one[some], confidence_level
            ).total
            for one in (intervals, split)
        )
        is_better = is_better and ert <= split_ert + ERT_NOISE
    return Comparison(float(own.mean()), float(others.mean()), ert, split_ert, is_better)


def rows_to_tell(confidence_level: float) -> int:
    """About how many rows, covered exactly at the level, give a band that excludes less than `tolerated`."""
    n = np.unique(np.geomspace(10, 1e8, 400).astype(np.int64))
    lower, _ = binomial_band(np.round(confidence_level * n), n)
    enough = int(n[np.flatnonzero(lower < tolerated(confidence_level))[-1] + 1])
    step = 10 ** (len(str(enough)) - 2)
    return -(-enough // step) * step


def percent(share: float, decimals: int | None = None) -> str:
    """``90%`` for 0.9; with decimals ``90.0%``. Values below 1 never round to 100%, nor values above 0 to 0%."""
    if decimals is None:
        return f"{100.0 * share:.10g}%"
    text = f"{100.0 * share:.{decimals}f}%"
    if share < 1.0 and text == f"{100:.{decimals}f}%":
        return f">{100.0 - 10.0**-decimals:.{decimals}f}%"
    if share > 0.0 and text == f"{0:.{decimals}f}%":
        return f"<{10.0**-decimals:.{decimals}f}%"
    return text
