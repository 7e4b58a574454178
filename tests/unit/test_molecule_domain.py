"""What is said about a molecule beside its interval: its nearest known one, its scaffold, its parts."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import lvd

if importlib.util.find_spec("rdkit") is None:
    pytest.skip("needs RDKit", allow_module_level=True)

from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from rdkit.DataStructs import TanimotoSimilarity

from lvd.metrics.strata import GroupCoverage
from lvd.molecules.domain import KnownMolecules, of_several_parts, scaffolds
from lvd.molecules.drawing import draw_molecule
from lvd.page.groups import NO_RING, RARE, Group, draw_worst, group_scaffolds

KNOWN = ["CCO", "c1ccccc1", "CC(=O)Oc1ccccc1C(=O)O", "CCCCCC"]


def test_the_nearest_molecule_is_the_most_similar_one():
    new = ["OCC", "Oc1ccccc1C(=O)O", "CCCCCCC", "[Na+]"]
    rows, similarities = KnownMolecules(KNOWN).nearest(new)
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    prints = [
        [generator.GetFingerprint(Chem.MolFromSmiles(one)) for one in strings] for strings in (new, KNOWN)
    ]
    table = np.array([[TanimotoSimilarity(one, other) for other in prints[1]] for one in prints[0]])
    np.testing.assert_array_equal(rows, table.argmax(1))
    np.testing.assert_allclose(similarities, table.max(1))
    assert similarities[0] == 1.0
    with pytest.raises(lvd.InputError, match=r"RDKit cannot read 1 SMILES, first in rows 2 \(C1\)"):
        KnownMolecules(["C", "C1"])


def test_scaffolds_are_rings_and_what_links_them():
    smiles = ["CCO", "Cc1ccccc1", "c1ccccc1CCC1CCNCC1", "O=C1CCCCC1C"]
    assert scaffolds(smiles).tolist() == ["", "c1ccccc1", "c1ccc(CCC2CCNCC2)cc1", "O=C1CCCCC1"]


def test_salts_and_mixtures_have_several_parts():
    assert of_several_parts(["CC(=O)[O-].[Na+]", "CCO"]).tolist() == [True, False]


def test_molecules_in_groups_by_their_scaffold():
    smiles = (
        ["C" * n + "c1ccccc1" for n in range(1, 12)] + ["C" * n for n in range(1, 16)] + ["C1CC1", "C1CCC1"]
    )
    grouping = group_scaffolds(scaffolds(smiles))
    assert grouping.labels == (NO_RING, "c1ccccc1", RARE)
    assert np.bincount(grouping.codes).tolist() == [15, 11, 2]
    assert RARE not in group_scaffolds(scaffolds(smiles[:26])).labels


def test_the_scaffolds_with_the_lowest_coverage_are_drawn():
    def group(label, coverage):
        figures = GroupCoverage(
            group=0, count=10, coverage=coverage, lower=0.1, upper=1.0, p_value=0.5, below_level=False
        )
        return Group(**vars(figures), column="", label=label, infinite=0, infinite_lower=0, infinite_upper=0)

    rings = [f"C1{'C' * n}1" for n in range(2, 16)]
    groups = [group(NO_RING, 0.1), *(group(ring, n / 20) for n, ring in enumerate(rings))]
    pictures = [one.picture for one in draw_worst(groups, draw_molecule)]
    assert pictures[0] is None
    assert all(picture.startswith("<svg") for picture in pictures[1:13])
    assert pictures[13:] == [None, None]
