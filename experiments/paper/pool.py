"""Work spread over processes."""

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
    """What `work` gives for each job, as they end or in their order; with one worker in this process.

    Processes end when this one does, even if it is killed; when it is stopped, it waits for no job.
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
    """A worker whose parent was killed would wait for work for ever; this ends it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    def end(number: int, frame: FrameType | None) -> None:
        # The exception removes what is half written, and would only be the result of this job to the pool.
        threading.Timer(0.5, os._exit, [128 + number]).start()
        sys.exit(128 + number)

    threading.Thread(target=watch, daemon=True).start()
    signal.signal(signal.SIGTERM, end)
