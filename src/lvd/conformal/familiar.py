"""Do I know this row? How far it is from the nearest training row, beside how far training rows are from each
other.

That is another question than how wide an interval must be, and it gets another answer: the kernel of the
errors sees only the directions in which errors change, and a row may be far out in all the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lvd._parallel import chunk_slices
from lvd._typing import Bool, Float, NDArray
from lvd.models.scaling import mean_and_scale

MOST_ROWS, CHUNK = 5000, 2**22
PARTS = (256, 1280)
"""Where the training rows are parted, which are in random order."""
BEYOND = 0.002
"""The share of training rows that are further from the others than what is called near."""
OUTLIERS, OUTLIER_ROWS = 2, 250
"""Or so many of them, one for so many rows: an outlier or two should not decide what is far, and among few rows
they need not be outliers."""
FAR, FAR_EMBEDDED = 1.1, 1.5
"""A row is unknown beyond so many times the distance that is near: in the inputs or, where they are no numbers, in
the embedding; and in the embedding of a row whose inputs are looked at too.

An embedding moves ordinary rows apart more unevenly than the inputs do, and every ordinary row that is called
unknown costs an infinite interval. Beside the built-in network these limits find 98% of the concrete older than 90
days where none was learned from, and call 2 in 1,000 rows of the arena's tables unknown. One limit of 1.1 for both
spaces finds no more and calls three times as many unknown; rows that must be far in both spaces are 37% of that
concrete; and where what is near is the largest distance seen, 85% of it in other splits.
"""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Training rows in one space, standardised, and the distance beyond which a row has none of them near."""

    mean: Float[NDArray, "p"]
    scale: Float[NDArray, "p"]
    rows: Float[NDArray, "r p"]
    limit: float

    @classmethod
    def of(cls, rows: Float[NDArray, "n p"], seed: int) -> Surroundings:
        """The limit leaves a small share of the training rows' own distances beyond it."""
        from sklearn.neighbors import NearestNeighbors  # slow to load, and no prediction needs it

        mean, scale = mean_and_scale(rows)
        chosen = np.random.default_rng(seed).permutation(len(rows))[:MOST_ROWS]
        placed = ((rows[chosen] - mean) / scale).astype(np.float32)
        own = NearestNeighbors(n_neighbors=min(2, len(placed))).fit(placed).kneighbors(placed)[0][:, -1]
        beyond = max(int(BEYOND * len(own)), min(OUTLIERS, len(own) // OUTLIER_ROWS))
        return cls(mean, scale, placed, float(np.sort(own)[-1 - beyond]))

    def near(self, rows: Float[NDArray, "n p"], times: float) -> Bool[NDArray, "n"]:
        """Which rows have a training row within so many times the limit.

        A few training rows answer for most; who is near none of them is compared with more.
        """
        with np.errstate(over="ignore"):
            placed = ((rows - self.mean) / self.scale).clip(-1e18, 1e18).astype(np.float32).astype(np.float64)
        if self.limit == 0.0:  # all training rows are the same
            return np.all(placed == self.rows[0], axis=1)
        near = np.zeros(len(placed), bool)
        for columns, squares in self._parts:
            left = np.flatnonzero(~near)
            near[left] = _within(placed[left], columns, squares, times * self.limit)
        return near

    @cached_property
    def _parts(self) -> list[tuple[Float[NDArray, "p r"], Float[NDArray, "r"]]]:
        """The training rows in float64, a column each, and their squared lengths: made once for all predictions."""
        wide = self.rows.astype(np.float64)
        parts = (np.ascontiguousarray(part.T) for part in np.split(wide, PARTS) if len(part))
        return [(columns, (columns**2).sum(axis=0)) for columns in parts]


def _within(
    queries: Float[NDArray, "n p"],
    columns: Float[NDArray, "p r"],
    squares: Float[NDArray, "r"],
    distance: float,
) -> Bool[NDArray, "n"]:
    """Which queries are within a distance of some column."""
    nearest = np.empty(len(queries))
    for some in chunk_slices(len(queries), max(1, CHUNK // len(squares))):
        nearest[some] = np.min(squares - 2.0 * (queries[some] @ columns), axis=1)
    return nearest + (queries**2).sum(axis=1) <= distance**2


@dataclass(frozen=True, eq=False)
class Familiarity:
    """The training rows in the embedding and then, where inputs are numbers, in the inputs."""

    spaces: tuple[Surroundings, ...]

    @classmethod
    def of(cls, spaces: Sequence[NDArray], seed: int) -> Familiarity:
        """What is near in each of the spaces, from the training rows in them."""
        return cls(tuple(Surroundings.of(rows, seed) for rows in spaces))

    def known(self, spaces: Sequence[NDArray]) -> Bool[NDArray, "n"]:
        """Whether each row has a training row near it, in each of the spaces."""
        limits = [FAR_EMBEDDED] * (len(self.spaces) - 1) + [FAR]
        asked = zip(self.spaces, spaces, limits, strict=True)
        return np.all([space.near(rows, times) for space, rows, times in asked], axis=0)
