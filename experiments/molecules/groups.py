"""The paper's functional groups, and which molecules contain them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lvd._typing import Bool, NDArray
from lvd.molecules.smiles import parse_smiles


@dataclass(frozen=True)
class FunctionalGroup:
    """A group of the paper's table: the text that the paper searched for in the SMILES, and its SMARTS pattern.

    ``COC`` is found in ``C1OC1`` but not in ``O(C)C``: the text depends on how a molecule is written, the
    pattern does not.
    """

    name: str
    text: str
    smarts: str


GROUPS = (
    FunctionalGroup("2-butyne", "CC#CC", "[#6][CX2]#[CX2][#6]"),
    FunctionalGroup("aldehyde", "CC=O", "[#6][CX3H1]=[OX1]"),
    FunctionalGroup("amide", "C(=O)N", "[CX3](=[OX1])[NX3]"),
    FunctionalGroup("carboxylic acid", "C(=O)O", "[CX3](=[OX1])[OX2H1]"),
    FunctionalGroup("cyclopropane", "C1CC1", "[CX4]1[CX4][CX4]1"),
    FunctionalGroup("dimethyl ether", "COC", "[#6][OX2][#6]"),
    FunctionalGroup("ester", "C(=O)OC", "[CX3](=[OX1])[OX2][#6]"),
    FunctionalGroup("ethanol", "CCO", "[CX4][CX4][OX2H1]"),
    FunctionalGroup("ethene", "C=C", "[CX3]=[CX3]"),
    FunctionalGroup("ether", "COC", "[CX4][OX2][CX4]"),
    FunctionalGroup("formaldehyde", "C=O", "[CX3]=[OX1]"),
    FunctionalGroup("hydrogen cyanide", "C#N", "[CX2]#[NX1]"),
    FunctionalGroup("ketone", "CC(=O)C", "[#6][CX3](=[OX1])[#6]"),
    FunctionalGroup("prop-1-ene", "CC=C", "[#6][CX3]=[CX3]"),
    FunctionalGroup("prop-1-yne", "CC#C", "[#6][CX2]#[CX2]"),
)
RULES = {
    "text": "the molecule's SMILES contains the group's text, as the paper judged it",
    "molecule": "the molecule has the group, judged by its SMARTS pattern",
}
Presence = dict[tuple[str, str], NDArray]
"""For each rule and group, which rows of a table belong to it."""


def group_members(smiles: NDArray) -> Presence:
    """Which molecules belong to each group, by each rule."""
    molecules = parse_smiles(smiles)
    from rdkit import Chem

    def has(smarts: str) -> Bool[NDArray, "n"]:
        pattern = Chem.MolFromSmarts(smarts)
        return np.array([molecule.HasSubstructMatch(pattern) for molecule in molecules])

    by_text = {("text", group.name): np.array([group.text in one for one in smiles]) for group in GROUPS}
    return by_text | {("molecule", group.name): has(group.smarts) for group in GROUPS}
