"""Whether the intervals hold on these rows, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from lvd._typing import Bool, NDArray
from lvd.metrics import binomial_band
from lvd.page.numbers import percent

Finding: TypeAlias = Literal["holds", "cannot tell", "fails"]

LARGEST_SHORTFALL = 0.05


@dataclass(frozen=True)
class Verdict:
    """The share of true values inside their interval with its exact 95% band, and what follows from it."""

    kind: Finding
    sentence: str
    coverage: float
    lower: float
    upper: float


def tolerated(confidence_level: float) -> float:
    """The lowest coverage that still passes: 5 points short, or half of the way to 0 or 1, if that is less.

    So at level 99% it is 98.5%: half as many errors again as promised.
    """
    return confidence_level - min(LARGEST_SHORTFALL, confidence_level / 2.0, (1.0 - confidence_level) / 2.0)


def judge(is_covered: Bool[NDArray, "n"], unlimited: Bool[NDArray, "n"], confidence_level: float) -> Verdict:
    """Fails: the band is below the level. Holds: it does not, and excludes less than `tolerated`."""
    n, hits = len(is_covered), int(is_covered.sum())
    lower, upper = (float(end) for end in binomial_band(hits, n))
    enough = tolerated(confidence_level)
    kind: Finding = "fails" if upper < confidence_level else "holds" if lower >= enough else "cannot tell"
    if unlimited.all():
        kind = "cannot tell"
    contain = f"at level {percent(confidence_level)} they contain {percent(hits / n, 1)} of {n:,} true values"
    band = f"(exact 95% band {percent(lower, 1)} to {percent(upper, 1)})"
    if unlimited.all():
        sentence = (
            f"These rows cannot tell whether the intervals hold: at level {percent(confidence_level)} all {n:,} "
            "are infinite: they contain everything and say nothing."
        )
    elif kind == "fails":
        sentence = f"The intervals fail: {contain} {band}, and chance does not explain so few."
    elif kind == "holds":
        sentence = (
            f"The intervals hold: {contain} {band}, which excludes a coverage below {percent(enough)}"
            f"{_infinite_clause(unlimited)}."
        )
    else:
        sentence = (
            f"These rows cannot tell whether the intervals hold: {contain} {band}, which does not exclude a "
            f"coverage below {percent(enough)}; where the level is just met, that takes about "
            f"{rows_to_tell(confidence_level):,} rows{_infinite_clause(unlimited)}."
        )
    return Verdict(kind, sentence, hits / n, lower, upper)


def rows_to_tell(confidence_level: float) -> int:
    """About how many rows, covered just at the level, give a band that excludes less than `tolerated`."""
    n = np.unique(np.geomspace(10, 1e8, 400).astype(np.int64))
    lower, _ = binomial_band(np.round(confidence_level * n), n)
    enough = int(n[np.flatnonzero(lower < tolerated(confidence_level))[-1] + 1])
    step = 10 ** (len(str(enough)) - 2)
    return -(-enough // step) * step


def _infinite_clause(unlimited: Bool[NDArray, "n"]) -> str:
    share = float(unlimited.mean())
    return f"; {percent(share, 1)} of them are infinite and hold trivially" if share else ""
