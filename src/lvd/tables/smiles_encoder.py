"""From a table to its molecules and targets, the same way in fit and in predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, Float, NDArray
from lvd._validation import InputError
from lvd.tables.column_values import count, list_rows, list_texts, to_texts
from lvd.tables.columns import Column, for_each_column
from lvd.tables.table_encoder import TableEncoder, check_texts
from lvd.molecules.smiles import note_long, valid_smiles
from lvd.tables.targets import as_table, check_names, check_targets_vary, name_targets, read_targets


@dataclass(frozen=True)
class MoleculeEncoder:
    """What `fit` learned about a table of molecules: its targets, and the column of SMILES.

    No other column is an input.

    Parameters
    ----------
    targets : tuple of str
        Names of the target columns.
    smiles : str
        Name of the column of molecules.
    skip_invalid : bool
        Rows whose SMILES RDKit refuses are not usable; without it they are an error.
    """

    repeated: ClassVar[str] = "hold a molecule of the training rows"
    """What is said of rows that are known from training."""
    columns: ClassVar[tuple[Column, ...]] = ()
    feature_names: ClassVar[tuple[str, ...]] = ()

    targets: tuple[str, ...]
    smiles: str
    skip_invalid: bool = False

    @classmethod
    def fit(
        cls, table: pa.Table, *, target: str | Sequence[str], smiles: str, skip_invalid: bool = False
    ) -> MoleculeEncoder:
        """Check the names, and the targets."""
        targets = name_targets(target)
        check_names(table, [*targets, smiles])
        if smiles in targets:
            raise InputError(
                f"column {smiles!r} holds the molecules and cannot be a target; name another one"
            )
        check_targets_vary(table, targets)
        return cls(targets, smiles, skip_invalid)

    def usable(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> Bool[NDArray, "n"]:
        """Which rows hold a molecule that RDKit accepts; others are an error unless they may be skipped."""
        strings = self.transform(table)
        valid = valid_smiles(strings)
        if not self.skip_invalid and not valid.all():
            what = f"{count(~valid, 'molecule')} that RDKit refuses ({list_rows(~valid, first_row)}): "
            what += list_texts(list(dict.fromkeys(strings[~valid])))
            what += note_long(strings[~valid])
            remedy = "mend or remove these rows, or give --skip-invalid to leave them out"
            raise InputError(f"column {self.smiles!r}: {what}; {remedy}")
        return valid

    def transform(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> NDArray:
        """The SMILES of the rows as they stand in the table, (n,); a missing one is empty."""
        check_names(table, [self.smiles])
        (texts,) = for_each_column([self.smiles], lambda name: to_texts(as_table(table)[name]))
        return np.array(texts.to_pylist(), dtype=object)

    def target(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> Float[NDArray, "n *t"]:
        """The target as a vector, or several as the columns of a matrix."""
        return read_targets(table, self.targets, first_row=first_row)

    def to_dict(self) -> dict[str, Any]:
        """All there is to know, in types that JSON has."""
        return asdict(self) | {"targets": list(self.targets)}

    @classmethod
    def from_dict(cls, content: Any) -> MoleculeEncoder:
        """The encoder that `to_dict` described; anything else is refused."""
        try:
            (smiles,), targets = check_texts([content["smiles"]]), check_texts(content["targets"])
            skip_invalid = content["skip_invalid"]
        except (KeyError, TypeError) as error:
            raise InputError(
                f"the description of the table's columns is damaged ({error!r}); save it again"
            ) from None
        if not targets or len({*targets, smiles}) <= len(targets) or not isinstance(skip_invalid, bool):
            raise InputError(
                "the description of the table's columns lacks some or repeats one; save it again"
            )
        return cls(targets, smiles, skip_invalid)


RowEncoder: TypeAlias = TableEncoder | MoleculeEncoder


def encoder_from_dict(content: Any) -> RowEncoder:
    """The encoder that `to_dict` described, of either kind."""
    of_molecules = isinstance(content, dict) and "smiles" in content
    return MoleculeEncoder.from_dict(content) if of_molecules else TableEncoder.from_dict(content)
