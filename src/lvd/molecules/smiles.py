"""SMILES columns: parsing them, which rows RDKit accepts, and which rows are the same molecule."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lvd._parallel import chunk_slices
from lvd._typing import ArrayLike, Bool, NDArray
from lvd._validation import InputError

EXTRA = "install it with pip install 'lvd[molecules]'"
NAMED_ROWS = 5
MAX_LENGTH = 10_000
"""Longer SMILES are rejected unread: RDKit's time grows at least quadratically with the number of atoms."""
CHUNK = 1000
"""How many molecules to hold at a time when only their validity matters."""


def as_smiles(X: ArrayLike) -> NDArray:
    """Convert `X`, a list, an array or one column of a frame, to an object array of strings (n,)."""
    if isinstance(X, str):
        raise InputError(
            f"X must be a list or a column of SMILES, got the one string {X!r}; put it in a list"
        )
    array = np.asarray(X, dtype=object)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"X must be one column of SMILES, got shape {array.shape}; pass that column alone")
    if array.size == 0:
        raise InputError("X is empty: give at least one molecule")
    wrong = [f"{row} ({item!r})" for row, item in enumerate(array, 1) if not isinstance(item, str)]
    if wrong:
        raise InputError(
            f"X must hold SMILES, which are strings; {len(wrong)} row(s), counting from 1, hold something else, "
            f"first {', '.join(wrong[:NAMED_ROWS])}; correct or remove them"
        )
    return np.array([str(item) for item in array], dtype=object)


def parse_smiles(smiles: Iterable[str]) -> list[Any]:
    """RDKit's molecule of each string; None if RDKit rejects it, it is too long, or it has no atoms."""
    try:
        from rdkit import Chem, rdBase
    except ModuleNotFoundError:
        raise InputError(f"telling molecules apart needs RDKit: {EXTRA}") from None
    with rdBase.BlockLogs():
        molecules = [Chem.MolFromSmiles(string) if len(string) <= MAX_LENGTH else None for string in smiles]
    return [molecule if molecule is not None and molecule.GetNumAtoms() else None for molecule in molecules]


ATOM = re.compile(
    r"\[\d*(?P<inside>[A-Z][a-z]?|se|si|as|te|[bcnops]|\*)[^\]+-]*(?P<charge>[+-]+\d*)?[^\]]*\]"
    r"|(?P<outside>Br|Cl|[BCNOPSFI]|[bcnops]|\*)"
)
"""An atom in a SMILES, with or without brackets."""


def atoms_in(smiles: str) -> list[str]:
    """The non-hydrogen atoms of a SMILES: elements, with their charge if any.

    Examples
    --------
    >>> from lvd.molecules.smiles import atoms_in
    >>> atoms_in("C[N+](C)(C)CC([O-])=O.[nH]1cccc1Br")
    ['C', 'N+', 'C', 'C', 'C', 'C', 'O-', 'O', 'N', 'C', 'C', 'C', 'C', 'Br']
    """
    found = ((outside or inside).capitalize() + charge for inside, charge, outside in ATOM.findall(smiles))
    return [atom for atom in found if atom != "H"]


def write_canonical(molecule: Any) -> str:
    """RDKit's canonical string; equal molecules give equal strings."""
    from rdkit import Chem

    return str(Chem.MolToSmiles(molecule))


def refuse_invalid(smiles: Sequence[str], invalid: Sequence[int]) -> None:
    """Raise an error that names the `invalid` indices as rows, counted from 1, if there are any."""
    if len(invalid):
        named = ", ".join(f"{position + 1} ({smiles[position][:60]})" for position in invalid[:NAMED_ROWS])
        raise InputError(
            f"RDKit cannot read {len(invalid)} SMILES, first in rows {named}, counting from 1"
            f"{note_long(smiles[position] for position in invalid)}; correct or remove them"
        )


def note_long(smiles: Iterable[str]) -> str:
    """A note for the error message if one of these SMILES is too long."""
    return (
        f" (SMILES of more than {MAX_LENGTH:,} characters are not read)"
        if max(map(len, smiles)) > MAX_LENGTH
        else ""
    )


def parse_valid(smiles: Iterable[str]) -> list[Any]:
    """RDKit's molecule of each string; the error names strings without one."""
    strings = list(smiles)
    molecules = parse_smiles(strings)
    refuse_invalid(strings, [position for position, molecule in enumerate(molecules) if molecule is None])
    return molecules


def canonical_smiles(smiles: Iterable[str]) -> list[str]:
    """RDKit's canonical string of each molecule; equal molecules give equal strings."""
    return [write_canonical(molecule) for molecule in parse_valid(smiles)]


def valid_smiles(smiles: Iterable[Any]) -> Bool[NDArray, "n"]:
    """Which rows hold a molecule that RDKit accepts.

    Examples
    --------
    >>> from lvd.molecules.smiles import valid_smiles
    >>> valid_smiles(["CCO", "C1", ""]).tolist()
    [True, False, False]
    """
    strings = [item if isinstance(item, str) else "" for item in smiles]
    parts = (parse_smiles(strings[rows]) for rows in chunk_slices(len(strings), CHUNK))
    return np.array([molecule is not None for part in parts for molecule in part], dtype=bool)


def occurs_once(labels: Sequence[str]) -> Bool[NDArray, "n"]:
    """Whether each label occurs in only one row."""
    counts = Counter(labels)
    return np.array([counts[label] == 1 for label in labels], dtype=bool)
