"""Work spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def map_processes(function: Callable[[A], B], items: Iterable[A], workers: int) -> Iterator[B]:
    """What `function` gives for each item, in their order; with one worker in this process."""
    if workers == 1:
        yield from map(function, items)
        return
    # Fresh interpreters: a forked one would inherit torch's threads in an undefined state.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(function, items)
