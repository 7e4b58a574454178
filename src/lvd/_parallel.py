"""Work in chunks on a few threads, each of which runs single-threaded torch operations.

Torch's thread pool becomes very slow on small blocks when another job shares the cores, so we parallelise over
chunks of rows. OpenMP's pool, which scikit-learn's boosted trees use, does the same: while one thread waits for
a processor, the others spin. Training therefore runs inside `few_threads`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from threading import Event
from typing import Any, NamedTuple, TypeAlias

ChunkMap: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""``run(function, chunks)`` gives ``[function(chunk) for chunk in chunks]``."""
JobMap: TypeAlias = Callable[["Jobs"], list[Any]]
"""``run(jobs)`` gives ``[jobs.function(item) for item in jobs.items]``."""


CELLS_A_THREAD = 2**17
"""Training uses one more thread for every this many cells of the table."""
Limit: TypeAlias = Callable[[int], AbstractContextManager[Any]]
"""``with limit(n)`` limits OpenMP to n threads."""
_OUTSIDE: ContextVar[tuple[int, Limit] | None] = ContextVar("threads outside of few_threads", default=None)
_ENGINE: ContextVar[JobMap | None] = ContextVar("what trains independent models", default=None)


def usable_threads() -> int:
    """The number of threads torch would use, but at most the number of processors this process may use."""
    import torch  # not at the top: reading tables needs only the slices

    outside = _OUTSIDE.get()
    return outside[0] if outside is not None else min(torch.get_num_threads(), _processors(os.getpid()))


@cache
def _processors(process: int) -> int:
    """The processors that the process may use, by its affinity and its container's quota."""
    from joblib import cpu_count

    return int(cpu_count())


@contextmanager
def few_threads(X: Any) -> Iterator[None]:
    """Limit OpenMP and torch to one thread for a small table `X`, and to a few for a larger one.

    `workers` and `in_chunks` still use all `usable_threads`, as their chunks do not wait for each other.
    """
    import torch

    outside = _OUTSIDE.get() or (usable_threads(), _openmp_limit())
    shape = getattr(X, "shape", None) or (len(X),)
    cells = math.prod(shape) if len(shape) == 2 else math.inf  # images are a lot of work
    n_threads, before = int(min(usable_threads(), 1 + cells // CELLS_A_THREAD)), torch.get_num_threads()
    token = _OUTSIDE.set(outside)
    try:
        with outside[1](n_threads):
            torch.set_num_threads(n_threads)
            yield
    finally:
        _OUTSIDE.reset(token)
        torch.set_num_threads(before)


def _openmp_limit(most: int | None = None) -> Limit:
    """A limit on the OpenMP libraries that are loaded now; never more than `most` threads."""
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController().select(user_api="openmp")
    return lambda n_threads: controller.limit(limits=n_threads if most is None else min(n_threads, most))


def chunk_slices(n: int, size: int) -> list[slice]:
    """Slices of at most `size` that cover ``range(n)``."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def run_in_turn(function: Callable[[Any], Any], chunks: Sequence[Any]) -> list[Any]:
    """Run the chunks one after the other, in this thread."""
    return [function(chunk) for chunk in chunks]


@contextmanager
def workers(n_threads: int | None = None) -> Iterator[ChunkMap]:
    """Threads for chunks (default: all usable ones); torch itself is single-threaded in the block."""
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
                # The threads report to the caller's listener.
                waiting = [pool.submit(copy_context().run, function, chunk) for chunk in chunks]
                try:
                    return [one.result() for one in waiting]
                finally:  # do not wait for the rest after an error or an interrupt
                    for one in waiting:
                        one.cancel()

            yield run
    finally:
        torch.set_num_threads(before)


class Jobs(NamedTuple):
    """Independent training jobs: `function` is called with each item.

    The function returns everything it learns and has no side effects, because it may run in another process. In
    this process, `begins` is called with each item before its job, and `ended` after it.
    """

    function: Callable[[Any], Any]
    items: Sequence[Any]
    begins: Callable[[Any], object] = lambda item: None
    ended: Callable[[], object] = lambda: None

    def run_one(self, item: Any) -> Any:
        """The result for one item, computed in this thread."""
        self.begins(item)
        answer = self.function(item)
        self.ended()
        return answer


def at_once(jobs: Jobs, n_jobs: int | None, X: Any) -> list[Any]:
    """Run jobs that train on the table `X`, `n_jobs` at a time on threads, or on the engine in use."""
    engine = _ENGINE.get()
    if engine is not None and len(jobs.items) > 1:
        return engine(jobs)
    if n_jobs is None or min(n_jobs, len(jobs.items)) < 2:
        return run_in_turn(jobs.run_one, jobs.items)

    def alone(item: Any) -> Any:
        with few_threads(X):  # in each thread, as OpenMP's limits are per thread
            return jobs.run_one(item)

    with workers(min(n_jobs, len(jobs.items))) as run:
        return run(alone, jobs.items)


@contextmanager
def training_by(engine: JobMap) -> Iterator[None]:
    """Run the jobs of `at_once` on `engine` in this block."""
    token = _ENGINE.set(engine)
    try:
        yield
    finally:
        _ENGINE.reset(token)


class Threads(NamedTuple):
    """The thread counts of a job, which affect the rounding of torch and BLAS."""

    usable: int
    torch: int
    blas: int

    @classmethod
    def here(cls) -> Threads:
        """The counts in this thread."""
        import torch
        from threadpoolctl import ThreadpoolController

        libraries = ThreadpoolController().select(user_api="blas").info()
        blas = max((one["num_threads"] for one in libraries), default=1)
        return cls(usable_threads(), torch.get_num_threads(), blas)

    def take(self, most_openmp: int) -> None:
        """Set these counts for this process, and OpenMP's to `most_openmp`, which does not affect results."""
        import sklearn.ensemble  # noqa: F401  (limits are for libraries that are loaded)
        import torch
        from threadpoolctl import threadpool_limits

        threadpool_limits({"blas": self.blas, "openmp": most_openmp})
        torch.set_num_threads(self.torch)
        _OUTSIDE.set((self.usable, _openmp_limit(most_openmp)))


WEIGHTS_AT_ONCE = 2**21
"""About as many weights as fit into the processor's caches."""


def map_queries(
    work: Callable[[slice], Any], n_queries: int, n_rows: int, weights_at_once: int | None = None
) -> list[Any]:
    """Map `work` over slices of the queries on threads; each slice has about `weights_at_once` weights."""
    most = WEIGHTS_AT_ONCE if weights_at_once is None else weights_at_once
    with workers() as run:
        return run(work, chunk_slices(n_queries, max(1, most // max(1, n_rows))))


THREAD_PAIRS = 2**18
"""Another thread pays off from this many pairs of a query and a row; with fewer, threads wait for each other."""
QUERIES_TOGETHER = 16
PAIRS_AT_ONCE, LEAST_AT_ONCE = 2**27, 128
"""A thread checks for Ctrl-C after about this many pairs, a fraction of a second, but only after multiples of this
many queries, which compiled code processes together."""


def in_chunks(
    work: Callable[[slice], None], n_queries: int, n_rows: int, together: int = QUERIES_TOGETHER
) -> None:
    """Run `work`, which releases the interpreter lock, on slices of the queries; their sizes are multiples of
    `together`.

    It uses threads if there is enough work, and can be interrupted.
    """
    at_once = max(1, PAIRS_AT_ONCE // max(1, n_rows) // LEAST_AT_ONCE) * LEAST_AT_ONCE
    if n_queries <= at_once and n_queries * n_rows < THREAD_PAIRS:
        work(slice(0, n_queries))  # for a single row, even counting the threads would take longer
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
    """A persistent pool: new threads start on their parent's processor and take milliseconds to move to another.

    It is cached for each process, because a forked process does not inherit threads.
    """
    return ThreadPoolExecutor(thread_name_prefix="lvd")
