"""Requests that wait while the model is busy, and are answered together afterwards."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from lvd.serve.answers import Outcome, Reply, failure_of
from lvd.serve.bodies import Asked
from lvd.serve.refusals import RefusedError

MOST_TOGETHER = 64
"""The most requests that share a model call."""


class Lane:
    """A queue with one worker thread: requests that arrive while it works go into the next batch."""

    def __init__(
        self, work: Callable[[Sequence[Asked]], list[Outcome]], most_waiting: int, together: int
    ) -> None:
        self._work, self._most_waiting, self._together = work, most_waiting, together
        self._waiting: deque[tuple[Asked, asyncio.Future[Outcome]]] = deque()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lvd-serve")
        self._busy = False

    async def ask(self, asked: Asked) -> Reply:
        """Wait for the answer; a refusal is raised."""
        if len(self._waiting) >= self._most_waiting:
            raise RefusedError(
                *(503, f"{len(self._waiting)} requests are already waiting", "server"),
                "try again in a moment, or start more servers",
            )
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        self._begin()
        outcome = await future
        if isinstance(outcome, RefusedError):
            raise outcome
        return outcome

    def close(self) -> None:
        """Finish the requests in progress."""
        self._pool.shutdown()

    def _begin(self) -> None:
        if self._busy:
            return
        batch: list[tuple[Asked, asyncio.Future[Outcome]]] = []
        while self._waiting and len(batch) < self._together:
            one = self._waiting.popleft()
            if not one[1].done():  # the client has given up
                batch.append(one)
        if not batch:
            return
        self._busy = True
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._pool, self._work, [asked for asked, _ in batch])
        work.add_done_callback(lambda done: self._end(batch, done))

    def _end(
        self, batch: Sequence[tuple[Asked, asyncio.Future[Outcome]]], done: asyncio.Future[list[Outcome]]
    ) -> None:
        self._busy = False
        error = done.exception()
        outcomes = done.result() if error is None else [failure_of(error)] * len(batch)
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if not future.done():
                future.set_result(outcome)
        self._begin()
