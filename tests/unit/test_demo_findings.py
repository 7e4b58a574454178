"""The demo's sentences on toys whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from lvd.reproduction.demo_findings import (
    LocalBesideSplit,
    coverage_sentence,
    error_sentence,
    infinity_sentence,
    stretches,
    where,
    width_sentence,
)

X = np.arange(10.0)[:, None]
ERRORS = np.array([1.0, 1, 1, 1, 1, 5, 6, 7, 8, 9])
RADIUS = np.array([2.0, 2, 2, 2, 2, 8, 8, 8, np.inf, np.inf])
WORTH = np.array([30.0, 30, 30, 30, 30, 20, 20, 20, 8.5, 2.25])


def comparison(radius=RADIUS, similar_rows=WORTH):
    constant = np.full(10, 4.0)
    return LocalBesideSplit(
        confidence_level=0.9,
        X=X,
        feature_names=("x",),
        y=ERRORS,
        y_pred=np.zeros(10),
        local=np.stack([-radius, radius], axis=1),
        constant=np.stack([-constant, constant], axis=1),
        similar_rows=similar_rows,
    )


def test_coverage():
    assert coverage_sentence(comparison()) == (
        "At level 90% LVD covers 10 of 10 test rows and 100% of those in the tails of y; "
        "split conformal 5 and 50%."
    )


def test_width():
    assert width_sentence(comparison()) == (
        "Split conformal is 8 wide everywhere, LVD 4 to 16 where it is finite. "
        "LVD is narrower on 5 rows and more than a tenth wider on 3: at x from 5.00 to 7.00."
    )
    assert width_sentence(comparison(radius=np.full(10, np.inf))) == "Split conformal is 8 wide everywhere."
    assert width_sentence(comparison(radius=np.full(10, 4.0))).endswith(
        "narrower on 0 rows and more than a tenth wider on 0."
    )


def test_error():
    sentence = error_sentence(comparison())
    assert "in 100% of all cases" in sentence
    assert "the mean error is 1 where LVD is narrower than split conformal and 7 elsewhere" in sentence
    assert error_sentence(comparison(radius=np.full(10, 4.0))).endswith(
        "in 50% of all cases (50% is chance)."
    )


def test_infinity():
    assert infinity_sentence(comparison()) == (
        "LVD is infinite on 2 rows: at x from 8.00 to 9.00. "
        "A finite 90% interval needs calibration rows that count as 9 rows like the one asked about; "
        "for these they count as 2.2 to 8.5. "
        "Split conformal, no wider there than elsewhere, misses 2 of them."
    )
    none = comparison(radius=np.full(10, 3.0), similar_rows=np.full(10, 12.0))
    assert infinity_sentence(none).endswith(
        "for all test rows they count as 12 or more: no LVD interval is infinite."
    )


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ([], []),
        ([4], [(4.0, 4.0, 1)]),
        ([0, 1, 2, 6, 7, 9], [(0.0, 2.0, 3), (6.0, 7.0, 2), (9.0, 9.0, 1)]),
    ],
)
def test_stretches_follow_x_not_the_order_of_rows(chosen, expected, rng):
    order = rng.permutation(10)
    x = np.arange(10.0)[order]
    assert stretches(np.isin(x, chosen), x) == expected


def test_where_names_the_longest_stretches():
    mask = np.isin(np.arange(10), [0, 2, 3, 5, 7, 8, 9])
    assert where(mask, X, ("x",)) == (
        "mostly at x from 0.00 to 0.00 and from 2.00 to 3.00 and from 7.00 to 9.00"
    )
    assert where(np.ones(10, dtype=bool), X, ("x",)) == "everywhere"


def test_where_names_the_input_that_sets_rows_apart(rng):
    inputs = rng.normal(size=(10, 3))
    inputs[:, 1] = 7.0
    inputs[:, 2] = np.where(np.arange(10) < 4, 100.0, 200.0)
    assert where(np.arange(10) < 4, inputs, ("noise", "constant", "step")) == (
        "what sets them apart most is step, 100 on average against 200 in the others"
    )
