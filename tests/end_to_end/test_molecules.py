"""Intervals for molecules on the CPU, from SMILES and a measured property to a saved model."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import lvd

if importlib.util.find_spec("chemprop") is None:
    pytest.skip("needs chemprop", allow_module_level=True)

from rdkit import Chem
from rdkit.Chem import Descriptors

CHAINS = ["C" * n for n in range(1, 11)]
GROUPS = [
    "",
    "O",
    "N",
    "Cl",
    "F",
    "S",
    "C(=O)O",
    "C(=O)C",
    "C#N",
    "OC",
    "C=C",
    "c1ccccc1",
    "C(F)(F)F",
    "OCCO",
]
MIDDLES = ["", "C(C)(C)"]


def chains():
    """A few hundred small molecules, and their logP by RDKit's rule."""
    smiles = [chain + middle + group for chain in CHAINS for middle in MIDDLES for group in GROUPS]
    distinct = {Chem.CanonSmiles(string): string for string in smiles}
    strings = np.array(list(distinct.values()), dtype=object)
    return strings, np.array([Descriptors.MolLogP(Chem.MolFromSmiles(string)) for string in strings])


def test_from_smiles_to_intervals(tmp_path):
    smiles, y = chains()
    order = np.random.default_rng(0).permutation(len(smiles))
    train, calib, test = order[:120], order[120:200], order[200:]
    net = lvd.ChempropEstimator(hidden_size=32, n_epochs=25, batch_size=20, peak_rate=5e-3, device="cpu")
    reg = lvd.LVDRegressor(net, calib_size=None, device="cpu", random_state=0)
    reg.fit(smiles[train], y[train]).conformalize(smiles[calib], y[calib])
    y_pred, intervals = reg.predict_interval(smiles[test], 0.8)
    lower, upper = intervals[:, :, 0].T
    assert np.abs(y_pred - y[test]).mean() < 0.5 * y.std()
    assert 0.55 < np.mean((lower <= y[test]) & (y[test] <= upper)) <= 1.0
    explanation = reg.explain(list(smiles[test][:1]), 0.8, n_neighbors=3)[0]
    assert explanation.y_pred == pytest.approx(y_pred[0])
    reg.save(tmp_path / "model")
    np.testing.assert_array_equal(
        lvd.load(tmp_path / "model").predict_interval(smiles[test], 0.8)[1], intervals
    )
