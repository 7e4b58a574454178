"""Honest timing: warm up, repeat, take the median; and a busy machine on request."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def median_seconds(function: Callable[[], object], repeats: int = 7) -> float:
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """`count` other processes that never rest."""
    processes = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    time.sleep(0.5)
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def _spin() -> None:
    while True:
        pass
