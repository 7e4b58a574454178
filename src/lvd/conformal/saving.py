"""Saving a kernel and its calibration set."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lvd import _store
from lvd._device import resolve_device
from lvd._validation import InputError, check_same_length
from lvd.conformal.floor import check_floor
from lvd.conformal.leaves import Leaves, check_leaves, check_search
from lvd.conformal.local import LocalConformal
from lvd.conformal.rows import Rows, check_groups, check_weights
from lvd.kernels import MahalanobisKernel

TRIALS = (2, 3)
"""Numbers of rows to try out: an array of a wrong length may fit one row by broadcasting, but never both."""


def save(conformal: LocalConformal, folder: str | os.PathLike[str]) -> None:
    """Write a LocalConformal to a folder that :func:`lvd.load` reads."""
    _store.write_folder(folder, _store.encode(conformal, CLASSES))


def try_out(conformal: LocalConformal, n_rows: int) -> None:
    """A radius or several: parts that do not fit together are found in loading, not in use."""
    if isinstance(conformal.kernel, MahalanobisKernel) and hasattr(conformal, "calibration_"):
        rows = np.tile(conformal.kernel.mean_, (n_rows, 1))
        radius = conformal.radius(rows, **labels_of_rows(conformal, n_rows))
        if np.isnan(radius).any():
            raise InputError("the radius is not a number")


def labels_of_rows(conformal: LocalConformal, n_rows: int) -> dict[str, Any]:
    """The groups and the weights with which rows can be tried out."""
    rows = conformal.calibration_.rows
    return {
        "groups": None if rows.groups is None else np.repeat(rows.groups[:1], n_rows),
        "weights": None if rows.weights is None else rows.weights[:1].repeat(n_rows),
    }


def _take_apart(conformal: LocalConformal) -> dict[str, Any]:
    """The rows as they came, with their leaves where known; what else the engine makes of them is made again."""
    attributes = dict(vars(conformal))
    if "calibration_" in attributes:
        rows, leaves = conformal.calibration_.rows, conformal.calibration_.leaves
        attributes["calibration_"] = {
            "points": rows.points,
            "scores": conformal.calibration_.scores,
            "weights": rows.weights,
            "groups": rows.groups,
            "leaves": leaves.numbers if leaves.found else None,
        }
    return attributes


def _complete(conformal: LocalConformal) -> None:
    if not isinstance(conformal.kernel, MahalanobisKernel):
        raise InputError("a LocalConformal needs a MahalanobisKernel")
    stored = vars(conformal).pop("calibration_", None)
    if stored is not None:
        device = resolve_device(conformal.kernel.device)
        weights, groups = stored.get("weights"), stored.get("groups")
        points, scores = stored["points"].to(device), stored["scores"].to(device)
        check_same_length(points=points, scores=scores)
        check_floor(conformal.kernel_floor, weighted=weights is not None)
        check_search(conformal.search, conformal.kernel_floor)
        leaves = Leaves.unknown(len(points), conformal.search)
        if stored.get("leaves") is not None:
            leaves.numbers = check_leaves(stored["leaves"], len(points))
        conformal._take(
            Rows(
                points,
                None if weights is None else points.new_tensor(check_weights(weights, len(points))),
                None if groups is None else check_groups(groups, len(points)),
            ),
            scores,
            leaves,
        )


STORABLES = (
    _store.Storable(MahalanobisKernel, check=MahalanobisKernel._check_parameters),
    _store.Storable(LocalConformal, take_apart=_take_apart, complete=_complete),
)
CLASSES = _store.registry(*STORABLES)
