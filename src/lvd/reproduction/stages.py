"""Stages that several methods of a split share: computed once, and counted for each method that uses them.

Seconds are those of the processor, which other programs on the machine do not lengthen.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any, TypeVar

T = TypeVar("T")


class Stages:
    """Keeps what the stages gave, how long each took without the stages inside it, and what it needed.

    So it can be said what a method would have taken alone, although it found much of its work done.
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}
        self._needs: dict[str, set[str]] = {}
        self._watching: list[set[str]] = []

    def once(self, name: str, build: Callable[[], T]) -> T:
        """What `build` gives, computed at the first call with this name."""
        if name not in self._values:
            self._values[name], self._seconds[name], self._needs[name] = self._watch(build)
        if self._watching:
            self._watching[-1].update({name}, self._needs[name])
        return self._values[name]

    def as_if_alone(self, work: Callable[[], T]) -> tuple[T, float]:
        """What `work` gives, and its own seconds plus those of all stages it needed, done now or before."""
        value, own, used = self._watch(work)
        return value, own + sum(self._seconds[name] for name in used)

    def _watch(self, work: Callable[[], T]) -> tuple[T, float, set[str]]:
        used: set[str] = set()
        self._watching.append(used)
        start, counted = process_time(), sum(self._seconds.values())
        try:
            value = work()
        finally:
            self._watching.pop()
        return value, process_time() - start - (sum(self._seconds.values()) - counted), used
