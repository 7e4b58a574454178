"""Rows other than a plain array: sparse matrices, and several named arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from lvd._typing import ArrayLike
from lvd._validation import InputError, check_same_length, to_numpy


@dataclass(frozen=True, eq=False)
class SparseRows:
    """The rows of a sparse matrix, with the length and row indexing that scipy lacks."""

    matrix: Any

    @classmethod
    def of(cls, X: Any, n_columns: int | None) -> SparseRows:
        """The rows of `X`, checked to be finite and to have the columns of `fit`."""
        matrix = X.matrix if isinstance(X, cls) else X.tocsr()
        if 0 in matrix.shape:
            raise InputError(f"X is empty: its shape is {matrix.shape}; give at least one row and one column")
        if not np.isfinite(matrix.data).all():
            raise InputError("X contains NaN or infinity; remove or impute these rows first")
        if n_columns is not None and matrix.shape[1] != n_columns:
            raise InputError(
                f"X has {matrix.shape[1]} features, but lvd is expecting {n_columns} features as input, as in fit; "
                "give the same columns in the same order"
            )
        return cls(matrix)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.matrix.shape

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, rows: Any) -> SparseRows:
        return SparseRows(self.matrix[rows[0] if isinstance(rows, tuple) else rows])

    def __iter__(self) -> Iterator[Any]:
        """Yield a digest of each row."""
        canonical = csr_array(self.matrix, dtype=np.float64, copy=True)
        canonical.sum_duplicates()
        canonical.eliminate_zeros()
        for start, end in zip(canonical.indptr[:-1], canonical.indptr[1:], strict=True):
            yield canonical.indices[start:end].tolist(), canonical.data[start:end].tolist()


def named_in_order(arrays: tuple[Any, ...], names: list[str] | None) -> dict[str, Any]:
    """The arrays of a tuple, keyed by the module's argument names; None if it takes any number."""
    if names is None or len(names) < len(arrays):
        takes = (
            "any number of arguments" if names is None else f"{len(names)} argument(s): {', '.join(names)}"
        )
        raise InputError(
            f"X is a tuple of {len(arrays)} arrays, and the module takes {takes}; give a dict of arrays, "
            "or a module with an argument for each"
        )
    return dict(zip(names, arrays, strict=False))


@dataclass(frozen=True, eq=False)
class NamedRows:
    """Several arrays with one entry per row, keyed by a module's argument names."""

    arrays: Mapping[str, Any]

    @classmethod
    def of(cls, X: NamedRows | Mapping[str, ArrayLike], names: list[str] | None) -> NamedRows:
        """The rows of `X`, checked to be numeric arrays of equal length with the names of `fit`."""
        if isinstance(X, NamedRows):
            return X
        arrays = {str(name): to_numpy(array) for name, array in X.items()}
        if names is not None and sorted(arrays) != names:
            raise InputError(
                f"X holds {', '.join(sorted(arrays)) or 'nothing'}, but in fit it held {', '.join(names)}"
            )
        if not arrays:
            raise InputError("X is an empty dict; give an array for each argument of the module")
        for name, array in arrays.items():
            if array.dtype.kind not in "biuf" or not array.ndim or not np.isfinite(array).all():
                raise InputError(f"X[{name!r}] must hold finite numbers, with one entry for each row")
        check_same_length(**{f"X[{name!r}]": array for name, array in arrays.items()})
        return cls(arrays)

    @property
    def shape(self) -> tuple[int]:
        """The number of rows."""
        return (len(self),)

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, rows: Any) -> NamedRows:
        chosen = rows[0] if isinstance(rows, tuple) else rows
        return NamedRows({name: array[chosen] for name, array in self.arrays.items()})

    def __iter__(self) -> Iterator[Any]:
        """Yield a digest of each row."""
        return zip(*(array.tolist() for array in self.arrays.values()), strict=True)
