"""A worker process that measures cells, and is killed if one takes too long."""

from __future__ import annotations

from multiprocessing import get_context

from benchmarks.cell import NOTHING, Measured, Request, answer_requests

START_SECONDS = 180.0


class Worker:
    """A fresh interpreter, started at the first request and again after being killed."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._process = None

    def ask(self, request: Request, stop_after: float) -> tuple[Measured, str]:
        """The measurement and an empty text, or nothing and the reason."""
        where = f"at {request.n:,} queries x {request.m:,} rows"
        try:
            if self._process is None:
                self._start()
            self._connection.send(request)
            if self._connection.poll(stop_after):
                reply = self._connection.recv()
                return (NOTHING, f"failed {where} ({reply})") if isinstance(reply, str) else (reply, "")
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            self.close()
            return NOTHING, f"its process ended {where} with exit code {code}"
        self.close()
        return NOTHING, f"stopped {where} after {stop_after:.0f} s"

    def close(self) -> None:
        """End the process; another request starts a new one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None

    def _start(self) -> None:
        # Fresh, not forked: a fork would inherit torch's threads, and memory it did not allocate. Not a daemon:
        # in daemons joblib, which crepes uses, is single-threaded. It ends when the connection closes.
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=answer_requests, args=(theirs, self._threads))
        self._process.start()
        theirs.close()
        if not self._connection.poll(START_SECONDS):
            self._process.kill()
            raise EOFError
        self._connection.recv()
