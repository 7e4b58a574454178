"""What long work is doing, for whoever wants to show it: a command line, a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def announce(stage: str) -> bool:
    """Say what begins now, to the listener if there is one; whether there is."""
    listener = _listener.get()
    if listener is not None:
        listener(stage)
    return listener is not None


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with every stage that begins in this block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
