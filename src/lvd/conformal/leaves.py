"""The leaf of the index that each calibration row is in: found once, kept while rows come, go and are scored anew.

All that the index says is computed from the rows that are in a leaf: where a row is put decides about speed alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import chunk_slices, workers
from lvd._typing import Float, Int
from lvd._validation import InputError, check_choice
from lvd.conformal.index import partition
from lvd.kernels.tiles import CPU_ELEMENTS

SEARCHES = ("auto", "all", "index")
LEAF_ROWS, FRESH_ROWS = 256, 240
"""Smaller leaves are tighter, but queries must be held against more of them. A fresh one has room for more rows."""
LEAF_RADIUS = 3.0
FEWEST_ROWS = 4
"""Leaves that hold fewer rows than this on average are made anew: memory is by the leaf, fresh ones hold more."""
NOWHERE = -1


@dataclass
class Leaves:
    """The leaf of each calibration row in order of arrival, found for the rows of a group when first asked for.

    Parameters
    ----------
    numbers : the leaf of each row, counted within its group; -1 for a row that is in none yet.
    search : whether to search the leaves at all, as in :class:`LocalConformal`.
    n_changed : how many rows have come and gone since the leaves were made, or loaded. When these are more than
        half of the rows there are, new leaves are made: old ones may hold few rows, or lie badly.
    """

    numbers: Int[Tensor, "m"]
    search: str = "auto"
    n_changed: int = 0

    @classmethod
    def unknown(cls, n_rows: int, search: str = "auto") -> Leaves:
        """No row is in a leaf yet."""
        return cls(torch.full((n_rows,), NOWHERE, dtype=torch.int32), search)

    @property
    def found(self) -> bool:
        """Whether some rows are in leaves."""
        return bool((self.numbers > NOWHERE).any())

    def of(self, rows: Int[Tensor, "g"], points: Float[Tensor, "g k"]) -> Int[Tensor, "g"]:
        """The leaves of the rows of a group; a row that is in none is put into one."""
        placed = place(points, self.numbers[rows])
        self.numbers[rows] = placed
        return placed

    def joined(self, n_newer: int) -> Leaves:
        """The leaves when so many rows have come, which are in none yet."""
        nowhere = self.numbers.new_full((n_newer,), NOWHERE)
        return self._changed(torch.cat([self.numbers, nowhere]), n_newer)

    def newest(self, count: int) -> Leaves:
        """The leaves of the rows that came last."""
        kept = self.numbers[-count:].clone()
        return self._changed(kept, len(self.numbers) - len(kept))

    def _changed(self, numbers: Int[Tensor, "r"], n_rows: int) -> Leaves:
        n_changed = self.n_changed + n_rows
        if not self.found or 2 * n_changed > len(numbers):
            return Leaves.unknown(len(numbers), self.search)
        return Leaves(numbers, self.search, n_changed)


def place(points: Float[Tensor, "m k"], numbers: Int[Tensor, "m"]) -> Int[Tensor, "m"]:
    """Leaves numbered from 0 on, none of them empty, for rows of which some are in none yet.

    Such a row joins the leaf with the nearest centre. A leaf that has become too large, or that a far row has
    joined, is cut where a fresh one would be; the others stay as they are.
    """
    new = numbers == NOWHERE
    known, numbers = numbers[~new].unique(return_inverse=True)[1], numbers.clone()
    n_leaves = int(known.max()) + 1 if len(known) else 0
    if n_leaves == 0 or n_leaves * FEWEST_ROWS > len(known):
        return cut(points, FRESH_ROWS)
    numbers[~new] = known.int()
    centres = _centres(points[~new], known, n_leaves)
    joined = nearest(points[new], centres)
    numbers[new] = joined.int()
    sizes = numbers.bincount(minlength=n_leaves)
    again = sizes > LEAF_ROWS
    far = (points[new] - centres[joined]).square().sum(1) > LEAF_RADIUS**2
    again[joined[far]] = True
    members = numbers.argsort(stable=True).split(sizes.tolist())
    for leaf in again.nonzero()[:, 0].tolist():
        rows = members[leaf]
        parts = cut(points[rows], FRESH_ROWS if len(rows) > LEAF_ROWS else LEAF_ROWS)
        # One part keeps the number, the others have new ones.
        numbers[rows] = torch.where(parts == 0, leaf, n_leaves - 1 + parts)
        n_leaves += int(parts.max())
    return numbers


def cut(points: Float[Tensor, "m k"], most: int) -> Int[Tensor, "m"]:
    """The leaf of each row when rows are cut into leaves of at most `most` neighbours."""
    numbers = torch.empty(len(points), dtype=torch.int32)
    # Torch's threads make nothing but trouble in many small operations.
    with workers(1):
        for leaf, rows in enumerate(partition(points, most, LEAF_RADIUS, regular=True)):
            numbers[rows] = leaf
    return numbers


def nearest(points: Float[Tensor, "n k"], centres: Float[Tensor, "c k"]) -> Int[Tensor, "n"]:
    """The number of the centre nearest to each point, as float32 has it; never a whole matrix of distances."""
    middle = centres.mean(0)
    queries, targets = (points - middle).float(), (centres - middle).float()
    norms = targets.square().sum(1) / 2.0
    found = torch.empty(len(points), dtype=torch.int64)

    def find(rows: slice) -> None:
        # Half the squared distances but for those of the points from the middle.
        halves = torch.addmm(norms, queries[rows], targets.T, alpha=-1.0)
        found[rows] = torch.from_numpy(halves.numpy().argmin(1))

    with workers() as run:
        run(find, chunk_slices(len(points), max(1, CPU_ELEMENTS // len(centres))))
    return found


def check_search(search: Any, kernel_floor: float | str) -> None:
    """One of the ways to search; the index is for kernels without a floor."""
    check_choice(search, "search", SEARCHES)
    if search == "index" and kernel_floor != 0.0:
        raise InputError(
            'search="index" leaves out rows without weight, and with a kernel floor there are none; give '
            'search="auto", or kernel_floor=0'
        )


def check_leaves(numbers: Any, n_rows: int) -> Int[Tensor, "m"]:
    """Numbers that were saved. Wrong ones within these rules make a search slower, and change no result."""
    if not isinstance(numbers, Tensor) or numbers.dtype != torch.int32 or numbers.shape != (n_rows,):
        raise InputError(
            f"leaves must be int32 numbers, one for each of {n_rows} rows, got "
            f"{getattr(numbers, 'dtype', type(numbers).__name__)} of shape {tuple(np.shape(numbers))}"
        )
    if n_rows > 0 and int(numbers.min()) < NOWHERE:
        raise InputError(f"leaves must be numbered from 0 on, or -1 for none, got {int(numbers.min())}")
    return numbers


def _centres(points: Float[Tensor, "m k"], leaves: Int[Tensor, "m"], n_leaves: int) -> Float[Tensor, "c k"]:
    sums = points.new_zeros(n_leaves, points.shape[1]).index_add_(0, leaves, points)
    return sums / leaves.bincount()[:, None]
