"""Distributing work over processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from types import FrameType
from typing import TypeVar

from lvd import InputError

A = TypeVar("A")
B = TypeVar("B")


def finish_jobs(
    work: Callable[[A], B], jobs: Iterable[A], workers: int, *, in_order: bool = False
) -> Iterator[B]:
    """Yield the result of `work` for each job, as they finish or in order; one worker means this process.

    Workers end when this process does, even if it is killed; when it is stopped, it does not wait for jobs.
    """
    if workers == 1:
        yield from map(work, jobs)
        return
    # Fresh interpreters: a forked one would inherit torch's threads in an undefined state.
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_end_with_parent, initargs=(os.getpid(),)
    ) as pool:
        try:
            futures = [pool.submit(work, job) for job in jobs]
            for future in futures if in_order else as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise InputError(
                "a worker process was killed, perhaps because memory ran out; finished runs are kept: "
                "start again with fewer workers"
            ) from None
        except (KeyboardInterrupt, SystemExit):
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
            raise


def _end_with_parent(parent: int) -> None:
    """End a worker whose parent was killed, and which would otherwise wait for work forever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    def end(number: int, frame: FrameType | None) -> None:
        # The exception removes partial files, for which a busy disk may need seconds; the pool would only store it
        # as the job's result.
        threading.Timer(5.0, os._exit, [128 + number]).start()
        sys.exit(128 + number)

    threading.Thread(target=watch, daemon=True).start()
    signal.signal(signal.SIGTERM, end)
