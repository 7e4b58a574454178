"""How graph networks are saved: a description in JSON and the weights; nothing is pickled."""

from __future__ import annotations

from typing import Any

from lvd._device import resolve_device
from lvd.molecules.ensemble import MoleculeStack
from lvd.molecules.estimator import ChempropEstimator
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.network import MoleculeNetwork
from lvd.molecules.trained import TrainedMPNN
from lvd.store import register


def _described(holder: Any) -> dict[str, Any]:
    adapter = chemprop_adapter()
    return {
        **vars(holder),
        "module": {"description": adapter.describe(holder.module), "weights": adapter.weights(holder.module)},
    }


def _rebuild(holder: Any) -> None:
    saved = vars(holder)["module"]
    vars(holder)["module"] = chemprop_adapter().build(saved["description"], saved["weights"])


def _place_on_device(estimator: ChempropEstimator) -> None:
    if hasattr(estimator, "network_"):
        estimator.network_.module.to(resolve_device(estimator.device))


def _place_all(stack: MoleculeStack) -> None:
    for network in stack.networks_:
        network.module.to(resolve_device(stack.estimator.device))


def register_networks() -> None:
    """Allow graph networks to be saved and loaded."""
    for holder in (MoleculeNetwork, TrainedMPNN):
        register(holder, take_apart=_described, complete=_rebuild)
    register(MoleculeStack, complete=_place_all)
    register(ChempropEstimator, check=ChempropEstimator.check_parameters, complete=_place_on_device)
