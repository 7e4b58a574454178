"""`TableModel`: what fit may see, what load refuses, and rows that come in parts."""

from __future__ import annotations

import csv
import io
import itertools

import numpy as np
import pyarrow as pa
import pytest

import lvd
from lvd.tables.reading import find_row, read_rows
from lvd.tables.splits import split_indices
from lvd.tables.table_model import TableModel

N_ROWS = 60


def make_table(n_rows=N_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_rows)
    holes = rng.random(n_rows) < 0.2
    return pa.table(
        {
            "x": pa.array(x, mask=holes),
            "kind": rng.choice(["u", "v"], size=n_rows),
            "y": x + rng.normal(size=n_rows),
        }
    )


def new_regressor(**choices):
    return lvd.LVDRegressor(
        lvd.NetRegressor(n_batches=20, random_state=0),
        preset="paper",
        kernel=lvd.MahalanobisKernel(2, max_iter=20, random_state=0),
        random_state=0,
        **choices,
    )


def fit(table, **options):
    return TableModel.fit(table, new_regressor(), target="y", impute="median", **options)


@pytest.fixture(scope="module")
def fitted():
    return fit(make_table())


def replace_rows(table, rows, **values):
    """The table with other values in these rows."""
    for name, value in values.items():
        column = table[name].to_pylist()
        for row in rows:
            column[row] = value
        table = table.set_column(table.column_names.index(name), name, pa.array(column))
    return table


def prediction(model):
    return model.predict(make_table(seed=1).to_batches()[0], [0.5, 0.9])


def same(first, second):
    return all(np.array_equal(first[name], second[name]) for name in first)


def test_no_step_of_fit_sees_the_test_rows(fitted):
    table, (train, calib, test) = make_table(), split_indices(N_ROWS, 0)
    model, report = fitted
    other, other_report = fit(replace_rows(table, test, x=1e3, kind="u", y=-1e6))
    assert same(prediction(model), prediction(other))
    assert other_report.targets != report.targets
    for rows in (train[:5], calib[:5]):  # the same change in other rows does make a difference
        changed, _ = fit(replace_rows(table, rows, x=50.0, y=-100.0))
        assert not same(prediction(model), prediction(changed))


def test_medians_are_those_of_the_training_rows(fitted):
    train, _, _ = split_indices(N_ROWS, 0)
    known = [value for value in make_table().take(train)["x"].to_pylist() if value is not None]
    assert fitted[0].encoder.columns[0].median == np.median(known)


def test_a_column_without_values_in_the_training_rows_is_refused():
    train, _, _ = split_indices(N_ROWS, 0)
    with pytest.raises(
        lvd.InputError,
        match="training rows of column 'x': has no values at all\nto leave out: drop=\\['x'\\]",
    ):
        fit(replace_rows(make_table(), train, x=None))


@pytest.mark.parametrize("split", ["time:day", "group:shop"])
def test_folds_are_blocks_of_time_or_whole_groups(split, monkeypatch):
    rng, found = np.random.default_rng(0), []
    columns = {"day": rng.permutation(N_ROWS), "shop": rng.integers(0, 12, size=N_ROWS)}
    table = make_table()
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    regressor = new_regressor(calibration="cross", folds=4)
    train = regressor._train
    monkeypatch.setattr(
        regressor, "_train", lambda *given, **more: found.extend(given[-1]) or train(*given, **more)
    )
    model, _ = TableModel.fit(table, regressor, target="y", split=split, groups="kind", impute="median")
    rows = model.kept.calibration - 1
    parts = [columns[split.split(":")[1]][rows[outside]] for _, outside in found]
    assert sum(map(len, parts)) == len(rows) == model.regressor.n_calib_
    if split == "time:day":
        assert all(before.max() < after.min() for before, after in itertools.pairwise(parts))
    else:
        assert sum(len(set(part)) for part in parts) == len(set(columns["shop"][rows]))


def test_the_report_counts_the_rows(fitted):
    _, report = fitted
    assert (report.n_train, report.n_calib, report.n_test, report.n_features) == (36, 12, 12, 3)
    assert report.inputs == ("x", "kind")


def test_calibration_and_test_rows_are_told_by_their_numbers(fitted):
    model, _ = fitted
    y = np.asarray(make_table()["y"])
    np.testing.assert_array_equal(model.regressor.y_calib_[:, 0], y[model.calibration_rows - 1])
    assert not set(model.calibration_rows) & set(model.test_rows)


def test_a_round_trip_gives_the_same_bits(fitted, tmp_path):
    model, _ = fitted
    model.save(tmp_path / "model")
    loaded = TableModel.load(tmp_path / "model")
    assert loaded.encoder == model.encoder
    assert (loaded.n_rows, loaded.seed) == (model.n_rows, model.seed)
    assert same(prediction(model), prediction(loaded))


def test_loading_predicts_nothing(fitted, tmp_path, monkeypatch):
    fitted[0].save(tmp_path / "model")
    calls, evaluate = [], lvd.NetRegressor.evaluate
    monkeypatch.setattr(lvd.NetRegressor, "evaluate", lambda *a: (calls.append(1), evaluate(*a))[1])
    loaded = TableModel.load(tmp_path / "model")
    assert calls == []
    prediction(loaded)
    assert calls == [1]


def test_rows_to_skip_are_those_of_single_columns(fitted, tmp_path):
    fitted[0].save(tmp_path / "model")
    with pytest.raises(lvd.InputError, match="skip_invalid= is for models fitted with column=; leave it out"):
        TableModel.load(tmp_path / "model", skip_invalid=True)


def test_one_column_takes_no_others():
    with pytest.raises(lvd.InputError, match="column= takes the cells of one column alone as inputs; leave"):
        TableModel.fit(make_table(), new_regressor(), target="y", column="kind", drop=["x"])
    with pytest.raises(lvd.InputError, match="estimator must be a ChempropEstimator"):
        TableModel.fit(make_table(), new_regressor(), target="y", column="kind")


def test_a_model_of_arrays_is_no_table_model(fitted, tmp_path):
    fitted[0].regressor.save(tmp_path / "model")
    with pytest.raises(lvd.InputError, match="was fitted on an array, whose columns have no names"):
        TableModel.load(tmp_path / "model")


def test_the_size_of_the_batches_changes_nothing(fitted, tmp_path):
    model, table = fitted[0], make_table(seed=1)
    seen = []
    parts = model.predict_to(tmp_path / "a.csv", table.to_batches(7), 0.9, on_rows=seen.append)
    whole = model.predict_to(tmp_path / "b.csv", table.to_batches(), 0.9)
    assert parts == whole
    assert seen == [7] * 8 + [4]
    first, second = (list(csv.reader(io.StringIO((tmp_path / f).read_text()))) for f in ("a.csv", "b.csv"))
    assert first[0] == second[0]
    for a, b in zip(first[1:], second[1:], strict=True):
        np.testing.assert_allclose(np.array(a[3:-1], dtype=float), np.array(b[3:-1], dtype=float), rtol=1e-4)
        assert a[-1] == b[-1]
    reports = [model.evaluate(batches) for batches in (table.to_batches(7), table.to_batches())]
    assert reports[0].n_repeated == reports[1].n_repeated > 0  # those imputed
    (one,), (other,) = (report.targets for report in reports)
    assert one.summary.rows[0] == pytest.approx(other.summary.rows[0], nan_ok=True)


def test_a_late_fault_leaves_no_file_and_names_its_row(fitted, tmp_path):
    table = replace_rows(make_table(seed=1), [52], x=float("inf"))
    with pytest.raises(lvd.InputError, match=r"column 'x': 1 infinite value \(row 53\)"):
        fitted[0].predict_to(tmp_path / "out.csv", table.to_batches(10), 0.9)
    assert list(tmp_path.iterdir()) == []


def test_find_row():
    batches = pa.table({"x": [1, 2, 3, 4, 5]}).to_batches(2)
    assert [find_row(batches, row)["x"].to_pylist() for row in (1, 2, 3, 5)] == [[1], [2], [3], [5]]
    with pytest.raises(lvd.InputError, match="row must lie between 1 and 5"):
        find_row(batches, 6)
    with pytest.raises(lvd.InputError, match="row must be a positive integer, got 0"):
        find_row(batches, 0)


def test_rows_of_a_text_file_stay_text(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1.50,007\n")
    (batch,) = read_rows(tmp_path / "t.csv")
    assert batch.to_pylist() == [{"x": "1.50", "y": "007"}]


class TestOnePassOfTheNetwork:
    @staticmethod
    def count(monkeypatch, regressor):
        """How many rows each call of the regressor's network has."""
        calls, evaluate = [], regressor.model_.evaluate
        monkeypatch.setattr(regressor.model_, "evaluate", lambda X: (calls.append(len(X)), evaluate(X))[1])
        return calls

    @pytest.mark.parametrize(
        "choices",
        [{}, {"conformity_score": "normalized"}, {"conformity_score": "signed"}, {"bandwidth": "adaptive"}],
        ids=["plain", "normalized", "signed", "adaptive"],
    )
    def test_prediction(self, choices, monkeypatch):
        regressor = new_regressor(confidence_level=0.5, **choices)
        model, _ = TableModel.fit(make_table(), regressor, target="y", impute="median")
        calls = self.count(monkeypatch, regressor)
        columns = prediction(model)
        assert calls == [N_ROWS]
        X = model.inputs(make_table(seed=1))
        y_pred, intervals = regressor.predict_interval(X, [0.5, 0.9])
        np.testing.assert_array_equal(columns["y_pred"], y_pred)
        np.testing.assert_array_equal(columns["lower_50"], intervals[:, 0, 0])
        np.testing.assert_array_equal(columns["upper_90"], intervals[:, 1, 1])
        sizes = regressor.calibrators_[0].effective_sample_size(regressor.embed(X))
        np.testing.assert_array_equal(columns["n_effective"], sizes)

    def test_several_targets_and_batches(self, tmp_path, monkeypatch):
        table = make_table().append_column("z", make_table(seed=2)["y"])
        model, _ = TableModel.fit(table, new_regressor(), target=["y", "z"], impute="median")
        calls = self.count(monkeypatch, model.regressor)
        model.predict_to(tmp_path / "out.csv", table.to_batches(25), 0.5)
        assert calls == [25, 25, 10]

    def test_an_explanation(self, fitted, monkeypatch):
        calls = self.count(monkeypatch, fitted[0].regressor)
        fitted[0].explain(make_table().to_batches(), 3, 0.5)
        assert calls == [1]


class TestFewRows:
    """Tables of few rows calibrate crosswise, where that was measured."""

    @staticmethod
    def table(n_levels, n_rows=120):
        rng = np.random.default_rng(0)
        level = rng.permutation(np.arange(n_rows) % n_levels)
        return pa.table(
            {
                "x": rng.normal(size=n_rows),
                "level": [f"{one} km" for one in level],
                "y": level + rng.normal(size=n_rows),
            }
        )

    @pytest.mark.parametrize(("n_levels", "crossed"), [(30, True), (31, False)])
    def test_with_many_levels_rows_are_set_aside(self, n_levels, crossed):
        reg = lvd.LVDRegressor("trees", random_state=0)
        model, report = TableModel.fit(self.table(n_levels), reg, target="y", keep=["level"])
        assert model.regressor.is_crossed == crossed
        assert (report.n_train == report.n_calib) == crossed
        reg = lvd.LVDRegressor("trees", calibration="cross", random_state=0)
        assert TableModel.fit(self.table(n_levels), reg, target="y", keep=["level"])[0].regressor.is_crossed

    def test_the_parameters_are_those_of_the_user(self):
        reg = lvd.LVDRegressor("trees", random_state=0)
        before = reg.get_params()
        TableModel.fit(self.table(3), reg, target="y")
        assert reg.is_crossed
        assert reg.get_params() == before
        TableModel.fit(self.table(3, 700), reg, target="y")
        assert not reg.is_crossed
