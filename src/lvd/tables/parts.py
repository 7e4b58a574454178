"""What a table gives to `TableModel.fit`: the inputs and targets of its rows, in three parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError
from lvd.tables.columns import Column, for_each_column, learn_column
from lvd.tables.table_encoder import TableEncoder
from lvd.tables.smiles_encoder import MoleculeEncoder, RowEncoder
from lvd.tables.splits import Parts, split_group_indices, split_indices
from lvd.tables.molecule_rows import MoleculeRows
from lvd.models import Model
from lvd.molecules.lazy import chemprop_adapter


@dataclass(frozen=True, eq=False)
class PreparedTable:
    """Checked inputs and targets of the usable rows, and which of them train, calibrate and test.

    `rows` are the numbers of the usable rows in the table, counting from 1. `molecules` tells where in the table
    these parts stand, where its seed alone does not. `n_duplicates` counts the
    rows that repeat the molecule of an earlier row.
    """

    encoder: RowEncoder
    X: Any
    y: Float[NDArray, "n *t"]
    parts: Parts
    rows: Int[NDArray, "n"]
    left_out: tuple[str, ...]
    molecules: MoleculeRows | None = None
    n_duplicates: int = 0


def prepare_columns(
    table: pa.Table, *, target: str | Sequence[str], drop: Sequence[str], impute: str | None, seed: int
) -> PreparedTable:
    """All columns but the targets and those dropped as features, and the split of the paper.

    Categories are those of the whole table, so that none of them is unknown later; the medians for missing numbers
    come from the training rows alone.
    """
    encoder = TableEncoder.fit(table, target=target, drop=drop, impute=impute)
    parts = split_indices(table.num_rows, seed)
    encoder = replace(encoder, columns=_with_medians(encoder.columns, table.take(parts[0])))
    return PreparedTable(
        encoder=encoder,
        X=encoder.transform(table),
        y=encoder.target(table),
        parts=parts,
        rows=np.arange(1, table.num_rows + 1),
        left_out=tuple(drop),
    )


def prepare_molecules(
    table: pa.Table,
    model: Model,
    *,
    target: str | Sequence[str],
    smiles: str,
    skip_invalid: bool,
    seed: int,
) -> PreparedTable:
    """One column as molecules, read by the `model`; all rows of a molecule are in the same part.

    Two rows are the same molecule when their canonical SMILES are the same.
    """
    chemprop_adapter()  # is missing now, not after the work
    encoder = MoleculeEncoder.fit(table, target=target, smiles=smiles, skip_invalid=skip_invalid)
    rows = np.flatnonzero(encoder.usable(table))
    if not len(rows):
        raise InputError(f"column {smiles!r}: RDKit refuses every row; is it a column of SMILES?")
    strings, y = encoder.transform(table)[rows], encoder.target(table)[rows]
    molecules: Any = model.check(strings)
    n_molecules = len(set(molecules))
    if n_molecules < 3:
        raise InputError(
            f"column {smiles!r} holds {n_molecules} different molecule(s); training, calibration and test need "
            "one each at the very least"
        )
    parts = split_group_indices(molecules.canonical, seed)
    _, calib, test = parts
    return PreparedTable(
        encoder=replace(encoder, skip_invalid=False),
        X=molecules,
        y=y,
        parts=parts,
        rows=rows + 1,
        left_out=tuple(name for name in table.column_names if name not in {smiles, *encoder.targets}),
        molecules=MoleculeRows(rows[calib] + 1, rows[test] + 1, tuple(strings[calib])),
        n_duplicates=len(molecules) - n_molecules,
    )


def _with_medians(columns: Sequence[Column], train: pa.Table) -> tuple[Column, ...]:
    """The columns with the medians of these rows, where missing numbers are to be replaced at all."""
    by_name = {column.name: column for column in columns}

    def relearn(name: str) -> Column:
        if by_name[name].median is None:
            return by_name[name]
        return replace(by_name[name], median=learn_column(name, train[name], impute=True).median)

    return tuple(for_each_column(list(by_name), relearn, noun="training rows of column", may_drop=True))
