"""Do I know this row? How far it is from the nearest training row, and how far beyond the values that the training
rows have in a column: each beside what training rows are to each other.

That is another question than how wide an interval must be, and it gets another answer: the kernel of the
errors sees only the directions in which errors change, and a row may be far out in all the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lvd._parallel import chunk_slices
from lvd._typing import Bool, Float, NDArray
from lvd.models.levels import ColumnLevels, has_levels, levels_of
from lvd.models.scaling import mean_and_scale

MOST_ROWS, CHUNK = 5000, 2**22
PARTS = (256, 1280)
"""Where the training rows are parted, which are in random order."""
BEYOND = 0.002
"""The share of training rows that are further from the others than what is called near."""
OUTLIERS, OUTLIER_ROWS = 2, 250
"""Or so many of them, one for so many rows: an outlier or two should not decide what is far, and among few rows
they need not be outliers."""
FAR, FAR_INPUTS, FAR_EMBEDDED = 1.1, 1.25, 2.0
"""A row is unknown beyond so many times the distance that is near: in the only space there is; in the inputs; and
in the embedding of a row whose inputs or parts are looked at too, which moves ordinary rows apart more unevenly."""
ROOM = 0.1
"""Or when a column of its inputs is beyond the training rows' values by more than this share of their range, and by
more than `FAR` times what training rows are beyond the others.

Every ordinary row that is called unknown costs an infinite interval. With both rules all concrete older than 90
days is found where none was learned from, and 73% of the bad and hot weather of bike. Distances alone, with a limit
of 1.1, found 98% of the one and none of the other, and called half as many ordinary rows again unknown.
"""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Training rows in one space, standardised, and the distance beyond which a row has none of them near.

    The lowest and highest value of each column are those of all training rows, or infinite where no column is
    looked at by itself; `room` is how far beyond them, as a share of their range, a row is still among them.
    """

    mean: Float[NDArray, "p"]
    scale: Float[NDArray, "p"]
    rows: Float[NDArray, "r p"]
    limit: float
    lowest: Float[NDArray, "p"]
    highest: Float[NDArray, "p"]
    room: float

    @classmethod
    def of(cls, rows: Float[NDArray, "n p"], seed: int, *, by_column: bool = True) -> Surroundings:
        """The limits leave a small share of the training rows' own distances and overshoots beyond them."""
        from sklearn.neighbors import NearestNeighbors  # slow to load, and no prediction needs it

        mean, scale = mean_and_scale(rows)
        chosen = np.random.default_rng(seed).permutation(len(rows))[:MOST_ROWS]
        every = _standardised(rows, mean, scale)
        _, first = np.unique(every[chosen], axis=0, return_index=True)
        placed = every[chosen[np.sort(first)]]  # equal rows say nothing about how far apart rows are
        own = NearestNeighbors(n_neighbors=min(2, len(placed))).fit(placed).kneighbors(placed)[0][:, -1]
        if not by_column:
            everywhere = np.full_like(every[0], np.inf)
            return cls(mean, scale, placed, _ordinary(own), -everywhere, everywhere, ROOM)
        lowest, highest, overshoots = ranges(every)
        return cls(mean, scale, placed, _ordinary(own), lowest, highest, room_for(overshoots))

    def place(self, rows: Float[NDArray, "n p"]) -> Float[NDArray, "n p"]:
        """The rows in units of the training rows."""
        return _standardised(rows, self.mean, self.scale).astype(np.float64)

    def near(self, placed: Float[NDArray, "n p"], times: float) -> Bool[NDArray, "n"]:
        """Which rows have a training row within so many times the limit.

        A few training rows answer for most; who is near none of them is compared with more.
        """
        if self.limit == 0.0:  # all training rows are the same
            return np.all(placed == self.rows[0], axis=1)
        near = np.zeros(len(placed), bool)
        for columns, squares in self._parts:
            left = np.flatnonzero(~near)
            near[left] = _within(placed[left], columns, squares, times * self.limit)
        return near

    def among(self, placed: Float[NDArray, "n p"]) -> Bool[NDArray, "n"]:
        """Which rows have no column that is far beyond the training rows' values."""
        return _overshoot(placed, self.lowest, self.highest) <= self.room

    @cached_property
    def _parts(self) -> list[tuple[Float[NDArray, "p r"], Float[NDArray, "r"]]]:
        """The training rows in float64, a column each, and their squared lengths: made once for all predictions."""
        wide = self.rows.astype(np.float64)
        parts = (np.ascontiguousarray(part.T) for part in np.split(wide, PARTS) if len(part))
        return [(columns, (columns**2).sum(axis=0)) for columns in parts]


def _standardised(
    rows: Float[NDArray, "n p"], mean: Float[NDArray, "p"], scale: Float[NDArray, "p"]
) -> NDArray:
    """Standardised rows, rounded and bounded."""
    with np.errstate(over="ignore"):
        return ((rows - mean) / scale).clip(-1e18, 1e18).astype(np.float32)


def room_for(overshoots: Float[NDArray, "n"]) -> float:
    """How far beyond all training rows a row may be, when these are so far beyond each other."""
    return max(ROOM, FAR * _ordinary(overshoots))


def _ordinary(own: Float[NDArray, "n"]) -> float:
    """What a small share of the training rows are beyond."""
    beyond = max(int(BEYOND * len(own)), min(OUTLIERS, len(own) // OUTLIER_ROWS))
    return float(np.sort(own)[-1 - beyond])


def ranges(
    rows: Float[NDArray, "n p"],
) -> tuple[Float[NDArray, "p"], Float[NDArray, "p"], Float[NDArray, "n"]]:
    """The lowest and highest value of each column, and how far each row is beyond all others."""
    if len(rows) < 3:
        return rows.min(axis=0), rows.max(axis=0), np.zeros(len(rows))
    ordered = np.partition(rows, (0, 1, -2, -1), axis=0)
    lowest, next_lowest, next_highest, highest = ordered[[0, 1, -2, -1]]
    below = np.where(rows == lowest, next_lowest, lowest)
    above = np.where(rows == highest, next_highest, highest)
    return lowest, highest, _overshoot(rows, below, above)


def _overshoot(rows: Float[NDArray, "n p"], lowest: NDArray, highest: NDArray) -> Float[NDArray, "n"]:
    """How far the worst column of each row is beyond a range, as a share of it: infinitely, if it is one value."""
    return _overshoots(rows, lowest, highest).max(axis=1, initial=0.0)


def _overshoots(rows: Float[NDArray, "n p"], lowest: NDArray, highest: NDArray) -> Float[NDArray, "n p"]:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        over = np.maximum(lowest - rows, rows - highest)
        return np.where(over > 0.0, over / (highest - lowest), 0.0)


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
class Makeup:
    """What training rows are made of, where inputs say it: the kinds of their parts, and how many a row has.

    `room` is how many below the fewest and above the most are still among them; `name` is what parts are called.
    """

    kinds: tuple[str, ...]
    fewest: int
    most: int
    room: float
    name: str

    @classmethod
    def of(cls, inputs: Any) -> Makeup | None:
        """That of rows with `parts`, such as atoms; None where inputs have none."""
        if not hasattr(inputs, "parts"):
            return None
        rows = inputs.parts()
        kinds = sorted({kind for parts in rows for kind in parts})
        counts = [len(parts) for parts in rows]
        room = max(1.0, ROOM * (max(counts) - min(counts)))
        return cls(tuple(kinds), min(counts), max(counts), room, inputs.parts_are)

    def strange(self, inputs: Any) -> list[str | None]:
        """Why each row is made of something else than all training rows; None for those that are not."""
        rows, seen = inputs.parts(), set(self.kinds)
        found: list[str | None] = []
        for parts in rows:
            if new := sorted(set(parts) - seen):
                found.append(f"no training row has {', '.join(new)} among its {self.name}")
            elif max(self.fewest - len(parts), len(parts) - self.most) > self.room:
                name = self.name.removesuffix("s") if len(parts) == 1 else self.name
                found.append(f"it has {len(parts)} {name}, training rows have {self.fewest} to {self.most}")
            else:
                found.append(None)
        return found


@dataclass(frozen=True, eq=False)
class Familiarity:
    """The training rows in the embedding and then, where inputs are numbers, in the inputs; the levels that they
    have, where inputs are a frame; and what they are made of, where inputs have parts."""

    spaces: tuple[Surroundings, ...]
    levels: ColumnLevels = ()
    makeup: Makeup | None = None

    @classmethod
    def of(cls, spaces: Sequence[NDArray], seed: int, inputs: Any = None) -> Familiarity:
        """What is near in each of the spaces, from the training rows in them."""
        embedding, *numbers = spaces
        near = Surroundings.of(embedding, seed, by_column=False)
        around = (near, *(Surroundings.of(rows, seed) for rows in numbers))
        return cls(around, levels_of(inputs), Makeup.of(inputs))

    def known(self, spaces: Sequence[NDArray], inputs: Any = None) -> Bool[NDArray, "n"]:
        """Whether training rows are near each row, have its levels and are made of what it is."""
        known = self.near(spaces)
        if any(self.levels):
            known &= has_levels(self.levels, inputs)
        if self.makeup is not None:
            known &= np.array([reason is None for reason in self.makeup.strange(inputs)])
        return known

    def near(self, spaces: Sequence[NDArray]) -> Bool[NDArray, "n"]:
        """Whether each row has a training row near it in each space, and inputs among the training rows'."""
        if len(self.spaces) == 1:
            (only,) = self.spaces
            return only.near(only.place(spaces[0]), FAR if self.makeup is None else FAR_EMBEDDED)
        embedding, inputs = self.spaces
        placed = inputs.place(spaces[1])
        near = inputs.near(placed, FAR_INPUTS) & embedding.near(embedding.place(spaces[0]), FAR_EMBEDDED)
        return near & inputs.among(placed)

    def beyond(self, spaces: Sequence[NDArray]) -> list[int | None]:
        """For each row the input that is furthest beyond the training rows' values, if one is too far."""
        if len(self.spaces) == 1:
            return [None] * len(spaces[0])
        inputs = self.spaces[1]
        shares = _overshoots(inputs.place(spaces[1]), inputs.lowest, inputs.highest)
        return [None if row.max() <= inputs.room else int(row.argmax()) for row in shares]
