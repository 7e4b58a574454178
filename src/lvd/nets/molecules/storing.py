"""How graph networks are saved: a description in JSON and the weights; nothing is pickled."""

from __future__ import annotations

from typing import Any

from lvd import _store
from lvd._device import resolve_device
from lvd.nets.losses import NormalLoss, PinballLoss, SquaredLoss
from lvd.nets.molecules.ensemble import MoleculeStack
from lvd.nets.molecules.estimator import ChempropEstimator
from lvd.nets.molecules.lazy import chemprop_adapter
from lvd.nets.molecules.network import MoleculeNetwork
from lvd.nets.molecules.trained import TrainedMPNN


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
    _store.Storable(SquaredLoss),
    _store.Storable(PinballLoss),
    _store.Storable(NormalLoss),
    _store.Storable(MoleculeNetwork, take_apart=_take_apart, complete=_build),
    _store.Storable(TrainedMPNN, take_apart=_take_apart, complete=_build),
    _store.Storable(MoleculeStack, complete=_place_all),
    _store.Storable(ChempropEstimator, check=ChempropEstimator.check_parameters, complete=_place),
)
