"""Work spread over processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def process_pool(workers: int) -> ProcessPoolExecutor:
    """Processes that end with this one, also when it is killed."""
    # Fresh interpreters: a forked one would inherit torch's threads in an undefined state.
    return ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_end_with_parent, initargs=(os.getpid(),)
    )


def map_processes(function: Callable[[A], B], items: Iterable[A], workers: int) -> Iterator[B]:
    """What `function` gives for each item, in their order; with one worker in this process."""
    if workers == 1:
        yield from map(function, items)
        return
    with process_pool(workers) as pool:
        yield from pool.map(function, items)


def _end_with_parent(parent: int) -> None:
    """A worker whose parent was killed would wait for work for ever; this ends it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
