"""Work in chunks on a few threads, each of which runs its torch operations alone.

Torch's own threads on small blocks collapse when another job shares the cores, so the parallelism is over
chunks of rows, and inside a chunk every operation is single-threaded. So do OpenMP's, of scikit-learn's boosted
trees for instance: while one waits for a processor, the others spin. What trains does so within `few_threads`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from threading import Event
from typing import Any, TypeAlias

ChunkMap: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""``run(function, chunks)`` gives ``[function(chunk) for chunk in chunks]``."""


CELLS_A_THREAD = 2**17
"""A thread of its own pays for this many numbers of a table to train on."""
_OUTSIDE: ContextVar[tuple[int, Any] | None] = ContextVar("threads outside of few_threads", default=None)


def usable_threads() -> int:
    """As many threads as torch would use, but no more than this process may use processors."""
    import torch  # here, since readers of tables take only the slices

    outside = _OUTSIDE.get()
    return min(torch.get_num_threads() if outside is None else outside[0], _processors(os.getpid()))


@cache
def _processors(process: int) -> int:
    """The processors that the process is bound to, or fewer where its container's quota is less."""
    from joblib import cpu_count

    return int(cpu_count())


@contextmanager
def few_threads(X: Any) -> Iterator[None]:
    """Within, OpenMP and torch use one thread for a small table `X`, and a few for a larger one, in this thread.

    The chunks of `workers` and `in_chunks` may have `usable_threads` nevertheless: they do not wait for each other.
    """
    import torch
    from threadpoolctl import ThreadpoolController

    outside = _OUTSIDE.get() or (usable_threads(), ThreadpoolController().select(user_api="openmp"))
    shape = getattr(X, "shape", None) or (len(X),)
    cells = math.prod(shape) if len(shape) == 2 else math.inf  # of images and the like a row is much work
    n_threads, before = int(min(usable_threads(), 1 + cells // CELLS_A_THREAD)), torch.get_num_threads()
    token = _OUTSIDE.set(outside)
    try:
        with outside[1].limit(limits=n_threads):
            torch.set_num_threads(n_threads)
            yield
    finally:
        _OUTSIDE.reset(token)
        torch.set_num_threads(before)


def chunk_slices(n: int, size: int) -> list[slice]:
    """Slices of at most `size` that cover ``range(n)``."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def run_in_turn(function: Callable[[Any], Any], chunks: Sequence[Any]) -> list[Any]:
    """One chunk after the other, in this thread."""
    return [function(chunk) for chunk in chunks]


@contextmanager
def workers(n_threads: int | None = None) -> Iterator[ChunkMap]:
    """Threads for chunks (default: the usable ones); torch itself is single-threaded meanwhile."""
    import torch

    n_threads, before = n_threads or usable_threads(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if n_threads == 1:
            yield run_in_turn
            return
        with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:

            def run(function: Callable[[Any], Any], chunks: Sequence[Any]) -> list[Any]:
                if len(chunks) == 1:
                    return run_in_turn(function, chunks)
                # What the caller listens to, each thread tells it too.
                waiting = [pool.submit(copy_context().run, function, chunk) for chunk in chunks]
                try:
                    return [one.result() for one in waiting]
                finally:  # after an error or an interruption nobody waits for the rest
                    for one in waiting:
                        one.cancel()

            yield run
    finally:
        torch.set_num_threads(before)


def at_once(function: Callable[[Any], Any], items: Sequence[Any], n_jobs: int | None, X: Any) -> list[Any]:
    """The function of each item, `n_jobs` of them at the same time, for what trains on the table `X`."""
    if n_jobs is None or min(n_jobs, len(items)) < 2:
        return run_in_turn(function, items)

    def alone(item: Any) -> Any:
        with few_threads(X):  # in each of the threads, as they do not share what OpenMP is told
            return function(item)

    with workers(min(n_jobs, len(items))) as run:
        return run(alone, items)


WEIGHTS_AT_ONCE = 2**21
"""So many weights of queries and rows fit into caches."""


def map_queries(
    work: Callable[[slice], Any], n_queries: int, n_rows: int, weights_at_once: int | None = None
) -> list[Any]:
    """What `work` gives for slices of the queries, on threads, each slice with so many weights of the rows."""
    most = WEIGHTS_AT_ONCE if weights_at_once is None else weights_at_once
    with workers() as run:
        return run(work, chunk_slices(n_queries, max(1, most // max(1, n_rows))))


THREAD_PAIRS = 2**18
"""A thread of its own pays for this many pairs of a query and a row; with fewer, threads wait for each other."""
QUERIES_TOGETHER = 16
PAIRS_AT_ONCE, LEAST_AT_ONCE = 2**27, 128
"""After about so many pairs, a fraction of a second, a thread looks whether it should stop, and Python whether it
has been interrupted; not after fewer queries than the second, which compiled code holds against rows together."""


def in_chunks(
    work: Callable[[slice], None], n_queries: int, n_rows: int, together: int = QUERIES_TOGETHER
) -> None:
    """Run `work` that releases the interpreter's lock on slices of the queries, multiples of so many `together`.

    It runs on threads where there is enough to do, and can be interrupted.
    """
    at_once = max(1, PAIRS_AT_ONCE // max(1, n_rows) // LEAST_AT_ONCE) * LEAST_AT_ONCE
    if n_queries <= at_once and n_queries * n_rows < THREAD_PAIRS:
        work(slice(0, n_queries))  # a single row is answered in less time than threads are asked about
        return
    stop = Event()

    def go_on(part: slice) -> None:
        for start in range(part.start, part.stop, at_once):
            if not stop.is_set():
                work(slice(start, min(start + at_once, part.stop)))

    n_threads = min(usable_threads(), 1 + n_queries * n_rows // THREAD_PAIRS)
    size = -(-n_queries // n_threads // together) * together
    if n_threads == 1 or size >= n_queries:
        go_on(slice(0, n_queries))
        return
    first, *others = chunk_slices(n_queries, size)
    waiting = [_threads_of(os.getpid()).submit(go_on, part) for part in others]
    try:
        go_on(first)
        for one in waiting:
            one.result()
    except BaseException:
        stop.set()
        raise


@cache
def _threads_of(process: int) -> ThreadPoolExecutor:
    """Threads that are kept: new ones begin on the processor of their parent, and leave it milliseconds later.

    A forked process has none of its parent's.
    """
    return ThreadPoolExecutor(thread_name_prefix="lvd")
