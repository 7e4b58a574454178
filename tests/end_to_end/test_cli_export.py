"""``lvd export``: the graph, and the coding of the columns, by which anybody gets what ``lvd predict`` writes."""

from __future__ import annotations

import csv
import functools
import json
import os
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lvd
from lvd.tables.column_coding import with_mean_targets
from lvd.tables.exported import describe_coding
from lvd.tables.table_encoder import TableEncoder

onnxruntime = pytest.importorskip("onnxruntime")
ROOT = Path(__file__).resolve().parents[2]
READER = ROOT / "examples" / "onnx" / "read_coded_columns.py"


@pytest.fixture(scope="module")
def coded():
    return runpy.run_path(str(READER))["coded"]


@pytest.fixture(scope="module")
def exported(lvd_here, homes, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "homes.onnx"
    outcome = lvd_here("export", homes.model, out, "--level", 0.5, "--level", 0.9)
    assert outcome.code == 0, outcome.err
    return out, outcome.out


def new_rows(homes, path):
    """The rows that are not known from training, some with a level that is none."""
    with homes.new.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows[::10]:
        row["district"] = "west"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_the_graph_and_the_reader_give_what_predict_writes(lvd_here, homes, exported, tmp_path):
    table, out = tmp_path / "new.csv", tmp_path / "out.csv"
    new_rows(homes, table)
    assert lvd_here("predict", homes.model, table, "--level", 0.5, "--level", 0.9, "--out", out).code == 0
    read = [sys.executable, READER, exported[0], table]
    answer = subprocess.run(read, capture_output=True, text=True, check=True)
    with out.open(newline="") as file:
        expected = list(csv.DictReader(file))
    found = list(csv.DictReader(answer.stdout.splitlines()))
    assert list(found[0]) == list(expected[0])[6:]
    for name in found[0]:
        columns = [[row[name] for row in rows] for rows in (found, expected)]
        if name == "known":
            assert [one.lower() for one in columns[0]] == columns[1]
            assert columns[1].count("false") >= len(expected) // 10
        else:
            np.testing.assert_allclose(*[np.array(one, float) for one in columns], rtol=1e-5)


def test_what_is_written_is_said(exported, homes):
    out, said = exported
    coding = json.loads(Path(f"{out}.json").read_text())
    assert [column["name"] for column in coding["columns"]] == ["area", "rooms", "district", "garden"]
    ends = [f"{end}_{level}" for level in (50, 90) for end in ("lower", "upper")]
    assert coding["outputs"] == ["y_pred", *ends, "n_effective", "known"]
    assert f"standard operators of version 18, {lvd.load(homes.model).n_calib_} of" in said
    assert "its outputs: y_pred, lower_50" in said


def test_existing_files_stay_without_force(lvd_here, homes, exported, tmp_path):
    out = tmp_path / "homes.onnx"
    shutil.copy(f"{exported[0]}.json", f"{out}.json")
    refused = lvd_here("export", homes.model, out)
    assert refused.code == 2
    assert "homes.onnx.json exists already; give --force" in refused.err
    assert not out.exists()
    done = lvd_here("export", homes.model, out, "--force", "--json")
    assert json.loads(done.out)["n_bytes"] == out.stat().st_size
    assert "wider" in lvd_here("export", homes.model, out, "--force", "--max-rows", 50).err


@pytest.mark.parametrize("order", ["dmy", "mdy"])
def test_the_reader_codes_as_the_encoder(coded, order):
    rng = np.random.default_rng(0)
    number = rng.normal(size=400)
    levels = [f"level {int(one)}" for one in rng.exponential(90.0, size=400)]
    days = rng.integers(1, 13, size=(400, 2))
    table = pa.table(
        {
            "number": [f"{one:.4f}" if one > -1 else "NA" for one in number],
            "flag": ["true" if one > 0 else "False" for one in number],
            "level": [one if draw else "" for one, draw in zip(levels, number > -1.5, strict=True)],
            "day": [f"{first:02}/{second}/2021" for first, second in days.tolist()],
            "moment": [f"2020-{month:02}-03 {day:02}:30" for month, day in days.tolist()],
            "clock": [f"{hour:02}:{minute:02}" for hour, minute in days.tolist()],
            "y": number,
        }
    )
    read = pa.table({name: table[name] for name in table.column_names})
    read = read.set_column(0, "number", pa.array(np.where(number > -1, np.round(number, 4), np.nan)))
    read = read.set_column(1, "flag", pa.array(number > 0))
    encoder = TableEncoder.fit(read, target="y", impute="median", date_format=order)
    with_means, own = with_mean_targets(encoder.columns, read, number[:, None], 0)
    assert list(own) == ["level"]
    encoder = replace(encoder, columns=with_means)
    groups, columns = encoder.level_groups, json.loads(json.dumps(describe_coding(encoder, {})))
    later = read.set_column(2, "level", pa.array(["nowhere", *levels[1:]]))
    rows = later.set_column(0, "number", table["number"]).set_column(1, "flag", table["flag"])
    found = np.array([coded(row, columns) for row in rows.to_pylist()])
    np.testing.assert_allclose(found, encoder.transform(later), rtol=1e-12)
    assert groups
    unknown = np.logical_or.reduce([np.all(found[:, group] == 0.0, axis=1) for group in groups])
    np.testing.assert_array_equal(unknown, encoder.unseen(later)["level"])
    assert unknown[0]


def test_a_loaded_model_takes_the_features_of_its_columns(homes, tmp_path):
    """A level that no training row has is marked in them, in Python and in the graph."""
    reg, rows = lvd.load(homes.model), pd.read_csv(homes.new)
    rows.loc[::5, "district"] = "west"
    written = reg.to_onnx(tmp_path / "model.onnx")
    features = reg.columns_.read(rows)
    assert (features == -1.0).any()
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = dict(zip(written.outputs, session.run(None, {"X": features}), strict=True))
    expected = reg.predict_with_evidence(rows)
    np.testing.assert_array_equal(found["known"], expected.known)
    np.testing.assert_allclose(found["upper_90"], expected.intervals[:, 1].ravel(), rtol=1e-6)


def test_a_model_of_a_frame(lvd_here, coded, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=200), "town": rng.choice(["north", "south"], size=200)})
    reg = lvd.LVDRegressor("trees", preset="paper", random_state=0).fit(frame, frame["size"].rename("price"))
    reg.save(tmp_path / "model")
    out = tmp_path / "model.onnx"
    assert lvd_here("export", tmp_path / "model", out).code == 0
    columns = json.loads(Path(f"{out}.json").read_text())["columns"]
    assert columns[1] == {"name": "town", "kind": "category", "codes": ["north", "south"]}
    rows = [{"size": "0.5", "town": "south"}, {"size": "", "town": "west"}]
    X = np.array([coded(row, columns) for row in rows])
    np.testing.assert_array_equal(X, [[0.5, 1.0], [np.nan, -1.0]])
    upper, known = onnxruntime.InferenceSession(out).run(["upper_90", "known"], {"X": X})
    assert known.tolist() == [True, False]
    asked = pd.DataFrame({"size": [0.5], "town": ["south"]})
    np.testing.assert_allclose(upper[:1], reg.predict_interval(asked)[1][:, 1, 0])


def test_models_without_a_graph_are_refused(lvd_here, homes, tmp_path):
    out = tmp_path / "homes.onnx"
    grouped = tmp_path / "grouped"
    options = ("--preset", "paper", "--epochs", 5, "--groups", "garden", "--drop", "id")
    assert lvd_here("fit", homes.table, "--target", "price", *options, "--out", grouped).code == 0
    refused = lvd_here("export", grouped, out)
    assert refused.code == 2
    assert "calibrated with groups or weights cannot be exported" in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["grouped"]
    refused = lvd_here("export", homes.model, out, "--level", 90)
    assert "--level must lie in (0, 1), got 90" in refused.err


@pytest.mark.slow
def test_an_environment_without_lvd_runs_the_graph(lvd_here, homes, exported, tmp_path):
    """onnxruntime and numpy are all that there is."""
    place, out = tmp_path / "environment", tmp_path / "out.csv"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    python = place / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "onnxruntime", "-c", ROOT / "constraints.txt"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"onnxruntime cannot be installed here: {done.stderr[-200:]}")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = functools.partial(
        subprocess.run, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    for package in ("lvd", "torch", "numba", "sklearn"):
        assert run([python, "-c", f"import {package}"]).returncode == 1
    answer = run([python, READER, exported[0], homes.new])
    assert answer.returncode == 0, answer.stderr
    assert lvd_here("predict", homes.model, homes.new, "--level", 0.5, "--level", 0.9, "--out", out).code == 0
    with out.open(newline="") as file:
        expected = list(csv.DictReader(file))
    found = list(csv.DictReader(answer.stdout.splitlines()))
    for name in ("y_pred", "lower_50", "upper_90", "n_effective"):
        np.testing.assert_allclose(
            *[[float(row[name]) for row in rows] for rows in (found, expected)], rtol=1e-5
        )
