"""Progress of long computations, for a command line or a notebook to show."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from threading import Timer
from typing import TypeAlias

STANDARD_OUTPUT = Path("-")
WRITTEN: list[Path] = []
"""The files this process has written so far, to list them if it fails later."""
FIRST_USE = "compiling for the first use, about ten seconds"
Progress: TypeAlias = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""``with progress(what, total) as advance`` announces work, and ``advance(n)`` says that n more are done."""
_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def silent(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Progress that is not shown."""
    yield lambda n_done: None


def announce(stage: str) -> bool:
    """Report to the listener that a stage begins; returns whether there is a listener."""
    listener = _listener.get()
    if listener is not None:
        listener(stage)
    return listener is not None


def announce_compiling() -> None:
    """Report that compiling begins: to the listener, else on a terminal."""
    if not announce(FIRST_USE) and sys.stderr.isatty():
        print(f"lvd: {FIRST_USE}", file=sys.stderr)


@contextmanager
def perhaps_compiling(seconds: float = 1.0) -> Iterator[None]:
    """Say that something is compiled where this block takes longer than what comes from a cache."""
    timer = Timer(seconds, copy_context().run, [announce_compiling])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def progress_bar(what: str, total: int, *, shown: bool = True) -> Iterator[Callable[[], None]]:
    """A bar on standard error, in a terminal only, that moves with each call."""
    if not shown or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with every stage that begins in this block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
