"""How kernels and calibration sets are saved."""

from __future__ import annotations

from typing import Any

from lvd._validation import InputError, check_same_length, resolve_device
from lvd.conformal.calibration import GlobalConformal
from lvd.conformal.labelled_rows import Rows, check_groups, check_max_weight, check_weights
from lvd.conformal.local import LocalConformal
from lvd.kernels import MahalanobisKernel
from lvd.store import OutdatedError, Saved, register


def _calibration_rows(conformal: LocalConformal) -> dict[str, Any]:
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


def _sort_rows(conformal: LocalConformal) -> None:
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


def _upgrade_local(parameters: dict[str, Any], learned: dict[str, Any]) -> Saved:
    """What a LocalConformal of version 0.1 was: its kernel floors and searches are gone."""
    if parameters.pop("kernel_floor", 0.0) != 0.0:
        raise OutdatedError("a kernel_floor")
    for gone in ("search", "max_infinite"):
        parameters.pop(gone, None)
    if "max_weight" in parameters:
        learned["max_weight_"] = parameters.pop("max_weight")
    chosen = learned.pop("bandwidth_", None)
    if parameters.get("bandwidth") == "auto":
        parameters["bandwidth"] = chosen
    return parameters, learned


def register_calibrations() -> None:
    """Allow kernels and calibration sets to be saved and loaded."""
    register(MahalanobisKernel)
    register(GlobalConformal)
    ways = {"take_apart": _calibration_rows, "complete": _sort_rows, "upgrade": _upgrade_local}
    register(LocalConformal, root=True, **ways)
