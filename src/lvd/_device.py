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
    if resolved.type == "cuda":
        n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not n_gpus:
            raise InputError(f"device={device!r}, but torch sees no GPU; use device='auto' or 'cpu'")
        if (resolved.index or 0) >= n_gpus:
            raise InputError(f"device={device!r}, but the last GPU that torch sees is 'cuda:{n_gpus - 1}'")
    elif resolved.type != "cpu":
        _check_computes(resolved)
    return resolved


def _check_computes(device: torch.device) -> None:
    """A number comes back from the device, in the float64 that intervals are computed in."""
    try:
        torch.ones(1, dtype=torch.float64, device=device).item()
    except Exception as error:  # which one depends on the device
        raise InputError(
            f"device='{device}' cannot be used ({str(error).splitlines()[0]}); use device='auto' or 'cpu'"
        ) from None
