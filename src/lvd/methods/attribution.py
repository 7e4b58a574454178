"""Which columns make the interval of a row wide: Shapley values of the logarithm of its width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lvd._typing import Float, Int, NDArray
from lvd._validation import is_matrix

ColumnPlaces: TypeAlias = Sequence[tuple[str, Sequence[int]]]
"""Columns by their names, each with the numbers of the features that are made of it."""
FEWEST_ROWS, N_ORDERS = 10, 64
"""With fewer rows to compare with nothing is told; so many orders in which columns take their values."""
NOTEWORTHY, MOST_NAMED = 1.1, 3


@dataclass(frozen=True)
class ColumnShare:
    """How many times wider the row's interval is for what the row has in this column, against other rows."""

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
    """What each column adds to `value` when it takes the row's cell in place of another row's.

    `value` is asked for rows that are mixed: entry (i, j) tells whose cell mixture i has in column j, 0 for the row
    itself and k for the k-th of the others. Columns take the row's cells one after the other, in random orders and
    the same orders backwards, each starting at another row. The mean over orders estimates the Shapley values
    (Castro, Gómez and Tejada 2009); they add up to the row's value minus the mean of those started at.
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
    """Rows whose columns are those of the row or of the others, as :func:`shapley_values` asks for them.

    A matrix, or a pandas frame, whose columns keep their types.
    """
    if is_matrix(row):
        pool, mixed = np.concatenate([row, others]), np.empty((len(mixtures), row.shape[1]))
        for whose, (_, features) in zip(mixtures.T, places, strict=True):
            mixed[:, list(features)] = pool[np.ix_(whose, list(features))]
        return mixed
    import pandas as pd  # the rows are one of its frames

    frame = pd.concat([row, others], ignore_index=True).astype(
        dict(zip(row.columns, row.dtypes, strict=True))
    )
    columns = {
        name: frame[name].take(whose).array for whose, name in zip(mixtures.T, frame.columns, strict=True)
    }
    return pd.DataFrame(columns)


def told(shares: Sequence[ColumnShare]) -> str | None:
    """The columns that matter most, in a sentence; None where none does."""
    parts = []
    for how, sign in (("wider", 1.0), ("narrower", -1.0)):
        found = [one for one in shares if one.times**sign >= NOTEWORTHY][:MOST_NAMED]
        names = [f"{one.column} ({one.times:.2g} times)" for one in found]
        if names:
            parts.append(f"{how} for {' and '.join(filter(None, [', '.join(names[:-1]), names[-1]]))}")
    return f"Against other rows it is {', and '.join(parts)}." if parts else None
