"""Saving a kernel and its calibration set."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lvd import _store
from lvd._device import resolve_device
from lvd._validation import InputError
from lvd.conformal.engine import SortedCalibration
from lvd.conformal.local import LocalConformal
from lvd.kernels import MahalanobisKernel
from lvd.kernels.tiles import prepare_points


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
    attributes = dict(vars(conformal))
    if "calibration_" in attributes:
        sorted_rows = attributes["calibration_"]
        # What the engine has prepared for products is made again from the points.
        attributes["calibration_"] = {
            "points": sorted_rows.points,
            "scores": sorted_rows.scores,
            "order": sorted_rows.order,
        }
    return attributes


def _complete(conformal: LocalConformal) -> None:
    if not isinstance(conformal.kernel, MahalanobisKernel):
        raise InputError("a LocalConformal needs a MahalanobisKernel")
    if "calibration_" not in vars(conformal):
        return
    device = resolve_device(conformal.kernel.device)
    rows = {name: tensor.to(device) for name, tensor in vars(conformal)["calibration_"].items()}
    points, scores, order = rows["points"], rows["scores"], rows["order"]
    if not (points.ndim == 2 and scores.shape == order.shape == points.shape[:1]):
        raise InputError("the calibration set's points, scores and order differ in length")
    conformal.calibration_ = SortedCalibration(points, scores, order, prepare_points(points))


STORABLES = (
    _store.Storable(MahalanobisKernel, check=MahalanobisKernel._check_parameters),
    _store.Storable(LocalConformal, take_apart=_take_apart, complete=_complete),
)
CLASSES = _store.registry(*STORABLES)
