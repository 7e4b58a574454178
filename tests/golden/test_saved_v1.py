"""A model saved by version 0.1 keeps loading, and keeps its intervals.

``saved_v1/`` is that model and ``saved_v1.json`` holds rows and their intervals. Both are written by

    python tests/golden/test_saved_v1.py

which is for the time before a release only: afterwards a model that no longer loads is a fault of the code.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import lvd

HERE = Path(__file__).parent
LEVELS = [0.5, 0.8]


def regenerate():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(80, 2))
    y = X[:, 0] + 0.5 * rng.normal(size=80) * np.abs(X[:, 1])
    reg = lvd.LVDRegressor(
        lvd.NetRegressor(hidden_sizes=(4,), n_batches=50),
        conformity_score="normalized",
        kernel=lvd.MahalanobisKernel(n_components=2, max_iter=20),
        confidence_level=0.8,
        random_state=0,
    ).fit(X, y)
    reg.save(HERE / "saved_v1")
    rows = X[:5].round(2)
    y_pred, intervals = reg.predict_interval(rows, LEVELS)
    stored = {"rows": rows.tolist(), "y_pred": y_pred.tolist(), "intervals": intervals.tolist()}
    (HERE / "saved_v1.json").write_text(json.dumps(stored, indent=1) + "\n")


def test_a_model_saved_by_version_0_1_gives_its_intervals():
    stored = {name: np.array(v) for name, v in json.loads((HERE / "saved_v1.json").read_text()).items()}
    y_pred, intervals = lvd.load(HERE / "saved_v1").predict_interval(stored["rows"], LEVELS)
    np.testing.assert_allclose(y_pred, stored["y_pred"], rtol=1e-6)
    np.testing.assert_allclose(intervals, stored["intervals"], rtol=1e-6)


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


if __name__ == "__main__":
    regenerate()
