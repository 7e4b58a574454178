"""The page from Python: `reg.report(X, y, path)`, as on the command line, and `lvd.report` of any intervals."""

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
    return re.sub(r"\s+", " ", re.sub(r"<script.*?</script>|<[^>]*>", " ", path.read_text(), flags=re.DOTALL))


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


@pytest.fixture(scope="module")
def given(rows):
    """Intervals at two levels, the first of them 90%, around a prediction; too narrow in the north."""
    frame, _ = rows
    half = np.where(frame["town"] == "north", 1.0, 0.17)
    ends = frame["a"].to_numpy()[:, None] + np.stack([-half, half], axis=1)
    return frame["a"], np.stack([ends, 0.5 * ends + 0.5 * frame[["a"]].to_numpy()], axis=2)


def test_intervals_of_any_method(rows, given, tmp_path):
    frame, y = rows
    y_pred, intervals = given
    verdict = lvd.report(
        *(y, y_pred, intervals),
        X=frame,
        by=["town"],
        path=tmp_path / "page.html",
        confidence_level=[0.9, 0.5],
        name="MAPIE",
    )
    assert verdict.kind == "does not hold"
    assert verdict.coverage == np.mean((intervals[:, 0, 0] <= y) & (y <= intervals[:, 1, 0]))
    page = words(tmp_path / "page.html")
    for part in ("Prediction intervals for price", "Model MAPIE", "At every level", "north", "One width"):
        assert part in page
    for part in ("Evidence", "LVD", "effective sample size", " calibration rows"):
        assert part not in page


def test_one_level_and_no_rows(rows, given, tmp_path):
    _, y = rows
    y_pred, intervals = given
    lvd.report(y.to_numpy(), y_pred, intervals[:, :, 0], path=tmp_path / "page.html")
    page = words(tmp_path / "page.html")
    assert "These rows came without features" in page
    assert "At every level" not in page
    assert "Prediction intervals for y" in page


def test_arrays_that_do_not_fit(rows, given, tmp_path):
    frame, y = rows
    y_pred, intervals = given
    with pytest.raises(lvd.InputError, match="levels must name every level of intervals, got 1 for 2"):
        lvd.report(y, y_pred, intervals, path=tmp_path / "page.html")
    with pytest.raises(lvd.InputError, match="X has 3"):
        lvd.report(y, y_pred, intervals[..., 0], X=frame[:3], path=tmp_path / "page.html")
    with pytest.raises(lvd.InputError, match="the table has no column 'twon'"):
        lvd.report(y, y_pred, intervals[..., 0], X=frame, by=["twon"], path=tmp_path / "page.html")
    with pytest.raises(lvd.InputError, match="town has 2 values"):
        lvd.report(y, y_pred, intervals[..., 0], by={"town": ["a", "b"]}, path=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "name", ["SplitConformalRegressor", "JackknifePlusRegressor", "DeepEnsembleRegressor"]
)
def test_every_method_has_it(rows, tmp_path, name):
    frame, y = rows
    X, trees = frame[["a"]].to_numpy(), lvd.TreesRegressor(max_iter=5, random_state=0)
    quick = {
        "SplitConformalRegressor": {"estimator": trees},
        "JackknifePlusRegressor": {"estimator": trees, "cv": 3, "progress": False},
        "DeepEnsembleRegressor": {"n_members": 2, "epochs": 2},
    }
    method = getattr(lvd, name)(**quick[name], random_state=0).fit(X[:280], y[:280])
    verdict = method.report(X[280:], y[280:], tmp_path / "page.html", by={"town": frame["town"][280:]})
    expected = method.predict_interval(X[280:])[1][:, :, 0]
    assert verdict.coverage == pytest.approx(
        np.mean((expected[:, 0] <= y[280:]) & (y[280:] <= expected[:, 1]))
    )
    page = words(tmp_path / "page.html")
    assert f"Model {name.removesuffix('Regressor')} on the 120 rows" in page
    assert "south" in page


@pytest.mark.filterwarnings("ignore::lvd.CalibrationWarning")
@pytest.mark.parametrize("method", [lvd.ConformalizedQuantileRegressor, lvd.LVDRegressor])
def test_at_the_levels_alone_that_were_learned(rows, tmp_path, method):
    frame, y = rows
    X, score = frame[["a"]].to_numpy(), {"conformity_score": "quantile"} if method is lvd.LVDRegressor else {}
    net = lvd.NetRegressor(n_batches=20)
    reg = method(net, confidence_level=[0.9, 0.5], device="cpu", random_state=0, **score).fit(
        X[:280], y[:280]
    )
    verdict = reg.report(X[280:], y[280:], tmp_path / "page.html")
    assert verdict.confidence_level == 0.9
    assert "of 2 levels" in words(tmp_path / "page.html")
