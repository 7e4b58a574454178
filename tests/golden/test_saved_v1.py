"""Models saved by version 0.1 keep loading, and keep their intervals: one that does not is a fault of the code.

``saved_v1/`` is LVD with normalized errors and ``saved_v1_methods/`` one model of each method and variant, all
written by version 0.1, with rows and the intervals that it gave.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import lvd
from lvd.methods import ALL_METHODS

HERE = Path(__file__).parent
METHODS = HERE / "saved_v1_methods"
ANSWERS = json.loads((METHODS / "answers.json").read_text())
ROWS = np.array(ANSWERS.pop("rows"))
REFUSED = {
    "lvd_floor": "saved by an older lvd with a kernel_floor, which this version does not have; fit it again"
}


def test_normalized_errors():
    stored = {name: np.array(v) for name, v in json.loads((HERE / "saved_v1.json").read_text()).items()}
    y_pred, intervals = lvd.load(HERE / "saved_v1").predict_interval(stored["rows"], [0.5, 0.8])
    np.testing.assert_allclose(y_pred, stored["y_pred"], rtol=1e-6)
    np.testing.assert_allclose(intervals, stored["intervals"], rtol=1e-6)


@pytest.mark.parametrize("name", sorted(ANSWERS.keys() - REFUSED.keys()))
def test_every_method(name, tmp_path):
    loaded = lvd.load(METHODS / name)
    expected = ANSWERS[name]
    loaded.save(tmp_path / "again")
    for model in (loaded, lvd.load(tmp_path / "again")):
        y_pred, intervals = model.predict_interval(ROWS)
        np.testing.assert_allclose(y_pred, expected["y_pred"], rtol=1e-6)
        np.testing.assert_allclose(intervals, np.array(expected["intervals"], dtype=float), rtol=1e-6)


def test_all_methods_of_that_version_are_here():
    kept = {json.loads((METHODS / name / "manifest.json").read_text())["class"] for name in ANSWERS}
    assert kept == {method.__name__ for method in ALL_METHODS} - {"LocalCQRRegressor"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_this_version_does_not_have_is_refused(name):
    with pytest.raises(lvd.InputError, match=REFUSED[name] + "$"):
        lvd.load(METHODS / name)


def test_what_it_did_not_keep_is_asked_for():
    reg = lvd.load(HERE / "saved_v1")
    rows = np.zeros((3, 2))
    for use in (
        lambda: reg.predict_quantiles(rows, 0.5),
        lambda: reg.update(rows, np.zeros(3)),
        lambda: reg.forget(2),
    ):
        with pytest.raises(lvd.InputError, match="kept no signed errors: conformalize it again"):
            use()
