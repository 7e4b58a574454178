"""What a person would notice about a table's columns: constants, identifiers, and leaks of the target."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lvd._typing import Float, NDArray
from lvd._validation import InputError, Parameter
from lvd.models.coding import looks_unique
from lvd.tables.column_coding import MAX_CATEGORIES, Column, example_of_formatted
from lvd.tables.column_values import are_numbers, holds_levels, is_text, to_texts
from lvd.tables.dates import are_dates

IDENTIFIER = re.compile(
    r"(^|[_\W])(?i:id|ids|key|uuid|guid|index|idx|nr|row|record|serial)$|[a-z](ID|Id|Key)$"
)
"""Common names of columns that number the rows."""
LEAK = 0.99
"""A column that alone explains this share of the target's variance is reported."""
LEAK_ROWS, LEAK_LEAVES, LEAK_FOLDS = 2000, 64, 3


def find_useless(table: pa.Table, names: Sequence[str]) -> dict[str, str]:
    """The columns that are constant or number the rows, each with the reason.

    Integers that count the rows are kept if no other column would remain.
    """
    constant = {name: "constant" for name in names if _is_constant(table[name])}
    others = [name for name in names if name not in constant]
    identifiers = {name: "identifier" for name in others if _is_identifier(name, table[name])}
    if identifiers and len(identifiers) == len(others):
        identifiers = {name: what for name, what in identifiers.items() if not _are_integers(table[name])}
    return constant | identifiers


def find_leaks(
    columns: Sequence[Column], X: Float[NDArray, "n p"], y: Float[NDArray, "n *t"], seed: int
) -> dict[str, float]:
    """The columns that alone predict a target almost perfectly, with the share of its variance that each explains.

    Measured with a small tree on rows it has not seen, and on a sample of large tables. The target or its ranks
    may decide: if a few values are huge, they are all of its variance, and no tree predicts them unseen.
    """
    from scipy.stats import rankdata
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.tree import DecisionTreeRegressor

    rows = np.random.default_rng(seed).permutation(len(X))[:LEAK_ROWS]
    if len(rows) < 10 * LEAK_FOLDS or len(columns) < 2:
        return {}
    some, targets = X[rows], y[rows].reshape(len(rows), -1)
    wanted = [column for column in np.hstack([targets, rankdata(targets, axis=0)]).T if np.ptp(column) > 0.0]
    ends = np.cumsum([len(column.feature_names) for column in columns])
    found = {}
    for column, end in zip(columns, ends.tolist(), strict=True):
        block = some[:, end - len(column.feature_names) : end]
        tree = DecisionTreeRegressor(max_leaf_nodes=LEAK_LEAVES, random_state=0)
        explained = 0.0
        for one in wanted:
            predicted = cross_val_predict(tree, block, one, cv=KFold(LEAK_FOLDS))
            explained = max(explained, 1.0 - float(((one - predicted) ** 2).mean() / one.var()))
        if explained > LEAK:
            found[column.name] = explained
    return found


def _is_constant(values: pa.ChunkedArray) -> bool:
    """Whether all non-missing values are equal."""
    if holds_levels(values.type):
        texts = pc.unique(to_texts(values)).to_pylist()
        return len({text for text in texts if text}) < 2 and (len(texts) < 2 or is_text(values.type))
    try:
        known = pc.drop_null(pc.unique(values))
    except pa.ArrowNotImplementedError:  # lists, structs, small decimals: learning the column decides
        return False
    if pa.types.is_floating(known.type):
        known = known.filter(pc.invert(pc.is_nan(known)))
    return len(known) < 2


def _is_identifier(name: str, values: pa.ChunkedArray) -> bool:
    if name == "" or name.startswith("__index_level_"):
        return True
    if _are_integers(values):
        return _numbers_the_rows(name, values)
    if not is_text(values.type):
        return False
    texts = to_texts(values)
    named = texts.filter(pc.not_equal(texts, ""))
    known = pc.unique(named)
    if not looks_unique(len(known), len(named)) or are_dates(values):
        return False
    if example_of_formatted(known.to_pylist()[: 2 * MAX_CATEGORIES]) is not None:
        return False  # learning the column says what to do
    return bool(2 * are_numbers(known).sum() < len(known)) or IDENTIFIER.search(name) is not None


def _numbers_the_rows(name: str, values: pa.ChunkedArray) -> bool:
    """Whether almost all integers differ, and they fill their range or are named like an identifier."""
    known = pc.drop_null(pc.unique(values))
    numbers = known.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    n_distinct = int((~np.isnan(numbers)).sum())
    if not looks_unique(n_distinct, len(values) - values.null_count):
        return False
    span = float(np.nanmax(numbers) - np.nanmin(numbers)) + 1.0
    return IDENTIFIER.search(name) is not None or n_distinct > 0.9 * span


def _are_integers(values: pa.ChunkedArray) -> bool:
    if pa.types.is_integer(values.type):
        return True
    if not (pa.types.is_floating(values.type) or pa.types.is_decimal128(values.type)):
        return False
    array = np.asarray(values.cast(pa.float64(), safe=False).to_numpy())
    array = array[np.isfinite(array)]
    return len(array) > 0 and bool((array == np.floor(array)).all())


def check_some_left(names: Sequence[str], useless: dict[str, str]) -> None:
    """Raise unless at least one column is an input."""
    if not names:
        raise InputError("no column is left to predict from besides the target and those dropped; keep one")
    if len(useless) == len(names):
        listed = ", ".join(f"{name!r} ({what})" for name, what in list(useless.items())[:10])
        raise InputError(
            f"no column is left to predict from: {listed}; to use one nevertheless: ",
            Parameter("keep", list(useless)[:1]),
        )
