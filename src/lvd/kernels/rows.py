"""Embeddings where the kernel computes: in numpy for the CPU, else as a float64 tensor on the device."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from lvd._typing import ArrayLike, Bool, Float, NDArray
from lvd._validation import check_matrix, constant_columns, is_tensor, mean_and_deviation, resolve_device

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


def column_moments(
    rows: Rows, eps: float
) -> tuple[Float[NDArray, "h"], Float[NDArray, "h"], Bool[NDArray, "h"]]:
    """Mean and standard deviation of each column, and which are constant up to roundings of size `eps`."""
    if not isinstance(rows, Tensor):
        return *mean_and_deviation(rows), constant_columns(rows, eps)
    ends = torch.stack([rows.amin(0), rows.amax(0)]).cpu().numpy()
    # Past these exponents the powers themselves would leave the range.
    unit = rows.new_tensor(np.exp2(np.frexp(np.abs(ends).max(0))[1].clip(-1000.0, 1000.0)))
    near_one = rows / unit
    mean, scale = near_one.mean(0) * unit, near_one.std(0, correction=0) * unit
    return mean.cpu().numpy(), scale.cpu().numpy(), constant_columns(ends, eps)


def precision_of(embeddings: ArrayLike) -> float:
    """The relative rounding of the numbers as they were given; that of float64 for all but shorter floats."""
    name = str(getattr(embeddings, "dtype", "")).removeprefix("torch.")
    return {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(name, 2.0**-52)
