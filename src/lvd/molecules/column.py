"""A column of molecules: as given, in canonical form, and as graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lvd._typing import Int, NDArray
from lvd.molecules.packed import PackedMolecules


@dataclass(frozen=True)
class Molecules:
    """Rows of molecules; a part of them shares the packed graphs of the whole.

    Iterating gives canonical SMILES: two rows are compared as molecules, however they are written. The graphs
    are those of the SMILES as given, because chemprop's chirality features depend on the order of the atoms.
    """

    smiles: NDArray
    canonical: NDArray
    packed: PackedMolecules
    rows: Int[NDArray, "n"]
    atom_featurizer: str

    @property
    def shape(self) -> tuple[int]:
        """One column."""
        return (len(self.rows),)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self.canonical)

    def __getitem__(self, key: Any) -> Molecules:
        if isinstance(key, tuple):  # scikit-learn takes rows as array[rows, ...]
            (key,) = (part for part in key if part is not Ellipsis)
        return replace(
            self, smiles=self.smiles[key], canonical=self.canonical[key], rows=np.asarray(self.rows[key])
        )
