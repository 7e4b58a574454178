"""What a GPU runs: fused Triton kernels where it has tensor cores for tf32, else plain torch."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec

import torch

MOST_COMPONENTS = 62
"""Columns of a product are padded to 16, 32 or 64, and two of them hold norms."""


def fuses_on(device: torch.device, n_components: int) -> bool:
    """Whether Triton rather than plain torch handles points with this many components on this device, which is not
    the CPU."""
    return device.type == "cuda" and n_components <= MOST_COMPONENTS and _serves(device)


@cache
def multiplies_float64(device: torch.device) -> bool:
    """Whether Triton multiplies float64 matrices on tensor cores there.

    It does since 3.5, on GPUs of compute capability 8.0 and 9.0 (Triton's pull request 7310).
    """
    import triton

    version = tuple(map(int, triton.__version__.split(".")[:2]))
    on_gpu = device.type == "cuda"
    return version >= (3, 5) and (not on_gpu or torch.cuda.get_device_capability(device) in {(8, 0), (9, 0)})


@cache
def _serves(device: torch.device) -> bool:
    if torch.version.hip is not None or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    found = find_spec("triton") is not None
    if not found:
        warnings.warn(
            "Triton is not installed: the GPU runs plain torch operations, many times slower; pip install triton",
            RuntimeWarning,
            stacklevel=2,
        )
    return found
