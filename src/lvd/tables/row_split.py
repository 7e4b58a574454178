"""Which rows train, calibrate and test: at random, in time or by groups; and how a model recognises them later."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError, Parameter, row_digests
from lvd.tables.column_coding import check_texts
from lvd.tables.column_values import count, for_each_column, group_labels, to_numbers
from lvd.tables.dates import DateOrder, are_dates, to_moments
from lvd.tables.splits import Parts, random_parts, split_group_indices, split_time_indices, usual_sizes


@dataclass(frozen=True)
class RowSplit:
    """How rows are divided: at random, in time by a column, or by a column's groups, which stay together.

    Cells of a SMILES column may be divided by scaffold. In time, `gap` seconds before each later part are left
    out, in which earlier rows may contain information about later ones, and `n_gap` rows next to each held-out
    block.
    """

    kind: str = "random"
    column: str | None = None
    gap: float = 0.0
    n_gap: int = 0

    @classmethod
    def parse(cls, text: str) -> RowSplit:
        """Parse ``random``, ``scaffold``, ``time:COLUMN`` or ``group:COLUMN``."""
        kind, colon, column = text.partition(":")
        if (kind in ("random", "scaffold") and not colon) or (kind in ("time", "group") and column):
            return cls(kind, column or None)
        raise InputError(
            Parameter("split"),
            f" must be random, time:COLUMN, group:COLUMN, or, with a column of SMILES, scaffold; got {text!r}",
        )

    def __str__(self) -> str:
        return self.kind if self.column is None else f"{self.kind}:{self.column}"

    def parts(
        self, table: pa.Table, rows: Int[NDArray, "n"], seed: int, date_format: DateOrder | None = None
    ) -> Parts:
        """The indices in `rows` of the training, calibration and test parts."""
        if self.column is None:
            return random_parts(len(rows), seed)
        sizes, some = usual_sizes(len(rows)), table[self.column].take(pa.array(rows))
        if self.kind == "group":
            return split_group_indices(group_labels(some).astype(str), seed, sizes=sizes)

        def read(_: str) -> NDArray:
            return to_moments(some, order=date_format) if are_dates(some) else to_numbers(some)

        (moments,) = for_each_column([self.column], read, noun="split by column")
        if (missing := np.isnan(moments)).any():
            raise InputError(
                f"split by column {self.column!r}: {count(missing, 'missing value')}; fill them in, or "
                "remove these rows"
            )
        train, calib, test = split_time_indices(moments, seed, sizes=sizes)
        early = [
            part[moments[part] <= moments[later].min() - self.gap] if self.gap else part
            for part, later in ((train, calib), (calib, test))
        ]
        if not all(map(len, early)):
            raise InputError(
                f"no row is left between the parts of split by column {self.column!r}, which a horizon must lie "
                "between; give more rows, or smaller horizons"
            )
        return early[0], early[1], test

    def leaves_out(self, table: pa.Table) -> set[str]:
        """The column of the split, if all its values outside the training part are new."""
        if self.column is None:
            return set()
        return set() if self.kind == "time" and are_dates(table[self.column]) else {self.column}


AT_RANDOM = RowSplit()


@dataclass(frozen=True, eq=False)
class KeptRows:
    """What a model stores about its table if the seed alone does not determine the split.

    The numbers of the calibration and test rows, counting from 1. `n_added` rows came later, by update: their
    numbers continue after the last row of the table of fit. If a single column is read, `cells` are those of
    the calibration rows, so that neighbours can be shown without the table.
    """

    calibration: Int[NDArray, "m"]
    test: Int[NDArray, "k"]
    cells: tuple[str, ...] | None = None
    n_added: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The complete state, in JSON types."""
        rows: dict[str, Any] = {"calibration": self.calibration.tolist(), "test": self.test.tolist()}
        if self.n_added:
            rows["added"] = self.n_added
        return rows if self.cells is None else {**rows, "smiles": list(self.cells)}

    @classmethod
    def from_dict(cls, content: Any, n_rows: Any, *, of_cells: bool) -> KeptRows:
        """Restore the output of `to_dict` for a table of `n_rows`; anything else is an error."""
        try:
            added = content.get("added", 0)
            calibration = _row_numbers(content["calibration"], n_rows + added)
            test = _row_numbers(content["test"], n_rows)
            cells = check_texts(content["smiles"]) if of_cells else None
            if type(added) is not int or added < 0 or np.intersect1d(calibration, test).size:
                raise ValueError("the rows overlap, or a count is wrong")
            if cells is not None and len(cells) != len(calibration):
                raise ValueError(f"{len(cells)} cells of {len(calibration)} rows")
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"the list of the model's rows is damaged ({error!r}); fit again") from None
        return cls(calibration, test, cells, added)


def _row_numbers(values: Any, n_rows: Any) -> Int[NDArray, "m"]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise TypeError("row numbers must be integers")
    numbers = np.array(values, dtype=np.int64)
    if len(np.unique(numbers)) < len(numbers) or not ((numbers >= 1) & (numbers <= n_rows)).all():
        raise ValueError(f"row numbers must lie between 1 and {n_rows}, each once")
    return numbers


def row_ids(X: Any, y: Float[NDArray, "n *t"], places: Sequence[int] | None = None) -> Int[NDArray, "n t"]:
    """A digest of each row's inputs and one of each target; 0 for missing targets.

    The name, column order and format of a table make no difference, nor do columns that the model does not
    read. `places` are the indices of the targets among the model's, by default all of them.
    """
    inputs, columns = row_digests(X).tolist(), y.reshape(len(y), -1).T + 0.0  # -0.0 equals 0.0
    ids = [
        row_digests(list(zip(inputs, repeat(place), column.tolist(), strict=False)))
        for place, column in zip(range(len(columns)) if places is None else places, columns, strict=True)
    ]
    return np.where(np.isnan(columns), 0, np.stack(ids).view(np.int64)).T


def repeats_earlier(ids: Int[NDArray, "n t"]) -> Bool[NDArray, "n"]:
    """Which rows repeat the inputs and a target of an earlier one."""
    again = np.ones(ids.shape, dtype=bool)
    for number, column in enumerate(ids.T):
        again[np.unique(column, return_index=True)[1], number] = False
    return np.any(again & (ids != 0), axis=1)


@dataclass(frozen=True, eq=False)
class SeenRows:
    """The :func:`row_ids` of the training rows, and of the current calibration rows, in order."""

    train: Int[NDArray, "k t"]
    calibration: Int[NDArray, "m t"]

    def trained(self, ids: Int[NDArray, "n s"]) -> Bool[NDArray, "n"]:
        """Which rows are training rows."""
        return _holds(self.train, ids)

    def calibrated(self, ids: Int[NDArray, "n s"]) -> Bool[NDArray, "n"]:
        """Which rows are calibration rows."""
        return _holds(self.calibration, ids)

    def with_more(self, ids: Int[NDArray, "n t"], n_newest: int | None) -> SeenRows:
        """The state after these rows have joined the calibration rows, of which the newest are kept."""
        return replace(self, calibration=np.concatenate([self.calibration, ids])[-(n_newest or 0) :])

    def to_dict(self) -> dict[str, str]:
        """The complete state, in JSON types."""
        return {
            name: base64.b64encode(ids.astype("<i8").tobytes()).decode() for name, ids in vars(self).items()
        }

    @classmethod
    def from_dict(cls, content: Any, n_targets: int, n_calib: int) -> SeenRows:
        """Restore the output of `to_dict` for this many targets and calibration rows; anything else is an error."""
        try:
            train, calibration = (
                np.frombuffer(base64.b64decode(content[name], validate=True), "<i8").reshape(-1, n_targets)
                for name in ("train", "calibration")
            )
            if len(calibration) != n_calib:
                raise ValueError(f"{len(calibration)} of {n_calib} calibration rows")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the record of the model's rows is damaged ({error!r}); fit again") from None
        return cls(train, calibration)


def _holds(known: Int[NDArray, "m t"], ids: Int[NDArray, "n s"]) -> Bool[NDArray, "n"]:
    return np.any(np.isin(ids, known) & (ids != 0), axis=1)
