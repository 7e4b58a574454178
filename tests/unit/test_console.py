"""What the console makes of numbers and stages."""

from __future__ import annotations

import json
import math

from lvd._json import json_safe
from lvd.cli.console import left_out, stage_text


def test_what_stages_took_is_one_line():
    taken = {"reading the columns": 0.01, "training the model": 12.34, "testing the intervals": 3.0}
    assert stage_text(taken) == "15.3 s in all: training the model 12.3, testing the intervals 3.0"
    assert stage_text({}) == "0.0 s in all"


def test_infinity_is_a_string_and_nan_is_null():
    content = {"a": [math.inf, -math.inf, math.nan, 1.5], "b": (3, "x", None, True)}
    text = json.dumps(json_safe(content), allow_nan=False)
    assert json.loads(text) == {"a": ["Infinity", "-Infinity", None, 1.5], "b": [3, "x", None, True]}
    assert float(json.loads(text)["a"][1]) == -math.inf


def test_rows_that_are_left_out():
    assert left_out(0, 0) == "no row"
    assert left_out(1, 2) == "1 row that the model cannot read, 2 rows without a target"
    assert left_out(0, 1) == "1 row without a target"
