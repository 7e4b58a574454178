"""Saving a kernel and its calibration set."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lvd import store as _store
from lvd._device import resolve_device
from lvd._validation import InputError, check_same_length
from lvd.conformal.local import LocalConformal
from lvd.conformal.rows import Rows, check_groups, check_max_weight, check_weights
from lvd.kernels import MahalanobisKernel


def save(conformal: LocalConformal, folder: str | os.PathLike[str]) -> None:
    """Write a LocalConformal to a folder that :func:`lvd.load` reads."""
    _store.write_folder(folder, _store.encode(conformal, CLASSES))


def try_out(conformal: LocalConformal) -> None:
    """One radius: parts that do not fit together are found in loading, not in use."""
    if isinstance(conformal.kernel, MahalanobisKernel) and hasattr(conformal, "calibration_"):
        radius = conformal.radius(conformal.kernel.mean_[None], **labels_of_a_row(conformal))
        if np.isnan(radius).any():
            raise InputError("the radius is not a number")


def labels_of_a_row(conformal: LocalConformal) -> dict[str, Any]:
    """The group and the weight with which one row can be tried out."""
    rows = conformal.calibration_.rows
    return {
        "groups": None if rows.groups is None else rows.groups[:1],
        "weights": None if rows.weights is None else rows.weights[:1],
    }


def _take_apart(conformal: LocalConformal) -> dict[str, Any]:
    """The rows as they came; what is made of them is made again."""
    attributes = {name: value for name, value in vars(conformal).items() if not name.startswith("_")}
    if "calibration_" in attributes:
        rows = conformal.calibration_.rows
        attributes["calibration_"] = {
            "points": rows.points,
            "scores": conformal.calibration_.scores,
            "weights": rows.weights,
            "groups": rows.groups,
        }
    return attributes


def _complete(conformal: LocalConformal) -> None:
    if not isinstance(conformal.kernel, MahalanobisKernel):
        raise InputError("a LocalConformal needs a MahalanobisKernel")
    stored = vars(conformal).pop("calibration_", None)
    if stored is None:
        return
    conformal._check_parameters()
    device = resolve_device(conformal.kernel.device)
    weights, groups = stored.get("weights"), stored.get("groups")
    points, scores = stored["points"].to(device), stored["scores"].to(device)
    check_same_length(points=points, scores=scores)
    vars(conformal).setdefault("rows_expected_", len(points))
    conformal.max_weight_ = check_max_weight(vars(conformal).get("max_weight_"))
    conformal._take(
        Rows(
            points,
            None if weights is None else points.new_tensor(check_weights(weights, len(points))),
            None if groups is None else check_groups(groups, len(points)),
        ),
        scores,
    )


def upgrade(parameters: dict[str, Any], learned: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a LocalConformal of version 0.1 was: its kernel floors and searches are gone."""
    for name in ("kernel_floor", "search", "max_infinite"):
        if parameters.pop(name, 0.0) not in (0.0, 0.1, "auto", "all", "index"):
            raise InputError(f"the model was saved with {name}, which this version does not have; fit again")
    chosen = learned.pop("bandwidth_", None)
    if parameters.get("bandwidth") == "auto":
        parameters["bandwidth"] = chosen
    return parameters, learned


STORABLES = (
    _store.Storable(MahalanobisKernel, check=MahalanobisKernel._check_parameters),
    _store.Storable(LocalConformal, take_apart=_take_apart, complete=_complete, upgrade=upgrade),
)
CLASSES = _store.registry(*STORABLES)
