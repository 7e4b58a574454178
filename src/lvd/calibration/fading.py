"""Calibration rows whose weights fade with age, and local quantiles of their scores."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError, Parameter, check_positive

HALF_LIVES = (300.0, 1000.0, 3000.0)
"""The candidates of ``half_life="auto"``, in rows."""
SPANS = {"h": 1.0 / 24.0, "d": 1.0, "w": 7.0}
"""An hour, a day and a week in days."""
FADED = 12.0
"""After this many half-lives (the longest in use), a row weighs less than 0.0003 and is dropped."""


class HalfLives(NamedTuple):
    """Candidate half-lives, in rows or in days."""

    values: Float[NDArray, "h"]
    in_days: bool


def read_half_lives(given: float | str | Sequence[float | str]) -> HalfLives:
    """Parse row counts, or spans such as ``"12h"``, ``"30d"`` and ``"2w"``; ``"auto"`` is :data:`HALF_LIVES`.

    Examples
    --------
    >>> from lvd.calibration.fading import read_half_lives
    >>> read_half_lives(["12h", "2w"])
    HalfLives(values=array([ 0.5, 14. ]), in_days=True)
    """
    if isinstance(given, str) and given == "auto":
        return HalfLives(np.array(HALF_LIVES), False)
    each = list(given) if isinstance(given, list | tuple) else [given]
    spans = [re.fullmatch(r"(\d+\.?\d*)([hdw])", one) for one in each if isinstance(one, str)]
    if not each or None in spans or len(spans) not in (0, len(each)):
        raise InputError(
            Parameter("half_life"),
            f' must be a number of rows, a span such as "12h", "30d" or "2w", a list of either, or "auto", '
            f"got {given!r}",
        )
    values = [float(one[1]) * SPANS[one[2]] for one in spans if one is not None] or each
    for one in values:
        check_positive(one, "half_life")
    return HalfLives(np.array(values, dtype=np.float64), bool(spans))


def fades(ages: Float[NDArray, "m"], half_lives: Float[NDArray, "h"]) -> Float[NDArray, "h m"]:
    """The log weights at these ages; an infinite half-life keeps all weights at 1."""
    return -math.log(2.0) * ages / half_lives[:, None]


def ranked_quantiles(
    weights: Float[NDArray, "h m"], own: Float[NDArray, "h"], levels: Float[NDArray, "h l"]
) -> Int[NDArray, "h l"]:
    """Ranks of weighted quantiles of sorted rows, m if beyond the last; each query's own weight is at +inf."""
    summed = np.cumsum(weights, axis=1)
    total = own + (summed[:, -1] if summed.shape[1] else 0.0)
    ranks = np.stack(
        [np.searchsorted(one, some) for one, some in zip(summed, levels * total[:, None], strict=True)]
    )
    return np.where(levels >= 1.0, weights.shape[1], ranks)


class FadingRows:
    """The newest rows, at most `most`, with s kinds of scores and the sort order of each kind.

    Examples
    --------
    >>> import numpy as np
    >>> from lvd.calibration.fading import FadingRows
    >>> rows = FadingRows(np.zeros((9, 1)), np.arange(1.0, 10.0)[:, None], np.arange(9.0), most=9)
    >>> ways = np.array([3.0, np.inf])  # half-lives
    >>> rows.quantiles(np.zeros((1, 1)), np.ones((1, 2)), 9.0, ways, np.array([[[0.5], [0.9]]]))
    array([[[[8.],
             [9.]]]])
    >>> rows.add(np.zeros((1, 1)), np.array([[0.5]]), np.array([9.0]), longest=np.inf)
    >>> len(rows), rows.scores.min()
    (9, np.float64(0.5))
    """

    def __init__(
        self,
        points: Float[NDArray, "m k"],
        scores: Float[NDArray, "m s"],
        times: Float[NDArray, "m"],
        *,
        most: int,
    ) -> None:
        if not len(points) == len(scores) == len(times) or scores.ndim != 2:
            raise InputError("faded rows need a point, scores and a time each")
        self.points, self.scores, self.times, self.most = points[-most:], scores[-most:], times[-most:], most
        self.order = np.argsort(self.scores, axis=0, kind="stable").T

    def __len__(self) -> int:
        return len(self.scores)

    def add(
        self,
        points: Float[NDArray, "n k"],
        scores: Float[NDArray, "n s"],
        times: Float[NDArray, "n"],
        *,
        longest: float,
    ) -> None:
        """Add new rows; drop the oldest and those whose weight has faded."""
        joined = np.concatenate([self.times, times])
        kept = joined > joined.max(initial=0.0) - FADED * longest
        if kept.sum() > self.most:
            kept &= joined >= np.partition(joined[kept], -self.most)[-self.most]
        joined_scores = np.concatenate([self.scores, scores])
        self.order = np.stack(
            [
                _renumbered(_merged(order, column, len(self)), kept)
                for order, column in zip(self.order, joined_scores.T, strict=True)
            ]
        )
        self.points, self.scores = np.concatenate([self.points, points])[kept], joined_scores[kept]
        self.times = joined[kept]

    def masses(self, now: float, half_lives: Float[NDArray, "h"]) -> Float[NDArray, "h"]:
        """The rows' total weight, ignoring similarity."""
        return np.exp(fades(now - self.times, half_lives)).sum(axis=1)

    def quantiles(
        self,
        queries: Float[NDArray, "n k"],
        bandwidths: Float[NDArray, "n h"],
        now: float,
        half_lives: Float[NDArray, "h"],
        levels: Float[NDArray, "s h l"],
    ) -> Float[NDArray, "n s h l"]:
        """Local quantiles of the scores for each query, kind, half-life and level.

        A row's weight is its similarity to the query times its age factor. If this is too little for a finite
        quantile, similarity is ignored; if even that is too little, the quantile is infinite.
        """
        faded, own = fades(now - self.times, half_lives), np.ones(len(half_lives))
        everywhere = np.exp(faded)
        ends = [
            np.append(column[order], np.inf) for column, order in zip(self.scores.T, self.order, strict=True)
        ]
        anywhere = [
            ranked_quantiles(everywhere[:, order], own, some)
            for order, some in zip(self.order, levels, strict=True)
        ]
        result = np.empty((len(queries), *levels.shape))
        for number, (query, widths) in enumerate(zip(queries, bandwidths, strict=True)):
            distances = np.square(self.points - query).sum(axis=1)
            weights = everywhere * np.exp(-distances / np.square(widths)[:, None])
            for kind, order in enumerate(self.order):
                ranks = ranked_quantiles(weights[:, order], own, levels[kind])
                result[number, kind] = ends[kind][np.where(ranks < len(self), ranks, anywhere[kind])]
        return result

    def to_dict(self) -> dict[str, Any]:
        """The complete state, for saving."""
        return {"points": self.points, "scores": self.scores, "times": self.times}


def _merged(order: Int[NDArray, "m"], scores: Float[NDArray, "p"], n_sorted: int) -> Int[NDArray, "p"]:
    """Merge the order of the leading rows, already sorted, with the order of the rows after them."""
    newer = n_sorted + np.argsort(scores[n_sorted:], kind="stable")
    return np.insert(order, np.searchsorted(scores[order], scores[newer], side="right"), newer)


def _renumbered(order: Int[NDArray, "m"], kept: Bool[NDArray, "m"]) -> Int[NDArray, "k"]:
    """The order of the kept rows, renumbered."""
    numbers = np.cumsum(kept) - 1
    some: NDArray = numbers[order[kept[order]]]
    return some
