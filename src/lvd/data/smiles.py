"""Which rows of a molecule table are the same molecule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from lvd._typing import Bool, NDArray
from lvd._validation import InputError


def canonical_smiles(smiles: Iterable[str]) -> list[str]:
    """RDKit's canonical string of each molecule; the same molecule gives the same string."""
    try:
        from rdkit import Chem, rdBase
    except ModuleNotFoundError:
        raise InputError(
            "telling molecules apart needs RDKit: install it with pip install 'lvd[molecules]'"
        ) from None
    with rdBase.BlockLogs():
        molecules = [(string, Chem.MolFromSmiles(string)) for string in smiles]
    refused = [f"{row} ({string})" for row, (string, molecule) in enumerate(molecules) if molecule is None]
    if refused:
        raise InputError(
            f"RDKit refuses {len(refused)} SMILES, first in rows {', '.join(refused[:5])}; mend or drop them"
        )
    return [Chem.MolToSmiles(molecule) for _, molecule in molecules]


def occurs_once(labels: Sequence[str]) -> Bool[NDArray, "n"]:
    """Whether each label stands in one row only."""
    counts = Counter(labels)
    return np.array([counts[label] == 1 for label in labels], dtype=bool)
