"""One cell of the bench page: a contestant at one size, its times and its peak memory, in a process of its own."""

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
"""Queries and rows of a first, unmeasured cell: it loads what loads when used."""
PROC = Path("/proc/self")


class Request(NamedTuple):
    """Which cell; what can be repeated within `budget` seconds is."""

    name: str
    n: int
    m: int
    device: str
    budget: float


class Measured(NamedTuple):
    """Seconds of calibrating, of the first prediction after it and of a later one; megabytes beside the inputs."""

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
    if device == "cuda":  # the first pass of a shape compiles
        passes, n_more = [], max(1, n_more)
    for _ in range(n_more):
        *seconds, later = one_pass()
        passes.append(seconds)
    calibrating, first = np.median(passes, axis=0).tolist()
    repeats = int(min(MOST_REPEATS, request.budget / first))
    # On a GPU the second prediction captures a graph: median_seconds leaves its first call out.
    predicting = median_seconds(later, repeats, device) if repeats > 1 else timed(later, device)[0]
    return Measured(calibrating, first, predicting, peak)


def case(contestant: Contestant, n: int, m: int, device: str) -> tuple[Any, Any, Any]:
    """Calibration rows, their scores, and queries, the same in every run."""
    rng = np.random.default_rng(0)
    arrays = contestant.rows(m, rng), rng.exponential(size=m), contestant.rows(n, rng)
    return arrays if device == "cpu" else tuple(torch.as_tensor(array, device=device) for array in arrays)


def with_peak_memory(function: Callable[[], T], device: str) -> tuple[T, float]:
    """The result, and by how many megabytes memory rose above what was held before.

    On a GPU that is what torch allocated; on the CPU the resident memory of the process, as Linux counts it, and
    nan elsewhere.
    """
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = function()
        return result, (torch.cuda.max_memory_allocated() - before) / 1e6
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # else memory that was freed, but kept, would hide what is taken
    before = reset_peak()
    result = function()
    return result, (resident("VmHWM") - before) / 1e6


def reset_peak() -> float:
    """Make the peak of resident memory what there is now, in bytes; nan where that cannot be done."""
    try:
        (PROC / "clear_refs").write_text("5")
    except OSError:
        return float("nan")
    return resident("VmRSS")


def resident(field: str) -> float:
    """Bytes of resident memory by Linux's name of the figure; nan elsewhere."""
    try:
        lines = (PROC / "status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(
        (1024.0 * float(line.split()[1]) for line in lines if line.startswith(f"{field}:")), float("nan")
    )


def answer_requests(connection: Connection, threads: int) -> None:
    """The life of a worker process: cells in, what was measured or the text of an error out, until the end."""
    torch.set_num_threads(threads)
    warm: set[str] = set()
    connection.send("ready")
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            request = connection.recv()
            warnings.simplefilter("ignore")  # each time: packages set filters of their own when they load
            try:
                if request.name not in warm:
                    measure(request._replace(n=WARM_UP[0], m=WARM_UP[1], budget=0.0))
                    warm.add(request.name)
                reply: Measured | str = measure(request)
            except Exception as error:  # one contestant that fails must not take the others with it
                reply = f"{type(error).__name__}: {error}".splitlines()[0]
            connection.send(reply)
