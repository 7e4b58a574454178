"""Standardisation of columns."""

from __future__ import annotations

import numpy as np

from lvd._typing import Bool, Float, NDArray
from lvd._validation import InputError


def mean_and_scale(
    array: Float[NDArray, "n *p"], scaled: bool = True
) -> tuple[Float[NDArray, "*p"], Float[NDArray, "*p"]]:
    """Mean and standard deviation of each column, with scale 1 for constant ones; 0 and 1 unless `scaled`."""
    if not scaled:
        return np.zeros(array.shape[1:]), np.ones(array.shape[1:])
    constant, (mean, scale) = constant_columns(array), mean_and_deviation(array)
    roundings = np.maximum(1.0, 1e-15 * np.abs(array[0]))
    return np.where(constant, array[0], mean), np.where(constant, roundings, scale)


def known_mean_and_scale(
    targets: Float[NDArray, "n t"], scaled: bool = True
) -> tuple[Float[NDArray, "t"], Float[NDArray, "t"]]:
    """As :func:`mean_and_scale`, over each column's known targets; raises if no row has a target."""
    refuse_unknown(targets)
    columns = [mean_and_scale(column[~np.isnan(column), None], scaled) for column in targets.T]
    means, scales = zip(*columns, strict=True)
    return np.concatenate(means), np.concatenate(scales)


def constant_targets(targets: Float[NDArray, "n t"]) -> Bool[NDArray, "t"]:
    """Which targets are constant, up to rounding, over their known values."""
    return np.array([constant_columns(column[~np.isnan(column), None])[0] for column in targets.T])


def refuse_unknown(targets: Float[NDArray, "n t"]) -> None:
    """Raise if some target is unknown in every row."""
    unknown = np.isnan(targets).all(axis=0)
    if unknown.any():
        raise InputError(
            f"target {int(unknown.argmax())} is known for none of {len(targets)} rows, counting targets from 0; "
            "leave it out, or give rows that have it"
        )


def mean_and_deviation(array: Float[NDArray, "n *p"]) -> tuple[Float[NDArray, "*p"], Float[NDArray, "*p"]]:
    """Mean and standard deviation of each column.

    Columns are first scaled by a power of 2, so that squares do not overflow and no digit changes.
    """
    exponents = np.frexp(np.abs(array).max(0))[1]
    near_one = np.ldexp(array, -exponents)
    return np.ldexp(near_one.mean(0), exponents), np.ldexp(near_one.std(0), exponents)


def constant_columns(array: Float[NDArray, "n *p"], eps: float = 2.0**-52) -> Bool[NDArray, "*p"]:
    """Columns whose values differ by no more than a few roundings of their size."""
    highest, lowest = array.max(0), array.min(0)
    return highest / 2.0 - lowest / 2.0 <= 2.0 * eps * np.maximum(np.abs(highest), np.abs(lowest))
