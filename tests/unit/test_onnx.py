"""Exported graphs give what Python gives, and are refused where they could not."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

import lvd
from lvd._validation import InputError, MissingExtraError
from lvd.onnx.exporting import worst_rows

onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
LEVELS = [0.5, 0.9]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(700, 3))
    y = X[:, 0] + (0.1 + np.abs(X[:, 1])) * rng.exponential(size=700)
    return X[:500], y[:500], np.concatenate([X[500:], rng.uniform(-4.0, 4.0, size=(100, 3))])


def small_net():
    return lvd.NetRegressor(hidden_sizes=(16,), n_batches=60)


def run_graph(reg, X, path, **choices):
    """What onnxruntime makes of the exported graph, by name."""
    written = reg.to_onnx(path, LEVELS, **choices)
    session = onnxruntime.InferenceSession(path)
    return dict(zip(written.outputs, session.run(list(written.outputs), {"X": X}), strict=True))


def check_same(reg, X, found):
    """All columns of ``as_frame=True``, to a small share of the widths."""
    expected = reg.predict_interval(X, LEVELS, as_frame=True)
    assert set(expected.columns) <= set(found)
    for name in expected.columns:
        column = expected[name].to_numpy()
        if name == "known":
            np.testing.assert_array_equal(found[name], column)
            continue
        np.testing.assert_array_equal(np.isfinite(found[name]), np.isfinite(column))
        level = name.split("_")[1] if name != "y_pred" else "90"
        lower, upper = (expected[f"{side}_{level}"].to_numpy() for side in ("lower", "upper"))
        finite, both = np.isfinite(column), np.isfinite(lower) & np.isfinite(upper)
        usual = np.full(len(X), np.median(upper[both] - lower[both]))
        usual[both] = upper[both] - lower[both]
        assert (np.abs(found[name][finite] - column[finite]) <= 1e-5 * usual[finite]).all(), name


METHODS = {
    "split": lambda: lvd.SplitConformalRegressor(small_net(), random_state=0),
    "paper": lambda: lvd.LVDRegressor(small_net(), preset="paper", random_state=0),
    "absolute": lambda: lvd.LVDRegressor(small_net(), conformity_score="absolute", random_state=0),
    "scaled": lambda: lvd.LVDRegressor("net", conformity_score="scaled", random_state=0),
    "default": lambda: lvd.LVDRegressor(random_state=0),
    "trees": lambda: lvd.LVDRegressor("trees", random_state=0, y_range=(-1.0, 2.0)),
    "signed": lambda: lvd.LVDRegressor(
        small_net(), conformity_score="signed", bandwidth=1.5, when_unknown="widen", random_state=0
    ),
    "normalized": lambda: lvd.MADSplitRegressor(small_net(), random_state=0),
}


@pytest.mark.parametrize("name", METHODS)
def test_graphs_give_the_intervals_of_python(name, data, tmp_path):
    X, y, X_test = data
    reg = METHODS[name]().fit(X, y)
    found = run_graph(reg, X_test, tmp_path / "model.onnx")
    check_same(reg, X_test, found)
    if name not in ("split", "normalized"):
        evidence = reg.predict_with_evidence(X_test)
        np.testing.assert_allclose(found["n_effective"], evidence.n_effective, rtol=1e-5, atol=1e-9)
        assert 0 < found["known"].sum() < len(X_test)


@pytest.fixture(scope="module")
def fitted(data):
    X, y, _ = data
    return lvd.LVDRegressor(small_net(), conformity_score="absolute", random_state=0).fit(X, y)


class TestOneGraph:
    def test_a_row_alone_and_no_row(self, fitted, data, tmp_path):
        """A row's numbers do not depend on the rows beside it."""
        X_test = data[2]
        whole = run_graph(fitted, X_test, tmp_path / "model.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        alone = np.concatenate([session.run(["upper_90"], {"X": row[None]})[0] for row in X_test[:20]])
        np.testing.assert_allclose(alone, whole["upper_90"][:20], rtol=1e-12)
        assert session.run(["upper_90"], {"X": X_test[:0]})[0].shape == (0,)

    def test_rows_that_are_no_numbers_get_no_finite_interval(self, fitted, tmp_path):
        odd = np.array([[np.nan, 0.0, 0.0], [1e300, 0.0, 0.0], [np.inf, 0.0, 0.0], [1e9, -1e9, 1e9]])
        found = run_graph(fitted, odd, tmp_path / "model.onnx")
        assert not np.isfinite(found["upper_90"]).any()
        assert not found["known"].any()

    def test_standard_operators_of_stated_versions(self, fitted, tmp_path):
        written = fitted.to_onnx(tmp_path / "model.onnx")
        model = onnx.load(tmp_path / "model.onnx")
        onnx.checker.check_model(model, full_check=True)
        assert [(one.domain, one.version) for one in model.opset_import] == [("", written.opset)]
        assert written.n_bytes == (tmp_path / "model.onnx").stat().st_size
        assert (written.n_rows, written.n_calib) == (125, 125)

    def test_levels_that_equal_weights_meet_exactly(self, tmp_path):
        """A constant kernel is split conformal, ties and all; sums in another order must not tip the balance."""
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(299, 2)), rng.normal(size=299)
        kernel = lvd.MahalanobisKernel.from_components(
            [[0.0] * 16], mean=np.zeros(16), scale=np.ones(16), embeddings=np.zeros((2, 16)), y=[0.0, 1.0]
        )
        reg = lvd.LVDRegressor(
            small_net(), preset="paper", kernel=kernel, calib_size=None, random_state=0
        ).fit(X[:200], y[:200])
        reg.conformalize(X[200:], y[200:])
        check_same(reg, X[:50], run_graph(reg, X[:50], tmp_path / "model.onnx"))


class TestFewerRows:
    """Leaving out the calibration rows of the smallest errors only widens, whatever the weights are."""

    def test_no_interval_is_narrower(self, fitted, data, tmp_path):
        X_test = data[2]
        whole = run_graph(fitted, X_test, tmp_path / "whole.onnx", max_rows=None)
        with pytest.warns(lvd.CalibrationWarning, match="65 of 125 calibration rows.*level 0.9.*as at 0.952"):
            part = run_graph(fitted, X_test, tmp_path / "part.onnx", max_rows=60)
        for level in (50, 90):
            assert (part[f"upper_{level}"] >= whole[f"upper_{level}"]).all()
            assert (part[f"lower_{level}"] <= whole[f"lower_{level}"]).all()
        assert (part["upper_50"] > whole["upper_50"]).any()

    def test_leaving_others_out_would_narrow(self):
        """The claim of `worst_rows` for random weights; it does not hold for the rows of the largest scores."""
        rng = np.random.default_rng(0)

        def quantile(scores, weights, level):
            reached = np.cumsum(weights) >= level * (weights.sum() + 1.0)
            return scores[reached.argmax()] if reached.any() else np.inf

        narrower = 0
        for _ in range(300):
            scores, weights = np.sort(rng.exponential(size=20)), 10.0 * rng.exponential(size=20) ** 3
            kept, own = worst_rows_quietly(weights[:, None], scores, 12)
            for level in (0.2, 0.5, 0.9):
                whole = quantile(scores, weights, level)
                assert quantile(own, kept[:, 0], level) >= whole
                narrower += quantile(scores[:12], weights[:12], level) < whole
        assert narrower > 50


def worst_rows_quietly(points, scores, n_kept):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lvd.CalibrationWarning)
        return worst_rows(points, scores, n_kept)


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"estimator": (lambda X: X[:, 0], lambda X: X), "prefit": True},
                "FunctionModel cannot be exported",
            ),
            ({"conformity_score": "sided"}, "SidedResidual cannot be exported to ONNX"),
        ],
    )
    def test_what_cannot_be_exported_is_said_with_what_can(self, change, message, data, tmp_path):
        X, y, _ = data
        reg = lvd.LVDRegressor(**{"estimator": small_net(), "conformity_score": "absolute"} | change)
        if "prefit" in change:
            reg.fit(X[:300], y[:300]).conformalize(X[300:], y[300:])
        else:
            reg.fit(X, y)
        with pytest.raises(InputError, match=message):
            reg.to_onnx(tmp_path / "model.onnx")
        assert not list(tmp_path.iterdir())

    def test_groups_and_weights(self, data, tmp_path):
        X, y, _ = data
        reg = lvd.LVDRegressor(small_net(), preset="paper", random_state=0).fit(X, y, groups=X[:, 0] > 0.0)
        with pytest.raises(InputError, match="with groups or weights cannot be exported"):
            reg.to_onnx(tmp_path / "model.onnx")

    def test_without_the_package_it_says_what_to_install(self, fitted, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnx", None)
        with pytest.raises(MissingExtraError, match=r'pip install "lvd\[onnx\]"'):
            fitted.to_onnx(tmp_path / "model.onnx")

    def test_wrong_choices(self, fitted, tmp_path):
        with pytest.raises(InputError, match="max_rows must be a positive integer, got 0"):
            fitted.to_onnx(tmp_path / "model.onnx", max_rows=0)
        with pytest.raises(InputError, match=r"did you mean 0\.9"):
            fitted.to_onnx(tmp_path / "model.onnx", 90)
        with pytest.raises(InputError, match="the folder above it must exist"):
            fitted.to_onnx(tmp_path / "nowhere" / "model.onnx")
