"""A model is the same on the command line and in Python, wherever it was fitted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import lvd


def frame_of(n, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "area": rng.uniform(30, 200, n).round(2),
            "rooms": rng.integers(1, 7, n),
            "district": rng.choice(["north", "south", "old, town"], n),
            "kind": pd.Categorical(rng.choice(["flat", "house"], n)),
            "garden": rng.random(n) < 0.5,
            "sold": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 200, n), unit="D"),
        }
    )
    noise = np.where(frame["district"] == "north", 30.0, 5.0)
    price = 2.0 * frame["area"] + 10.0 * frame["rooms"] + 40.0 * frame["garden"] + noise * rng.normal(size=n)
    frame.loc[::11, "area"] = np.nan
    return frame, price.rename("price")


def encoded(frame):
    return frame.assign(sold=(frame["sold"] - pd.Timestamp("2024-01-01")).dt.days)


PIPELINE = make_pipeline(
    make_column_transformer(
        (SimpleImputer(), ["area"]),
        (OneHotEncoder(handle_unknown="ignore"), ["district", "kind"]),
        remainder="passthrough",
    ),
    HistGradientBoostingRegressor(max_iter=20),
)
ESTIMATORS = {"pipeline": PIPELINE, "trees": "trees"}


@pytest.fixture(scope="module", params=ESTIMATORS)
def brought(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    frame, price = frame_of(300, 0)
    columns = encoded(frame)
    reg = lvd.LVDRegressor(ESTIMATORS[request.param], device="cpu", random_state=0).fit(columns, price)
    reg.save(folder / "model")
    new, sold_for = frame_of(80, 1)
    new = encoded(new)
    new.assign(price=sold_for).to_csv(folder / "sold.csv", index=False)
    new.to_parquet(folder / "new.parquet")
    return folder, reg, new


class TestFittedInPython:
    @pytest.mark.parametrize("name", ["sold.csv", "new.parquet"])
    def test_lvd_predict_gives_the_same_numbers(self, lvd_here, brought, tmp_path, name):
        folder, reg, new = brought
        out = tmp_path / "out.csv"
        outcome = lvd_here("predict", folder / "model", folder / name, "--out", out)
        assert outcome.code == 0, outcome.err
        found = pd.read_csv(out)
        y_pred, intervals = reg.predict_interval(new)
        np.testing.assert_allclose(found["y_pred"], y_pred, rtol=1e-12)
        np.testing.assert_allclose(found[["lower_90", "upper_90"]], intervals[:, :, 0], rtol=1e-12)

    def test_rows_as_dicts(self, brought):
        folder, reg, new = brought
        expected = reg.predict_interval(new)[1]
        loaded = lvd.load(folder / "model")
        np.testing.assert_array_equal(loaded.predict_interval(new)[1], expected)
        np.testing.assert_array_equal(loaded.predict_interval(new.to_dict("records"))[1], expected)
        np.testing.assert_array_equal(loaded.predict_interval(new.to_dict("list"))[1], expected)
        with pytest.raises(lvd.InputError, match="X has no column 'area'"):
            loaded.predict([{"rooms": 3}])

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("evaluate",), "interval score"),
            (("evaluate", "--by", "district"), "coverage by district"),
            (("explain", "--row", 3), "similar calibration rows"),
            (("explain", "--row", 4), "times as wide"),
            (("monitor",), "recent coverage"),
            (("report", "--by", "district", "--out", "page.html"), "page written"),
            (("update", "--out", "updated"), "80 rows added"),
        ],
        ids=lambda value: value[0] if isinstance(value, tuple) else "",
    )
    def test_every_command(self, lvd_here, brought, tmp_path, monkeypatch, words, said):
        folder, _, _ = brought
        monkeypatch.chdir(tmp_path)
        outcome = lvd_here(words[0], folder / "model", folder / "sold.csv", *words[1:])
        assert outcome.code == 0, outcome.err
        assert said in outcome.out
        if words[0] == "update":
            again = lvd_here("update", "updated", folder / "sold.csv")
            assert again.code == 2
            assert "80 of 80 rows have the inputs and targets of rows in use" in again.err
            assert lvd_here("predict", "updated", folder / "sold.csv", "--out", "o.csv").code == 0
            assert lvd.load("updated").n_calib_ == 300 + 80

    def test_a_new_level_is_unknown_on_both_roads(self, lvd_here, brought, tmp_path):
        folder, reg, new = brought
        strange = new[:2].assign(district="moon")
        assert not reg.predict_with_evidence(strange).known.any()
        strange.to_csv(tmp_path / "new.csv", index=False)
        outcome = lvd_here("predict", folder / "model", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
        assert outcome.code == 0, outcome.err
        assert pd.read_csv(tmp_path / "out.csv")["known"].tolist() == [False, False]

    def test_what_a_table_lacks_and_what_it_holds(self, lvd_here, brought, tmp_path):
        folder, _, new = brought
        new.drop(columns="area").to_csv(tmp_path / "few.csv", index=False)
        outcome = lvd_here("predict", folder / "model", tmp_path / "few.csv", "--out", "-")
        assert "the table has no column 'area'" in outcome.err
        new.assign(rooms="many").to_csv(tmp_path / "many.csv", index=False)
        outcome = lvd_here("predict", folder / "model", tmp_path / "many.csv", "--out", "-")
        assert "column 'rooms': must be a number, got 'many'" in outcome.err


def test_of_an_array_there_are_no_names(lvd_here, homes, tmp_path):
    X = np.random.default_rng(0).normal(size=(100, 2))
    lvd.LVDRegressor("trees", random_state=0).fit(X, X[:, 0]).save(tmp_path / "model")
    outcome = lvd_here("predict", tmp_path / "model", homes.new, "--out", "-")
    assert outcome.code == 2
    assert "was fitted on an array, whose columns have no names; fit it on a frame" in outcome.err


class TestFittedOnATable:
    @pytest.fixture(scope="class")
    @classmethod
    def priced(cls, lvd_here, homes, tmp_path_factory):
        out = tmp_path_factory.mktemp("priced") / "out.parquet"
        assert lvd_here("predict", homes.model, homes.new, "--out", out).code == 0
        return pd.read_parquet(out), pd.read_csv(homes.new)

    def test_it_takes_the_frame(self, homes, priced):
        found, new = priced
        loaded = lvd.load(homes.model)
        for rows in (new, new.to_dict("records"), new.to_dict("list")):
            y_pred, intervals = loaded.predict_interval(rows)
            np.testing.assert_array_equal(y_pred, found["y_pred"])
            np.testing.assert_array_equal(intervals[:, :, 0], found[["lower_90", "upper_90"]])
        (one,) = loaded.explain(new[:1])
        assert one.sentence

    def test_new_levels_are_unknown(self, homes, priced):
        _, new = priced
        loaded = lvd.load(homes.model)
        found = loaded.predict_with_evidence(new[:3].assign(district=["moon", "north", "moon"]))
        assert found.known.tolist()[0] is False
        assert found.known.tolist()[2] is False
        assert np.isfinite(loaded.predict(new[:3].assign(district="moon"))).all()

    def test_saved_in_python_it_is_still_a_model_of_tables(self, lvd_here, homes, priced, tmp_path):
        found, _ = priced
        lvd.load(homes.model).save(tmp_path / "again")
        outcome = lvd_here("predict", tmp_path / "again", homes.new, "--out", tmp_path / "out.parquet")
        assert outcome.code == 0, outcome.err
        np.testing.assert_array_equal(pd.read_parquet(tmp_path / "out.parquet")["y_pred"], found["y_pred"])

    def test_more_rows_join_it_in_python(self, homes, priced):
        _, new = priced
        loaded = lvd.load(homes.model)
        n_before = loaded.n_calib_
        loaded.update(new, new["price"])
        assert loaded.n_calib_ == n_before + len(new)
