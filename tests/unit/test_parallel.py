"""Chunks on threads, and torch's own number of threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from threadpoolctl import ThreadpoolController, threadpool_limits

import lvd
from lvd._parallel import (
    THREAD_PAIRS,
    chunk_slices,
    few_threads,
    in_chunks,
    run_in_turn,
    usable_threads,
    workers,
)


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    """On a machine of one processor too."""
    monkeypatch.setattr("lvd._parallel._processors", lambda process: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("n", "size", "expected"), [(0, 3, []), (2, 3, [2]), (6, 3, [3, 3]), (7, 3, [3, 3, 1])]
)
def test_slices_cover_the_range(n, size, expected):
    slices = chunk_slices(n, size)
    assert [len(range(n)[s]) for s in slices] == expected
    assert [i for s in slices for i in range(n)[s]] == list(range(n))


@pytest.mark.parametrize("n_threads", [None, 1, 3])
def test_results_come_in_order(n_threads):
    with workers(n_threads) as run:
        assert run(lambda chunk: chunk * chunk, range(20)) == run_in_turn(
            lambda chunk: chunk * chunk, range(20)
        )


def test_torch_is_single_threaded_inside_and_as_before_afterwards():
    with workers(2) as run:
        assert torch.get_num_threads() == 1
        assert set(run(lambda _: torch.get_num_threads(), range(4))) == {1}
    assert torch.get_num_threads() == 2


def test_several_threads_work():
    barrier = threading.Barrier(2, timeout=30)  # only two threads at once get past it
    with workers(2) as run:
        run(lambda _: barrier.wait(), range(2))


def test_an_error_in_a_chunk_is_raised():
    with pytest.raises(ZeroDivisionError), workers(2) as run:
        run(lambda chunk: 1 / chunk, [1, 0, 2])
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("n", "n_rows", "together", "sizes"),
    [
        (40, THREAD_PAIRS, 16, [32, 8]),
        (40, THREAD_PAIRS, 1, [20, 20]),
        (5, THREAD_PAIRS, 1, [3, 2]),
        (5, THREAD_PAIRS, 16, [5]),
        (1000, 100, 1, [1000]),
    ],
)
def test_queries_are_cut_for_threads_where_there_is_enough_to_do(n, n_rows, together, sizes):
    parts = []
    in_chunks(parts.append, n, n_rows, together)
    parts.sort(key=lambda part: part.start)
    assert [part.stop - part.start for part in parts] == sizes
    assert [i for part in parts for i in range(n)[part]] == list(range(n))


def openmp_threads():
    """What OpenMP is told in this thread: by torch, and by all libraries that are loaded."""
    controllers = ThreadpoolController().select(user_api="openmp").lib_controllers
    return {torch.get_num_threads(), *(one.num_threads for one in controllers)}


class Noting(RegressorMixin, BaseEstimator):
    """Notes the threads that it may use."""

    def __init__(self, noted=None):
        self.noted = noted

    def __sklearn_clone__(self):
        return Noting(self.noted)

    def fit(self, X, y):
        self.noted.append(openmp_threads())
        return self

    def predict(self, X):
        self.noted.append(openmp_threads())
        return X[:, 0]


class TestFewThreads:
    @pytest.mark.parametrize(
        ("shape", "n_threads"), [((100, 10), 1), ((13_000, 10), 1), ((14_000, 10), 2), ((10_000, 99), 2)]
    )
    def test_as_many_as_the_table_has_work_for(self, shape, n_threads):
        with threadpool_limits(2, user_api="openmp"):
            with few_threads(np.empty(shape)):
                assert openmp_threads() == {n_threads}
                assert usable_threads() == 2
                with few_threads(np.empty((3, 3))):
                    assert openmp_threads() == {1}
                assert openmp_threads() == {n_threads}
            assert openmp_threads() == {2}
        assert torch.get_num_threads() == 2

    @pytest.mark.parametrize("rows", [["CCO", "CN"], np.empty((2, 3, 8, 8))])
    def test_the_work_of_other_rows_is_not_known(self, rows):
        with few_threads(rows):
            assert torch.get_num_threads() == 2

    def test_no_more_than_the_user_allows(self):
        torch.set_num_threads(1)
        with few_threads(np.empty((14_000, 99))):
            assert openmp_threads() == {1}

    def test_chunks_run_beside_each_other_nevertheless(self):
        barrier = threading.Barrier(2, timeout=30)
        with few_threads(np.empty((9, 9))), workers() as run:
            run(lambda _: barrier.wait(), range(2))

    def test_an_error_leaves_nothing_behind(self):
        with pytest.raises(ZeroDivisionError), few_threads(np.empty((9, 9))):
            raise ZeroDivisionError
        assert torch.get_num_threads() == usable_threads() == 2

    @pytest.mark.parametrize("method", [lvd.LVDRegressor, lvd.MADSplitRegressor, lvd.JackknifePlusRegressor])
    def test_estimators_are_trained_within(self, method):
        X, noted = np.random.default_rng(0).normal(size=(60, 3)), []
        settings = {"cv": 4} if method is lvd.JackknifePlusRegressor else {}
        with threadpool_limits(2, user_api="openmp"):
            method(Noting(noted), random_state=0, **settings).fit(X, X[:, 0] + X[:, 1])
        assert noted
        assert all(threads == {1} for threads in noted)

    def test_trees_are_the_same(self, monkeypatch):
        X = np.random.default_rng(0).normal(size=(3000, 4))
        fitted = []
        for cells in (1, 2**30):
            monkeypatch.setattr("lvd._parallel.CELLS_A_THREAD", cells)
            fitted.append(lvd.TreesRegressor(random_state=0).fit(X, np.sin(3 * X[:, 0]) + X[:, 1] ** 2))
        np.testing.assert_array_equal(fitted[0].predict(X), fitted[1].predict(X))

    @pytest.mark.skipif(
        not hasattr(os, "sched_setaffinity"), reason="this system binds no process to processors"
    )
    def test_no_more_than_processors_that_the_process_is_bound_to(self):
        code = (
            "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
            "import torch; torch.set_num_threads(8)\n"
            "from lvd._parallel import usable_threads; print(usable_threads())"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout == "1\n"


INTERRUPTED = """
import signal, sys, threading, time
import torch
import lvd._parallel as parallel

signal.signal(signal.SIGINT, signal.default_int_handler)
parallel.PAIRS_AT_ONCE, n_threads = 1, int(sys.argv[1])
parallel._processors = torch.get_num_threads = lambda *_: n_threads
main, done, interrupted = threading.get_ident(), [], threading.Event()

def work(part):
    done.append(part)
    if threading.get_ident() == main:
        interrupted.set()
        signal.raise_signal(signal.SIGINT)
    else:
        interrupted.wait(30)
        time.sleep(0.01)  # the signal is heard meanwhile

try:
    parallel.in_chunks(work, 1_000_000, 1000)
except KeyboardInterrupt:
    assert {part.stop - part.start for part in done} == {parallel.LEAST_AT_ONCE}
    assert len(done) < 1_000_000 // parallel.LEAST_AT_ONCE // 2
    print("interrupted")
"""
"""In a process of its own: a worker of the tests may have another handler, and end with the signal."""


@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_interruption_stops_all_threads(n_threads):
    command = [sys.executable, "-c", INTERRUPTED, str(n_threads)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert found.stdout == "interrupted\n", found.stderr


LONG = """
import signal
import numpy as np, lvd
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
rng = np.random.default_rng(0)
kernel = lvd.MahalanobisKernel.from_components(np.eye(2), mean=np.zeros(2), scale=np.ones(2), device="cpu")
conformal = lvd.LocalConformal(kernel).conformalize(rng.normal(size=(90_000, 2)), rng.exponential(size=90_000))
queries = rng.normal(size=(3_000_000, 2))
conformal.radius(queries[:1])
print("begun", flush=True)
conformal.radius(queries)
"""


def test_long_compiled_loops_can_be_interrupted():
    """All of it takes minutes."""
    child = subprocess.Popen(
        [sys.executable, "-c", LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "begun\n"
    time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    try:
        _, error = child.communicate(timeout=90)
    finally:
        child.kill()
    assert error.splitlines()[-1] == "KeyboardInterrupt"
