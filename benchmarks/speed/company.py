"""The engine from many Python threads, after a fork, next to a busy neighbour, and in a fresh process."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch

from benchmarks.speed.cases import LEVELS, NEAR, Case, race
from benchmarks.speed.figures import Recorder
from benchmarks.timing import timed

N_THREADS, LONGEST_FORK = 8, 30.0
FIRST_CALL = """
import time
from benchmarks.speed.cases import LEVELS, NEAR, Case
case = Case.of(100, 1000, NEAR, {device!r})
conformal = case.conformal()
for _ in range(2):
    start = time.perf_counter()
    conformal.radius(case.queries, LEVELS)
    {synchronise}
    print(time.perf_counter() - start)
"""


def in_company(record: Recorder, n: int, m: int, seconds: float) -> None:
    """Times of the same call, and how many of its radii equal those of the call on its own."""
    case = Case.of(n, m, NEAR)
    conformal = case.conformal()

    def call() -> np.ndarray:
        return conformal.radius(case.queries, LEVELS)

    alone = call()

    def note(who: str, taken: float, *found: np.ndarray) -> None:
        equal = sum(int((one == alone).sum()) for one in found)
        checked = sum(one.size for one in found)
        record.note("company", who, **case.size, seconds=taken, equal=equal, checked=checked)

    note("by itself", race({"": call}, seconds)[""], call())
    with ThreadPoolExecutor(N_THREADS) as pool:

        def at_once() -> list[np.ndarray]:
            return list(pool.map(lambda _: call(), range(N_THREADS)))

        taken = race({"": at_once}, seconds)[""]
        note(f"from {N_THREADS} Python threads at once, all of them", taken, *at_once())
    note("after os.fork, in the child", *_after_fork(call))
    with busy_neighbours(torch.get_num_threads()):
        note("beside a busy neighbour on every thread", race({"": call}, seconds)[""], call())


def _after_fork(call: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """Seconds of the call in a forked child, and its result; infinite and empty if it did not return."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            taken, found = timed(call)
            os.write(writing, np.append(found.ravel(), taken).tobytes())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        if not select.select([pipe], [], [], LONGEST_FORK)[0]:
            os.kill(child, signal.SIGKILL)
        answer = np.frombuffer(pipe.read())
    os.waitpid(child, 0)
    if not len(answer):
        return float("inf"), np.empty((0, len(LEVELS)))
    return float(answer[-1]), answer[:-1].reshape(-1, len(LEVELS))


@contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Start `count` other processes that are always busy."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    time.sleep(0.5)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def first_use(record: Recorder, device: str) -> None:
    """The first call of a fresh process that compiles, and of one that finds compiled code in the cache."""
    with tempfile.TemporaryDirectory() as cache:
        places = {"NUMBA_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache}
        wait = "import torch; torch.cuda.synchronize()" if device == "cuda" else "pass"
        code = FIRST_CALL.format(device=device, synchronise=wait)
        for who in ("compiling", "from the cache"):
            answer = subprocess.run(
                [sys.executable, "-c", code],
                env=os.environ | places,
                capture_output=True,
                text=True,
                check=True,
            )
            first, second = map(float, answer.stdout.split())
            record.note("first use", who, queries=100, rows=1000, first_seconds=first, seconds=second)
