"""Inputs of any kind as a numeric matrix, so that rows can be compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.sparse import issparse

from lvd._typing import Bool, Float, NDArray
from lvd._validation import InputError, is_matrix, to_numpy

MOST_LEVELS, LEAST_LEVEL = 30, 0.005
"""At most this many levels get a column of their own: the most frequent, each with at least this share of rows."""
MOST_CODES = 250
"""The most levels of a category that histogram boosting accepts."""
NEW_LEVEL = -1.0
"""Marks a category level unseen in `fit` in its features, which otherwise hold 0 and 1, or shares."""
WIDE, N_AXES = 200, 50
"""A sparse matrix with more columns than the first number is projected to the second."""


@dataclass(frozen=True, eq=False)
class InputCoding:
    """How inputs become numbers, learned from the training rows.

    Numeric columns are kept, with missing values replaced by the mean; if training rows lack some, an extra
    column flags them. Any other column becomes one 0/1 column per frequent level; rare or unseen levels are 0
    in all of them. A sparse matrix is kept unless it is wide: then it is projected onto its leading singular
    vectors.
    """

    means: tuple[float | None, ...] = ()
    gaps: tuple[bool, ...] = ()
    levels: tuple[tuple[str, ...], ...] = ()
    axes: Float[NDArray, "k p"] | None = None

    @classmethod
    def of(cls, inputs: Any) -> InputCoding:
        """Learn the coding from rows: a frame, an array, or a sparse matrix."""
        if issparse(inputs):
            return cls(axes=_main_axes(inputs) if inputs.shape[1] > WIDE else None)
        coded = [_learn_coding(column) for column in input_columns(inputs)]
        means, gaps, levels = zip(*coded, strict=True) if coded else ((), (), ())
        return cls(means, gaps, levels)

    @property
    def categorical(self) -> bool:
        """Whether some column is not numeric."""
        return None in self.means

    @property
    def of_numbers(self) -> Bool[NDArray, "k"]:
        """Which coded columns come from numeric columns."""
        parts = zip(self.means, self.gaps, self.levels, strict=True)
        flags = [[False] * len(levels) if mean is None else [True] * (1 + gap) for mean, gap, levels in parts]
        return np.array([one for part in flags for one in part], dtype=bool)

    def __call__(self, inputs: Any) -> Float[NDArray, "n k"]:
        """The rows as numbers."""
        return self.filled(self.with_gaps(inputs))

    def with_gaps(self, inputs: Any) -> Float[NDArray, "n k"]:
        """The rows as numbers, with NaN for missing ones."""
        if issparse(inputs):
            return np.asarray(inputs.toarray() if self.axes is None else inputs @ self.axes.T, np.float64)
        plain = is_matrix(inputs) and inputs.shape[1] == len(self.means)
        if plain and not self.categorical and not any(self.gaps) and not np.isinf(inputs).any():
            return np.asarray(inputs, np.float64)
        columns = input_columns(inputs)
        if len(columns) != len(self.means):
            raise InputError(
                f"the estimator sees {len(columns)} columns, but saw {len(self.means)} in fit; give the same"
            )
        coded: list[NDArray] = []
        for column, mean, gap, levels in zip(columns, self.means, self.gaps, self.levels, strict=True):
            if mean is None:
                texts = read_texts(column)
                coded.extend((texts == level).astype(np.float64) for level in levels)
                continue
            values = _read_numbers(column)
            if values is None:
                raise InputError("a column of X that held numbers in fit holds something else; give numbers")
            coded.extend([values, np.isnan(values).astype(np.float64)] if gap else [values])
        return np.stack(coded, axis=1)

    def filled(self, coded: Float[NDArray, "n k"]) -> Float[NDArray, "n k"]:
        """The coded rows with missing values replaced by the means."""
        if not np.isnan(coded).any():
            return coded
        parts = zip(self.means, self.gaps, self.levels, strict=True)
        means = [[0.0] * len(levels) if mean is None else [mean] + [0.0] * gap for mean, gap, levels in parts]
        return fill_in(coded, np.concatenate(means))

    def filled_inputs(self, X: Any) -> Float[NDArray, "n p"] | None:
        """The matrix with missing values replaced by the means; None if it has none or is not a matrix."""
        return fill_matrix(X, np.array(self.means, np.float64))


def one_hot_blocks(X: Float[NDArray, "n p"]) -> list[tuple[int, int]]:
    """The (start, stop) of every run of 0/1 columns in which each row has at most one 1.

    Runs of two columns or fewer, runs too long for histogram boosting, and runs in which most rows have no 1 do
    not count.
    """
    binary = ((X == 0.0) | (X == 1.0)).all(axis=0)
    blocks, start = [], 0
    while start < X.shape[1]:
        stop, total = start, np.zeros(len(X))
        while stop < X.shape[1] and binary[stop] and (total + X[:, stop]).max() <= 1.0:
            total += X[:, stop]
            stop += 1
        if 3 <= stop - start <= MOST_CODES and total.mean() >= 0.5:
            blocks.append((start, stop))
        start = max(stop, start + 1)
    return blocks


def undo_one_hot(X: Float[NDArray, "n p"], blocks: Sequence[tuple[int, int]]) -> Float[NDArray, "n q"]:
    """Turn each block into one column of integer categories, NaN where no column is 1; other columns follow."""
    if not blocks:
        return X
    rest = np.ones(X.shape[1], bool)
    codes = []
    for start, stop in blocks:
        rest[start:stop] = False
        hot = X[:, start:stop] == 1.0
        codes.append(np.where(hot.any(axis=1), hot.argmax(axis=1), np.nan))
    return np.column_stack([*codes, X[:, rest]])


def fill_in(X: Float[NDArray, "n p"], means: Float[NDArray, "p"]) -> Float[NDArray, "n p"]:
    """The rows with missing values replaced by the means."""
    return np.where(np.isnan(X), means, X)


def fill_matrix(X: Any, means: Float[NDArray, "p"]) -> Float[NDArray, "n p"] | None:
    """:func:`fill_in` for a matrix; None if nothing is missing or it is not a matrix."""
    return fill_in(X, means) if is_matrix(X) and np.isnan(X).any() else None


def column_means(X: Float[NDArray, "n p"]) -> Float[NDArray, "p"]:
    """The mean of the known values in each column; 0 if there are none."""
    return np.array([_known_mean(column) for column in X.T])


def _known_mean(column: Float[NDArray, "n"]) -> float:
    known = column[~np.isnan(column)]
    return float(known.mean()) if len(known) else 0.0


def _frequent(texts: NDArray) -> tuple[str, ...]:
    """The most frequent levels, sorted; ties are broken alphabetically."""
    least = max(2, LEAST_LEVEL * len(texts))
    counted = sorted((-count, text) for text, count in Counter(texts.tolist()).items() if count >= least)
    return tuple(sorted(text for _, text in counted[:MOST_LEVELS]))


def input_columns(inputs: Any) -> list[Any]:
    """The columns of a frame or of a matrix."""
    if hasattr(inputs, "iloc"):
        return [inputs.iloc[:, number] for number in range(inputs.shape[1])]
    if hasattr(inputs, "columns"):
        return [inputs[name] for name in inputs.columns]
    array = to_numpy(inputs)
    if array.ndim != 2:
        raise InputError(
            "the inputs have no columns that could serve as embedding; give a function from rows to embeddings"
        )
    return list(array.T)


def _learn_coding(column: Any) -> tuple[float | None, bool, tuple[str, ...]]:
    """The mean of a numeric column and whether values are missing, or the frequent levels of any other column."""
    values = None if is_category(column) else _read_numbers(column)
    if values is None:
        return None, False, _frequent(read_texts(column))
    missing = np.isnan(values)
    return _known_mean(values), bool(missing.any() and not missing.all()), ()


def is_category(column: Any) -> bool:
    """Whether a frame's column has a categorical type."""
    return str(getattr(column, "dtype", "")).lower().startswith(("categor", "enum"))


def _read_numbers(column: Any) -> Float[NDArray, "n"] | None:
    values = np.asarray(column)
    if values.dtype.kind == "O":
        missing = np.array([is_missing(value) for value in values])
        if not all(isinstance(value, Real) for value in values[~missing]):
            return None
        values = np.where(missing, np.nan, values)
    elif values.dtype.kind not in "biuf":
        return None
    numbers = values.astype(np.float64)
    if np.isinf(numbers).any():
        name = getattr(column, "name", None)
        where = "" if name is None else f", in column {name}"
        raise InputError(f"X contains infinity{where}; a missing value is NaN, any other must be finite")
    return numbers


def read_texts(column: Any) -> NDArray:
    """Each value as a string; missing ones become empty."""
    values = np.asarray(column).astype(object)
    return np.array(["" if is_missing(value) else str(value) for value in values], dtype=object)


def looks_unique(n_distinct: int, n_rows: int) -> bool:
    """Whether nearly every row has its own value, as in identifiers and free text."""
    return n_distinct >= 10 and n_distinct > 0.9 * n_rows


def is_missing(value: Any) -> bool:
    """Whether a cell is empty."""
    nan = isinstance(value, float) and math.isnan(value)
    return value is None or nan or type(value).__name__ in {"NAType", "NaTType"}


def _main_axes(matrix: Any) -> Float[NDArray, "k p"]:
    from sklearn.utils.extmath import randomized_svd  # not needed for prediction

    n_axes = min(N_AXES, *matrix.shape)
    return np.ascontiguousarray(randomized_svd(matrix, n_axes, random_state=0)[2], dtype=np.float64)
