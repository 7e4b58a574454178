"""What LVDRegressor does by default, and the paper's method one word away."""

from __future__ import annotations

import inspect
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge

import lvd
from lvd._progress import listening
from lvd.methods.conformal import InterpolationWarning
from lvd.scores import DistributionalResidual, JointResidual, ScaledResidual


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    return X, X[:, 0] + 0.3 * rng.normal(size=300)


def test_parameters_are_few():
    """Each was asked for: the last ones are how rows calibrate, how many at most, the folds, and the jobs."""
    assert len(inspect.signature(lvd.LVDRegressor).parameters) <= 19


def test_the_paper_is_a_preset(rows):
    X, y = rows
    network = lvd.NetRegressor(n_batches=50)
    explicit = {
        "conformity_score": "absolute",
        "kernel_target": "y",
        "bandwidth": 1.0,
        "when_unknown": "widen",
    }
    paper, spelled = (
        lvd.LVDRegressor(network, random_state=0, **choices).fit(X, y).predict_interval(X, [0.5, 0.9])[1]
        for choices in ({"preset": "paper"}, explicit)
    )
    np.testing.assert_array_equal(paper, spelled)


def test_the_default_score(rows):
    X, y = rows
    settings = {"estimator": lvd.NetRegressor(n_batches=20), "random_state": 0}
    assert isinstance(lvd.LVDRegressor(**settings).fit(X, y).score_, DistributionalResidual)
    joint = lvd.LVDRegressor(joint="box", **settings).fit(X, np.column_stack([y, -y]))
    assert isinstance(joint.score_, JointResidual)
    assert isinstance(joint.score_.residual_, ScaledResidual)
    asked = lvd.LVDRegressor(joint="box", conformity_score="distributional", **settings)
    with pytest.raises(lvd.InputError, match="conformity_score must be 'scaled', 'absolute' or"):
        asked.fit(X, np.column_stack([y, -y]))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"preset": "best"}, "preset must be one of 'default', 'paper', got 'best'"),
        ({"kernel_target": "x"}, "kernel_target must be one of 'errors', 'y', got 'x'"),
        ({"when_unknown": "ignore"}, "when_unknown must be one of 'infinite', 'widen', got 'ignore'"),
        ({"bandwidth": "auto"}, "bandwidth must be a positive number or \"adaptive\", got 'auto'"),
        ({"conformity_score": "log"}, "conformity_score must be one of"),
    ],
)
def test_what_there_is_not_is_refused_before_training(choice, message, rows):
    with pytest.raises(lvd.InputError, match=message):
        lvd.LVDRegressor(**choice).fit(*rows)


def test_stages_are_announced(rows):
    stages = []
    with listening(stages.append):
        net = lvd.NetRegressor(n_batches=20)
        lvd.LVDRegressor(net, calibration="split", random_state=0).fit(*rows)
    assert stages[0] == "training the model"
    assert stages.count("errors on rows held out: fold 2 of 2") == 1


class TestPrefit:
    def test_a_network_is_learned_from_as_it_is(self, rows):
        X, y = rows
        network = lvd.NetRegressor(n_batches=50, random_state=0).fit(X[:200], y[:200])
        reg = lvd.LVDRegressor(network, prefit=True, calib_size=None, random_state=0).fit(X[:200], y[:200])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reg.conformalize(X[200:], y[200:])
        assert reg.n_calib_ == 100

    def test_of_a_forest_calibration_rows_are_set_aside(self, rows):
        X, y = rows
        forest = RandomForestRegressor(20, random_state=0).fit(X[:150], y[:150])
        reg = lvd.LVDRegressor(forest, prefit=True, calib_size=None, random_state=0).fit(X[:150], y[:150])
        with pytest.warns(
            InterpolationWarning, match="50 of 150 calibration rows are used for learning instead"
        ):
            reg.conformalize(X[150:], y[150:])
        assert reg.n_calib_ == 100
        assert reg.predict_interval(X[:3])[1].shape == (3, 2, 1)

    @pytest.mark.parametrize("n_calib", [100, 150], ids=["trainable", "trained"])
    def test_a_second_model_in_a_pair_learns_unless_it_is_a_function(self, rows, n_calib):
        X, y = rows
        forest = RandomForestRegressor(20, random_state=0).fit(X[:150], y[:150])
        first = Ridge() if n_calib == 100 else lambda some: np.ones(len(some))
        score = lvd.scores.NormalizedResidual((first, lambda some: some))
        choices = {"preset": "paper", "prefit": True, "calib_size": None, "random_state": 0}
        reg = lvd.LVDRegressor(forest, conformity_score=score, **choices).fit(X[:150], y[:150])
        expected = pytest.warns(InterpolationWarning) if n_calib == 100 else nullcontext()
        with expected:
            reg.conformalize(X[150:], y[150:])
        assert reg.n_calib_ == n_calib

    def test_the_paper_needs_no_errors(self, rows):
        X, y = rows
        forest = RandomForestRegressor(20, random_state=0).fit(X[:150], y[:150])
        reg = lvd.LVDRegressor(forest, preset="paper", prefit=True, calib_size=None, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reg.fit(X[:150], y[:150]).conformalize(X[150:], y[150:])
        assert reg.n_calib_ == 150


def test_adaptive_bandwidths_are_made_for_the_level_of_each_end(rows):
    network = lvd.NetRegressor(n_batches=20)
    reg = lvd.LVDRegressor(network, conformity_score="signed", kernel_target="y", random_state=0).fit(*rows)
    assert [one.confidence_level for one in reg.calibrators_] == [[0.95]]
