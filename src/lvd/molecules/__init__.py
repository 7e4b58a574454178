"""Graph networks on molecules; chemprop and RDKit are imported on first use."""

from typing import Any

from lvd._validation import resolve_device
from lvd.molecules.epochs import NetworkJob, Recipe, inner_split
from lvd.molecules.estimator import ChempropEstimator, MoleculeStack
from lvd.molecules.features import read_molecules
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.network import MoleculeNetwork
from lvd.molecules.run import train_networks
from lvd.molecules.trained import TrainedMPNN, read_trusted_checkpoint
from lvd.store import register

__all__ = [
    "ChempropEstimator",
    "NetworkJob",
    "Recipe",
    "TrainedMPNN",
    "inner_split",
    "read_molecules",
    "read_trusted_checkpoint",
    "train_networks",
]


def _described_module(holder: Any) -> dict[str, Any]:
    adapter = chemprop_adapter()
    return {
        **vars(holder),
        "module": {"description": adapter.describe(holder.module), "weights": adapter.weights(holder.module)},
    }


def _rebuild(holder: Any) -> None:
    saved = vars(holder)["module"]
    vars(holder)["module"] = chemprop_adapter().build(saved["description"], saved["weights"])


def _place_on_device(trained: ChempropEstimator | MoleculeStack) -> None:
    estimator = trained.estimator if isinstance(trained, MoleculeStack) else trained
    for network in getattr(trained, "networks_", ()):
        network.module.to(resolve_device(estimator.device))


for _holder in (MoleculeNetwork, TrainedMPNN):
    register(_holder, take_apart=_described_module, complete=_rebuild)
register(MoleculeStack, complete=_place_on_device)
register(
    ChempropEstimator,
    check=ChempropEstimator.check_parameters,
    complete=_place_on_device,
)
