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

    def distance(self, rows: Float[NDArray, "n p"]) -> Float[NDArray, "n"]:
        """How far the nearest training row is, in units of the limit; at most 1 where it is near."""
        with np.errstate(over="ignore"):
            placed = ((rows - self.mean) / self.scale).clip(-1e18, 1e18).astype(np.float32)
        nearest = self._nearest_distances(placed)
        if self.limit == 0.0:  # all training rows are the same
            return np.where(nearest > 0.0, np.inf, 0.0)
        return nearest / self.limit

    @cached_property
    def _columns(self) -> tuple[Float[NDArray, "p r"], Float[NDArray, "r"]]:
        """The training rows in float64, a column each, and their squared lengths: made once for all predictions."""
        columns = self.rows.T.astype(np.float64)
        return columns, (columns**2).sum(axis=0)

    def _nearest_distances(self, queries: Float[NDArray, "n p"]) -> Float[NDArray, "n"]:
        """How far the nearest row is from each query: found by a product of matrices, then measured exactly."""
        (columns, squares), wide = self._columns, queries.astype(np.float64)
        nearest = np.empty(len(wide), dtype=np.intp)
        for some in chunk_slices(len(wide), max(1, CHUNK // max(1, len(squares)))):
            nearest[some] = np.argmin(squares - 2.0 * (wide[some] @ columns), axis=1)
        return np.sqrt(((wide - self.rows[nearest]) ** 2).sum(axis=1))


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
        far = [space.distance(rows) for space, rows in zip(self.spaces, spaces, strict=True)]
        return np.all(np.array(far) <= np.array(limits)[:, None], axis=0)
