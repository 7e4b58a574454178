"""How many files of lvd a reader has to know to follow one prediction."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PREDICT, INTERVAL = 33, 15
"""The most files that ``lvd predict`` and ``predict_interval`` may walk."""

WALK = """
import json, os, sys
import numpy as np
import lvd
from lvd.cli.app import app

model, table, out = sys.argv[1:]
source = os.path.dirname(lvd.__file__) + os.sep


def walked(action):
    found = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(source) and code.co_name != "<module>":
            found.add(code.co_filename[len(source):])

    sys.setprofile(note)
    try:
        action()
    except SystemExit as end:
        assert not end.code, end.code
    finally:
        sys.setprofile(None)
    return sorted(found)


walked(lambda: app(["predict", model, table, "--out", out]))  # imports run functions too
predict = walked(lambda: app(["predict", model, table, "--out", out]))
regressor = lvd.load(model)
X = np.zeros((3, regressor.n_features_in_))
regressor.predict_interval(X)
interval = walked(lambda: regressor.predict_interval(X))
print()
print(json.dumps({"predict": predict, "interval": interval}))
"""


@pytest.fixture(scope="module")
def walks(homes, tmp_path_factory):
    """Without the shape checks of the tests, which put their own functions between."""
    out = tmp_path_factory.mktemp("walk") / "out.csv"
    words = [sys.executable, "-c", WALK, str(homes.model), str(homes.new), str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_predict(walks):
    assert "cli/predict.py" in walks["predict"]
    assert len(walks["predict"]) <= PREDICT, walks["predict"]


def test_predict_interval(walks):
    assert "engine/quantiles.py" in walks["interval"]
    assert len(walks["interval"]) <= INTERVAL, walks["interval"]
