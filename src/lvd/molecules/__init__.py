"""Graph networks on molecules; chemprop and RDKit load when they are needed."""

from lvd.models.losses import NormalLoss, PinballLoss, SquaredLoss
from lvd.molecules.column import Molecules
from lvd.molecules.epochs import NetworkJob, Recipe, train_networks
from lvd.molecules.estimator import ChempropEstimator
from lvd.molecules.features import ATOM_FEATURIZERS, read_molecules
from lvd.molecules.network import MoleculeNetwork, load_network, save_network
from lvd.molecules.packed import PackedMolecules
from lvd.molecules.schedule import inner_split
from lvd.molecules.storing import register_networks
from lvd.molecules.trained import TrainedMPNN, read_trusted_checkpoint, wrap_foreign

__all__ = [
    "ATOM_FEATURIZERS",
    "ChempropEstimator",
    "MoleculeNetwork",
    "Molecules",
    "NetworkJob",
    "NormalLoss",
    "PackedMolecules",
    "PinballLoss",
    "Recipe",
    "SquaredLoss",
    "TrainedMPNN",
    "inner_split",
    "load_network",
    "read_molecules",
    "read_trusted_checkpoint",
    "save_network",
    "train_networks",
    "wrap_foreign",
]

register_networks()
