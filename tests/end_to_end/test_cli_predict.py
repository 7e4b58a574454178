"""``lvd predict``."""

from __future__ import annotations

import csv
import gzip
import io
import json
import signal
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import lvd

HEADER = "id,area,rooms,district,garden,price"


def read_columns(text):
    rows = list(csv.DictReader(io.StringIO(text)))
    return {name: [row[name] for row in rows] for name in rows[0]}


def features(columns):
    districts = [
        [float(d == known) for known in ("north", "old, town", "south")] for d in columns["district"]
    ]
    numbers = np.array([columns["area"], columns["rooms"]], dtype=float).T
    gardens = np.array([[float(garden == "true")] for garden in columns["garden"]])
    return np.hstack([numbers, np.array(districts), gardens])


def test_columns_are_kept_and_the_models_own_intervals_added(lvd_here, homes, tmp_path):
    out = tmp_path / "out.csv"
    outcome = lvd_here("predict", homes.model, homes.new, "--level", 0.5, "--level", 0.9, "--out", out)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[0] == f"120 rows written to {out}"
    given, written = read_columns(homes.new.read_text()), read_columns(out.read_text())
    added = ["y_pred", "lower_50", "upper_50", "lower_90", "upper_90", "n_effective"]
    assert list(written) == [*given, *added, "known"]
    assert {name: written[name] for name in given} == given
    model, X = lvd.load(homes.model), features(given)
    y_pred, intervals = model.predict_interval(X, [0.5, 0.9])
    found = {name: np.array(written[name], dtype=float) for name in added}
    np.testing.assert_array_equal(found["y_pred"], y_pred)
    np.testing.assert_array_equal(found["lower_50"], intervals[:, 0, 0])
    np.testing.assert_array_equal(found["upper_90"], intervals[:, 1, 1])
    expected = model.calibrators_[0].effective_sample_size(model.embed(X))
    np.testing.assert_allclose(found["n_effective"], expected, rtol=1e-4)
    known = model.predict_with_evidence(X).known
    assert written["known"] == [str(one).lower() for one in known.tolist()]


def test_cells_stay_as_they_were_written(lvd_here, homes, tmp_path):
    lines = [
        "id,area,rooms,district,garden,price,note,NA",
        '007,80.50,03,"old, town",TRUE,NA,"said ""no""",n/a',
        '1e3, 80,3.0,north,0,,"two\nlines",',
    ]
    (tmp_path / "odd.csv").write_text("\n".join([*lines, ""]))
    outcome = lvd_here("predict", homes.model, tmp_path / "odd.csv", "--out", "-")
    assert outcome.code == 0, outcome.err
    given = list(csv.reader(io.StringIO((tmp_path / "odd.csv").read_text())))
    written = list(csv.reader(io.StringIO(outcome.out)))
    assert [row[: len(given[0])] for row in written] == given


def test_names_of_levels(lvd_here, homes):
    levels = ("--level", 0.95, "--level", 0.999, "--level", 0.29)
    outcome = lvd_here("predict", homes.model, homes.new, *levels, "--out", "-")
    header = outcome.out.splitlines()[0].removeprefix(HEADER)
    assert header == ",y_pred,lower_95,upper_95,lower_99.9,upper_99.9,lower_29,upper_29,n_effective,known"
    assert ",-inf,inf," in outcome.out


def test_the_level_of_fit_is_the_default(lvd_here, homes):
    outcome = lvd_here("predict", homes.model, homes.new, "--out", "-")
    assert outcome.out.splitlines()[0] == f"{HEADER},y_pred,lower_90,upper_90,n_effective,known"
    assert outcome.err == ""


def test_all_formats_hold_the_same_numbers(lvd_here, homes, tmp_path):
    pq.write_table(pa_csv.read_csv(homes.new), tmp_path / "new.parquet")
    (tmp_path / "new.csv.gz").write_bytes(gzip.compress(homes.new.read_bytes()))
    expected = pa_csv.read_csv(
        pa.py_buffer(lvd_here("predict", homes.model, homes.new, "--out", "-").out.encode())
    )
    for source in ("new.parquet", "new.csv.gz"):
        for name in ("out.parquet", "out.csv.gz", "out.csv"):
            outcome = lvd_here("predict", homes.model, tmp_path / source, "--out", tmp_path / name)
            assert outcome.code == 0, outcome.err
            read = pq.read_table if name == "out.parquet" else pa_csv.read_csv
            found = read(tmp_path / name)
            assert found.column_names == expected.column_names
            for column in ("y_pred", "lower_90", "upper_90", "n_effective"):
                np.testing.assert_array_equal(
                    np.asarray(found[column], dtype=float), np.asarray(expected[column], dtype=float)
                )


def test_several_targets(lvd_here, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{x},{x + rng.normal()},{3 * x}" for x in rng.normal(size=200).round(3)]
    (tmp_path / "pair.csv").write_text("\n".join(["x,mu,alpha", *rows, ""]))
    model, data = tmp_path / "model", tmp_path / "pair.csv"
    fitted = lvd_here(
        "fit", data, "--target", "mu", "--target", "alpha", "--epochs", 1, "--preset", "paper", "--out", model
    )
    assert fitted.code == 0, fitted.err
    assert "mu, on the 40 test rows" in fitted.out
    assert "alpha, on the 40 test rows" in fitted.out
    written = read_columns(lvd_here("predict", model, data, "--out", "-").out)
    assert list(written)[3:] == [
        *("y_pred_mu", "lower_90_mu", "upper_90_mu", "n_effective_mu"),
        *("y_pred_alpha", "lower_90_alpha", "upper_90_alpha", "n_effective_alpha"),
        "known",
    ]
    X = np.array(written["x"], dtype=float)[:, None]
    np.testing.assert_array_equal(
        np.array([written["y_pred_mu"], written["y_pred_alpha"]], dtype=float).T, lvd.load(model).predict(X)
    )
    one = json.loads(lvd_here("evaluate", model, data, "--target", "alpha", "--json").out)
    assert [report["target"] for report in one["targets"]] == ["alpha"]
    both = lvd_here("explain", model, data, "--row", 1).out
    assert both.index("row 1, mu: ") < both.index("row 1, alpha: ")


def test_one_end_alone(lvd_here, homes):
    outcome = lvd_here("predict", homes.model, homes.new, "--side", "upper", "--level", 0.95, "--out", "-")
    written = read_columns(outcome.out)
    assert list(written)[6:] == ["y_pred", "upper_95", "n_effective", "known"]
    expected = lvd.load(homes.model).predict_interval(features(written), 0.95, side="upper")[1][:, 1, 0]
    np.testing.assert_array_equal(np.array(written["upper_95"], dtype=float), expected)


def test_thresholds(lvd_here, homes, tmp_path):
    """Of the last row, which no training row is like, nothing is said."""
    new, out = tmp_path / "new.csv", tmp_path / "out.csv"
    new.write_text("\n".join([*homes.new.read_text().splitlines(), "home-x,1e6,3,north,true,5", ""]))
    outcome = lvd_here(
        *("predict", homes.model, new, "--above", 300, "--above", 1e6, "--side", "lower", "--out", out)
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[-1].startswith("lower_90: ")
    written = read_columns(out.read_text())
    names = ["above_300", "above_300_p_value", "above_1000000", "above_1000000_p_value"]
    assert list(written)[6:] == ["y_pred", "lower_90", "n_effective", *names, "known"]
    X, reg = features(written), lvd.load(homes.model)
    expected = reg.exceeds(X[:-1], 300.0)
    for name, answer in zip(names[:2], expected, strict=True):
        np.testing.assert_array_equal(np.array(written[name][:-1], dtype=float), answer)
    assert written["known"][-1] == "false"
    p_value = reg.set_params(when_unknown="infinite").exceeds(X[-1:], 300.0).p_value
    assert p_value[0] == 1.0


def test_thresholds_that_cannot_be(lvd_here, homes):
    outcome = lvd_here("predict", homes.model, homes.new, "--above", "nan", "--out", "-")
    assert (outcome.code, "--above must be a finite number, got nan" in outcome.err) == (2, True)


def test_json_says_how_many_intervals_are_finite(lvd_here, homes, tmp_path):
    out = tmp_path / "out.csv"
    report = json.loads(lvd_here("predict", homes.model, homes.new, "--out", out, "--json").out)
    upper = np.array(read_columns(out.read_text())["upper_90"], dtype=float)
    finite = {"90": np.isfinite(upper).mean()}
    n_unknown = read_columns(out.read_text())["known"].count("false")
    counts = {"n_rows": 120, "n_skipped": 0, "n_unknown": n_unknown}
    unseen = {"n_groups": 0, "n_levels": 0, "levels": {}}
    assert report == {"out": str(out), **counts, "unseen": unseen, "finite_fraction": finite}


def test_only_a_terminal_shows_progress_and_colours(lvd_on_terminal, lvd_here, homes, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    arguments = ("predict", homes.model, homes.new, "--out", tmp_path / "out.csv")
    assert "predicting" in lvd_on_terminal(*arguments).err
    assert "\x1b[" in lvd_on_terminal("predict", "nowhere", homes.new, "--out", "-").err
    assert lvd_here(*arguments).err == ""
    assert "\x1b[" not in lvd_here("predict", "nowhere", homes.new, "--out", "-").err


@pytest.fixture
def ctrl_c_works():
    """As in a shell: a process started while SIGINT is ignored would ignore it, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_works")
def test_ctrl_c_leaves_nothing(lvd_start, homes, tmp_path):
    header, *rows = homes.new.read_text().splitlines()
    big, out = tmp_path / "big.csv", tmp_path / "out.csv"
    big.write_text("\n".join([header, *rows * 3000, ""]))
    out.write_text("an older result")
    deadline = time.monotonic() + 200
    with lvd_start("predict", homes.model, big, "--out", out) as process:
        while not any(part.stat().st_size for part in tmp_path.glob(".lvd-*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        printed, complaint = process.communicate(timeout=100)
    assert process.returncode == 130
    assert (printed, complaint) == (b"", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big.csv", "out.csv"]
    assert out.read_text() == "an older result"


def test_a_reader_that_stops_is_no_error(lvd_start, homes, tmp_path):
    header, *rows = homes.new.read_text().splitlines()
    (tmp_path / "many.csv").write_text("\n".join([header, *rows * 100, ""]))
    with lvd_start("predict", homes.model, tmp_path / "many.csv", "--out", "-") as process:
        assert process.stdout.read(10) == HEADER[:10].encode()
        process.stdout.close()
        assert process.stderr.read() == b""
