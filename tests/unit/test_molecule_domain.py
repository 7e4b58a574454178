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
from lvd.molecules.smiles import atoms_in
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
        return Group(
            **vars(figures),
            column="",
            label=label,
            n_distinct=1,
            infinite=0,
            infinite_lower=0,
            infinite_upper=0,
        )

    rings = [f"C1{'C' * n}1" for n in range(2, 16)]
    groups = [group(NO_RING, 0.1), *(group(ring, n / 20) for n, ring in enumerate(rings))]
    pictures = [one.picture for one in draw_worst(groups, draw_molecule)]
    assert pictures[0] is None
    assert all(picture.startswith("<svg") for picture in pictures[1:13])
    assert pictures[13:] == [None, None]


@pytest.mark.parametrize(
    ("smiles", "atoms"),
    [
        ("[13CH3][C@@H](N)C(=O)[O-]", "C C N C O O-"),
        ("[Na+].Clc1cc[nH]c1Br", "Na+ Cl C C C N C Br"),
        ("[2H]c1c[se]cc1", "C C Se C C"),
        ("c1cc[siH]cc1", "C C C Si C C"),
        ("[Fe+2]", "Fe+2"),
        ("[H][H]", ""),
        ("*C%11CC%11", "* C C C"),
    ],
)
def test_the_atoms_of_a_smiles(smiles, atoms):
    assert atoms_in(smiles) == atoms.split()


def test_the_atoms_are_those_that_rdkit_finds():
    given = (
        "C[N+](C)(C)CC([O-])=O",
        "O=S(=O)(O)c1ccc(cc1)[Si](C)(C)C",
        "F[B-](F)(F)F.[NH4+]",
        "C[C@H](F)I",
        "[SiH]1=CC=CC=C1",
        "[se]1cccc1.[te]1cccc1",
        "[BH]1C=CC=C1.P1C=CC=C1",
        "[13CH4].[2H]O.[CH3:7]N",
        "c1ccc2[nH]ccc2c1.[O-]c1ccccc1",
    )
    signs = {0: "", 1: "+", -1: "-"}
    for smiles in given:
        canonical = Chem.MolToSmiles(Chem.MolFromSmiles(smiles))
        atoms = Chem.MolFromSmiles(canonical).GetAtoms()
        found = [
            atom.GetSymbol() + signs[atom.GetFormalCharge()] for atom in atoms if atom.GetAtomicNum() > 1
        ]
        assert sorted(atoms_in(canonical)) == sorted(found)


def test_an_unseen_element_and_a_large_molecule_are_unknown_also_to_a_saved_model(tmp_path):
    smiles = ["C" * n + end for n in range(1, 16) for end in ("", "O", "N")]
    net = lvd.ChempropEstimator(hidden_size=8, n_epochs=2, warmup_epochs=1, device="cpu", random_state=0)
    reg = lvd.LVDRegressor(net, random_state=0).fit(smiles, np.arange(45.0))
    reg.save(tmp_path / "model")
    for model in (reg, lvd.load(tmp_path / "model")):
        chain, bromide, long = model.explain(["CCCC", "CCBr", "C" * 40])
        assert chain.known
        assert not bromide.known
        assert bromide.reason == "no training row has Br among its heavy atoms"
        assert "it has 40 heavy atoms, training rows have " in long.sentence
        assert model.calibrators_[0].mass == 4.0
        assert model.predict_with_evidence(["CCCC", "CCBr", "C" * 40]).known.tolist() == [True, False, False]
