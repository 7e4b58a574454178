"""The page from Python: `reg.report(X, y, path)`, the same as that of the command line."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import lvd


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(-1, 1, 400), "town": rng.choice(["north", "south"], 400)})
    y = frame["a"] + np.where(frame["town"] == "north", 1.0, 0.1) * rng.normal(size=400)
    return frame, y.rename("price")


@pytest.fixture(scope="module")
def on_frame(rows):
    frame, y = rows
    return lvd.LVDRegressor("trees", device="cpu", random_state=0).fit(frame[:280], y[:280])


@pytest.fixture(scope="module")
def on_array(rows):
    frame, y = rows
    return lvd.LVDRegressor("trees", device="cpu", random_state=0).fit(
        frame[["a"]].to_numpy()[:280], y[:280].to_numpy()
    )


def words(path):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", path.read_text()))


def test_of_a_frame(rows, on_frame, tmp_path):
    frame, y = rows
    verdict = on_frame.report(frame[280:], y[280:], tmp_path / "page.html", by=["town"])
    page = words(tmp_path / "page.html")
    assert verdict.sentence in page
    assert "Prediction intervals for price" in page
    assert "north" in page
    assert "on the 120 rows" in page


def test_the_same_as_on_the_command_line(rows, on_frame, tmp_path, lvd_here):
    frame, y = rows
    verdict = on_frame.report(frame[280:], y[280:], tmp_path / "page.html")
    on_frame.save(tmp_path / "model")
    frame[280:].assign(price=y[280:]).to_parquet(tmp_path / "new.parquet")
    outcome = lvd_here(
        "report", tmp_path / "model", tmp_path / "new.parquet", "--out", tmp_path / "other.html"
    )
    assert outcome.code == 0, outcome.err
    assert verdict.sentence in outcome.out


def test_of_an_array(rows, on_array, tmp_path):
    frame, y = rows
    X = frame[["a"]].to_numpy()[280:]
    verdict = on_array.report(
        X, y[280:].to_numpy(), tmp_path / "page.html", by={"town": frame["town"][280:].to_numpy()}
    )
    assert verdict.confidence_level == 0.9
    page = words(tmp_path / "page.html")
    assert "south" in page
    assert "x1" in page
    at_half = on_array.report(X, y[280:], tmp_path / "half.html", confidence_level=0.5)
    assert at_half.confidence_level == 0.5


def test_what_it_refuses(rows, on_frame, on_array, tmp_path):
    frame, y = rows
    with pytest.raises(lvd.InputError, match="give X as a frame, a dict of columns or a list of dicts"):
        on_frame.report(frame.to_numpy(), y, tmp_path / "page.html")
    with pytest.raises(lvd.InputError, match="price has 3 values and X has 120 rows"):
        on_frame.report(frame[280:], y[:3], tmp_path / "page.html")
    with pytest.raises(lvd.InputError, match="the table has no column 'twon'; did you mean 'town'"):
        on_frame.report(frame[280:], y[280:], tmp_path / "page.html", by=["twon"])
    with pytest.raises(lvd.InputError, match="X must hold numbers only"):
        on_array.report([["x"]], [1.0], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
