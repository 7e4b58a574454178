"""Chunks on threads, and torch's own number of threads."""

from __future__ import annotations

import threading

import pytest
import torch

from lvd._parallel import THREAD_PAIRS, chunk_slices, in_chunks, run_in_turn, workers


@pytest.fixture(autouse=True)
def two_threads():
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
