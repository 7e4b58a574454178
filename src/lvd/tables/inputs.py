"""What a table gives to a model: all columns as features, or the cells of one column as they are: molecules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError
from lvd.molecules import ChempropEstimator, TrainedMPNN
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.smiles import note_long, valid_smiles
from lvd.tables.column_values import (
    as_table,
    check_columns,
    count,
    for_each_column,
    list_rows,
    list_texts,
    to_texts,
)
from lvd.tables.splits import Parts, split_group_indices, split_indices
from lvd.tables.table_encoder import (
    DAMAGED,
    Column,
    TableEncoder,
    check_targets_vary,
    check_texts,
    name_targets,
    read_targets,
    with_medians,
)


@dataclass(frozen=True)
class CellEncoder:
    """What `fit` learned about a table of molecules: its targets, and the column of SMILES, the only input.

    With `skip_invalid`, rows whose SMILES RDKit refuses are not usable; without it they are an error.
    """

    repeated: ClassVar[str] = "hold a molecule of the training rows"
    """What is said of rows that are known from training."""
    columns: ClassVar[tuple[Column, ...]] = ()
    feature_names: ClassVar[tuple[str, ...]] = ()
    batch_rows: ClassVar[int] = 8192
    """Graphs take longer than rows of numbers: in batches of this size there is progress to show."""

    targets: tuple[str, ...]
    smiles: str
    skip_invalid: bool = False

    @classmethod
    def fit(
        cls, table: pa.Table, *, target: str | Sequence[str], column: str, skip_invalid: bool = False
    ) -> CellEncoder:
        """Check the names and the targets."""
        targets = name_targets(target)
        check_columns(table, [*targets, column])
        if column in targets:
            raise InputError(
                f"column {column!r} holds the molecules and cannot be a target; name another one"
            )
        check_targets_vary(table, targets)
        return cls(targets, column, skip_invalid)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that the model reads."""
        return (self.smiles,)

    @property
    def drawn(self) -> str:
        """The column whose cells can be drawn."""
        return self.smiles

    def skipping_invalid(self) -> CellEncoder:
        """The same encoder, which leaves out rows that RDKit refuses."""
        return replace(self, skip_invalid=True)

    def usable(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> Bool[NDArray, "n"]:
        """Which rows hold a molecule that RDKit accepts; others are an error unless they may be skipped."""
        strings = self.transform(table)
        valid = valid_smiles(strings)
        if not self.skip_invalid and not valid.all():
            raise InputError(
                f"column {self.smiles!r}: RDKit cannot read {count(~valid, 'molecule')} "
                f"({list_rows(~valid, first_row)}): {list_texts(list(dict.fromkeys(strings[~valid])))}"
                f"{note_long(strings[~valid])}; correct or remove these rows, or leave them out with "
                "skip_invalid=True"
            )
        return valid

    def transform(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> NDArray:
        """The SMILES of the rows as the table has them, (n,); a missing one is empty."""
        check_columns(table, [self.smiles])
        (texts,) = for_each_column([self.smiles], lambda name: to_texts(as_table(table)[name]))
        return np.array(texts.to_pylist(), dtype=object)

    def labels(self, table: pa.Table | pa.RecordBatch) -> list[str] | None:
        """What the rows are called: their SMILES."""
        return [str(text) for text in self.transform(table)]

    def target(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> Float[NDArray, "n *t"]:
        """The target as a vector, or several as the columns of a matrix."""
        return read_targets(table, self.targets, first_row=first_row)

    def to_dict(self) -> dict[str, Any]:
        """All there is to know, in types that JSON has."""
        return asdict(self) | {"targets": list(self.targets)}

    @classmethod
    def from_dict(cls, content: Any) -> CellEncoder:
        """The encoder that `to_dict` described; anything else is refused."""
        chemprop_adapter()  # where chemprop is missing, that is what is wrong, and not the folder
        try:
            (smiles,), targets = check_texts([content["smiles"]]), check_texts(content["targets"])
            skip_invalid = content["skip_invalid"]
        except (KeyError, TypeError) as error:
            raise InputError(f"{DAMAGED} ({error!r}); save the model again") from None
        if not targets or len({*targets, smiles}) <= len(targets) or not isinstance(skip_invalid, bool):
            raise InputError(f"{DAMAGED}: a name is missing or repeated; save the model again")
        return cls(targets, smiles, skip_invalid)


RowEncoder: TypeAlias = TableEncoder | CellEncoder


@dataclass(frozen=True, eq=False)
class KeptRows:
    """What a model keeps of its table where the seed alone does not tell the split, which depends on the molecules.

    The numbers of the calibration and of the test rows, counting from 1, and the calibration rows' SMILES, so that
    neighbours can be shown without the table.
    """

    calibration: Int[NDArray, "m"]
    test: Int[NDArray, "k"]
    cells: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All there is to know, in types that JSON has."""
        rows = {"calibration": self.calibration.tolist(), "test": self.test.tolist()}
        return {"molecules": {**rows, "smiles": list(self.cells)}}

    @classmethod
    def from_dict(cls, columns: dict[str, Any], n_rows: Any) -> KeptRows:
        """What `to_dict` described, of a table of `n_rows`; anything else is refused."""
        damaged = "the list of the model's molecules is damaged"
        try:
            content = columns["molecules"]
            calibration, test = (_row_numbers(content[part], n_rows) for part in ("calibration", "test"))
            cells = check_texts(content["smiles"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{damaged} ({error!r}); fit again") from None
        if len(cells) != len(calibration) or np.intersect1d(calibration, test).size:
            raise InputError(f"{damaged}; fit again")
        return cls(calibration, test, cells)


def _row_numbers(values: Any, n_rows: Any) -> Int[NDArray, "m"]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise TypeError("row numbers must be integers")
    numbers = np.array(values, dtype=np.int64)
    if len(np.unique(numbers)) < len(numbers) or not ((numbers >= 1) & (numbers <= n_rows)).all():
        raise ValueError(f"row numbers must lie between 1 and {n_rows}, each once")
    return numbers


@dataclass(frozen=True, eq=False)
class Prepared:
    """Checked inputs and targets of the usable rows, and which of them train, calibrate and test.

    `rows` are the numbers of the usable rows in the table, counting from 1. `n_duplicates` counts the rows that
    repeat the case of an earlier row.
    """

    encoder: RowEncoder
    X: Any
    y: Float[NDArray, "n *t"]
    parts: Parts
    rows: Int[NDArray, "n"]
    kept: KeptRows | None = None
    n_duplicates: int = 0


def prepare_columns(
    table: pa.Table, *, target: str | Sequence[str], drop: Sequence[str], impute: str | None, seed: int
) -> Prepared:
    """All columns but the targets and those dropped as features, and the split of the paper.

    Categories are those of the whole table, so that none of them is unknown later; the medians for missing numbers
    come from the training rows alone.
    """
    encoder = TableEncoder.fit(table, target=target, drop=drop, impute=impute)
    parts = split_indices(table.num_rows, seed)
    encoder = replace(encoder, columns=with_medians(encoder.columns, table.take(parts[0])))
    rows = np.arange(1, table.num_rows + 1)
    return Prepared(encoder, encoder.transform(table), encoder.target(table), parts, rows)


def prepare_cells(
    table: pa.Table,
    estimator: Any,
    *,
    target: str | Sequence[str],
    column: str,
    skip_invalid: bool,
    seed: int,
) -> Prepared:
    """One column as molecules, read by the estimator; all rows of a molecule are in the same part.

    Two rows are the same molecule when their canonical SMILES are the same.
    """
    if not isinstance(estimator, ChempropEstimator | TrainedMPNN):
        raise InputError(
            "column= is for molecules: the regressor's estimator must be a ChempropEstimator or a TrainedMPNN, "
            f"got {type(estimator).__name__}"
        )
    chemprop_adapter()  # fails now, not after the work
    encoder = CellEncoder.fit(table, target=target, column=column, skip_invalid=skip_invalid)
    rows = np.flatnonzero(encoder.usable(table))
    if not len(rows):
        raise InputError(f"column {column!r}: RDKit cannot read any row; is it a column of SMILES?")
    strings, y = encoder.transform(table)[rows], encoder.target(table)[rows]
    molecules = estimator.check(strings)
    n_cases = len(set(molecules))
    if n_cases < 3:
        raise InputError(
            f"column {column!r} holds {n_cases} different molecule(s); training, calibration and test need at "
            "least one each"
        )
    parts = split_group_indices(molecules.canonical, seed)
    _, calib, test = parts
    return Prepared(
        encoder=replace(encoder, skip_invalid=False),
        X=molecules,
        y=y,
        parts=parts,
        rows=rows + 1,
        kept=KeptRows(rows[calib] + 1, rows[test] + 1, tuple(strings[calib])),
        n_duplicates=len(molecules) - n_cases,
    )
