"""Honest timing: warm up, repeat, take the median."""

from __future__ import annotations

import time
from collections.abc import Callable


def median_seconds(function: Callable[[], object], repeats: int = 7) -> float:
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]
