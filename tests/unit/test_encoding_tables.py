"""From tables to features: toys with known answers, and the exact words for what is refused."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvd._validation import InputError
from lvd.tables.column_coding import learn_from
from lvd.tables.column_values import MISSING_MARKS, parse_text
from lvd.tables.reading import iter_batches, read_table
from lvd.tables.table_encoder import TableEncoder

TABLE = pa.table(
    {
        "id": ["r1", "r2", "r3", "r4"],
        "size": [1.0, 2.0, 3.0, 5.0],
        "colour": ["red", "blue", "red", "green"],
        "new": [True, False, False, True],
        "y": [1, 2, 3, 4],
    }
)
FEATURES = [[1, 0, 0, 1, 1], [2, 1, 0, 0, 0], [3, 0, 0, 1, 0], [5, 0, 1, 0, 1]]


def fitted(**options) -> TableEncoder:
    return TableEncoder.fit(TABLE, target="y", drop=["id"], **options)


def refused(action, *args, **options) -> str:
    with pytest.raises(InputError) as error:
        action(*args, **options)
    return str(error.value)


def fit_refusal(values, **options) -> str:
    """What fit says about a column `a` with these values."""
    target = pa.array(range(len(values)))
    return refused(TableEncoder.fit, pa.table({"a": values, "y": target}), target="y", **options)


def changed(name: str, values) -> pa.Table:
    return TABLE.set_column(TABLE.column_names.index(name), name, pa.array(values))


class TestFeatures:
    def test_numbers_categories_and_booleans(self):
        encoder = fitted()
        assert encoder.feature_names == ["size", "colour=blue", "colour=green", "colour=red", "new"]
        np.testing.assert_array_equal(encoder.transform(TABLE), FEATURES)
        np.testing.assert_array_equal(encoder.target(TABLE), [1.0, 2.0, 3.0, 4.0])

    def test_batches_and_other_column_orders_give_the_same(self):
        encoder = fitted()
        shuffled = TABLE.select(["new", "colour", "size"]).slice(1, 2)
        np.testing.assert_array_equal(encoder.transform(shuffled), FEATURES[1:3])

    def test_order_of_rows_does_not_change_what_is_learned(self):
        assert TableEncoder.fit(TABLE.take([3, 1, 0, 2]), target="y", drop=["id"]) == fitted()

    def test_several_targets(self):
        encoder = TableEncoder.fit(TABLE, target=["y", "size"], drop=["id"])
        np.testing.assert_array_equal(encoder.target(TABLE), [[1, 1], [2, 2], [3, 3], [4, 5]])
        assert "size" not in encoder.feature_names

    def test_all_kinds_of_numbers(self):
        table = pa.table(
            {
                "half": pa.array([0.5, 1.0], pa.float16()),
                "unsigned": pa.array([1, 2], pa.uint64()),
                "decimal": [Decimal("1.25"), Decimal("-2.50")],
                "constant": [7, 7],
                "y": [1, 2],
            }
        )
        X = TableEncoder.fit(table, target="y").transform(table)
        np.testing.assert_array_equal(X, [[0.5, 1, 1.25, 7], [1, 2, -2.5, 7]])

    def test_categorical_integers_are_categories(self):
        table = pa.table({"code": pa.array([3, 1, 3]).dictionary_encode(), "y": [1, 2, 3]})
        encoder = TableEncoder.fit(table, target="y")
        assert encoder.feature_names == ["code=1", "code=3"]
        plain = pa.table({"code": [1, 3]})
        np.testing.assert_array_equal(encoder.transform(plain), np.eye(2))

    def test_numbers_stored_as_text_are_read_as_what_the_column_was(self):
        text = changed("size", ["1", " 2.0", "3e0", "5"])
        np.testing.assert_array_equal(fitted().transform(text), FEATURES)
        text = changed("new", ["1", "false", "0", "True"])
        np.testing.assert_array_equal(fitted().transform(text), FEATURES)

    def test_csv_is_read_with_the_types_of_fit(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("id,size,colour,new\n1,2,red,1\n,3.5,blue,false\n")
        (batch,) = iter_batches(path)
        np.testing.assert_array_equal(fitted().transform(batch), [[2, 0, 0, 1, 1], [3.5, 1, 0, 0, 0]])
        assert batch["id"].to_pylist() == ["1", ""]

    @pytest.mark.parametrize("name", ["concrete.csv", "energy.csv", "bike.csv.gz"])
    def test_real_tables_both_ways(self, shared_dir, name):
        path = shared_dir / "data" / name
        table = read_table(path)
        encoder = TableEncoder.fit(table, target=table.column_names[-1])
        blocks = [encoder.transform(b) for b in iter_batches(path)]
        np.testing.assert_array_equal(np.concatenate(blocks), encoder.transform(table))


class TestLevels:
    """Columns of many levels: frequent ones, rare ones, and those that fit has not seen."""

    CITIES = tuple(f"c{i:03}" for i in range(150) for _ in range(12 if i < 90 else 3))

    def encoder(self):
        return TableEncoder.fit(pa.table({"a": self.CITIES, "y": range(len(self.CITIES))}), target="y")

    def test_frequent_levels_have_features_and_others_share_one(self):
        (column,) = self.encoder().columns
        assert column.categories == tuple(f"c{i:03}" for i in range(90))
        assert column.rare == tuple(f"c{i:03}" for i in range(90, 150))
        assert self.encoder().feature_names[-3:] == ["a=c089", "a: rare", "a: frequency"]
        X = self.encoder().transform(pa.table({"a": ["c000", "c149", "new", ""]}))
        assert X.shape == (4, 92)
        n = len(self.CITIES)
        np.testing.assert_array_equal(X[:, 0], [1, 0, 0, 0])
        np.testing.assert_array_equal(X[:, 90], [0, 1, 1, 1])
        np.testing.assert_allclose(X[:, 91], [12 / n, 3 / n, 0, 0])

    def test_a_level_that_was_never_seen_is_told_and_not_refused(self):
        unseen = self.encoder().unseen(pa.table({"a": ["c000", "c149", "new", ""]}))
        assert unseen["a"].tolist() == [False, False, True, True]
        table = changed("colour", ["red", "pink", "plum", "pink"])
        assert fitted().unseen(table)["colour"].tolist() == [False, True, True, True]
        np.testing.assert_array_equal(fitted().transform(table)[:, 1:4], [[0, 0, 1], *[[0, 0, 0]] * 3])
        assert fitted().unseen(TABLE) == {}

    def test_the_limit_holds_for_all_columns_together(self):
        cells = [f"t{i % 101}" for i in range(2020)]
        table = pa.table({f"a{j}": cells for j in range(40)} | {"y": range(2020)})
        assert len(TableEncoder.fit(table, target="y").feature_names) == 40 * (25 + 2)

    def test_levels_and_medians_come_from_the_training_rows(self):
        table = pa.table({"a": ["u", "v", "w", "u"], "x": [1.0, None, 9.0, 3.0], "y": range(4)})
        encoder = TableEncoder.fit(table, target="y", impute="median")
        level, number = learn_from(encoder.columns, table.take([0, 3]))
        assert (level.categories, number.median) == (("u",), 2.0)

    def test_a_round_trip(self):
        encoder = self.encoder()
        assert TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict()))) == encoder


class TestDates:
    @pytest.mark.parametrize(
        "values",
        [
            ["2024-02-28", "2024-03-31", "2025-01-01"],
            ["2024/2/28", "2024/3/31", "2025/1/1"],
            ["20240228T000000", "20240331T000000", "20250101T000000"],
            [datetime.date(2024, 2, 28), datetime.date(2024, 3, 31), datetime.date(2025, 1, 1)],
            [datetime.datetime(2024, 2, 28), datetime.datetime(2024, 3, 31), datetime.datetime(2025, 1, 1)],
        ],
    )
    def test_parts(self, values):
        table = pa.table({"a": values, "y": range(3)})
        encoder = TableEncoder.fit(table, target="y")
        assert encoder.feature_names == ["a: year", "a: month", "a: weekday", "a: days"]
        expected = [[2024, 2, 2, 0], [2024, 3, 6, 32], [2025, 1, 2, 308]]
        np.testing.assert_array_equal(encoder.transform(table), expected)
        assert TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict()))) == encoder

    def test_hours_of_times(self):
        table = pa.table({"a": ["09:30", "9:45:36", "23:00"], "y": range(3)})
        encoder = TableEncoder.fit(table, target="y")
        assert encoder.feature_names == ["a: hour"]
        np.testing.assert_allclose(encoder.transform(table)[:, 0], [9.5, 9.76, 23.0])
        clock = pa.table({"a": [datetime.time(1, 30), datetime.time(2)]})
        np.testing.assert_allclose(encoder.transform(clock)[:, 0], [1.5, 2.0])

    def test_zones_are_those_of_utc(self):
        table = pa.table({"a": ["2024-01-01T00:30+01:00", "2024-01-01T00:30:00Z"], "y": range(2)})
        encoder = TableEncoder.fit(table, target="y")
        hour = encoder.feature_names.index("a: hour")
        np.testing.assert_allclose(encoder.transform(table)[:, hour], [23.5, 0.5])

    def test_missing_ones(self):
        table = pa.table({"a": ["2024-01-01", "", "2024-01-03", "2024-01-11"], "y": range(4)})
        encoder = TableEncoder.fit(table, target="y", impute="median")
        assert encoder.transform(table)[:, -1].tolist() == [0, 2, 2, 10]
        assert "1 missing value (row 12)" in refused(
            TableEncoder.fit(table.take([0, 2, 3]), target="y").transform,
            table,
            numbers=np.arange(11, 11 + table.num_rows),
        )

    def test_other_cells_at_transform(self):
        table = pa.table({"a": ["2024-01-01", "2024-02-01"], "y": range(2)})
        encoder = TableEncoder.fit(table, target="y")
        message = refused(
            encoder.transform, pa.table({"a": ["2024-01-01", "soon"]}), numbers=np.array([11, 12])
        )
        assert message.startswith(
            "column 'a': 'soon' is not a date or time (1 such value, row 12); write dates as"
        )
        assert "must hold dates or times, as in fit" in refused(encoder.transform, pa.table({"a": [1.0]}))

    def test_durations_are_numbers(self):
        table = pa.table({"a": [datetime.timedelta(seconds=1.5), datetime.timedelta(days=1)], "y": range(2)})
        assert TableEncoder.fit(table, target="y").transform(table).tolist() == [[1.5], [86400.0]]


class TestMissing:
    TABLE = pa.table(
        {"x": [1.0, None, 4.0, float("nan"), 3.0], "c": ["u", "", None, "v", "u"], "y": range(5)}
    )

    def test_counted_per_column(self):
        assert refused(TableEncoder.fit, self.TABLE, target="y") == (
            "column 'x': 2 missing values (rows 2, 4); "
            "fill them in, remove these rows, or fit with impute='median'\n"
            "column 'c': 2 missing values (rows 2, 3); "
            "fill them in, remove these rows, or fit with impute='median'\n"
            "to leave out: drop=['x', 'c']"
        )

    def test_median_and_a_category_of_their_own(self):
        encoder = TableEncoder.fit(self.TABLE, target="y", impute="median")
        assert encoder.feature_names == ["x", "c=", "c=u", "c=v"]
        np.testing.assert_array_equal(
            encoder.transform(self.TABLE),
            [[1, 0, 1, 0], [3, 1, 0, 0], [4, 1, 0, 0], [3, 0, 0, 1], [3, 0, 1, 0]],
        )

    def test_at_transform_with_the_row_of_the_table(self):
        table = changed("size", [1.0, None, 3.0, None])
        message = (
            "column 'size': 2 missing values (rows 102, 104); fill them in, remove these rows, or fit with"
        )
        assert refused(fitted().transform, table, numbers=np.arange(101, 101 + table.num_rows)).startswith(
            message
        )
        np.testing.assert_array_equal(fitted(impute="median").transform(table)[:, 0], [1, 2.5, 3, 2.5])

    def test_missing_category_that_fit_has_not_seen(self):
        unseen = fitted(impute="median").unseen(changed("colour", ["red", None, "", "blue"]))
        assert {name: mask.tolist() for name, mask in unseen.items()} == {
            "colour": [False, True, True, False]
        }

    @pytest.mark.parametrize("values", [pa.nulls(3), [float("nan")] * 3, ["", "", None]])
    @pytest.mark.parametrize("impute", [None, "median"])
    def test_no_values_at_all(self, values, impute):
        message = "column 'a': has no values at all\nto leave out: drop=['a']"
        assert fit_refusal(values, impute=impute) == message

    def test_other_ways_to_impute(self):
        assert refused(fitted, impute="mean") == "impute must be one of 'median', got 'mean'"


class TestTarget:
    def test_unknown_names_come_with_suggestions(self):
        assert refused(TableEncoder.fit, TABLE, target="Size ") == (
            "the table has no column 'Size '; did you mean 'size'?"
        )
        assert refused(TableEncoder.fit, TABLE, target="zzz") == (
            "the table has no column 'zzz'; it has 'id', 'size', 'colour', 'new', 'y'"
        )
        assert refused(fitted().target, TABLE.drop_columns("y")).startswith(
            "the table has no column 'y'; it has"
        )

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            (
                ["1", "two", "3", "x"],
                "must be a number, got 'two' (2 such values, rows 2, 4); correct the table",
            ),
            (
                [2.0, 2.0, 2.0, 2.0],
                "is 2 in every row, so there is nothing to predict; choose another target",
            ),
            ([1.0, 2.0, float("-inf"), 2.0], "1 infinite value (row 3); remove these rows"),
        ],
    )
    def test_values(self, values, message):
        assert refused(TableEncoder.fit, changed("y", values), target="y") == f"target 'y': {message}"

    def test_dates(self):
        table = changed("y", [datetime.date(2020, 1, day) for day in range(1, 5)])
        assert refused(TableEncoder.fit, table, target="y").startswith("target 'y': holds dates or times,")

    def test_choice(self):
        assert "is the target and cannot be dropped" in refused(
            TableEncoder.fit, TABLE, target="y", drop=["y"]
        )
        assert "each once, got ['y', 'y']" in refused(TableEncoder.fit, TABLE, target=["y", "y"])
        assert "at least one column" in refused(TableEncoder.fit, TABLE, target=[])
        assert "no column is left" in refused(TableEncoder.fit, TABLE.select(["y"]), target="y")


class TestRefusedInFit:
    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ([datetime.date(2020, 1, 1)] * 2, "is the same moment in every row"),
            (["01/02/2020", "03/04/2020"], "'01/02/2020': day or month may come first"),
            (["13/02/2020", "03/14/2020"], "'13/02/2020': both the day and the month seem to come first"),
            (["12/31/99", "01/01/00"], "'12/31/99' is not a date or time"),
            (["2020-02-31", "2020-02-01"], "holds a date or time that does not exist"),
            (["12:30", "25:00"], "holds a date or time that does not exist"),
            (
                ["2020-02-01T10:00Z", "2020-02-01T11:00"],
                "'2020-02-01T11:00' has no time zone where others have one",
            ),
            (["2020-02-01", "2020-02-02", ""], "1 missing value (row 3)"),
        ],
    )
    def test_dates(self, values, message):
        assert message in fit_refusal(values)

    def test_infinite_values(self):
        assert fit_refusal([1.0, np.inf, None, -np.inf], impute="median").startswith(
            "column 'a': 2 infinite values (rows 2, 4); remove these rows"
        )

    def test_few_distinct_texts_in_a_small_table_are_categories(self):
        table = pa.table({"a": list("abcdefghi"), "y": range(9)})
        assert len(TableEncoder.fit(table, target="y").feature_names) == 9
        table = pa.table({"a": [f"t{i % 100}" for i in range(500)], "y": range(500)})
        assert len(TableEncoder.fit(table, target="y").feature_names) == 100

    def test_numbers_with_a_slip_among_them(self):
        assert fit_refusal(["1", "2.5", "?", "", "4"], impute="median").startswith(
            "column 'a': 3 numbers but 1 other value, like '?' (row 3); correct them, leave missing"
        )

    def test_integers_that_floats_cannot_hold(self):
        assert fit_refusal([1, 2**53 + 1]).startswith(
            "column 'a': integers of 2^53 and beyond, such as 9007199254740993, lose digits (row 2);"
        )
        assert "18446744073709551615" in fit_refusal(pa.array([2**64 - 1, 0], pa.uint64()))

    @pytest.mark.parametrize("name", ["", "__index_level_0__"])
    def test_row_index(self, name):
        message = refused(TableEncoder.fit, TABLE.append_column(name, [range(4)]), target="y", drop=["id"])
        assert "looks like a row index that was saved with the table" in message
        assert message.endswith(f"to leave out: drop=[{name!r}]")

    def test_nested_values_and_bytes(self):
        assert "has type list<" in fit_refusal([[1], [2]])
        assert "has type binary, which cannot be turned into numbers" in fit_refusal([b"x", b"y"])

    def test_many_columns_at_once(self):
        table = pa.table({"y": [1, 2]} | {f"c{i}": pa.nulls(2) for i in range(13)})
        lines = refused(TableEncoder.fit, table, target="y").splitlines()
        assert len(lines) == 12
        assert lines[10] == "and 3 more"
        assert lines[11].endswith("'c11', 'c12']")

    def test_unknown_names_to_drop(self):
        message = refused(TableEncoder.fit, TABLE, target="y", drop=["idd"])
        assert message == "the table has no column 'idd'; did you mean 'id'?"


class TestRefusedInTransform:
    def test_missing_columns(self):
        message = refused(fitted().transform, TABLE.select(["id", "new"]))
        assert message == "the table has no column 'size', 'colour'; it has 'id', 'new'"

    def test_text_in_a_column_of_numbers(self):
        message = refused(
            fitted().transform, changed("size", ["1", "2", "x", "4"]), numbers=np.arange(11, 15)
        )
        assert message == "column 'size': must be a number, got 'x' (1 such value, row 13); correct the table"

    def test_dates_in_a_column_of_numbers(self):
        message = refused(fitted().transform, changed("size", [datetime.date(2020, 1, 1)] * 4))
        assert message.startswith("column 'size': holds dates or times,")

    def test_other_numbers_in_a_column_of_booleans(self):
        message = refused(fitted().transform, changed("new", [1, 0, 2, 1]))
        assert message == "column 'new': must be true or false (1 or 0), got other numbers (row 3)"

    def test_lists_in_a_column_of_text(self):
        assert "column 'colour': " in refused(fitted().transform, changed("colour", [[1]] * 4))


class TestDescription:
    @pytest.mark.parametrize("impute", [None, "median"])
    def test_round_trip_through_json(self, impute):
        encoder = fitted(impute=impute)
        assert TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict()))) == encoder

    @pytest.mark.parametrize(
        "damage",
        [
            lambda d: d.pop("targets"),
            lambda d: d.update(targets="y"),
            lambda d: d.update(targets=[]),
            lambda d: d.update(columns=[]),
            lambda d: d.update(columns=None),
            lambda d: d.update(columns=["x"]),
            lambda d: d["columns"].append(d["columns"][0]),
            lambda d: d["columns"][0].update(name=3),
            lambda d: d["columns"][0].update(kind="colour"),
            lambda d: d["columns"][0].update(kind=["number"]),
            lambda d: d["columns"][0].update(median="0"),
            lambda d: d["columns"][0].update(median=float("nan")),
            lambda d: d["columns"][0].update(median=10**400),
            lambda d: d["columns"][1].update(categories=[]),
            lambda d: d["columns"][1].update(categories="abc"),
            lambda d: d["columns"][1].update(categories=["a", "a"]),
        ],
    )
    def test_damaged(self, damage):
        content = fitted(impute="median").to_dict()
        damage(content)
        assert "the description of the table's columns" in refused(TableEncoder.from_dict, content)

    @pytest.mark.parametrize("content", [None, [], 3, "text", {}])
    def test_something_else(self, content):
        assert "the description of the table's columns is damaged" in refused(TableEncoder.from_dict, content)


@given(st.text(alphabet="0123456789.eE+-infaINFA_x", max_size=8))
def test_text_is_a_number_or_refused_by_name(text):
    column = pa.chunked_array([[text]])
    try:
        expected = None if text in MISSING_MARKS else float(text.replace("_", "no"))
    except ValueError:
        assert f"got {text!r} (1 such value, row 1)" in refused(parse_text, column)
    else:
        np.testing.assert_equal(parse_text(column).to_pylist(), [expected])
