"""Which columns make a row's interval wide: Shapley values of the log width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lvd._typing import Float, Int, NDArray
from lvd._validation import is_matrix

ColumnPlaces: TypeAlias = Sequence[tuple[str, Sequence[int]]]
"""Column names, each with the indices of the features derived from it."""
FEWEST_ROWS, N_ORDERS = 10, 64
"""Fewest background rows for an attribution, and how many column orders are sampled."""
NOTEWORTHY, MOST_NAMED = 1.1, 3


@dataclass(frozen=True)
class ColumnShare:
    """The factor by which this column's value widens the row's interval, compared with the background rows."""

    column: str
    times: float


def shapley_values(
    value: Callable[[Int[NDArray, "k c"]], Float[NDArray, "k t"]],
    n_columns: int,
    n_others: int,
    *,
    n_orders: int = N_ORDERS,
    seed: int = 0,
) -> Float[NDArray, "c t"]:
    """Shapley values (c, t) of the row's columns: how much `value` changes when a column takes the row's cell.

    `value` is called on mixed rows: entry (i, j) says where mixture i takes column j from, 0 for the row itself
    and k for the k-th background row. Columns switch to the row's cells one at a time, in random orders and
    their reverses, each starting from a different background row. The mean over orders estimates the Shapley
    values (Castro, Gómez and Tejada 2009); they sum to the row's value minus the mean value of the starting
    rows.
    """
    rng = np.random.default_rng(seed)
    half = [rng.permutation(n_columns) for _ in range(max(1, n_orders // 2))]
    orders = np.array([one for order in half for one in (order, order[::-1])])
    starts = np.resize(rng.permutation(n_others) + 1, len(orders))
    ranks = np.argsort(orders, axis=1)
    taken = ranks[:, None, :] < np.arange(n_columns + 1)[None, :, None]
    mixtures = np.where(taken, 0, starts[:, None, None])
    found = value(mixtures.reshape(-1, n_columns)).reshape(len(orders), n_columns + 1, -1)
    gains = np.diff(found, axis=1)
    return np.take_along_axis(gains, ranks[:, :, None], axis=1).mean(axis=0)


def mix(row: Any, others: Any, places: ColumnPlaces, mixtures: Int[NDArray, "k c"]) -> Any:
    """Build the mixed rows that :func:`shapley_values` evaluates.

    Returns a matrix, or a pandas frame whose columns keep their types.
    """
    if is_matrix(row):
        pool, mixed = np.concatenate([row, others]), np.empty((len(mixtures), row.shape[1]))
        for whose, (_, features) in zip(mixtures.T, places, strict=True):
            mixed[:, list(features)] = pool[np.ix_(whose, list(features))]
        return mixed
    import pandas as pd  # only reached when the rows are a pandas frame

    frame = pd.concat([row, others], ignore_index=True).astype(
        dict(zip(row.columns, row.dtypes, strict=True))
    )
    columns = {
        name: frame[name].take(whose).array for whose, name in zip(mixtures.T, frame.columns, strict=True)
    }
    return pd.DataFrame(columns)


def told(shares: Sequence[ColumnShare]) -> str | None:
    """Name the columns that matter most in one sentence; None if none does."""
    parts = []
    for how, sign in (("wider", 1.0), ("narrower", -1.0)):
        found = [one for one in shares if one.times**sign >= NOTEWORTHY][:MOST_NAMED]
        names = [f"{one.column} ({one.times:.2g} times)" for one in found]
        if names:
            parts.append(f"{how} because of {' and '.join(filter(None, [', '.join(names[:-1]), names[-1]]))}")
    return f"Compared with other rows it is {', and '.join(parts)}." if parts else None
