"""What a GPU runs: fused Triton kernels where it has tensor cores for tf32, else plain torch; and distances."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from lvd._typing import Float

FAR = 1e6
"""Squared distances from the centre from which on distances are no longer formed from products."""
MOST_COMPONENTS = 62
"""Columns of a product are padded to 16, 32 or 64, and two of them hold norms."""


def fuses_on(device: torch.device, n_components: int) -> bool:
    """Whether points with this many components on this device are handled by Triton rather than plain torch."""
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


def squared_differences(a: Float[Tensor, "n k"], b: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    """All squared distances from differences: accurate to the last digits, however far out points are."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square_()


def squared_distances(a: Float[Tensor, "n k"], b: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    """All squared distances; on a GPU from products, which are many times faster than differences."""
    return squared_differences(a, b) if a.device.type == "cpu" else distances_by_products(a, b)


def distances_by_products(a: Float[Tensor, "n k"], b: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    """All squared distances; from products up to `FAR`, with errors of about 1e-9, else from differences."""
    centre = b.mean(0)
    left, right = a - centre, b - centre
    norms_left, norms_right = left.square().sum(1), right.square().sum(1)
    if not bool(torch.cat([norms_left, norms_right]).max() <= FAR):
        return squared_differences(a, b)
    return torch.addmm(norms_right[None], left, right.T, alpha=-2.0).add_(norms_left[:, None]).clamp_(min=0.0)
