"""The demo's computation, with a short training: one network, two methods, progress to the end."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from lvd.reproduction import demonstration
from lvd.reproduction.demonstration import interval_table


@pytest.fixture(scope="module")
def announced():
    return {}


@pytest.fixture(scope="module")
def outcome(announced):
    @contextmanager
    def progress(what, total):
        announced[what] = [0, total]

        def advance(n):
            announced[what][0] += n

        yield advance

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demonstration, "N_BATCHES", 30)
        return demonstration.fit_and_ask(demonstration.load_examples()[0], progress=progress)


def test_parts_have_no_row_in_common():
    for example in demonstration.load_examples():
        rows = np.concatenate(example.parts)
        assert sorted(rows) == list(range(len(example.data.y)))


def test_progress_comes_to_its_end(outcome, announced):
    assert announced == {
        "synthetic: training the network": [30, 30],
        "synthetic: calibrating the intervals": [2, 2],
    }


def test_both_methods_stand_around_the_same_network(outcome):
    for method in outcome.methods.values():
        np.testing.assert_array_equal(method.predict(outcome.X), outcome.y_pred)
    widths = np.diff(outcome.intervals[demonstration.SPLIT], axis=1)[:, 0]
    np.testing.assert_allclose(widths, widths[:1].repeat(len(widths), axis=0), rtol=1e-12)


@pytest.mark.parametrize("place", range(len(demonstration.LEVELS)))
def test_an_interval_is_infinite_where_similar_rows_are_too_few(outcome, place):
    level = demonstration.LEVELS[place]
    infinite = np.isinf(outcome.intervals[demonstration.LVD][:, :, place]).any(axis=1)
    np.testing.assert_array_equal(infinite, outcome.similar_rows / (1.0 + outcome.similar_rows) < level)


def test_the_table_holds_every_interval(outcome):
    table = interval_table([outcome])
    n_rows, n_levels = len(outcome.y), len(demonstration.LEVELS)
    assert table.num_rows == 2 * n_levels * n_rows
    upper = table.column("upper").to_numpy().reshape(2, n_levels, n_rows)
    np.testing.assert_array_equal(upper[0].T, outcome.intervals[demonstration.LVD][:, 1])
    np.testing.assert_array_equal(upper[1].T, outcome.intervals[demonstration.SPLIT][:, 1])
