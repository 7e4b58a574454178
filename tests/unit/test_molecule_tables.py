"""Tables of molecules: the encoder of their columns, the split by molecule, and what load refuses."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import lvd
from lvd.methods.conformal import split_cases

if importlib.util.find_spec("rdkit") is None or importlib.util.find_spec("chemprop") is None:
    pytest.skip("needs chemprop and RDKit", allow_module_level=True)

from lvd.molecules.smiles import canonical_smiles
from lvd.tables.inputs import CellEncoder, prepare_cells
from lvd.tables.splits import KeptRows, RowSplit
from lvd.tables.table_encoder import TableEncoder
from lvd.tables.table_model import TableModel

CHAINS = ["C" * n + end for n in range(1, 13) for end in ("", "O", "N", "Cl")]


def make_table(smiles, **columns):
    return pa.table({"smiles": smiles, "y": [len(string or "") / 3 for string in smiles], **columns})


def make_regressor(**changes):
    network = lvd.ChempropEstimator(hidden_size=8, n_epochs=3, device="cpu", progress=False, random_state=0)
    kernel = lvd.MahalanobisKernel(2, max_iter=5, random_state=0)
    fixed = {"estimator": network, "preset": "paper", "kernel": kernel, "random_state": 0}
    return lvd.LVDRegressor(**(fixed | changes))


@pytest.fixture(scope="module")
def fitted():
    return TableModel.fit(make_table([*CHAINS, "OCC"]), make_regressor(), target="y", column="smiles")


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    fitted[0].save(folder)
    return folder


class TestEncoder:
    def test_strings_as_they_are_and_targets(self):
        table = make_table(["OCC", "CCO", "C"], other=["a", "b", "c"])
        encoder = CellEncoder.fit(table, target="y", column="smiles")
        assert encoder.transform(table).tolist() == ["OCC", "CCO", "C"]
        assert encoder.target(table).tolist() == [1.0, 1.0, 1 / 3]
        assert encoder.usable(table).all()

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
    def test_texts_of_any_type(self, kind):
        table = make_table(["C", "CO"])
        table = table.set_column(0, "smiles", table["smiles"].cast(kind))
        assert CellEncoder(("y",), "smiles").transform(table).tolist() == ["C", "CO"]

    def test_rows_that_are_no_molecules_are_named_or_skipped(self):
        table = make_table(["C", "C1", None, "CO", "C1"])
        encoder = CellEncoder(("y",), "smiles")
        message = (
            r"column 'smiles': RDKit cannot read 3 molecules \(rows 12, 13, 15\): 'C1', missing; correct"
        )
        with pytest.raises(lvd.InputError, match=message):
            encoder.usable(table, numbers=np.arange(11, 11 + table.num_rows))
        skipping = CellEncoder(("y",), "smiles", skip_invalid=True)
        assert skipping.usable(table).tolist() == [True, False, False, True, False]

    def test_a_column_that_holds_no_text(self):
        table = pa.table({"smiles": pa.array([[1], [2]]), "y": [1.0, 2.0]})
        with pytest.raises(lvd.InputError, match=r"column 'smiles': has type list.*turned into text"):
            CellEncoder(("y",), "smiles").usable(table)

    def test_a_round_trip_through_json(self):
        encoder = CellEncoder(("y", "z"), "smiles", skip_invalid=True)
        assert CellEncoder.from_dict(json.loads(json.dumps(encoder.to_dict()))) == encoder
        other = TableEncoder.fit(pa.table({"x": [1.0, 2.0], "y": [1.0, 2.0]}), target="y")
        assert TableEncoder.from_dict(json.loads(json.dumps(other.to_dict()))) == other

    @pytest.mark.parametrize(
        "content",
        [
            {"smiles": "s", "targets": []},
            {"smiles": "s", "targets": ["s"], "skip_invalid": False},
            {"smiles": "s", "targets": ["y", "y"], "skip_invalid": False},
            {"smiles": "s", "targets": ["y"], "skip_invalid": "no"},
            {"smiles": 3, "targets": ["y"], "skip_invalid": False},
        ],
        ids=["no flag", "target is smiles", "twice", "flag", "name"],
    )
    def test_a_damaged_description(self, content):
        with pytest.raises(lvd.InputError, match="the description of the table's columns"):
            CellEncoder.from_dict(content)


class TestFit:
    def test_it_reports_what_it_did(self, fitted):
        model, report = fitted
        assert (report.n_duplicates, report.n_skipped, report.n_repeated) == (1, 0, 0)
        assert report.inputs == ("smiles",)
        assert report.n_train + report.n_calib + report.n_test == len(CHAINS) + 1
        np.testing.assert_array_equal(
            model.regressor.y_calib_[:, 0], [len(string) / 3 for string in model.kept.cells]
        )

    @pytest.mark.parametrize("seed", range(3))
    def test_all_copies_of_a_molecule_are_in_one_part(self, seed):
        smiles = [*CHAINS, *(string[::-1] for string in CHAINS if not string.endswith("Cl"))]
        table = make_table(smiles)
        model, _ = TableModel.fit(table, make_regressor(), target="y", column="smiles", seed=seed)
        canonical = np.array(canonical_smiles(smiles))
        calib, test = model.calibration_rows - 1, model.test_rows - 1
        train = np.setdiff1d(np.arange(len(smiles)), [*calib, *test])
        parts = [set(canonical[rows]) for rows in (train, calib, test)]
        assert sum(map(len, parts)) == len(set(canonical))

    def test_all_molecules_train_and_calibrate(self, tmp_path):
        regressor = make_regressor(calibration="cross", folds=2)
        model, report = TableModel.fit(make_table([*CHAINS, "OCC"]), regressor, target="y", column="smiles")
        assert report.n_train == model.regressor.n_calib_ == len(model.kept.cells)
        assert report.n_train + report.n_test == len(CHAINS) + 1
        model.save(tmp_path / "model")
        assert TableModel.load(tmp_path / "model").kept.cells == model.kept.cells

    def test_folds_divide_no_scaffold(self):
        rings = [ring + "C" * n for ring in ("C1CCCCC1", "c1ccccc1", "C1CCCC1", "c1ccncc1") for n in range(8)]
        split = RowSplit("scaffold")
        ways = {"target": "y", "column": "smiles", "skip_invalid": False, "seed": 0, "split": split}
        prepared = prepare_cells(
            make_table(rings), make_regressor().estimator, joins=lambda n_rows, n_levels: True, **ways
        )
        labels = prepared.together[prepared.parts[0]]
        folds = prepared.folds(split, len(set(labels)), 0).split()
        assert [len(set(labels[outside])) for _, outside in folds] == [1] * len(set(labels))

    def test_too_few_molecules(self):
        with pytest.raises(lvd.InputError, match=r"column 'smiles' holds 2 different molecule\(s\)"):
            TableModel.fit(make_table(["CO", "OC", "C"] * 9), make_regressor(), target="y", column="smiles")

    def test_only_a_network_of_molecules_reads_them(self):
        regressor = make_regressor(estimator=lvd.NetRegressor())
        with pytest.raises(lvd.InputError, match="must be a ChempropEstimator"):
            TableModel.fit(make_table(CHAINS), regressor, target="y", column="smiles")


def test_a_prediction_takes_one_pass_of_the_network(fitted, monkeypatch):
    network = fitted[0].regressor.model_
    calls, evaluate = [], network.evaluate
    monkeypatch.setattr(network, "evaluate", lambda X: (calls.append(len(X)), evaluate(X))[1])
    (rows,) = make_table(["CCOCC", "C1", "CCCCCC"]).to_batches()
    columns = replace(fitted[0], encoder=replace(fitted[0].encoder, skip_invalid=True)).predict(rows, 0.5)
    assert calls == [2]
    assert np.isnan(columns["n_effective"]).tolist() == [False, True, False]


class TestSaved:
    def test_a_round_trip_gives_the_same_bits(self, fitted, saved):
        model, loaded = fitted[0], TableModel.load(saved)
        assert loaded.encoder == model.encoder
        assert loaded.kept.cells == model.kept.cells
        np.testing.assert_array_equal(loaded.test_rows, model.test_rows)
        (rows,) = make_table(["CCOCC", "CCCCCC"]).to_batches()
        first, second = model.predict(rows, 0.5), loaded.predict(rows, 0.5)
        for name in first:
            np.testing.assert_array_equal(first[name], second[name])

    def test_the_molecules_of_another_model(self, fitted, tmp_path):
        other = replace(fitted[0], kept=KeptRows(np.array([1]), np.array([2]), ("C",)))
        other.save(tmp_path / "model")
        with pytest.raises(lvd.InputError, match="do not belong together"):
            TableModel.load(tmp_path / "model")

    @pytest.mark.parametrize(
        "change",
        [
            {"smiles": ["C"]},
            {"smiles": [1, 2]},
            {"calibration": [0, 1]},
            {"calibration": [1, 1]},
            {"calibration": ["1", "2"]},
            {"test": [10**30]},
            {"test": [1]},
        ],
        ids=["fewer", "no texts", "no row", "twice", "texts", "huge", "in both"],
    )
    def test_damage_is_found(self, change):
        content = KeptRows(np.array([1, 2]), np.array([3]), ("C", "CO")).to_dict()
        assert KeptRows.from_dict(content, 10, of_cells=True).cells == ("C", "CO")
        with pytest.raises(lvd.InputError, match="the list of the model's rows is damaged"):
            KeptRows.from_dict(content | change, 10, of_cells=True)
        with pytest.raises(lvd.InputError, match="the list of the model's rows is damaged"):
            KeptRows.from_dict(None, 10, of_cells=True)


def test_the_saved_form_is_that_of_version_0_1():
    kept = KeptRows(np.array([1, 2]), np.array([3]), ("C", "CO"))
    assert kept.to_dict() == {"calibration": [1, 2], "test": [3], "smiles": ["C", "CO"]}
    saved = {"targets": ["y"], "smiles": "smiles", "skip_invalid": False}
    assert CellEncoder.from_dict(saved).to_dict() == saved
    columns = [
        {"name": "x", "kind": "number", "categories": [], "median": 1.5},
        {"name": "c", "kind": "category", "categories": ["", "u"], "median": None},
    ]
    table = {"targets": ["y"], "columns": columns}
    assert TableEncoder.from_dict(table).to_dict() == table


class TestRowsSetAside:
    """`fit` with a `calib_size` keeps the rows of a case together."""

    def test_no_case_is_in_both_parts(self):
        cases = np.repeat(np.arange(30), np.arange(30) % 4 + 1)
        for seed in range(20):
            train, calib = split_cases(cases, 0.25, seed)
            assert not set(cases[train]) & set(cases[calib])
            assert abs(len(calib) - round(0.25 * len(cases))) <= 2
            assert sorted([*train, *calib]) == list(range(len(cases)))

    def test_different_cases_are_split_as_they_always_were(self):
        order = np.random.default_rng(3).permutation(40)
        train, calib = split_cases(np.arange(100, 140), 0.25, 3)
        np.testing.assert_array_equal(calib, np.sort(order[:10]))
        np.testing.assert_array_equal(train, np.sort(order[10:]))

    def test_a_regressor_of_molecules_does_not_calibrate_on_what_it_trained_on(self):
        smiles = [*CHAINS, *CHAINS]
        y = np.array([len(string) for string in smiles], dtype=float)
        regressor = make_regressor(calib_size=0.3).fit(smiles, y)
        counts = [np.sum(regressor.y_calib_ == length) for length in np.unique(regressor.y_calib_)]
        assert regressor.n_calib_ % 2 == 0
        assert all(count % 2 == 0 for count in counts)
