"""Packed graphs: the same numbers as chemprop's own batches, however a batch is filled up; kept on disk."""

from __future__ import annotations

import importlib.util
import pickle

import numpy as np
import pytest
import torch

import lvd
from lvd._validation import row_digests
from lvd.molecules.smiles import as_smiles, canonical_smiles, valid_smiles

if importlib.util.find_spec("chemprop") is None:
    pytest.skip("needs chemprop", allow_module_level=True)

from chemprop import nn as chemprop_nn
from chemprop.data import BatchMolGraph
from chemprop.models import MPNN
from rdkit import Chem

from lvd.molecules import adapter, features, forward, read_molecules
from lvd.molecules.packed import gather

SMILES = ["OCC", "c1ccccc1", "C", "CC(=O)O[C@H](C)N", "[Na+].[Cl-]", "O=C=O", "C#N", "C1CC1C(F)(F)F"]
ROWS = [3, 0, 4, 7, 2]


@pytest.fixture(scope="module")
def molecules():
    return read_molecules(SMILES)


def own_batch(name="v1"):
    featurizer = adapter.graph_featurizer(name)
    return BatchMolGraph([featurizer(Chem.MolFromSmiles(SMILES[row])) for row in ROWS])


def new_network(**messages):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return MPNN(
            chemprop_nn.BondMessagePassing(d_v=133, d_h=24, **messages),
            chemprop_nn.MeanAggregation(),
            chemprop_nn.RegressionFFN(n_tasks=3, input_dim=24, hidden_dim=16),
        ).eval()


def gathered(molecules, rows=ROWS, extra=0):
    n_atoms, n_bonds = molecules.packed.sizes()[rows].sum(axis=0) + extra
    return gather(molecules.packed, torch.tensor(rows), int(n_atoms), int(n_bonds))


@pytest.mark.parametrize("name", features.ATOM_FEATURIZERS)
def test_a_batch_is_chemprops_own_bit_for_bit(name):
    ours, theirs = gathered(read_molecules(SMILES, atom_featurizer=name)), own_batch(name)
    for field in ("V", "E", "edge_index", "rev_edge_index", "batch"):
        assert torch.equal(getattr(ours, field), getattr(theirs, field)), field


@pytest.mark.parametrize("messages", [{}, {"bias": True}, {"undirected": True}, {"depth": 5}], ids=str)
@pytest.mark.parametrize("extra", [0, 1, 40])
def test_the_forward_pass_is_chemprops_own_with_any_number_of_dummies(molecules, extra, messages):
    network = new_network(**messages)
    with torch.no_grad():
        outputs, _ = forward.run(network, gathered(molecules, extra=extra), adapter.find_route(network))
        torch.testing.assert_close(outputs, network(own_batch()), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "aggregation",
    [
        chemprop_nn.SumAggregation(),
        chemprop_nn.NormAggregation(norm=7.0),
        chemprop_nn.AttentiveAggregation(output_size=24),
    ],
    ids=lambda aggregation: type(aggregation).__name__,
)
def test_other_aggregations(molecules, aggregation):
    network = new_network()
    network.agg = aggregation
    with torch.no_grad():
        outputs, _ = forward.run(network, gathered(molecules), adapter.find_route(network))
        torch.testing.assert_close(outputs, network(own_batch()), rtol=0, atol=1e-5)


def test_empty_molecules_between_others_change_nothing(molecules):
    network, empty = new_network(bias=True), len(SMILES)
    with torch.no_grad():
        expected, _ = forward.run(network, gathered(molecules, extra=3), adapter.find_route(network))
        filled, _ = forward.run(
            network, gathered(molecules, [3, 0, empty, 4, 7, 2, empty], extra=3), adapter.find_route(network)
        )
    assert torch.equal(filled[[0, 1, 3, 4, 5]], expected)


def test_dummies_have_no_part_in_the_gradient(molecules):
    gradients = []
    for extra in (0, 25):
        network = new_network(bias=True)
        forward.run(network, gathered(molecules, extra=extra), adapter.find_route(network))[
            0
        ].square().sum().backward()
        gradients.append([parameter.grad for parameter in network.parameters()])
    for exact, filled in zip(*gradients, strict=True):
        torch.testing.assert_close(filled, exact)


def test_the_embedding_comes_after_the_activation(molecules):
    network = new_network()
    with torch.no_grad():
        _, embeddings = forward.run(network, gathered(molecules), adapter.find_route(network))
        before = network.encoding(own_batch(), i=-1)
    assert bool((before < 0).any())
    torch.testing.assert_close(embeddings, before.relu(), rtol=0, atol=1e-6)


def test_rows_share_the_graphs_and_are_compared_as_molecules(molecules):
    part = molecules[np.array([1, 0])]
    assert (len(part), part.shape, list(part.smiles), list(part)) == (
        2,
        (2,),
        ["c1ccccc1", "OCC"],
        ["c1ccccc1", "CCO"],
    )
    assert part.packed is molecules.packed
    assert list(molecules[2:4].rows) == [2, 3]
    assert row_digests(part)[1] == row_digests(read_molecules(["C(O)C"]))[0]
    copy = pickle.loads(pickle.dumps(part))
    assert torch.equal(copy.packed.bonds, part.packed.bonds)


@pytest.fixture
def small_tables_are_large(monkeypatch, tmp_path):
    """Also for few molecules processes and the disk are used."""
    monkeypatch.setenv("LVD_CACHE", str(tmp_path))
    monkeypatch.setattr(features, "MANY", 1)
    monkeypatch.setattr(features, "CHUNK", 3)
    return tmp_path / "molecules"


def test_chunks_in_processes_give_the_same(molecules, small_tables_are_large):
    chunked = read_molecules(SMILES, n_jobs=1, cache=False)
    for name, rows in ((name, ROWS) for name in ("V", "E", "edge_index", "rev_edge_index")):
        assert torch.equal(getattr(gathered(chunked, rows), name), getattr(gathered(molecules, rows), name))
    assert list(chunked) == list(molecules)
    assert not small_tables_are_large.exists()


def test_features_are_computed_once(molecules, small_tables_are_large, monkeypatch):
    read_molecules(SMILES, n_jobs=1)
    (file,) = small_tables_are_large.iterdir()
    monkeypatch.setattr(features, "featurize_chunk", None)
    again = read_molecules(SMILES)
    assert torch.equal(gathered(again).V, gathered(molecules).V)
    assert list(again) == list(molecules)
    with pytest.raises(TypeError):  # another featurizer is another file
        read_molecules(SMILES, atom_featurizer="v2", n_jobs=1)
    file.write_bytes(b"damaged")
    assert features.read_cached(file, len(SMILES)) is None


def test_a_cache_that_cannot_be_written_is_a_warning(small_tables_are_large):
    small_tables_are_large.write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="features of 8 molecules cannot be kept.*set LVD_CACHE"):
        assert len(read_molecules(SMILES, n_jobs=1)) == 8


def test_invalid_smiles_are_named_by_row(small_tables_are_large):
    with pytest.raises(lvd.InputError, match=r"RDKit cannot read 2 SMILES, first in rows 4 \(C1\), 6 \(\)"):
        read_molecules(["C", "CC", "CCC", "C1", "N", ""], n_jobs=1)
    assert valid_smiles(["C", "C1", "", None, float("nan")]).tolist() == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("CCO", "a list or a column of SMILES, got the one string 'CCO'"),
        ([], "X is empty"),
        ([["C", "C"]], r"one column of SMILES, got shape \(1, 2\)"),
        (["C", 3, None], r"2 row\(s\), counting from 1, hold something else, first 2 \(3\), 3 \(None\)"),
    ],
    ids=["string", "empty", "two columns", "numbers"],
)
def test_what_is_no_column_of_smiles(X, message):
    with pytest.raises(lvd.InputError, match=message):
        as_smiles(X)


def test_columns_of_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"smiles": ["C", "CC"], "y": [1.0, 2.0]})
    assert list(as_smiles(frame["smiles"])) == list(as_smiles(frame[["smiles"]])) == ["C", "CC"]
    assert canonical_smiles(frame["smiles"]) == ["C", "CC"]


def test_the_featurizer_must_exist():
    with pytest.raises(lvd.InputError, match="atom_featurizer must be one of 'v1', 'v2', 'organic', 'rigr'"):
        read_molecules(["C"], atom_featurizer="v3")
