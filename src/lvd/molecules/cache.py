"""Packed graphs on disk, under a name that stands for what they are made of."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from lvd._files import atomic_path, cache_folder
from lvd._typing import NDArray
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.packed import PackedMolecules

FORMAT = 1
CANONICAL = "canonical"


def cache_file(smiles: NDArray, atom_featurizer: str) -> Path:
    """Where the graphs of these SMILES are kept; any file in this folder may be deleted at any time."""
    made_of = [str(FORMAT), atom_featurizer, *chemprop_adapter().versions(), *smiles]
    digest = hashlib.blake2b(json.dumps(made_of).encode(), digest_size=16).hexdigest()
    return cache_folder() / "molecules" / f"{digest}.safetensors"


def read(file: Path, n_molecules: int) -> tuple[NDArray, PackedMolecules] | None:
    """Canonical SMILES and graphs; None when the file is not there, or is not what `write` writes."""
    try:
        tensors = load_file(file)
        canonical = bytes(tensors.pop(CANONICAL).numpy()).decode().split("\n")
        packed = PackedMolecules(**tensors)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None
    if not len(canonical) == len(packed) == n_molecules:
        return None
    return np.array(canonical, dtype=object), packed


def write(file: Path, canonical: NDArray, packed: PackedMolecules) -> None:
    """Keep them; where the folder cannot be written, a warning says so."""
    letters = np.frombuffer("\n".join(canonical).encode(), np.uint8)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(file) as part:
            save_file({CANONICAL: torch.tensor(letters), **packed.tensors()}, part)
    except OSError as error:
        warnings.warn(
            f"the features of {len(packed):,} molecules cannot be kept in {file.parent} ({error}) and will be "
            "computed again next time; set LVD_CACHE to a folder that can be written",
            stacklevel=2,
        )
