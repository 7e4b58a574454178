"""How graph networks are saved: a description in JSON and the weights; nothing is pickled."""

from __future__ import annotations

from typing import Any

from lvd import store as _store
from lvd._device import resolve_device
from lvd.molecules.ensemble import MoleculeStack
from lvd.molecules.estimator import ChempropEstimator
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.network import MoleculeNetwork
from lvd.molecules.trained import TrainedMPNN


def _take_apart(holder: Any) -> dict[str, Any]:
    adapter = chemprop_adapter()
    return {
        **vars(holder),
        "module": {"description": adapter.describe(holder.module), "weights": adapter.weights(holder.module)},
    }


def _build(holder: Any) -> None:
    saved = vars(holder)["module"]
    vars(holder)["module"] = chemprop_adapter().build(saved["description"], saved["weights"])


def _place(estimator: ChempropEstimator) -> None:
    if hasattr(estimator, "network_"):
        estimator.network_.module.to(resolve_device(estimator.device))


def _place_all(stack: MoleculeStack) -> None:
    for network in stack.networks_:
        network.module.to(resolve_device(stack.estimator.device))


STORABLES = (
    _store.Storable(MoleculeNetwork, take_apart=_take_apart, complete=_build),
    _store.Storable(TrainedMPNN, take_apart=_take_apart, complete=_build),
    _store.Storable(MoleculeStack, complete=_place_all),
    _store.Storable(ChempropEstimator, check=ChempropEstimator.check_parameters, complete=_place),
)
