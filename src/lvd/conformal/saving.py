"""Saving a kernel and its calibration set."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lvd import _store
from lvd._device import resolve_device
from lvd._validation import InputError, check_same_length
from lvd.conformal.local import LocalConformal
from lvd.kernels import MahalanobisKernel


def save(conformal: LocalConformal, folder: str | os.PathLike[str]) -> None:
    """Write a LocalConformal to a folder that :func:`lvd.load` reads."""
    _store.write_folder(folder, _store.encode(conformal, CLASSES))


def try_out(conformal: LocalConformal) -> None:
    """One radius: parts that do not fit together are found in loading, not in use."""
    if isinstance(conformal.kernel, MahalanobisKernel) and hasattr(conformal, "calibration_"):
        radius = conformal.radius(conformal.kernel.mean_[None])
        if np.isnan(radius).any():
            raise InputError("the radius is not a number")


def _take_apart(conformal: LocalConformal) -> dict[str, Any]:
    """The rows as they came; what the engine makes of them is made again."""
    attributes = {name: value for name, value in vars(conformal).items() if name != "standing_"}
    if "calibration_" in attributes:
        points, scores = conformal._in_order_of_arrival()
        attributes["calibration_"] = {"points": points, "scores": scores}
    return attributes


def _complete(conformal: LocalConformal) -> None:
    if not isinstance(conformal.kernel, MahalanobisKernel):
        raise InputError("a LocalConformal needs a MahalanobisKernel")
    rows = vars(conformal).pop("calibration_", None)
    if rows is not None:
        points, scores = (
            rows[name].to(resolve_device(conformal.kernel.device)) for name in ("points", "scores")
        )
        check_same_length(points=points, scores=scores)
        conformal._take(points, scores)


STORABLES = (
    _store.Storable(MahalanobisKernel, check=MahalanobisKernel._check_parameters),
    _store.Storable(LocalConformal, take_apart=_take_apart, complete=_complete),
)
CLASSES = _store.registry(*STORABLES)
