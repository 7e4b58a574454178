"""Graph networks on molecules; chemprop and RDKit load when they are needed."""

from lvd.nets.losses import NormalLoss, PinballLoss, SquaredLoss
from lvd.nets.molecules.estimator import ChempropEstimator
from lvd.nets.molecules.features import ATOM_FEATURIZERS, read_molecules
from lvd.nets.molecules.network import MoleculeNetwork, load_network, save_network
from lvd.nets.molecules.packed import PackedMolecules
from lvd.nets.molecules.schedule import inner_split
from lvd.nets.molecules.table import Molecules
from lvd.nets.molecules.trained import TrainedMPNN, read_trusted_checkpoint
from lvd.nets.molecules.training import NetworkJob, Recipe, train_networks

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
]
