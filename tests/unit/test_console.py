"""What the console makes of numbers and stages."""

from __future__ import annotations

import json
import math

import pytest

from lvd._json import json_safe
from lvd.cli.console import done_before, left_out

WEIGHTS = {"training": 1.0, "folds": 5.0, "testing": 2.0}


@pytest.mark.parametrize(
    ("stage", "done"),
    [
        ("training the model", 0.0),
        ("folds: 1 of 5", 1.0),
        ("folds: 3 of 5", 3.0),
        ("folds", 1.0),
        ("testing", 6.0),
        ("something new", None),
    ],
)
def test_how_much_is_done_before_a_stage(stage, done):
    assert done_before(stage, WEIGHTS) == done


def test_infinity_is_a_string_and_nan_is_null():
    content = {"a": [math.inf, -math.inf, math.nan, 1.5], "b": (3, "x", None, True)}
    text = json.dumps(json_safe(content), allow_nan=False)
    assert json.loads(text) == {"a": ["Infinity", "-Infinity", None, 1.5], "b": [3, "x", None, True]}
    assert float(json.loads(text)["a"][1]) == -math.inf


def test_rows_that_are_left_out():
    assert left_out(0, 0) == "no row"
    assert left_out(1, 2) == "1 row that the model cannot read, 2 rows without a target"
    assert left_out(0, 1) == "1 row without a target"
