"""Estimators of other libraries: categories and missing values reach them as they are, and embed as numbers."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import lvd
from lvd.models.coding import MOST_LEVELS, InputCoding
from lvd.scores import ScaledResidual
from lvd.store.folder import read_folder, write_folder
from lvd.wrap import as_model

N = 240
OWN_CATEGORIES = {"lightgbm", "xgboost", "sklearn"}


def made(library, **settings):
    """A small boosted model of a library, or a skip where it is not installed."""
    if library == "sklearn":
        return HistGradientBoostingRegressor(max_iter=8, random_state=0, **settings)
    reason = f"{library} is not installed: pip install 'lvd[boosting]'"
    module = pytest.importorskip(library, reason=reason)
    if library == "lightgbm":
        return module.LGBMRegressor(n_estimators=8, verbose=-1, n_jobs=1, **settings)
    if library == "xgboost":
        return module.XGBRegressor(n_estimators=8, n_jobs=1, enable_categorical=True, **settings)
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return module.CatBoostRegressor(iterations=8, **quiet, **settings)


LIBRARIES = ["lightgbm", "xgboost", "catboost", "sklearn"]


def quick(estimator, **settings):
    settings = {"device": "cpu", "random_state": 0} | settings
    kernel = lvd.MahalanobisKernel(2, max_iter=5)
    return lvd.LVDRegressor(
        estimator, kernel=kernel, conformity_score=ScaledResidual(("kernel", "boosted")), **settings
    )


@pytest.fixture(scope="module")
def frame():
    """Numbers, some of them missing, and a category that tells how large errors are."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N)})
    table.loc[rng.random(N) < 0.1, "b"] = np.nan
    table["city"] = pd.Categorical(np.array(["x", "y", "z"])[rng.integers(0, 3, N)])
    return table


@pytest.fixture(scope="module")
def y(frame):
    noise = np.random.default_rng(1).normal(size=N)
    return frame["a"].to_numpy() + np.where(frame["city"] == "y", noise, 0.1 * noise)


def of_categories(library):
    return made(library) if library in OWN_CATEGORIES else made(library, cat_features=["city"])


class TestBoostedTrees:
    @pytest.mark.parametrize("library", LIBRARIES)
    def test_frames_with_categories_and_missing_values(self, library, frame, y):
        reg = quick(of_categories(library)).fit(frame[:200], y[:200])
        found = reg.predict_with_evidence(frame[200:])
        assert found.embeddings.shape == (40, 7)  # a, b, whether b is missing, three cities, the prediction
        assert found.known.mean() > 0.9
        assert np.isfinite(found.intervals[found.known]).all()
        own = reg.model_.fitted_.predict(frame[200:])
        np.testing.assert_allclose(found.y_pred, own, rtol=0)
        np.testing.assert_array_equal(found.embeddings[:, -1], own)

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_trained_already(self, library, frame, y):
        trained = of_categories(library).fit(frame[:100], y[:100])
        reg = quick(trained, prefit=True, calib_size=None).fit(frame[:100], y[:100])
        with pytest.warns(lvd.CalibrationWarning, match="the estimator nearly interpolates"):
            reg.conformalize(frame[100:200], y[100:200])
        y_pred, intervals = reg.predict_interval(frame[200:])
        np.testing.assert_array_equal(y_pred, trained.predict(frame[200:]))
        assert np.isfinite(intervals).mean() > 0.9

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_arrays_with_missing_values(self, library, frame, y):
        X = frame[["a", "b"]].to_numpy()
        reg = quick(made(library)).fit(X[:200], y[:200])
        found = reg.predict_with_evidence(X[200:])
        assert found.embeddings.shape == (40, 4)
        np.testing.assert_array_equal(found.y_pred, reg.model_.fitted_.predict(X[200:]))
        assert np.isfinite(found.intervals[found.known]).all()

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_errors_are_those_of_rows_held_out(self, library, frame, y, monkeypatch, full_training):
        """Five clones are fitted beside the model itself, each without a fold."""
        sizes = []
        kind = type(of_categories(library))
        fit = kind.fit
        monkeypatch.setattr(
            kind, "fit", lambda self, X, *rest, **more: sizes.append(len(X)) or fit(self, X, *rest, **more)
        )
        quick(of_categories(library), calib_size=None).fit(frame, y)
        assert sizes.count(N) == 1
        assert sizes.count(N * 4 // 5) >= 5

    def test_missing_values_that_training_rows_did_not_have(self, y):
        X = np.random.default_rng(0).normal(size=(N, 2))
        reg = quick(made("sklearn")).fit(X, y)
        rows = np.array([[np.nan, 0.0], [0.0, 0.0]])
        found = reg.predict_with_evidence(rows)
        np.testing.assert_allclose(found.embeddings[:, 0], [reg.model_.x_mean_[0], 0.0])
        assert not np.isnan(found.intervals).any()

    @pytest.mark.parametrize("method", [lvd.SplitConformalRegressor, lvd.MADSplitRegressor])
    def test_other_methods(self, method, frame, y):
        reg = method(made("lightgbm"), random_state=0).fit(frame[:200], y[:200])
        assert np.isfinite(reg.predict_interval(frame[200:])[1]).all()

    def test_a_native_booster(self, frame, y):
        lightgbm = pytest.importorskip("lightgbm")
        X = frame[["a", "b"]].to_numpy()
        booster = lightgbm.train({"verbose": -1}, lightgbm.Dataset(X, y), 5)
        model = as_model(booster, prefit=True)
        assert model.interpolates
        assert model.fit(model.check(X), y[:, None]).evaluate(X).embeddings.shape == (N, 4)

    @pytest.mark.parametrize("forest", [RandomForestRegressor, ExtraTreesRegressor])
    def test_forests_with_missing_values(self, forest, frame, y):
        X = frame[["a", "b"]].to_numpy()
        found = quick(forest(5, random_state=0)).fit(X[:200], y[:200]).predict_with_evidence(X[200:])
        assert np.isfinite(found.embeddings).all()

    def test_who_takes_no_missing_values_is_asked_for_none(self, frame, y):
        X = frame[["a", "b"]].to_numpy()
        with pytest.raises(lvd.InputError, match=r"X contains \d+ NaN"):
            quick(Ridge()).fit(X, y)
        intervals = quick(make_pipeline(SimpleImputer(), Ridge())).fit(X, y).predict_interval(X)[1]
        assert not np.isnan(intervals).any()

    @pytest.mark.filterwarnings("ignore:X has feature names")
    def test_fitted_on_an_array_asked_by_a_frame(self, frame, y):
        X = frame[["a", "b"]].fillna(0.0)
        reg = quick(made("sklearn")).fit(X.to_numpy(), y)
        np.testing.assert_array_equal(reg.predict(X), reg.predict(X.to_numpy()))

    def test_infinity_is_refused(self, frame, y):
        with pytest.raises(lvd.InputError, match="X contains infinity, in column a"):
            quick(made("lightgbm")).fit(frame.assign(a=np.inf), y)


class TestInputCoding:
    def test_by_hand(self):
        table = pd.DataFrame(
            {
                "number": [1.0, np.nan, 3.0, 5.0],
                "level": pd.Categorical(["u", "v", "u", "v"]),
                "whole": pd.array([1, 2, pd.NA, 3], dtype="Int64"),
                "flag": [True, False, True, False],
                "code": pd.Categorical([7, 7, 8, 8]),
            }
        )
        coding = InputCoding.of(table)
        expected = [
            [1, 0, 1, 0, 1, 0, 1, 1, 0],
            [3, 1, 0, 1, 2, 0, 0, 1, 0],
            [3, 0, 1, 0, 2, 1, 1, 0, 1],
            [5, 0, 0, 1, 3, 0, 0, 0, 1],
        ]
        np.testing.assert_array_equal(coding(table), expected)
        new = table[:1].assign(level="w", code=9)
        np.testing.assert_array_equal(coding(new), [[1, 0, 0, 0, 1, 0, 1, 0, 0]])

    def test_missing_levels_are_a_level(self):
        coding = InputCoding.of(pd.DataFrame({"level": ["u", None, "u", None]}))
        assert coding.levels == (("", "u"),)

    def test_rare_levels_share_nothing(self):
        levels = [f"level {number % 100:02d}" for number in range(1000)]
        assert InputCoding.of(pd.DataFrame({"level": levels})).levels == (
            tuple(sorted(set(levels))[:MOST_LEVELS]),
        )
        assert InputCoding.of(pd.DataFrame({"level": ["u"] * 999 + ["v"]})).levels == (("u",),)

    def test_a_column_of_nothing(self):
        coding = InputCoding.of(np.array([[np.nan], [np.nan]]))
        np.testing.assert_array_equal(coding(np.array([[np.nan], [2.0]])), [[0.0], [2.0]])

    def test_other_columns_than_in_fit(self):
        coding = InputCoding.of(pd.DataFrame({"a": [1.0, 2.0]}))
        with pytest.raises(lvd.InputError, match="sees 2 columns, but saw 1 in fit"):
            coding(np.zeros((1, 2)))
        with pytest.raises(lvd.InputError, match="held numbers in fit holds something else"):
            coding(pd.DataFrame({"a": ["word"]}))

    def test_rows_without_columns(self):
        with pytest.raises(lvd.InputError, match="no columns that could serve as embedding"):
            InputCoding.of(["one", "two"])


WORDS = ["red", "green", "blue", "large", "small", "house", "tree"]


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    rows = [" ".join(rng.choice(WORDS, 6)) for _ in range(N)]
    return rows, np.array([row.count("red") - row.count("tree") + 0.1 * rng.normal() for row in rows])


class TestSparseAndText:
    @pytest.mark.parametrize("given", [list, np.array, pd.Series])
    def test_texts_for_a_pipeline(self, texts, given):
        rows, y = texts
        reg = quick(make_pipeline(TfidfVectorizer(), Ridge())).fit(given(rows[:200]), y[:200])
        found = reg.predict_with_evidence(given(rows[200:]))
        assert found.embeddings.shape == (40, len(WORDS))
        assert np.isfinite(found.intervals).mean() > 0.9

    def test_sparse_matrices(self, texts):
        rows, y = texts
        X = TfidfVectorizer().fit_transform(rows)
        sparse_reg, dense_reg = (quick(Ridge()).fit(rows[:200], y[:200]) for rows in (X, X.toarray()))
        np.testing.assert_allclose(
            sparse_reg.predict(X[200:]), dense_reg.predict(X[200:].toarray()), atol=1e-3
        )
        assert sparse_reg.n_features_in_ == len(WORDS)
        with pytest.raises(lvd.InputError, match="X has 2 features, but lvd is expecting 7"):
            sparse_reg.predict(X[:, :2])

    def test_shared_rows_are_found(self, texts):
        _, y = texts
        X = sparse.random(60, 9, 0.5, random_state=0, format="csc")
        reg = quick(Ridge(), calib_size=None).fit(X[:30], y[:30])
        with pytest.warns(lvd.CalibrationWarning, match="5 of 30 calibration rows equal a training row"):
            reg.conformalize(X[25:55], y[25:55])

    def test_wide_matrices_are_projected(self, texts):
        X = sparse.random(N, 1000, 0.02, random_state=0, format="csr")
        y = np.asarray(X[:, :5].sum(axis=1)).ravel()
        found = quick(Ridge()).fit(X, y).predict_with_evidence(X[:10])
        assert found.embeddings.shape == (10, 50)

    def test_who_takes_none(self, texts):
        X = sparse.random(40, 5, 0.5, random_state=0)
        with pytest.raises(lvd.InputError, match="sparse matrices are not supported"):
            quick(made("sklearn")).fit(X, np.arange(40.0))

    def test_empty_and_infinite(self):
        model = as_model(Ridge())
        with pytest.raises(lvd.InputError, match=r"X is empty: its shape is \(0, 3\)"):
            model.check(sparse.csr_matrix((0, 3)))
        with pytest.raises(lvd.InputError, match="X contains NaN or infinity"):
            model.check(sparse.csr_matrix([[np.inf]]))


class Plain:
    """A regressor without parameters that can be asked for."""

    def fit(self, X, y):
        self.mean = y.mean()
        return self

    def predict(self, X):
        return np.full(len(X), self.mean)


class TestObjectsAndFunctions:
    def test_fit_and_predict_are_enough(self, y):
        X = np.random.default_rng(0).normal(size=(N, 2))
        given = Plain()
        reg = quick(given).fit(X, y)
        assert not hasattr(given, "mean")
        np.testing.assert_allclose(reg.predict(X[:2]), reg.model_.fitted_.mean)

    def test_a_class_is_no_object(self):
        with pytest.raises(lvd.InputError, match=r"estimator is a class; give an object of it, as Plain\(\)"):
            as_model(Plain)

    def test_a_predict_function_alone(self, frame, y):
        reg = quick(lambda rows: rows["a"].to_numpy(), prefit=True, calib_size=None)
        reg.fit(frame[:100], y[:100]).conformalize(frame[100:200], y[100:200])
        found = reg.predict_with_evidence(frame[200:])
        assert found.embeddings.shape == (40, 7)
        np.testing.assert_array_equal(found.embeddings[:, [0, -1]], np.stack([found.y_pred] * 2, axis=1))

    def test_a_function_of_texts_needs_another(self, texts):
        rows, y = texts
        reg = quick(lambda some: np.zeros(len(some)), prefit=True)
        with pytest.raises(lvd.InputError, match="give a function from rows to embeddings"):
            reg.fit(rows, y)


class TestSaving:
    """Trees in the library's own format, parameters in JSON: the same bits come back, and nothing runs."""

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_trained_by_us(self, library, frame, y, tmp_path):
        given = of_categories(library)
        reg = quick(given).fit(frame[:200], y[:200])
        loaded = self.round_trip(reg, tmp_path)
        self.assert_same(loaded, reg, frame[200:])
        assert type(loaded.estimator) is type(given)
        assert repr(loaded.estimator.get_params()) == repr(given.get_params())
        again = loaded.fit(frame[:200], y[:200]).predict_interval(frame[200:])[1]
        np.testing.assert_array_equal(again, reg.predict_interval(frame[200:])[1])

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_trained_already_and_saved_once(self, library, frame, y, tmp_path):
        trained = of_categories(library).fit(frame[:100], y[:100])
        reg = lvd.SplitConformalRegressor(trained, prefit=True, calib_size=None).fit(frame[:100], y[:100])
        reg.conformalize(frame[100:200], y[100:200])
        loaded = self.round_trip(reg, tmp_path)
        self.assert_same(loaded, reg, frame[200:])
        assert loaded.model_.fitted_ is loaded.estimator
        assert repr(loaded.estimator.get_params()) == repr(trained.get_params())
        assert len(list((tmp_path / "model").glob("estimator-*"))) == 1

    def test_a_native_booster(self, frame, y, tmp_path):
        lightgbm = pytest.importorskip("lightgbm")
        booster = lightgbm.train({"verbose": -1}, lightgbm.Dataset(frame[:100], y[:100]), 5)
        reg = lvd.SplitConformalRegressor(booster, prefit=True).fit(frame[:100], y[:100])
        reg.conformalize(frame[100:200], y[100:200])
        self.assert_same(self.round_trip(reg, tmp_path), reg, frame[200:])

    @pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
    def test_at_the_end_of_a_pipeline(self, library, frame, y, tmp_path):
        pytest.importorskip("skops")
        encode = ColumnTransformer([("city", OneHotEncoder(), ["city"])], remainder="passthrough")
        reg = lvd.SplitConformalRegressor(make_pipeline(encode, made(library))).fit(frame[:200], y[:200])
        loaded = self.round_trip(reg, tmp_path)
        self.assert_same(loaded, reg, frame[200:])
        assert reg.model_.fitted_.steps[-1][1] is not loaded.model_.fitted_.steps[-1][1]

    def test_other_texts_and_numbers(self, texts, tmp_path):
        pytest.importorskip("skops")
        rows, y = texts
        reg = quick(make_pipeline(TfidfVectorizer(), Ridge())).fit(rows, y)
        self.assert_same(self.round_trip(reg, tmp_path), reg, rows)
        wide = sparse.random(N, 300, 0.05, random_state=0, format="csr")
        reg = quick(Ridge()).fit(wide, y)
        self.assert_same(self.round_trip(reg, tmp_path), reg, wide)

    def test_a_predict_function_is_given_again(self, frame, y, tmp_path):
        reg = quick(first_column, prefit=True).fit(frame[:100], y[:100]).conformalize(frame[100:], y[100:])
        reg.save(tmp_path / "model")
        self.assert_same(lvd.load(tmp_path / "model", estimator=first_column), reg, frame)
        with pytest.raises(lvd.InputError, match="made with first_column as estimator="):
            lvd.load(tmp_path / "model")

    def test_an_objective_of_the_users(self, frame, y, tmp_path):
        trained = made("lightgbm", objective=lambda y, p: (p - y, np.ones_like(y))).fit(frame, y)
        reg = lvd.SplitConformalRegressor(trained, prefit=True).fit(frame, y)
        with pytest.raises(
            lvd.InputError, match=r"estimator.objective holds .*lambda.*, which cannot be saved"
        ):
            reg.save(tmp_path / "model")

    def test_a_class_of_the_users(self, frame, y, tmp_path):
        pytest.importorskip("skops")
        lightgbm = pytest.importorskip("lightgbm")
        mine = type("Mine", (lightgbm.LGBMRegressor,), {})(n_estimators=2, verbose=-1)
        reg = lvd.SplitConformalRegressor(mine).fit(frame, y)
        with pytest.raises(lvd.InputError, match="a Mine, cannot be saved"):
            reg.save(tmp_path / "model")

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            ({"booster": ["os", "system"]}, "KeyError: 'os'"),
            ({"booster": ["lightgbm", "train"]}, "lightgbm has no regressor 'train'"),
            ({"parameters": {"_Booster": 1}}, "'_Booster' cannot be a parameter"),
        ],
    )
    def test_nothing_else_is_looked_up(self, entry, message, frame, y, tmp_path):
        lvd.SplitConformalRegressor(made("lightgbm")).fit(frame, y).save(tmp_path / "model")
        contents = read_folder(tmp_path / "model")
        number = next(n for n, one in enumerate(contents.description["objects"]) if "booster" in one)
        contents.description["objects"][number] |= entry
        kept = {key: contents.description[key] for key in ("class", "columns", "objects")}
        write_folder(tmp_path / "model", contents._replace(description=kept))
        with pytest.raises(lvd.InputError, match=message):
            lvd.load(tmp_path / "model")

    def test_without_the_library(self, frame, y, tmp_path, monkeypatch):
        lvd.SplitConformalRegressor(made("lightgbm")).fit(frame, y).save(tmp_path / "model")
        monkeypatch.setitem(sys.modules, "lightgbm", None)
        with pytest.raises(lvd.InputError, match="lightgbm is not installed; run: pip install lightgbm"):
            lvd.load(tmp_path / "model")

    @staticmethod
    def round_trip(reg, folder):
        reg.save(folder / "model")
        return lvd.load(folder / "model")

    @staticmethod
    def assert_same(loaded, reg, rows):
        for found, expected in zip(loaded.predict_interval(rows), reg.predict_interval(rows), strict=True):
            np.testing.assert_array_equal(found, expected)


def first_column(rows):
    return rows["a"].to_numpy()
