"""How many files of lvd a reader has to know to follow one prediction of a default model, and its fit."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.apart
INTERVAL, PREDICT, FIT = 15, 29, 45
"""The most files that ``predict_interval``, ``lvd predict`` and ``lvd fit --model net`` may walk."""

WALK = """
import json, os, sys, threading
import numpy as np
import lvd
from lvd.cli.app import app

small, table, new, folder = sys.argv[1:]
model, out = os.path.join(folder, "model"), os.path.join(folder, "out.csv")
source = os.path.dirname(lvd.__file__) + os.sep


def walked(action):
    found = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(source) and code.co_name != "<module>":
            found.add(code.co_filename[len(source):])

    threading.setprofile(note)  # those that begin from here on
    sys.setprofile(note)
    try:
        action()
    except SystemExit as end:
        assert not end.code, end.code
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted(found)


def fit(table):
    app(["fit", table, "--target", "y", "--model", "net", "--calibration", "split", "--out", model, "--force"])


walked(lambda: fit(small))  # imports run functions too
fitting = walked(lambda: fit(table))
walked(lambda: app(["predict", model, new, "--out", out]))
predict = walked(lambda: app(["predict", model, new, "--out", out]))
regressor = lvd.load(model)
assert regressor.preset == "default"
X = np.zeros((3, regressor.n_features_in_))
regressor.predict_interval(X)
interval = walked(lambda: regressor.predict_interval(X))
print()
print(json.dumps({"fit": fitting, "predict": predict, "interval": interval}))
"""


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    """Without the shape checks of the tests, which put their own functions between."""
    folder = tmp_path_factory.mktemp("walk")
    rng = np.random.default_rng(0)
    tables = []
    for n_rows in (60, 300, 20):
        X = rng.uniform(-1, 1, size=(n_rows, 3))
        y = X[:, 0] + rng.exponential(size=n_rows) * (1 + X[:, 1])
        tables.append(folder / f"{n_rows}.csv")
        np.savetxt(tables[-1], np.column_stack([X, y]), delimiter=",", header="a,b,c,y", comments="")
    words = [sys.executable, "-c", WALK, *map(str, tables), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_fit(walks):
    assert "kernels/training.py" in walks["fit"]
    assert len(walks["fit"]) <= FIT, walks["fit"]


def test_predict(walks):
    assert "cli/predict.py" in walks["predict"]
    assert len(walks["predict"]) <= PREDICT, walks["predict"]


def test_predict_interval(walks):
    assert {"engine/quantiles.py", "scores/distributional.py"} <= set(walks["interval"])
    assert len(walks["interval"]) <= INTERVAL, walks["interval"]
