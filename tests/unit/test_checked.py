"""Compiled functions refuse arguments that do not fit, before their loops run."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import lvd
from lvd._validation import Checked
from lvd.engine import compiled
from lvd.models.trees import TreeEnsemble, compiled_sum

N, M, K, H = 3, 600, 2, 4
RNG = np.random.default_rng(0)
POINTS, ROWS, RATIOS, OWN = RNG.normal(size=(N, K)), RNG.normal(size=(M, K)), np.ones(M), np.ones(N)
DOUBLE = compiled.make_blocks(ROWS, None, RATIOS, RATIOS)
SINGLE = compiled.make_blocks(ROWS, np.zeros(K), RATIOS)
QUERIES = np.zeros((N, 10), np.float32)
LEVELS, LARGEST, RANKS, CERTAIN = (
    np.array([0.5, 0.9]),
    np.ones(2),
    np.zeros((N, 2), np.int64),
    np.zeros(N, bool),
)
VALUES = compiled.in_blocks([RATIOS], DOUBLE)
TARGETS = compiled.in_blocks([RATIOS], SINGLE)[0].astype(np.float32)
NUMBERS = np.array([0, 1, M])
BELOW = np.arange(M + 1)
TREES = TreeEnsemble(
    0.5,
    *(
        np.array([0]),
        np.array([0, 1, 0, 0, 0]),
        np.zeros(5),
        np.array([1, 3, 0, 0, 0]),
        np.array([2, 4, 0, 0, 0]),
    ),
    *(np.zeros(5, bool), np.array([False, False, True, True, True]), np.arange(5.0)),
    *(np.array([-1, 0, -1, -1, -1]), np.array([[True, False]])),
)


def result(*shape, dtype=np.float64):
    return np.zeros(shape, dtype)


CALLS = {
    "project": lambda: [RNG.normal(size=(N, H)), np.zeros(H), np.ones((K, H)), result(N, K)],
    "sums_over_blocks": lambda: [POINTS, OWN, DOUBLE, VALUES, result(N, 1)],
    "add_neighbors": lambda: [QUERIES, NUMBERS, SINGLE, TARGETS, result(2, N)],
    "add_pulls": lambda: [
        *(QUERIES, NUMBERS, SINGLE, TARGETS, OWN.astype(np.float32), OWN.astype(np.float32)),
        *(result(N, K), np.zeros_like(SINGLE.points)),
    ],
    "smallest_bandwidths": lambda: [POINTS, SINGLE, np.ones(5), 3.0, np.linspace(1.0, 2.0, 5), result(N)],
    "sums_below": lambda: [POINTS, OWN, DOUBLE, RATIOS, NUMBERS, result(N), result(N)],
    "find_calibrated_ranks": lambda: [
        *(
            POINTS,
            OWN,
            OWN,
            DOUBLE,
            DOUBLE,
            RATIOS,
            RATIOS,
            RATIOS,
            BELOW,
            LEVELS,
            result(N, 2, dtype=np.int64),
        ),
    ],
    "find_ranks": lambda: [
        *(POINTS, OWN, OWN, OWN, DOUBLE, LARGEST, LEVELS, VALUES, result(N, 2, dtype=np.int64)),
        *(result(N, dtype=bool), result(N, 3)),
    ],
    "find_ranks_among_few": lambda: [
        *(
            POINTS,
            OWN,
            OWN,
            OWN,
            SINGLE,
            LARGEST,
            LEVELS,
            result(N, 2, dtype=np.int64),
            result(N, dtype=bool),
        ),
    ],
    "sum_leaves": lambda: [RNG.normal(size=(N, 2)), 0.5, TREES._arrays, result(N)],
}
FUNCTIONS = {
    **{name: function for name, function in vars(compiled).items() if isinstance(function, Checked)},
    "sum_leaves": compiled_sum(),
}


def test_every_function_that_is_called_from_python_is_checked():
    assert FUNCTIONS.keys() == CALLS.keys()
    parts = {name: one for name, one in vars(compiled).items() if isinstance(one, Dispatcher)}
    assert all(one.targetoptions.get("inline") == "always" for one in parts.values())


def damaged(argument):
    """The argument one row or column too long or too short, of another type, and spread out in memory."""
    for dim in range(argument.ndim):
        yield argument.take(range(argument.shape[dim] - 1), dim)
        yield np.concatenate([argument, argument.take([0], dim)], dim)
    other = {"float64": np.float32, "float32": np.float64, "int64": np.int32, "bool": np.int64}
    yield argument.astype(other[str(argument.dtype)])
    if argument.dtype != bool:
        yield argument.astype(argument.dtype.newbyteorder())
    yield argument[None]
    yield argument.tolist()
    if argument.size > 1:
        yield np.repeat(argument, 2, axis=-1)[..., ::2]


def cases(arguments):
    """Each call with one thing that is wrong."""
    for number, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            others = damaged(argument)
        elif isinstance(argument, compiled.Blocks):
            arrays = [
                argument._replace(**{name: one})
                for name in ("points", "ratios", "precisions", "centre")
                if len(getattr(argument, name))
                for one in damaged(getattr(argument, name))
            ]
            counts = [argument._replace(n_rows=count) for count in (0, -1, 10**9, 1.0)]
            others = [*arrays, *counts, tuple(argument)]
        elif isinstance(argument, tuple):
            others = [
                (*argument[:place], one, *argument[place + 1 :])
                for place, array in enumerate(argument)
                for one in damaged(array)
            ]
            others.append(argument[:-1])
        else:
            others = [1, None, np.ones(1)]
        for other in others:
            yield [*arguments[:number], other, *arguments[number + 1 :]]


def fits(name, arguments):
    """Whether what is another number of rows or columns here is none that loops depend on."""
    if name == "sum_leaves":  # more columns than trees ask for, more trees, more or fewer categories
        rows, _, trees, _ = arguments
        roots, lefts = np.shape(trees[0]), np.shape(trees[-1])
        return np.shape(rows) == (N, 3) or roots == (2,) or lefts in {(1, 1), (1, 3), (2, 2)}
    if name == "add_neighbors":  # which takes no centre off
        blocks = arguments[2]
        return isinstance(blocks, compiled.Blocks) and np.shape(blocks.centre) in {(K - 1,), (K + 1,)}
    return name == "find_ranks" and np.shape(arguments[7])[:1] == (0,)  # values, which may be none


@pytest.mark.parametrize("name", CALLS)
def test_what_does_not_fit_is_refused(name):
    function, arguments = FUNCTIONS[name], CALLS[name]()
    function(*arguments)
    for changed in cases(arguments):
        if fits(name, changed):
            function(*changed)
            continue
        with pytest.raises(lvd.InputError, match=f"of the compiled {name} must be|trees refer to"):
            function(*changed)


@pytest.mark.parametrize("numbers", [[0, 1, M + 1], [0, -1, 1]])
def test_numbers_of_rows_that_there_are_not(numbers):
    arguments = CALLS["sums_below"]()
    arguments[4] = np.array(numbers)
    with pytest.raises(lvd.InputError, match=r"n_below of the compiled sums_below must be int64 n ..m"):
        compiled.sums_below(*arguments)


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 5), (0, -1), (1, 2), (1, -1), (3, 0), (3, 5), (3, -1), (4, 1), (4, 99), (8, 1)],
)
def test_trees_that_lead_nowhere(place, value):
    """Roots, features, children and cuts out of bounds; a child before its parent makes a circle."""
    arrays = [array.copy() for array in TREES._arrays]
    arrays[place][1 if place else 0] = value
    with pytest.raises(lvd.InputError, match="trees refer to nodes, columns or categories"):
        compiled_sum()(np.zeros((N, 2)), 0.5, tuple(arrays), np.zeros(N))


@pytest.mark.parametrize(("level", "side"), [(0.0, 3.0), (1.0, 4.0), (7.0, 4.0), (-5.0, 4.0), (np.nan, 4.0)])
def test_categories_that_trees_do_not_know_go_where_missing_ones_go(level, side):
    assert TREES.predict(np.array([[-1.0, level]])) == 0.5 + side


def test_without_a_compiler_one_sentence():
    code = "import lvd, numpy as np; X = np.ones((9, 2)); X[0] = 0; lvd.MahalanobisKernel(1).fit(X, X[:, 0])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = "lvd's loops must be compiled, but NUMBA_DISABLE_JIT is set; unset it and start Python again"
    assert done.stderr.splitlines()[-1] == f"lvd._validation.InputError: {said}"
