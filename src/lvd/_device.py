"""Which device computes."""

from __future__ import annotations

import torch

from lvd._validation import InputError


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """``"auto"`` is the GPU when torch sees one, else the CPU; anything else must exist."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError:
        raise InputError(
            f"device must be 'auto' or a torch device such as 'cpu' or 'cuda:0', got {device!r}"
        ) from None
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device={device!r}, but torch sees no GPU; use device='auto' or 'cpu'")
    return resolved
