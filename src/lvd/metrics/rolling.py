"""Coverage, width and unknown rows over time, from sums over a bounded number of blocks of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lvd._typing import Bool, Float, NDArray
from lvd._validation import InputError
from lvd.intervals import binomial_band

SUMS = ("moment", "rows", "covered", "finite", "width", "unknown")
"""What is summed over a block; widths are those of finite intervals."""
ROWS = SUMS.index("rows")
MOST_BLOCKS, FEWEST_IN_WINDOW, WINDOWS = 256, 50, 20
"""A rolling window holds a twentieth of the rows, but at least this many."""


class OverTime(NamedTuple):
    """For windows of `window` rows ending at each moment: coverage with its exact 95% band, mean finite width,
    and the share of unknown rows."""

    window: int
    moments: Float[NDArray, "k"]
    coverage: Float[NDArray, "k"]
    lower: Float[NDArray, "k"]
    upper: Float[NDArray, "k"]
    width: Float[NDArray, "k"]
    unknown: Float[NDArray, "k"]


class TimeBlocks:
    """Rows in order of arrival, summed in at most 256 blocks; beyond that, pairs of blocks are merged.

    Examples
    --------
    >>> import numpy as np
    >>> from lvd.metrics.rolling import TimeBlocks
    >>> blocks = TimeBlocks()
    >>> for day in range(1000):
    ...     blocks.add(np.array([day, 1.0, day < 500, 1.0, 2.0, 0.0]))
    >>> len(blocks.sums), blocks.size
    (250, 4)
    >>> found = blocks.rolling()
    >>> found.window, found.coverage[[0, -1]]
    (52, array([1., 0.]))
    """

    def __init__(self, sums: Float[NDArray, "b 6"] | None = None, size: int = 1) -> None:
        self.sums = np.empty((0, len(SUMS))) if sums is None else sums
        self.size = size
        if self.sums.ndim != 2 or self.sums.shape[1] != len(SUMS) or size < 1:
            raise InputError("blocks over time need a size and six sums each")

    @classmethod
    def of(
        cls,
        moments: Float[NDArray, "n"],
        covered: Bool[NDArray, "n"],
        widths: Float[NDArray, "n"],
        known: Bool[NDArray, "n"],
    ) -> TimeBlocks:
        """Rows whose moments are known, in any order."""
        size = -(-len(moments) // MOST_BLOCKS)
        rows = sums_of(moments, covered, widths, known)[np.argsort(moments, kind="stable")]
        return cls(np.add.reduceat(rows, np.arange(0, len(rows), size)), size)

    def add(self, row: Float[NDArray, "6"]) -> None:
        """One more row, as :func:`sums_of` has it."""
        if not len(self.sums) or self.sums[-1, ROWS] >= self.size:
            self.sums = np.concatenate([self.sums, row[None]])
        else:
            self.sums[-1] += row
        if len(self.sums) > MOST_BLOCKS:
            self.sums = np.add.reduceat(self.sums, np.arange(0, len(self.sums), 2))
            self.size *= 2

    def rolling(self) -> OverTime:
        """The window that ends with each block; the first one is full, if there are enough rows."""
        total = self.sums[:, ROWS].sum()
        n_blocks = min(len(self.sums), -(-max(FEWEST_IN_WINDOW, int(total) // WINDOWS) // self.size))
        summed = np.cumsum(np.concatenate([np.zeros((1, len(SUMS))), self.sums]), axis=0)
        _, rows, hits, finite, width, unknown = (summed[n_blocks:] - summed[:-n_blocks]).T
        lower, upper = binomial_band(hits, rows)
        last = self.sums[n_blocks - 1 :]
        width = np.divide(width, finite, out=np.full(len(width), np.nan), where=finite > 0)
        moments = last[:, 0] / last[:, ROWS]
        return OverTime(n_blocks * self.size, moments, hits / rows, lower, upper, width, unknown / rows)


def sums_of(
    moments: Float[NDArray, "n"],
    covered: Bool[NDArray, "n"],
    widths: Float[NDArray, "n"],
    known: Bool[NDArray, "n"],
) -> Float[NDArray, "n 6"]:
    """Each row's contribution to the sums of its block."""
    finite = np.isfinite(widths)
    columns = (moments, np.ones(len(moments)), covered, finite, np.where(finite, widths, 0.0), ~known)
    return np.column_stack(columns).astype(np.float64)
