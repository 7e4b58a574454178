"""Tables that used to lose rows, to mean one thing to fit and another to predict, or to end in a traceback."""

from __future__ import annotations

import datetime
import json
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lvd
from lvd._validation import InputError, check_matrix, check_vector, percent_name
from lvd.molecules.smiles import canonical_smiles, valid_smiles
from lvd.tables.column_coding import column_from_dict, example_of_formatted
from lvd.tables.column_values import to_numbers
from lvd.tables.dates import to_moments
from lvd.tables.inputs import CellEncoder, find_useless
from lvd.tables.reading import count_rows, find_files, iter_batches, read_schema, read_table
from lvd.tables.splits import split_indices
from lvd.tables.table_encoder import TableEncoder
from lvd.tables.table_model import TableModel


def written(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def refused(action, *args, **options) -> str:
    with pytest.raises(InputError) as error:
        action(*args, **options)
    return str(error.value)


def read_texts(path: Path) -> pa.Table:
    return pa.concat_tables(iter_batches(path))


def small_regressor(**options) -> lvd.LVDRegressor:
    return lvd.LVDRegressor(
        lvd.NetRegressor(n_batches=5, random_state=0),
        preset="paper",
        kernel=lvd.MahalanobisKernel(1, max_iter=5, random_state=0),
        confidence_level=0.5,
        random_state=0,
        **options,
    )


class TestQuotes:
    ROWS = tuple(f"{i},pipe {i},{i / 2}" for i in range(80))

    def with_quotes(self, folder, **lines):
        """A table of 80 rows, some of them changed; row 10 stands in line 11."""
        rows = list(self.ROWS)
        for row, text in lines.items():
            rows[int(row.removeprefix("row_")) - 1] = text
        return written(folder, "\n".join(["a,b,c", *rows, ""]))

    @pytest.mark.parametrize("block", [16, 100, 1 << 20])
    @pytest.mark.parametrize(
        ("opened", "closed", "said"),
        [
            # Both quotes open a cell: text follows the second one.
            ('9,"pipe 9,4.5', '15,"pipe 15,7.5', "is closed before 'pipe 15,7.5'"),
            # The second one ends a cell, or is all of it: only the lines between can tell.
            ('9,"pipe 9,4.5', '15,pipe 15",7.5', "each of these lines looks like a row of its own"),
            ('9,"pipe 9,4.5', '15,",7.5', "each of these lines looks like a row of its own"),
        ],
    )
    def test_two_stray_quotes(self, tmp_path, monkeypatch, block, opened, closed, said):
        monkeypatch.setattr("lvd.tables.reading._BLOCK_BYTES", max(block, 1000))
        monkeypatch.setattr("lvd.tables.reading._BUFFER_BYTES", block, raising=False)
        path = self.with_quotes(tmp_path, row_10=opened, row_16=closed)
        for read in (read_table, read_texts):
            message = refused(read, path)
            assert said in message
            assert "line 11" in message
            assert 'double one that belongs to a text ("5"" pipe")' in message

    def test_rows_next_to_each_other(self, tmp_path):
        path = self.with_quotes(tmp_path, row_10='9,"pipe 9,4.5', row_11='10,3",5')
        assert "line 11: a double quote is opened here and closed in line 12" in refused(read_table, path)

    def test_quoted_cells_before_and_after_the_stray_ones(self, tmp_path):
        path = written(tmp_path, 'a,b,c\n"x, y","z,1\nu,v,"w, w"\nu,v",2\nu,v,3\n')
        assert "line 2" in refused(read_table, path)
        path = written(tmp_path, 'a,b,c\n"x, y","z,1\nu,v,w\nu,v","2, 3"\nu,v,3\n')
        assert "line 2: a double quote is opened here and closed in line 4" in refused(read_table, path)

    def test_text_after_a_closing_quote(self, tmp_path):
        path = written(tmp_path, 'a,b\n1,x\n2,"5" pipe"\n3,"6" rod"\n')
        assert "line 3: a double quote is closed before ' pipe\"'" in refused(read_table, path)
        assert "line 1: a double quote is closed before 'x,b'" in refused(
            read_table, written(tmp_path, '"a"x,b\n1,2\n')
        )

    @pytest.mark.parametrize(
        "text",
        [
            'id,note\n1,"line one\nline two"\n2,x\n',
            'id,note\n1,"12 Main St\nParis, France"\n2,x\n',  # a comma in each line, but no number below the 1
            'note,id\n"12 Main St, Paris\nFrance",1\n"x",2\n',
            'id,note\r\n1,"a ""quoted"" word\r\n\r\nand more"\r\n2,"x"\r\n',
            'id,note,more\n1,"a\nb, c","d, e\nf"\n2,x,y\n',
            'id,note\n1,5" pipe 6"\n2,""\n',
            'id,note\n1,"x"\n2,"y"',
        ],
    )
    def test_texts_of_several_lines_stay(self, tmp_path, monkeypatch, text):
        path = written(tmp_path, text)
        for block in (7, 1 << 16):
            monkeypatch.setattr("lvd.tables.reading._BUFFER_BYTES", block, raising=False)
            assert read_table(path).num_rows == 2

    def test_no_quotes_at_all_and_long_files(self, tmp_path):
        path = written(tmp_path, "a,b\n" + '1,"x ""y"", z"\n2,u\n' * 40_000)
        assert read_texts(path)["b"].to_pylist() == ['x "y", z', "u"] * 40_000


class TestOneColumn:
    @pytest.mark.parametrize(
        "text", ["x\n1\n\n3\n", "\n\nx\n1\n\n3\n", "x\r\n1\r\n\r\n3", "\ufeff\nx\n1\n\n3\n"]
    )
    def test_an_empty_line_is_a_missing_cell(self, tmp_path, text):
        path = written(tmp_path, text)
        assert read_texts(path).to_pydict() == {"x": ["1", "", "3"]}
        assert read_table(path).to_pydict() == {"x": [1.0, None, 3.0]}

    def test_it_is_refused_with_its_row(self, tmp_path):
        encoder = TableEncoder.fit(pa.table({"x": [1.0, 2.0], "y": [1, 2]}), target="y")
        (batch,) = iter_batches(written(tmp_path, "x\n1\n\n3\n"))
        assert "1 missing value (row 2)" in refused(encoder.transform, batch)

    def test_with_more_columns_it_is_no_row(self, tmp_path):
        assert read_table(written(tmp_path, "x,y\n1,2\n\n3,4\n")).num_rows == 2


class TestOneReading:
    """What fit reads as a number, predict and evaluate read as one, and the other way round."""

    def both(self, folder, cells):
        """What fit and what predict say of a column with these cells; numbers, or a refusal."""
        path = written(folder, "a,y\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(cells)))
        number = TableEncoder.fit(pa.table({"a": [1.0, 2.0], "y": [1, 2]}), target="y")

        def fit():
            table = read_table(path)
            return TableEncoder.fit(table, target="y").transform(table)

        def predict():
            return number.transform(read_texts(path))

        return [outcome(fit), outcome(predict)]

    @pytest.mark.parametrize(
        ("cells", "said"),
        [
            (["1", "2", "0x1F"], "0x1F"),
            (["5", "2", "true"], "true"),
            (["1", "2", "9007199254740993"], "lose digits (row 3)"),
            (["1", "2.5", "12345678901234567890"], "lose digits (row 3)"),
            (["1", "2", "9" * 30], "lose digits (row 3)"),
        ],
    )
    def test_refused_by_both(self, tmp_path, cells, said):
        for message in self.both(tmp_path, cells):
            assert said in message

    @pytest.mark.parametrize(
        "cells", [["1", " 2 ", "+3"], ["1e20", "2.", ".5"], ["007", "9007199254740991", "-0"]]
    )
    def test_accepted_by_both(self, tmp_path, cells):
        np.testing.assert_array_equal(*self.both(tmp_path, cells))

    def test_a_column_that_is_dropped_may_hold_anything(self, tmp_path):
        path = written(tmp_path, "id,a,y\n12345678901234567890,1,1\n12345678901234567891,2,2\n")
        table = read_table(path)
        assert "to leave out: drop=['id']" in refused(TableEncoder.fit, table, target="y")
        assert TableEncoder.fit(table, target="y", drop=["id"]).feature_names == ["a"]
        assert table["id"].to_pylist() == ["12345678901234567890", "12345678901234567891"]

    def test_true_and_false_as_target(self, tmp_path):
        path = written(tmp_path, "a,y\n1,true\n2,false\n3,true\n")
        fitted = TableEncoder.fit(pa.table({"a": [1.0, 2.0], "y": [1, 2]}), target="y")
        said = "target 'y': must be a number, got"
        assert said in refused(TableEncoder.fit, read_table(path), target="y")
        assert said in refused(fitted.target, read_texts(path))
        assert said in refused(fitted.target, pa.table({"y": [True, False]}))


def outcome(action):
    try:
        return action()
    except InputError as error:
        return str(error)


def table_with_huge_row(n_rows: int, row: int) -> pa.Table:
    """A table whose row number `row` is beyond what the network can compute with."""
    x = np.random.default_rng(0).normal(size=n_rows)
    y = x + 1.0
    x[row - 1] = 1.7e308
    return pa.table({"x": x, "y": y})


@pytest.mark.filterwarnings("ignore:overflow encountered")
class TestRowNumbers:
    """They count from 1 in the table, whichever part of it is computed with."""

    def test_predict_evaluate_and_explain(self, tmp_path):
        good = table_with_huge_row(61, 61).slice(0, 60)
        model, _ = TableModel.fit(good, small_regressor(), target="y")
        batches = table_with_huge_row(300, 266).to_batches(max_chunksize=100)
        assert "at row 266;" in refused(model.predict_to, tmp_path / "o.csv", batches)
        assert "at row 266;" in refused(model.evaluate, batches)
        assert "at row 266;" in refused(model.explain, batches, 266)

    @pytest.mark.parametrize("part", [1, 2])
    def test_fit(self, part):
        row = int(split_indices(60, 0)[part][7]) + 1
        message = refused(TableModel.fit, table_with_huge_row(60, row), small_regressor(), target="y")
        assert f"at row {row};" in message

    def test_ragged_rows_far_down(self, tmp_path, monkeypatch):
        monkeypatch.setattr("lvd.tables.reading._BLOCK_BYTES", 1000)
        path = written(tmp_path, "a,b\n" + "1,2\n" * 3000 + "1,2,3\n")
        assert "row 3001 has 3 cells" in refused(read_texts, path)


class TestLevels:
    @pytest.mark.parametrize(
        ("level", "name"),
        [
            (0.9, "90"),
            (0.999, "99.9"),
            (0.9999999999999999, "99.99999999999999"),
            (0.29, "29"),
            (0.57, "57"),
            (1e-5, "0.001"),
            (0.1 + 0.2, "30.000000000000004"),
        ],
    )
    def test_names(self, level, name):
        assert percent_name(level) == name

    def test_neighbouring_levels_have_names_of_their_own(self):
        levels = np.random.default_rng(0).uniform(size=200)
        levels = np.concatenate([levels, np.nextafter(levels, 1.0), np.nextafter(levels, 0.0)])
        assert len({percent_name(level) for level in levels.tolist()}) == len(set(levels.tolist()))


class TestBounds:
    @pytest.mark.parametrize("bounds", [(np.nan, None), (None, np.inf), (-np.inf, 1.0)])
    def test_refused_before_training(self, bounds):
        class NoTraining(lvd.NetRegressor):
            def fit(self, X, y, **options):
                raise AssertionError("trained")

        regressor = lvd.LVDRegressor(NoTraining(), y_range=bounds)
        message = refused(regressor.fit, np.zeros((20, 1)), np.arange(20.0))
        assert "y_range must hold finite numbers, or None for no bound, got" in message


def test_masked_values_are_refused_like_nan():
    X = np.ma.masked_array(np.zeros((4, 2)), mask=[[0, 0], [0, 1], [0, 0], [1, 0]])
    assert refused(check_matrix, X) == "X contains 2 masked values; remove or impute these rows first"
    assert "y contains 1 masked values" in refused(check_vector, np.ma.masked_greater([1.0, 2.0], 1.5), "y")
    assert check_matrix(np.ma.masked_array(np.zeros((4, 2)))).shape == (4, 2)


class TestArrowTypes:
    N = 30

    def column(self, kind):
        numbers = np.arange(self.N) % 7
        letters = [("u", "v")[i % 2] for i in range(self.N)]
        return {
            "string_view": lambda: pa.array(letters, pa.string_view()),
            "large_string": lambda: pa.array(letters, pa.large_string()),
            "dictionary": lambda: pa.array(letters).dictionary_encode(),
            "decimal": lambda: pa.array([Decimal(int(n)) / 4 for n in numbers], pa.decimal128(9, 2)),
            "small decimal": lambda: pa.array([Decimal(int(n)) / 4 for n in numbers], pa.decimal32(9, 2)),
            "large decimal": lambda: pa.array([Decimal(int(n)) / 4 for n in numbers], pa.decimal256(50, 2)),
            "bool": lambda: pa.array(numbers > 2),
            "half": lambda: pa.array(numbers, pa.float16()),
            "binary_view": lambda: pa.array([bytes([i]) for i in range(self.N)], pa.binary_view()),
            "binary": lambda: pa.array([bytes([i]) for i in range(self.N)], pa.large_binary()),
            "date": lambda: pa.array([datetime.date(2020, 1, 1 + i) for i in range(self.N)]),
            "timestamp": lambda: pa.array(
                [datetime.datetime(2020, 1, 1 + i, tzinfo=datetime.UTC) for i in range(self.N)]
            ),
            "duration": lambda: pa.array([datetime.timedelta(i) for i in range(self.N)]),
            "list": lambda: pa.array([[1]] * self.N),
            "list_view": lambda: pa.array([[1]] * self.N, pa.list_view(pa.int64())),
            "struct": lambda: pa.array([{"a": 1}] * self.N),
            "uuid": lambda: pa.array([bytes([i]) * 16 for i in range(self.N)], pa.uuid()),
        }[kind]()

    def table(self, kind):
        x = np.random.default_rng(0).normal(size=self.N)
        return pa.table({"a": self.column(kind), "x": x, "y": x + 1.0})

    @pytest.mark.parametrize(
        "kind",
        [
            *("string_view", "large_string", "dictionary", "decimal", "small decimal", "large decimal"),
            *("bool", "half", "date", "timestamp", "duration"),
        ],
    )
    def test_read_and_written(self, tmp_path, kind):
        path = tmp_path / "t.parquet"
        pq.write_table(self.table(kind), path)
        model, _ = TableModel.fit(read_table(path), small_regressor(), target="y")
        for out in ("o.csv", "o.parquet"):
            report = model.predict_to(tmp_path / out, iter_batches(path))
            assert report.n_rows == read_table(tmp_path / out).num_rows == self.N
        evaluated = model.evaluate(self.table(kind).to_batches())
        assert evaluated.n_rows == self.N
        assert evaluated.n_repeated
        direct, _ = TableModel.fit(self.table(kind), small_regressor(), target="y")
        assert direct.encoder == model.encoder

    @pytest.mark.parametrize(
        "kind",
        [
            *("binary_view", "binary", "list", "list_view", "struct"),
            "uuid",
        ],
    )
    def test_refused_unless_dropped(self, tmp_path, kind):
        path = tmp_path / "t.parquet"
        pq.write_table(self.table(kind), path)
        message = refused(TableModel.fit, read_table(path), small_regressor(), target="y")
        assert message.startswith("column 'a': ")
        assert message.endswith("to leave out: drop=['a']")
        model, _ = TableModel.fit(read_table(path), small_regressor(), target="y", drop=["a"])
        out = tmp_path / "o.parquet"
        assert model.predict_to(out, iter_batches(path)).n_rows == self.N


class TestHugeValues:
    """What floats cannot hold, or what does not fit in Arrow's microseconds."""

    @pytest.mark.parametrize("arrow_type", [pa.decimal128(20, 0), pa.decimal128(38, 9), pa.decimal256(50, 0)])
    def test_decimals_that_are_whole_are_integers(self, arrow_type):
        whole = pa.chunked_array([pa.array([None, Decimal(2**53 - 1), Decimal(2**53 + 1)], arrow_type)])
        message = refused(to_numbers, whole)
        assert message.startswith("integers of 2^53 and beyond, such as 9007199254740993")
        assert "(row 3)" in message
        np.testing.assert_array_equal(to_numbers(whole.slice(0, 2)), [np.nan, 2.0**53 - 1])

    def test_other_decimals_are_rounded_as_floats_are(self):
        values = pa.chunked_array([pa.array([Decimal(2**53 + 1) + Decimal("0.5")], pa.decimal128(38, 9))])
        assert to_numbers(values)[0] == pytest.approx(2.0**53, rel=1e-15)

    def test_decimals_that_number_the_rows(self):
        table = pa.table({"id": pa.array([Decimal(n) for n in range(60)], pa.decimal128(20, 0))})
        assert find_useless(table.append_column("x", pa.array(np.arange(60) % 7)), ["id", "x"]) == {
            "id": "identifier"
        }

    @pytest.mark.parametrize(("unit", "per_second"), [("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)])
    def test_durations_and_moments_from_2_to_the_62(self, tmp_path, unit, per_second):
        stored = [2**62, -(2**62), 2**53 + 1, None]
        path = tmp_path / "t.parquet"
        pq.write_table(pa.table({"a": pa.array(stored, pa.duration(unit))}), path)
        (read,) = iter_batches(path)
        moments = pa.chunked_array([pa.array(stored, pa.timestamp(unit))])
        for found in (to_numbers(read["a"]), to_moments(moments)):
            seconds = np.array([*stored[:3], np.nan]) / per_second
            np.testing.assert_allclose(found, seconds, rtol=1e-15, atol=1e-6 if unit == "ns" else 0.0)


class TestKindsOfDates:
    ZONED, LOCAL, TIMES, DATES = "times with a zone", "dates or times without a zone", "times of day", "dates"

    def column(self, kind, *, as_text):
        moments = [datetime.datetime(2024, 3, 1 + i, i % 24, tzinfo=datetime.UTC) for i in range(30)]
        if kind == self.LOCAL:
            moments = [one.replace(tzinfo=None) for one in moments]
        if kind == self.TIMES:
            moments = [one.time() for one in moments]
        if kind == self.DATES:
            moments = [one.date() for one in moments]
        return [one.isoformat() for one in moments] if as_text else pa.array(moments)

    def table(self, kind, *, as_text):
        x = np.random.default_rng(0).normal(size=30)
        return pa.table({"x": x, "at": self.column(kind, as_text=as_text), "y": x})

    @pytest.mark.parametrize("fit_text", [True, False])
    @pytest.mark.parametrize("new_text", [True, False])
    @pytest.mark.parametrize("kind", [ZONED, LOCAL, TIMES])
    def test_they_are_kept(self, kind, fit_text, new_text):
        encoder = TableEncoder.fit(self.table(kind, as_text=fit_text), target="y")
        encoder = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
        same = encoder.transform(self.table(kind, as_text=new_text))
        np.testing.assert_array_equal(same, encoder.transform(self.table(kind, as_text=fit_text)))
        for other in {self.ZONED, self.LOCAL, self.TIMES} - {kind}:
            message = refused(encoder.transform, self.table(other, as_text=new_text))
            assert message.startswith(
                f"column 'at': holds {other}, but the model was fitted on {kind}; write"
            )
            assert "\n" not in message

    def test_dates_are_times_without_a_zone(self):
        encoder = TableEncoder.fit(self.table(self.LOCAL, as_text=False), target="y")
        assert encoder.transform(self.table(self.DATES, as_text=True)).shape == (30, 4)

    def test_nothing_known_is_of_any_kind(self):
        encoder = TableEncoder.fit(self.table(self.ZONED, as_text=True), target="y", impute="median")
        empty = pa.table({"x": [0.0], "at": [""]})
        assert encoder.transform(empty).shape == (1, len(encoder.feature_names))

    def test_models_of_older_versions_do_not_know(self):
        column = TableEncoder.fit(self.table(self.ZONED, as_text=True), target="y").to_dict()["columns"][1]
        del column["moments"]
        assert column_from_dict(column).moments is None
        with pytest.raises(ValueError, match="moments 'noon'"):
            column_from_dict(column | {"moments": "noon"})


class TestPaths:
    WAYS = (read_table, read_texts, count_rows, read_schema)

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("name", ["pipe.csv", "pipe.parquet"])
    def test_a_pipe_is_refused_at_once(self, tmp_path, way, name):
        os.mkfifo(tmp_path / name)
        assert refused(way, tmp_path / name) == (
            f"{tmp_path / name} is a pipe or a device; write the table to a file first"
        )

    @pytest.mark.parametrize("way", WAYS)
    def test_devices_through_a_link(self, tmp_path, way):
        (tmp_path / "zero.csv").symlink_to("/dev/zero")
        assert "is a pipe or a device" in refused(way, tmp_path / "zero.csv")

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("x" * 300 + ".csv", "cannot be read: File name too long; check its name and folder"),
            ("a\0b.csv", "cannot be read: embedded null byte; check its name and folder"),
        ],
    )
    def test_names_that_no_file_can_have(self, tmp_path, way, name, said):
        (path,) = find_files([tmp_path / name])
        assert said in refused(way, path)

    @pytest.mark.parametrize("way", WAYS)
    def test_a_file_as_folder_and_a_loop_of_links(self, tmp_path, way):
        file = written(tmp_path, "a\n1\n")
        assert "does not exist" in refused(way, file / "t.csv")
        (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
        assert "cannot be read: Too many levels of symbolic links" in refused(way, tmp_path / "loop.csv")

    @pytest.mark.parametrize("way", WAYS)
    def test_a_folder_one_may_not_enter(self, tmp_path, way):
        folder = tmp_path / "locked"
        folder.mkdir()
        path = written(folder, "a\n1\n")
        folder.chmod(0)
        try:
            if os.access(path, os.R_OK):
                pytest.skip("this user may enter any folder")
            (found,) = find_files([path])
            assert "cannot be read: Permission denied" in refused(way, found)
        finally:
            folder.chmod(0o700)


class TestNames:
    @pytest.mark.parametrize("name", ["y_pred", "n_effective", "lower_90", "upper_99.5"])
    def test_columns_that_predictions_are_written_to(self, name):
        x = np.random.default_rng(0).normal(size=30)
        table = pa.table({name: x, "x": x, "y": x + 1.0})
        expected = (
            f"{name!r} has the name of a column that predictions are written to; rename it in the table"
        )
        message = refused(TableModel.fit, table, small_regressor(), target="y")
        assert message == f"column {expected}, or leave it out with drop=[{name!r}]"
        assert refused(TableModel.fit, table, small_regressor(), target=name) == f"target {expected}"
        model, _ = TableModel.fit(table, small_regressor(), target="y", drop=[name])
        assert model.encoder.feature_names == ["x"]

    def test_several_targets_have_names_of_their_own(self):
        x = np.random.default_rng(0).normal(size=30)
        table = pa.table({"y_pred": x, "lower_9_x": x, "y": x + 1.0, "z": -x})
        model, _ = TableModel.fit(table, small_regressor(), target=["y", "z"])
        assert set(model.predict(table.to_batches()[0])) & set(table.column_names) == set()
        message = refused(
            TableModel.fit, table.append_column("y_pred_z", [x]), small_regressor(), target=["y", "z"]
        )
        assert message.startswith("column 'y_pred_z' has the name")


class TestFormattedNumbers:
    @pytest.mark.parametrize(
        "cells",
        [["1,234", "2,500", "900"], ["5%", "7 %", "-1.5%"], ["$3.50", "$1,000", ""], ["1.234,5", "1,5"]],
    )
    def test_noted(self, cells):
        assert example_of_formatted(cells) in cells

    @pytest.mark.parametrize(
        "cells", [["red", "5%", "blue"], ["10-20", "20-30"], ["1", "2"], ["", "u"], ["A1"]]
    )
    def test_other_categories(self, cells):
        assert example_of_formatted(cells) is None

    def test_in_the_report(self):
        x = np.random.default_rng(0).normal(size=30)
        table = pa.table({"price": ["1.000,5", "2.000,5", "3.000,5"] * 10, "x": x, "y": x + 1.0})
        _, report = TableModel.fit(table, small_regressor(), target="y")
        assert report.formatted == {"price": "1.000,5"}

    def test_too_many_to_be_categories(self):
        table = pa.table({"price": [f"{i}.000,5" for i in range(1, 300)], "y": range(299)})
        message = refused(TableEncoder.fit, table, target="y")
        assert "column 'price': holds numbers that are written like '1.000,5'; write plain numbers" in message


class TestLongMolecules:
    def test_refused_unread(self, monkeypatch):
        chem = pytest.importorskip("rdkit.Chem")
        seen = []
        parse = chem.MolFromSmiles
        monkeypatch.setattr(chem, "MolFromSmiles", lambda text: (seen.append(len(text)), parse(text))[1])
        table = pa.table({"smiles": ["CCO", "C" * 200_000, "CC"], "y": [1.0, 2.0, 3.0]})
        encoder = CellEncoder(("y",), "smiles")
        message = refused(encoder.usable, table, numbers=np.arange(11, 11 + table.num_rows))
        assert "RDKit cannot read 1 molecule (row 12)" in message
        assert "(SMILES of more than 10,000 characters are not read)" in message
        assert len(message) < 500
        message = refused(canonical_smiles, table["smiles"].to_pylist())
        assert "(SMILES of more than 10,000 characters are not read)" in message
        assert len(message) < 500
        assert replace(encoder, skip_invalid=True).usable(table).tolist() == [True, False, True]
        assert max(seen) == 3

    def test_the_limit_itself(self):
        pytest.importorskip("rdkit")
        assert valid_smiles(["C" * 10_000, "C" * 10_001]).tolist() == [True, False]
