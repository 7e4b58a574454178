"""Do I know this row? How far it is from the nearest training row, beside how far training rows are from each
other.

That is another question than how wide an interval must be, and it gets another answer: the kernel of the
errors sees only the directions in which errors change, and a row may be far out in all the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.neighbors import NearestNeighbors

from lvd._typing import Bool, Float, NDArray
from lvd.models.scaling import mean_and_scale

MOST_ROWS = 5000
MAX_UNKNOWN = 0.002
"""The share of ordinary rows that may be called unknown, over all spaces in which rows are compared.

Every such row costs an infinite interval: at 1% they made up a twentieth of the mean interval score.
"""
FEWEST_BEYOND = 2


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Training rows in one space, standardised, and the distance beyond which a row has none of them near."""

    mean: Float[NDArray, "p"]
    scale: Float[NDArray, "p"]
    rows: Float[NDArray, "r p"]
    limit: float

    @classmethod
    def of(cls, rows: Float[NDArray, "n p"], share: float, seed: int) -> Surroundings:
        """The limit leaves `share` of the training rows' own distances beyond it, and no fewer than two: an
        outlier or two among them should not decide what is far."""
        mean, scale = mean_and_scale(rows)
        chosen = np.random.default_rng(seed).permutation(len(rows))[:MOST_ROWS]
        placed = ((rows[chosen] - mean) / scale).astype(np.float32)
        own = NearestNeighbors(n_neighbors=min(2, len(placed))).fit(placed).kneighbors(placed)[0][:, -1]
        beyond = min(max(FEWEST_BEYOND, int(share * len(own))), len(own) - 1)
        return cls(mean, scale, placed, float(np.sort(own)[-1 - beyond]))

    def near(self, rows: Float[NDArray, "n p"]) -> Bool[NDArray, "n"]:
        """Whether a training row is near."""
        with np.errstate(over="ignore"):
            placed = ((rows - self.mean) / self.scale).clip(-1e18, 1e18).astype(np.float32)
        search = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(self.rows)
        return search.kneighbors(placed)[0][:, 0] <= self.limit


@dataclass(frozen=True, eq=False)
class Familiarity:
    """The training rows in the embedding and, where inputs are numbers, in the inputs too."""

    spaces: tuple[Surroundings, ...]

    @classmethod
    def of(cls, spaces: Sequence[NDArray], seed: int) -> Familiarity:
        """All spaces together call at most about :data:`MAX_UNKNOWN` of ordinary rows unknown."""
        share = MAX_UNKNOWN / len(spaces)
        return cls(tuple(Surroundings.of(rows, share, seed) for rows in spaces))

    def known(self, spaces: Sequence[NDArray]) -> Bool[NDArray, "n"]:
        """Whether each row has a training row near it in every space."""
        near = [space.near(rows) for space, rows in zip(self.spaces, spaces, strict=True)]
        return np.logical_and.reduce(near)
