"""Careful timing: wait for the device, warm up, repeat, take the median."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def synchronise(device: str) -> None:
    """Wait for the GPU; nothing on the CPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed(function: Callable[[], T], device: str = "cpu") -> tuple[float, T]:
    """Seconds of a call until its result is available, and the result."""
    synchronise(device)
    start = time.perf_counter()
    result = function()
    synchronise(device)
    return time.perf_counter() - start, result


def median_seconds(function: Callable[[], object], repeats: int, device: str = "cpu") -> float:
    """The median over this many calls, after an uncounted one."""
    function()
    return sorted(timed(function, device)[0] for _ in range(repeats))[repeats // 2]
