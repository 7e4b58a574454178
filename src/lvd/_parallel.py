"""Work in chunks on a few threads, each of which runs its torch operations alone.

Torch's own threads on small blocks collapse when another job shares the cores, so the parallelism is over
chunks of rows, and inside a chunk every operation is single-threaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from typing import Any, TypeAlias

ChunkMap: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""``run(function, chunks)`` gives ``[function(chunk) for chunk in chunks]``."""


def chunk_slices(n: int, size: int) -> list[slice]:
    """Slices of at most `size` that cover ``range(n)``."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def run_in_turn(function: Callable[[Any], Any], chunks: Sequence[Any]) -> list[Any]:
    """One chunk after the other, in this thread."""
    return [function(chunk) for chunk in chunks]


@contextmanager
def workers(n_threads: int | None = None) -> Iterator[ChunkMap]:
    """Threads for chunks (default: as many as torch would use); torch itself is single-threaded meanwhile."""
    import torch  # here, since readers of tables take only the slices

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(
            n_threads or before, initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:

            def run(function: Callable[[Any], Any], chunks: Sequence[Any]) -> list[Any]:
                if len(chunks) == 1 or (n_threads or before) == 1:
                    return run_in_turn(function, chunks)
                # What the caller listens to, each thread tells it too.
                waiting = [pool.submit(copy_context().run, function, chunk) for chunk in chunks]
                return [one.result() for one in waiting]

            yield run
    finally:
        torch.set_num_threads(before)


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


def in_chunks(
    work: Callable[[slice], None], n_queries: int, n_rows: int, together: int = QUERIES_TOGETHER
) -> None:
    """Run `work` that releases the interpreter's lock on slices of the queries, multiples of so many `together`.

    It runs on threads where there is enough to do.
    """
    import torch

    n_threads = min(torch.get_num_threads(), 1 + n_queries * n_rows // THREAD_PAIRS)
    size = -(-n_queries // n_threads // together) * together
    if n_threads == 1 or size >= n_queries:
        work(slice(0, n_queries))
        return
    first, *others = chunk_slices(n_queries, size)
    waiting = [_threads_of(os.getpid()).submit(work, part) for part in others]
    work(first)
    for one in waiting:
        one.result()


@cache
def _threads_of(process: int) -> ThreadPoolExecutor:
    """Threads that are kept: new ones begin on the processor of their parent, and leave it milliseconds later.

    A forked process has none of its parent's.
    """
    return ThreadPoolExecutor(thread_name_prefix="lvd")
