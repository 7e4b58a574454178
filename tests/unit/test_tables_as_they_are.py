"""Columns that are pointed out, rows without a target, splits, and a model that is updated and watched."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import lvd
from lvd.tables.dates import recurring_parts
from lvd.tables.inputs import find_leaks, find_useless, prepare_columns, split_table
from lvd.tables.model_card import ModelCard, Source
from lvd.tables.reading import read_table
from lvd.tables.splits import KeptRows, RowSplit, split_time_indices
from lvd.tables.table_model import TableModel
from lvd.tables.watching import update, watch

N = 120


def make_table(n=N, seed=0, **columns):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return pa.table({"x": x, "city": rng.choice(["u", "v"], n), "y": x + 0.3 * rng.normal(size=n)} | columns)


def fit(table, **options):
    regressor = lvd.LVDRegressor(
        lvd.NetRegressor(epochs=3), calibration="split", random_state=0, **options.pop("regressor", {})
    )
    return TableModel.fit(table, regressor, target="y", **options)


@pytest.fixture(scope="module")
def fitted():
    return fit(make_table())[0]


class TestReview:
    def useless(self, **columns):
        table = make_table(**columns)
        return find_useless(table, [name for name in table.column_names if name != "y"])

    @pytest.mark.parametrize(
        "values", [[3] * N, ["a"] * N, ["a", ""] * (N // 2), pa.nulls(N), [float("nan"), 1.0] * 60]
    )
    def test_constants(self, values):
        assert self.useless(a=values) == {"a": "constant"}

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("a", [f"r{i}" for i in range(N)]),
            ("a", list(range(N))),
            ("a", np.random.default_rng(0).permutation(N) + 7),
            ("a", np.arange(N) * 1.0),
            ("id", np.arange(N) ** 2 * 1000),
            ("orderID", [2**60 + 17 * i for i in range(N)]),
            ("a", [str(2**70 + i) + "x" for i in range(N)]),
            ("__index_level_0__", np.zeros(N) + np.arange(N) % 3),
        ],
    )
    def test_identifiers(self, name, values):
        assert self.useless(**{name: values}) == {name: "identifier"}

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("a", np.arange(N) ** 2 * 1000),
            ("id", np.arange(N) % 7),
            ("a", np.random.default_rng(0).normal(size=N)),
            ("a", [f"r{i % 60}" for i in range(N)]),
            ("a", [datetime.date(2020, 1, 1) + datetime.timedelta(i) for i in range(N)]),
            ("a", [str(datetime.date(2020, 1, 1) + datetime.timedelta(i)) for i in range(N)]),
            ("a", [f"{i},000" for i in range(N)]),
            ("rapid", np.arange(N) ** 2 * 1000),
        ],
    )
    def test_what_is_neither(self, name, values):
        assert self.useless(**{name: values}) == {}

    def test_a_count_of_rows_stays_where_nothing_else_is(self):
        table = pa.table({"x": range(N), "y": np.arange(N) % 7})
        assert find_useless(table, ["x"]) == {}
        assert prepare_columns(table, target="y", seed=0).encoder.inputs == ("x",)

    def test_nothing_left(self):
        table = pa.table({"x": ["a"] * N, "y": range(N)})
        with pytest.raises(
            lvd.InputError, match=r"no column is left to predict from: 'x' \(constant\); .*keep=\['x'\]"
        ):
            prepare_columns(table, target="y", seed=0)

    def test_left_out_and_kept(self):
        table = make_table(a=list(range(N)), b=[1] * N)
        prepared = prepare_columns(table, target="y", seed=0)
        assert prepared.useless == {"a": "identifier", "b": "constant"}
        assert prepared.encoder.inputs == ("x", "city")
        assert prepare_columns(table, target="y", keep=["a"], seed=0).encoder.inputs == ("x", "city", "a")

    def test_leaks(self):
        rng = np.random.default_rng(0)
        y = rng.normal(size=600)
        table = pa.table(
            {
                "twice": 2 * y,
                "square": y**2,
                "noisy": y + 0.5 * rng.normal(size=600),
                "label": [f"{value:.1f}" + "x" for value in y],
                "y": y,
            }
        )
        prepared = prepare_columns(table, target="y", seed=0)
        X = prepared.read(np.arange(600))
        leaks = find_leaks(prepared.encoder.columns, X, prepared.y, 0)
        assert list(leaks) == ["twice"]
        assert find_leaks(prepared.encoder.columns, X[:20], prepared.y[:20], 0) == {}

    def test_leaks_of_a_target_with_heavy_tails(self):
        rng = np.random.default_rng(0)
        y = rng.standard_cauchy(600)
        columns = {"same": y, "near": 1.19 * y, "other": y + rng.standard_cauchy(600)}
        prepared = prepare_columns(pa.table(columns | {"y": y}), target="y", seed=0)
        leaks = find_leaks(prepared.encoder.columns, prepared.read(np.arange(600)), prepared.y, 0)
        assert list(leaks) == ["same", "near"]

    def test_leaks_of_one_of_two_targets(self):
        """The other target is the larger one, and what tells its rows apart tells nothing of this one."""
        rng = np.random.default_rng(0)
        y, large = rng.standard_cauchy((2, 600))
        table = pa.table({"same": y, "other": rng.normal(size=600), "y": y, "large": 1e6 * large})
        prepared = prepare_columns(table, target=["y", "large"], seed=0)
        X = prepared.read(np.arange(600))
        assert list(find_leaks(prepared.encoder.columns, X, prepared.y, 0)) == ["same"]


class TestRowsWithoutATarget:
    def test_left_out_and_counted(self):
        y = [None if i % 10 == 0 else float(i % 7) for i in range(N)]
        model, report = fit(make_table(y=y))
        assert (report.n_unlabelled, report.n_train, report.n_calib, report.n_test) == (12, 65, 21, 22)
        rows = np.concatenate([model.calibration_rows, model.test_rows])
        assert not (rows % 10 == 1).any()
        assert model.evaluate(make_table(seed=1, y=y).to_batches()).n_unlabelled == 12

    def test_the_split_of_a_whole_table_is_as_ever(self, fitted):
        assert fitted.kept is None

    @pytest.mark.parametrize("use", [TableModel.evaluate, update, watch])
    def test_they_are_not_read_and_others_keep_their_numbers(self, fitted, use):
        holes = {
            "x": pa.array([0.0, None, 0.5, None]),
            "y": [1.0, None, 1.0, 1.0],
            "city": ["u", "u", "v", "v"],
        }
        with pytest.raises(lvd.InputError, match=r"column 'x': 1 missing value \(row 4\)"):
            use(fitted, [pa.table(holes)])

    def test_none_has_one(self):
        with pytest.raises(lvd.InputError, match="target 'y': has no values at all"):
            fit(make_table(y=pa.nulls(N, pa.float64())))


class TestSplits:
    def parts(self, text, **columns):
        table = make_table(**columns)
        return split_table(RowSplit.parse(text), table, np.arange(N), 0)

    def test_in_time(self):
        days = np.random.default_rng(0).permutation(N) // 3
        for values in (days, [str(datetime.date(2020, 1, 1) + datetime.timedelta(int(d))) for d in days]):
            train, calib, test = self.parts("time:a", a=values)
            assert days[train].max() < days[calib].min()
            assert days[calib].max() < days[test].min()
            assert np.sort(np.concatenate([train, calib, test])).tolist() == list(range(N))
            assert abs(len(train) - 0.6 * N) <= 3

    def test_few_moments(self):
        train, calib, test = split_time_indices(np.repeat([1.0, 2.0, 3.0], [1, 1, 100]), 0)
        assert (len(train), len(calib), len(test)) == (1, 1, 100)
        with pytest.raises(lvd.InputError, match="at least 3 different moments"):
            split_time_indices(np.repeat([1.0, 2.0], 10), 0)

    def test_by_groups(self):
        town = np.arange(N) % 11
        parts = self.parts("group:a", a=town)
        assert sum(len(set(town[part])) for part in parts) == 11

    @pytest.mark.parametrize("text", ["", "time", "time:", "group", "random:x", "Time:x", "by:x"])
    def test_other_words(self, text):
        with pytest.raises(lvd.InputError, match="split must be random, time:COLUMN, group:COLUMN"):
            RowSplit.parse(text)

    def test_bad_columns(self):
        with pytest.raises(lvd.InputError, match="the table has no column 'z'"):
            fit(make_table(), split="time:z")
        with pytest.raises(lvd.InputError, match="split by column 'city': must be a number, got"):
            fit(make_table(), split="time:city")
        holes = [None if i < 2 else float(i) for i in range(N)]
        with pytest.raises(lvd.InputError, match="split by column 'a': 2 missing values"):
            fit(make_table(a=holes), split="time:a", impute="median")
        with pytest.raises(lvd.InputError, match="at least 3 different labels"):
            fit(make_table(), split="group:city")

    def test_the_column_is_no_input_but_for_what_comes_back(self, tmp_path):
        days = [datetime.date(2020, 1, 1) + datetime.timedelta(6 * i) for i in range(N)]
        model, report = fit(make_table(a=days, t=np.arange(N) * 0.5), split="time:a")
        assert [name for name in model.encoder.feature_names if name.startswith("a")] == [
            "a: month",
            "a: weekday",
        ]
        parts, moments = ("year", "month", "weekday", "hour", "days"), np.array([0.0, 86_400.0])
        assert recurring_parts(parts, moments) == ("hour",)
        assert recurring_parts(parts, 364.0 * moments) == ("weekday", "hour")
        assert recurring_parts(parts, 365.0 * moments) == ("month", "weekday", "hour")
        assert report.split == "time:a"
        assert model.calibration_rows.min() > 72
        model.save(tmp_path / "model")
        again = TableModel.load(tmp_path / "model")
        np.testing.assert_array_equal(again.test_rows, model.test_rows)
        model, _ = fit(make_table(t=np.arange(N) * 0.5), split="time:t")
        assert model.encoder.inputs == ("x", "city")
        model, _ = fit(make_table(t=np.arange(N) % 9), split="group:t")
        assert model.encoder.inputs == ("x", "city")


def test_the_target_cannot_be_dropped():
    with pytest.raises(
        lvd.InputError, match="column 'y' is the target and cannot be dropped; name another one"
    ):
        fit(make_table(), drop=["y"])


class TestUnseenLevels:
    def rows(self):
        return make_table(6, seed=3, city=["u", "new", "v", "new", "", "u"])

    @pytest.mark.parametrize("when_unknown", ["infinite", "widen"])
    def test_such_rows_are_unknown(self, when_unknown):
        model, _ = fit(make_table(), regressor={"when_unknown": when_unknown, "y_range": (-50.0, 50.0)})
        batch = self.rows()
        columns = model.predict(batch, 0.5)
        new = np.array([False, True, False, True, True, False])
        assert not columns["known"][new].any()
        _, plain = model.regressor.predict_interval(model.encoder.transform(batch), 0.5)
        everything = np.where(new & (when_unknown == "infinite"), 50.0, plain[:, 1, 0])
        np.testing.assert_array_equal(columns["upper_50"], everything)
        assert np.isin(columns["lower_50"][new], -50.0).all() or when_unknown == "widen"
        unseen = model.unseen(batch)
        assert (unseen.n_levels, unseen.levels) == (3, {"city": ("new", "")})
        (explanation,) = model.explain([batch], 2, 0.5)
        assert not explanation.known
        assert explanation.lower == pytest.approx(
            columns["lower_50"][1], rel=1e-12
        )  # alone, and among others
        report = model.evaluate([batch], 0.5)
        assert report.unseen.n_levels == 3
        assert report.n_unknown >= 3


class TestUpdate:
    def test_rows_join_the_calibration(self, fitted, tmp_path):
        fitted.save(tmp_path / "model")
        model, new = TableModel.load(tmp_path / "model"), make_table(40, seed=5)
        holes = new.set_column(2, "y", pa.array([None, *new["y"].to_pylist()[1:]]))
        updated, report = update(model, holes.to_batches(7))
        assert (report.n_added, report.n_unlabelled, report.n_calib) == (39, 1, 24 + 39)
        assert updated.calibration_rows[-39:].tolist() == list(range(N + 2, N + 41))
        expected = TableModel.load(tmp_path / "model").regressor.update(
            model.encoder.transform(new)[1:], new["y"].to_numpy()[1:]
        )
        rows = make_table(10, seed=6)
        found = updated.predict(rows, 0.9)
        _, intervals = expected.predict_interval(model.encoder.transform(rows), 0.9)
        np.testing.assert_array_equal(found["upper_90"], intervals[:, 1, 0])
        updated.save(tmp_path / "again")
        again, report = update(
            TableModel.load(tmp_path / "again"), new.to_batches(), n_newest=50, allow_repeated=True
        )
        assert report.n_again == 39
        assert again.regressor.n_calib_ == 50
        assert again.calibration_rows.max() == N + 80
        again.save(tmp_path / "third")
        third = TableModel.load(tmp_path / "third")
        (explanation,) = third.explain(make_table(1, seed=7).to_batches(), 1, 0.5)
        assert {neighbor.index for neighbor in explanation.evidence.neighbors} <= set(third.calibration_rows)

    def test_nothing_to_add(self, fitted):
        with pytest.raises(lvd.InputError, match="nothing to add"):
            update(fitted, make_table(3, y=pa.nulls(3, pa.float64())).to_batches())

    @pytest.mark.parametrize(
        "change",
        [{"calibration": [1, 1]}, {"test": [0]}, {"added": -1}, {"added": "x"}, {"calibration": None}],
    )
    def test_damaged_rows(self, change):
        content = KeptRows(np.array([1, 12]), np.array([3]), n_added=4).to_dict()
        assert KeptRows.from_dict(content, 10, of_cells=False).n_added == 4
        with pytest.raises(lvd.InputError, match="the list of the model's rows is damaged"):
            KeptRows.from_dict(content | change, 10, of_cells=False)


class TestWatch:
    def test_no_alarm_and_an_alarm(self, fitted):
        calm = watch(fitted, make_table(150, seed=8).to_batches(40), 0.9)
        assert (calm.monitor.n_seen, calm.monitor.alarm) == (150, False)
        x = np.random.default_rng(9).normal(size=150)
        worse = watch(fitted, make_table(150, seed=9, y=x + 40.0).to_batches(40), 0.9)
        assert worse.monitor.alarm
        holes = watch(
            fitted, make_table(4, city=["u", "w", "v", "u"], y=[None, 1.0, 1.0, 1.0]).to_batches(), 0.9
        )
        assert (holes.n_rows, holes.n_unlabelled, holes.monitor.n_seen, holes.unseen.n_levels) == (4, 1, 3, 1)

    def test_unknown_rows_with_infinite_intervals_are_covered(self, fitted):
        far = make_table(30, city=["new"] * 30, y=np.full(30, 1e6))
        assert watch(fitted, far.to_batches(), 0.9).monitor.coverage == 1.0

    def test_nothing_to_watch(self, fitted):
        with pytest.raises(lvd.InputError, match="nothing to watch"):
            watch(fitted, make_table(3, y=pa.nulls(3, pa.float64())).to_batches(), 0.9)


class TestCard:
    def card(self, tmp_path):
        (tmp_path / "t.csv").write_text("a,b\n1,2\n")
        table = read_table(tmp_path / "t.csv")
        _, report = fit(make_table())
        source = Source.of(tmp_path / "t.csv", table.num_rows, table.num_columns)
        return ModelCard.of(source, report, {"preset": "default"}, ["a note"])

    def test_round_trip_and_text(self, tmp_path, fitted):
        card = self.card(tmp_path).updated(Source("new.csv", 3, 2, "f" * 64))
        assert ModelCard.from_dict(json.loads(json.dumps(card.to_dict()))) == card
        text = card.text(fitted._facts())
        for line in ("- t.csv: 1 rows, 2 columns, sha256 ", "- a note", "- preset: default", "| y | 90% | "):
            assert line in text
        assert "new.csv: 3 rows, 2 columns, sha256 ffff" in text
        replace(fitted, card=card.to_dict()).save(tmp_path / "model")
        assert (tmp_path / "model" / "card.md").read_text() == text
        assert ModelCard.from_dict(TableModel.load(tmp_path / "model").card) == card

    def test_a_changed_card_is_noticed(self, tmp_path, fitted):
        replace(fitted, card=self.card(tmp_path).to_dict()).save(tmp_path / "model")
        (tmp_path / "model" / "card.md").write_text("perfect")
        with pytest.raises(lvd.InputError, match=r"card\.md in .* different size"):
            TableModel.load(tmp_path / "model")

    @pytest.mark.parametrize("content", [3, {}, [], {"source": 3}])
    def test_damaged(self, content):
        with pytest.raises(lvd.InputError, match="the model's card is damaged"):
            ModelCard.from_dict(content)
