"""Which known molecules resemble a new one: Tanimoto similarity, Bemis-Murcko scaffolds, salts and mixtures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lvd._parallel import chunk_slices
from lvd._typing import Bool, Float, Int, NDArray
from lvd.molecules.smiles import CHUNK, atoms_in, parse_valid, write_canonical

RADIUS, N_BITS = 2, 2048
"""Settings of the Morgan fingerprints, which chemists call ECFP4."""


@dataclass(frozen=True)
class MoleculeParts:
    """Rows of molecules, seen as sets of atoms."""

    smiles: Sequence[str]
    parts_are: ClassVar[str] = "heavy atoms"

    def parts(self) -> list[list[str]]:
        """The non-hydrogen atoms of each molecule."""
        return [atoms_in(one) for one in self.smiles]


class KnownMolecules:
    """Nearest-neighbour search among molecules, by the Tanimoto similarity of their Morgan fingerprints.

    Examples
    --------
    >>> from lvd.molecules.domain import KnownMolecules
    >>> known = KnownMolecules(["CCO", "c1ccccc1"])
    >>> rows, similarities = known.nearest(["OCC", "CCCO"])
    >>> rows.tolist(), similarities.round(2).tolist()
    ([0, 0], [1.0, 0.56])
    """

    def __init__(self, smiles: Sequence[str]) -> None:
        self.smiles = list(smiles)
        self._fingerprints = _fingerprints(self.smiles)

    def nearest(self, smiles: Iterable[str]) -> tuple[Int[NDArray, "n"], Float[NDArray, "n"]]:
        """The index of the most similar molecule, the first if tied, and its similarity from 0 to 1."""
        from rdkit.DataStructs import BulkTanimotoSimilarity

        strings = list(smiles)
        places, found = np.zeros(len(strings), np.int64), np.zeros(len(strings))
        for rows in chunk_slices(len(strings), CHUNK):
            for row, one in enumerate(_fingerprints(strings[rows]), rows.start):
                similarities = np.array(BulkTanimotoSimilarity(one, self._fingerprints))
                places[row] = similarities.argmax()
                found[row] = similarities[places[row]]
        return places, found


def _fingerprints(smiles: Sequence[str]) -> list[Any]:
    from rdkit.Chem import rdFingerprintGenerator

    generator = rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=N_BITS)
    return [generator.GetFingerprint(molecule) for molecule in parse_valid(smiles)]


def count_fingerprints(smiles: Iterable[str], n_counts: int = 256) -> Float[NDArray, "n c"]:
    """Counts of each Morgan substructure per molecule, in `n_counts` columns.

    Examples
    --------
    >>> from lvd.molecules.domain import count_fingerprints
    >>> count_fingerprints(["CCO", "CCCO"]).sum(axis=1).tolist()
    [6.0, 9.0]
    """
    from rdkit.Chem import rdFingerprintGenerator

    generator = rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=n_counts)
    return np.array([generator.GetCountFingerprintAsNumPy(one) for one in parse_valid(smiles)], np.float64)


def scaffolds(smiles: Iterable[str]) -> NDArray:
    """The Bemis-Murcko scaffold of each molecule, its rings and linkers; ``""`` if it has no ring.

    Examples
    --------
    >>> from lvd.molecules.domain import scaffolds
    >>> scaffolds(["Cc1ccccc1", "OCc1ccccc1", "CCO"]).tolist()
    ['c1ccccc1', 'c1ccccc1', '']
    """
    from rdkit.Chem.Scaffolds import MurckoScaffold

    found = map(MurckoScaffold.GetScaffoldForMol, parse_valid(smiles))
    return np.array([write_canonical(scaffold) for scaffold in found], dtype=object)


def of_several_parts(canonical: Iterable[str]) -> Bool[NDArray, "n"]:
    """Which molecules are salts or mixtures, whose canonical SMILES have several parts."""
    return np.array(["." in string for string in canonical], dtype=bool)
