"""Embeddings where the kernel computes: in numpy for the CPU, else as a float64 tensor on the device."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from lvd._device import resolve_device
from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import check_matrix, is_tensor

Rows: TypeAlias = Float[NDArray, "_ _"] | Float[Tensor, "_ _"]


def check_rows(embeddings: ArrayLike, name: str, device: torch.device, n_columns: int | None = None) -> Rows:
    """`embeddings` as a finite, non-empty float64 matrix; a tensor that is on the device already stays there."""
    if device.type == "cpu":
        return check_matrix(embeddings, name, n_columns)
    if not is_tensor(embeddings) or embeddings.device.type == "cpu":
        return torch.as_tensor(check_matrix(embeddings, name, n_columns), device=device)
    rows = embeddings.detach().to(device, torch.float64)
    fine = rows.ndim == 2 and rows.numel() > 0 and n_columns in (None, rows.shape[1])
    # The sum is finite only if all numbers are; where it overflows, they are looked at one by one.
    if not (fine and bool(rows.sum().isfinite())):
        check_matrix(embeddings, name, n_columns)  # says what is wrong
    return rows


def place(embeddings: Float[NDArray, "n h"], device: str) -> Rows:
    """The rows as float64 where kernels on the device take them from, brought there once for several kernels."""
    resolved = resolve_device(device)
    if resolved.type == "cpu":
        return np.asarray(embeddings, dtype=np.float64)
    return torch.as_tensor(embeddings, device=resolved).double()


def column_moments(rows: Rows) -> tuple[Float[NDArray, "h"], Float[NDArray, "h"]]:
    """Mean and standard deviation of each column."""
    if isinstance(rows, Tensor):
        return rows.mean(0).cpu().numpy(), rows.std(0, correction=0).cpu().numpy()
    return rows.mean(0), rows.std(0)
