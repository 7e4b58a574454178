"""``lvd fit`` with its presets, scores, guarantees and groups, and what the other commands make of them."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lvd
from homes import write_homes
from lvd.calibration.guarantees import GUARANTEES
from lvd.cli.console import Guarantee
from lvd.cli.fit import PresetName, WhenUnknown
from lvd.methods.lvd import PRESETS
from lvd.tables.table_model import TableModel

KEPT = ("--drop", "district", "--groups", "district", "--guarantee", "calibrated")


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def fit_words(table, out, *options):
    return ("fit", table, "--target", "price", "--drop", "id", "--epochs", 5, *options, "--out", out)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    write_homes(folder / "homes.csv", 900, seed=0)
    write_homes(folder / "new.csv", 700, seed=1)
    text = (folder / "new.csv").read_text().replace(",north,", ",east,")
    (folder / "moved.csv").write_text(text + "mansion,90000,80,south,true,1\n")
    return folder


@pytest.fixture(scope="module")
def plain(lvd_here, tables):
    """The default, with the stages that it announced."""
    outcome = lvd_here(*fit_words(tables / "homes.csv", tables / "plain", "--epochs", 20))
    assert (outcome.code, outcome.err) == (0, "")
    return tables / "plain"


@pytest.fixture(scope="module")
def grouped(lvd_here, tables):
    """The paper's method, with groups and another guarantee; the column of groups is no input."""
    outcome = lvd_here(*fit_words(tables / "homes.csv", tables / "grouped", "--preset", "paper", *KEPT))
    assert outcome.code == 0, outcome.err
    return tables / "grouped"


def test_the_names_are_those_of_the_library():
    assert set(get_args(PresetName)) == set(PRESETS)
    assert set(get_args(Guarantee)) == set(GUARANTEES)
    assert {preset.when_unknown for preset in PRESETS.values()} == set(get_args(WhenUnknown))


def test_the_default_tells_rows_apart(lvd_here, tables, plain):
    model = lvd.load(plain)
    assert (model.preset, model.bandwidth, model.settings.bandwidth) == ("default", None, "adaptive")
    outcome = lvd_here("evaluate", plain, tables / "new.csv")
    assert outcome.code == 0, outcome.err
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("level 0.9: ")]
    assert line.startswith("level 0.9: holds, and tells rows apart; interval score ")
    assert " (one width for all: " in line
    assert ", ERT " in line
    (target,) = json.loads(lvd_here("evaluate", plain, tables / "new.csv", "--json").out)["targets"]
    (verdict,) = target["verdicts"]
    assert verdict["kind"] == "holds, and tells rows apart"
    assert verdict["interval_score"] < verdict["split_interval_score"]
    assert verdict["ert"] < verdict["split_ert"]


def test_the_page_says_the_same(lvd_here, tables, plain):
    (target,) = json.loads(lvd_here("evaluate", plain, tables / "new.csv", "--json").out)["targets"]
    outcome = lvd_here("report", plain, tables / "new.csv", "--out", tables / "page.html")
    assert target["verdicts"][0]["sentence"] in outcome.out
    page = (tables / "page.html").read_text()
    assert 'class="verdict good"' in page
    assert "Split</th>" in page
    (tables / "few.csv").write_text("".join((tables / "new.csv").read_text().splitlines(keepends=True)[:60]))
    alone = lvd_here("report", plain, tables / "few.csv", "--compare", "none", "--out", tables / "alone.html")
    assert alone.code == 0, alone.err
    assert "Split</th>" not in (tables / "alone.html").read_text()


def test_unknown_rows_are_told_everywhere(lvd_here, tables, plain):
    text = (tables / "moved.csv").read_text().replace(",east,", ",north,")
    (tables / "far.csv").write_text(text)
    written = read(lvd_here("predict", plain, tables / "far.csv", "--out", "-").out)
    assert written[-1]["known"] == "false"
    assert (written[-1]["lower_90"], written[-1]["upper_90"]) == ("-inf", "inf")
    n_unknown = [row["known"] for row in written].count("false")
    assert n_unknown < 0.05 * len(written)
    outcome = lvd_here("predict", plain, tables / "far.csv", "--out", tables / "far.parquet")
    be, them = ("is", "it") if n_unknown == 1 else ("are", "them")
    counted = f"{n_unknown} of 701 rows {be} unknown: no training row is similar to {them}"
    assert counted in outcome.out
    known = pq.read_table(tables / "far.parquet")["known"]
    assert str(known.type) == "bool"
    assert known.to_pylist() == [row["known"] == "true" for row in written]
    assert counted in lvd_here("evaluate", plain, tables / "far.csv").out
    explained = lvd_here("explain", plain, tables / "far.csv", "--row", 701)
    beyond = "area is outside the range of the training rows"
    assert f"Unknown: {beyond}, so it gets no finite interval." in explained.out
    assert f"known: no, {beyond}" in explained.out
    (found,) = json.loads(lvd_here("explain", plain, tables / "far.csv", "--row", 701, "--json").out)
    assert found["known"] is False
    page = tables / "far.html"
    assert counted in lvd_here("report", plain, tables / "far.csv", "--out", page).out
    assert f"<strong>{n_unknown} of 701</strong> rows" in page.read_text()


def test_the_guarantee_is_kept_and_can_be_chosen_anew(lvd_here, tables, grouped):
    assert json.loads((grouped / "manifest.json").read_text())["columns"]["guarantee"] == "calibrated"

    def uppers(*options):
        rows = read(lvd_here("predict", grouped, tables / "new.csv", *options, "--out", "-").out)
        return np.array([float(row["upper_90"]) for row in rows])

    kept = uppers()
    np.testing.assert_array_equal(kept, uppers("--guarantee", "calibrated"))
    assert len({tuple(uppers("--guarantee", name)) for name in GUARANTEES}) == len(GUARANTEES)
    (explained,) = json.loads(lvd_here("explain", grouped, tables / "new.csv", "--row", 5, "--json").out)
    assert explained["guarantee"] == "calibrated"
    assert explained["upper"] in (None, pytest.approx(kept[4]))
    (target,) = json.loads(lvd_here("evaluate", grouped, tables / "new.csv", "--json").out)["targets"]
    finite = np.isfinite(kept).mean()
    assert target["summary"]["rows"][0]["finite_fraction"] == pytest.approx(finite)
    assert lvd_here("report", grouped, tables / "new.csv", "--out", tables / "grouped.html").code == 0
    assert "Guarantee: calibrated." in (tables / "grouped.html").read_text()


def test_groups_are_calibrated_apart_and_unseen_ones_counted(lvd_here, tables, grouped):
    outcome = lvd_here("predict", grouped, tables / "moved.csv", "--out", tables / "moved-out.csv")
    n_east = (tables / "moved.csv").read_text().count(",east,")
    told = f"{n_east} of 701 rows belong to a group without calibration rows: their intervals are infinite"
    assert told in outcome.out
    rows = read((tables / "moved-out.csv").read_text())
    assert {row["upper_90"] for row in rows if row["district"] == "east"} == {"inf"}
    widths = {
        name: np.median(
            [
                float(row["upper_50"]) - float(row["lower_50"])
                for row in read(
                    lvd_here("predict", grouped, tables / "new.csv", "--level", 0.5, "--out", "-").out
                )
                if row["district"] == name
            ]
        )
        for name in ("north", "south")
    }
    assert (
        widths["north"] > 1.5 * widths["south"]
    )  # north has six times the noise, and the network cannot see it
    report = json.loads(lvd_here("evaluate", grouped, tables / "moved.csv", "--json").out)
    assert report["unseen"]["n_groups"] == n_east
    (verdict,) = report["targets"][0]["verdicts"]
    assert verdict["kind"] == "too many unknown"


def test_a_column_of_groups_must_be_there(lvd_here, tables, grouped):
    (tables / "without.csv").write_text("area,rooms,garden\n100,3,true\n")
    outcome = lvd_here("predict", grouped, tables / "without.csv", "--out", tables / "nothing.csv")
    assert (outcome.code, outcome.out) == (2, "")
    assert "no column 'district'" in outcome.err
    assert not (tables / "nothing.csv").exists()


GROUPS = {
    "7": [*("007", "7", "7.0")],
    "120000": [*("120000", "12e4")],
    "missing": ["missing", "NA", ""],
    "1234567890123456": ["1234567890123456", "1234567890123457"],
}


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_groups_are_compared_as_they_stand_in_the_table(lvd_here, tmp_path, groups):
    """Rows that differ by their group alone have intervals of different width: those of other calibration rows."""
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal()},{name},{rng.normal()}" for place, name in enumerate(groups) for _ in range(120)]
    (tmp_path / "t.csv").write_text("\n".join(["x,group,y", *rows, ""]))
    options = ("--epochs", 1, "--preset", "paper", "--groups", "group", "--bandwidth", 1000)
    options += ("--impute", "median", "--drop", "group", "--test-out", tmp_path / "test.csv")
    fitted = lvd_here("fit", tmp_path / "t.csv", "--target", "y", *options, "--out", tmp_path / "model")
    assert fitted.code == 0, fitted.err
    kept = {row["group"] for row in read((tmp_path / "test.csv").read_text())}
    assert kept == set(groups)
    others = ["8", "none", "1234567890123458"]
    new = "\n".join(["x,group", *(f"0,{name}" for name in [*groups, *others]), ""])
    (tmp_path / "new.csv").write_text(new)
    outcome = lvd_here(
        "predict", tmp_path / "model", tmp_path / "new.csv", "--out", tmp_path / "out.csv", "--json"
    )
    assert json.loads(outcome.out)["unseen"]["n_groups"] == len(others)
    written = read((tmp_path / "out.csv").read_text())
    widths = [float(row["upper_90"]) - float(row["lower_90"]) for row in written]
    assert len(set(widths[: len(groups)])) == len(groups)
    assert np.isfinite(widths[: len(groups)]).all()
    assert np.isinf(widths[len(groups) :]).all()


def test_test_rows_in_parquet_have_types_and_the_groups_of_the_table(lvd_here, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal()},{('007', '7')[i % 2]},{rng.normal()}" for i in range(200)]
    (tmp_path / "t.csv").write_text("\n".join(["x,group,y", *rows, ""]))
    options = (
        "--epochs",
        1,
        "--preset",
        "paper",
        "--groups",
        "group",
        "--test-out",
        tmp_path / "test.parquet",
    )
    fitted = lvd_here("fit", tmp_path / "t.csv", "--target", "y", *options, "--out", tmp_path / "model")
    assert fitted.code == 0, fitted.err
    table = pq.read_table(tmp_path / "test.parquet")
    assert [str(kind) for kind in table.schema.types] == ["double", "string", "double"]
    assert set(table["group"].to_pylist()) == {"007", "7"}
    report = json.loads(lvd_here("evaluate", tmp_path / "model", tmp_path / "test.parquet", "--json").out)
    assert (report["n_rows"], report["unseen"]["n_groups"]) == (40, 0)


def test_groups_of_numbers_in_other_formats(lvd_here, tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=200), "half": np.arange(200) % 2 + 0.5, "y": rng.normal(size=200)})
    pq.write_table(table, tmp_path / "t.parquet")
    options = ("--epochs", 1, "--preset", "paper", "--groups", "half", "--bandwidth", 1000)
    fitted = lvd_here("fit", tmp_path / "t.parquet", "--target", "y", *options, "--out", tmp_path / "model")
    assert fitted.code == 0, fitted.err
    (tmp_path / "new.csv").write_text("x,half\n0,0.5\n0,1.5\n0,0.50\n")
    pq.write_table(
        pa.table({"x": [0.0] * 3, "half": pa.array([0.5, 1.5, 2.5], pa.float32())}), tmp_path / "new.parquet"
    )
    for name in ("new.csv", "new.parquet"):
        outcome = lvd_here(
            "predict", tmp_path / "model", tmp_path / name, "--out", tmp_path / "o.csv", "--json"
        )
        assert json.loads(outcome.out)["unseen"]["n_groups"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--preset", "papers"), "Invalid value for '--preset'"),
        (("--score", "relative"), "--score must be one of 'absolute', 'distributional'"),
        (("--guarantee", "global"), "Invalid value for '--guarantee'"),
        (("--when-unknown", "guess"), "Invalid value for '--when-unknown'"),
        (("--groups", "distrct"), "the table has no column 'distrct'; did you mean 'district'?"),
        (("--groups", "price"), "--groups must be another column than the target, got 'price'"),
    ],
)
def test_choices_that_cannot_be(lvd_here, tables, tmp_path, options, message):
    outcome = lvd_here(*fit_words(tables / "homes.csv", tmp_path / "model", *options))
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "model").exists()


def test_a_guarantee_that_does_not_exist_at_prediction(lvd_here, tables, grouped):
    outcome = lvd_here("predict", grouped, tables / "new.csv", "--guarantee", "global", "--out", "-")
    assert (outcome.code, outcome.out) == (2, "")
    assert "Invalid value for '--guarantee'" in outcome.err


@pytest.mark.parametrize("change", [{"guarantee": "global"}, {"groups": None}])
def test_a_damaged_choice_is_refused(lvd_here, tables, grouped, tmp_path, change):
    replace(TableModel.load(grouped), **change).save(tmp_path / "model")
    outcome = lvd_here("predict", tmp_path / "model", tables / "new.csv", "--out", "-")
    assert (outcome.code, outcome.out) == (2, "")
    assert "do not belong together; fit again" in outcome.err


@pytest.mark.parametrize("score", ["signed", "sided"])
def test_scores_by_name(lvd_here, tables, tmp_path, score):
    words = fit_words(tables / "homes.csv", tmp_path / "model", "--preset", "paper", "--score", score)
    assert lvd_here(*words).code == 0
    assert lvd.load(tmp_path / "model").conformity_score == score


def test_unknown_rows_stay_finite_on_request(lvd_here, tables, tmp_path):
    options = ("--preset", "paper", "--bandwidth", 1000)
    ends = []
    (tmp_path / "far.csv").write_text("area,rooms,district,garden\n400,8,south,true\n")
    for choice in get_args(WhenUnknown):
        words = fit_words(tables / "homes.csv", tmp_path / choice, *options, "--when-unknown", choice)
        assert lvd_here(*words).code == 0
        (row,) = read(lvd_here("predict", tmp_path / choice, tmp_path / "far.csv", "--out", "-").out)
        assert row["known"] == "false"
        ends.append(row["upper_90"])
    assert ends[0] == "inf"
    assert ends[1] != "inf"
    assert lvd.load(tmp_path / "widen").settings.when_unknown == "widen"


def test_stages_are_shown_on_terminals_alone(lvd_on_terminal, lvd_here, tables, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stages = []

    def note(self, task, *, description, completed):
        stages.append(description)
        left.append(completed)

    left = []
    monkeypatch.setattr("rich.progress.Progress.update", note)
    words = fit_words(tables / "homes.csv", tmp_path / "model", "--epochs", 1, "--force")
    assert lvd_here(*words).err == ""
    assert stages == []
    outcome = lvd_on_terminal(*words)
    assert outcome.code == 0
    assert "fitting 900 rows: errors on rows held out: fold 2 of 2" in stages
    names = list(dict.fromkeys(stage.split(": ")[1] for stage in stages if "compiling" not in stage))
    assert names == [
        "reading the columns",
        "training the model",
        "errors on rows held out",
        "learning the kernel",
        "learning how large errors are",
        "learning the shape of errors",
        "calibrating the intervals",
        "testing the intervals",
    ]
    assert left == sorted(left)
    assert re.search(r"\d s in all: .*training the model \d+\.\d", outcome.err)
