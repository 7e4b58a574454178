"""The floor of a machine: its rates of exponentials and of copying, and the minimal times they imply."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import no_type_check

import numpy as np
import torch

from benchmarks.timing import timed
from lvd._parallel import workers

IN_CACHE, ROUNDS = 2**12, 4000
"""Numbers that fit in a processor's own cache, and how often they are exponentiated in one timing."""
COPIED_BYTES = {"cpu": 2**28, "cuda": 2**30}
"""Far more than any cache holds."""
TRIALS = 5
NUMBER_BYTES = 8
"""Coordinates and radii are float64."""


def exponentials(n: int, m: int, device: str) -> float:
    """Seconds of one float32 exponential for each of n queries and m rows."""
    return n * m / exponentials_per_second(device)


def copying(n: int, m: int, device: str, *, k: int, n_levels: int) -> float:
    """Seconds to read queries, calibration rows and scores once and to write the radii once."""
    return NUMBER_BYTES * ((n + m) * k + m + n * n_levels) / bytes_per_second(device)


@cache
def exponentials_per_second(device: str) -> float:
    """On a GPU exp2 of numbers in registers; on the CPU the engine's own, of cached numbers, on all threads.

    The engine's exponential is several times as fast as torch's.
    """
    if device == "cuda":
        from benchmarks import gpu

        return gpu.exponentials_per_second()
    threads, work = torch.get_num_threads(), _compiled_exponentials()
    buffers = [torch.rand(IN_CACHE).numpy() for _ in range(threads)]
    with workers(threads) as run:
        return threads * ROUNDS * IN_CACHE / _least_seconds(lambda: run(work, buffers), device)


def _compiled_exponentials() -> Callable[[np.ndarray], None]:
    """``x = 2^-x`` for all numbers of an array, many times."""
    from numba import njit

    from lvd.engine.compiled import FAST, exp2_minus

    @njit(nogil=True, fastmath=FAST)
    @no_type_check
    def work(numbers):
        for _ in range(ROUNDS):
            for j in range(len(numbers)):
                numbers[j] = exp2_minus(numbers[j])

    return work


@cache
def bytes_per_second(device: str) -> float:
    """Bytes read plus bytes written when memory is copied."""
    source = torch.zeros(COPIED_BYTES[device] // 4, device=device)
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES[device] / _least_seconds(lambda: target.copy_(source), device)


def _least_seconds(function: Callable[[], object], device: str) -> float:
    function()
    return min(timed(function, device)[0] for _ in range(TRIALS))
