"""Progress of long computations, for a command line or a notebook to show."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import TypeAlias

STANDARD_OUTPUT = Path("-")
WRITTEN: list[Path] = []
"""The files this process has written so far, to list them if it fails later."""
FIRST_USE = "compiling for the first use, about ten seconds"
Progress: TypeAlias = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""``with progress(what, total) as advance`` announces work, and ``advance(n)`` says that n more are done."""
_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


PART = re.compile(r"(\d+) of (\d+)$")
"""A stage whose name ends like this is one of several equal parts."""
PRIOR = 0.01
"""Weight, as a share of the whole, of the assumption that this machine is as fast as expected."""


class StageTimes:
    """How long the stages of a computation have taken, and how long the whole will take.

    `expected` maps the beginning of each stage's name to its seconds on a typical machine, in order. The speed of
    this machine is estimated from the stages seen so far; skipped stages take no time, and the first of several
    equal parts, as in ``fold 2 of 5``, predict the others.
    """

    def __init__(self, expected: Mapping[str, float], clock: Callable[[], float] = monotonic) -> None:
        self.expected, self.clock, self.start = dict(expected), clock, clock()
        self.taken: dict[str, float] = {}
        self._name: str | None = None
        self._begun = self.start
        self._interrupted: set[str] = set()
        self._parts: tuple[int, int, int, float] | None = None

    def begin(self, stage: str) -> None:
        """Begin this stage, or this part of one, and finish the previous one."""
        now = self.clock()
        name = next((one for one in self.expected if stage.startswith(one)), stage)
        if name != self._name:
            if name not in self.expected and self._name is not None:
                self._interrupted.add(self._name)  # its duration is no longer known
            self.finish()
            self._name, self._begun, self._parts = name, now, None
        if found := PART.search(stage):
            number, of = int(found[1]), int(found[2])
            first = number if self._parts is None else self._parts[0]
            self._parts = first, number, of, now

    def finish(self) -> dict[str, float]:
        """Finish the running stage; returns the seconds of each stage, in the order in which they began."""
        now = self.clock()
        if self._name is not None:
            self.taken[self._name] = self.taken.get(self._name, 0.0) + now - self._begun
            self._name = None
        return self.taken

    @property
    def total(self) -> float:
        """The seconds that the whole is likely to take."""
        names, now = list(self.expected), self.clock()
        current = names.index(self._name) if self._name in self.expected else None
        reached = [number for number, name in enumerate(names) if name in self.taken]
        following = names[(current if current is not None else max(reached, default=-1)) + 1 :]
        inside = now - self._begun if current is not None else 0.0
        known = {name: self.taken[name] for name in names if name in self.taken.keys() - self._interrupted}
        done, spent = sum(self.expected[name] for name in known), sum(known.values())
        if current is not None:
            planned = self.expected[names[current]]
            if inside > planned * self._slowness(done, spent):  # this machine is evidently slower
                done, spent = done + planned, spent + inside
        slowness = self._slowness(done, spent)
        left = slowness * sum(self.expected[name] for name in following if name not in self.taken)
        if current is not None:
            left += max(0.0, self._seconds_of_current(slowness, names[current]) - inside)
        return now - self.start + left

    @property
    def share(self) -> float:
        """How much of the whole is done, from 0 to 1."""
        total = self.total
        return (self.clock() - self.start) / total if total > 0.0 else 0.0

    def _slowness(self, done: float, spent: float) -> float:
        prior = PRIOR * sum(self.expected.values())
        return (spent + prior) / (done + prior) if done + prior > 0.0 else 1.0

    def _seconds_of_current(self, slowness: float, name: str) -> float:
        if self._parts is not None and self._parts[1] > self._parts[0]:
            first, number, of, began = self._parts
            each = (began - self._begun) / (number - first)
            return each * (of - first + 1)
        return slowness * self.expected[name]


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
    """Report that code is being compiled if this block takes longer than loading it from a cache."""
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
