"""One cell of the bench page: a contestant at one size, with times and peak memory, in a separate process."""

from __future__ import annotations

import ctypes
import gc
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from benchmarks.contestants import CONTESTANTS, Contestant, Floor
from benchmarks.timing import median_seconds, timed

T = TypeVar("T")
MOST_REPEATS, MOST_PASSES = 15, 3
WARM_UP = (10, 200)
"""Queries and rows of a first, unmeasured cell, which triggers lazy imports."""
PROC = Path("/proc/self")


class Request(NamedTuple):
    """Which cell to measure; calls are repeated within `budget` seconds."""

    name: str
    n: int
    m: int
    device: str
    budget: float


class Measured(NamedTuple):
    """Seconds of calibration, of the first prediction and of a later one; megabytes on top of the inputs."""

    calibrate_seconds: float
    first_seconds: float
    predict_seconds: float
    peak_mb: float


NOTHING = Measured(*4 * (float("nan"),))


def measure(request: Request) -> Measured:
    contestant = CONTESTANTS[request.name]
    if isinstance(contestant, Floor):
        return NOTHING._replace(predict_seconds=contestant.seconds(request.n, request.m, request.device))
    device = request.device
    points, scores, queries = case(contestant, request.n, request.m, device)

    def one_pass() -> tuple[float, float, Callable[[], object]]:
        calibrating, predict = timed(lambda: contestant.calibrate(points, scores), device)
        later = partial(predict, queries)
        return calibrating, timed(later, device)[0], later

    (*cold, later), peak = with_peak_memory(one_pass, device)
    passes, n_more = [cold], int(min(MOST_PASSES, request.budget / sum(cold)))
    if device == "cuda":  # the first call with a shape compiles
        passes, n_more = [], max(1, n_more)
    for _ in range(n_more):
        *seconds, later = one_pass()
        passes.append(seconds)
    calibrating, first = np.median(passes, axis=0).tolist()
    repeats = int(min(MOST_REPEATS, request.budget / first))
    # On a GPU the second prediction captures a graph: median_seconds excludes its first call.
    predicting = median_seconds(later, repeats, device) if repeats > 1 else timed(later, device)[0]
    return Measured(calibrating, first, predicting, peak)


def case(contestant: Contestant, n: int, m: int, device: str) -> tuple[Any, Any, Any]:
    """Calibration rows, their scores, and queries, the same in every run."""
    rng = np.random.default_rng(0)
    arrays = contestant.rows(m, rng), rng.exponential(size=m), contestant.rows(n, rng)
    return arrays if device == "cpu" else tuple(torch.as_tensor(array, device=device) for array in arrays)


def with_peak_memory(function: Callable[[], T], device: str) -> tuple[T, float]:
    """The result, and by how many megabytes memory peaked above its previous level.

    On a GPU this is what torch allocated; on the CPU the resident memory of the process on Linux, and nan
    elsewhere.
    """
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = function()
        return result, (torch.cuda.max_memory_allocated() - before) / 1e6
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # otherwise freed but retained memory would hide new allocations
    before = reset_peak()
    result = function()
    return result, (resident("VmHWM") - before) / 1e6


def reset_peak() -> float:
    """Reset the peak of resident memory to the current value, in bytes; nan where that is impossible."""
    try:
        (PROC / "clear_refs").write_text("5")
    except OSError:
        return float("nan")
    return resident("VmRSS")


def resident(field: str) -> float:
    """Bytes of resident memory under Linux's name for the figure; nan elsewhere."""
    try:
        lines = (PROC / "status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(
        (1024.0 * float(line.split()[1]) for line in lines if line.startswith(f"{field}:")), float("nan")
    )


def answer_requests(connection: Connection, threads: int) -> None:
    """The loop of a worker process: receives cells, returns measurements or an error text, until the end."""
    torch.set_num_threads(threads)
    warm: set[str] = set()
    connection.send("ready")
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            request = connection.recv()
            warnings.simplefilter("ignore")  # every time: packages install their own filters on import
            try:
                if request.name not in warm:
                    measure(request._replace(n=WARM_UP[0], m=WARM_UP[1], budget=0.0))
                    warm.add(request.name)
                reply: Measured | str = measure(request)
            except Exception as error:  # a failing contestant must not stop the others
                reply = f"{type(error).__name__}: {error}".splitlines()[0]
            connection.send(reply)
