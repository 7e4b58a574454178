"""From SMILES to packed graphs: once per molecule, and in several processes if there are many."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lvd._files import atomic_path, cache_folder
from lvd._parallel import chunk_slices
from lvd._typing import ArrayLike, Float, Int, NDArray
from lvd._validation import check_choice
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.packed import Molecules, PackedMolecules
from lvd.molecules.smiles import as_smiles, parse_smiles, refuse_invalid, write_canonical

FORMAT = 1
CANONICAL = "canonical"


def _cache_file(smiles: NDArray, atom_featurizer: str) -> Path:
    """The cache file for the graphs of these SMILES; files in this folder may be deleted at any time."""
    made_of = [str(FORMAT), atom_featurizer, *chemprop_adapter().VERSIONS, *smiles]
    digest = hashlib.blake2b(json.dumps(made_of).encode(), digest_size=16).hexdigest()
    return cache_folder() / "molecules" / f"{digest}.safetensors"


def read_cached(file: Path, n_molecules: int) -> tuple[NDArray, PackedMolecules] | None:
    """Canonical SMILES and graphs from the cache; None if the file is missing or damaged."""
    try:
        tensors = load_file(file)
        canonical = bytes(tensors.pop(CANONICAL).numpy()).decode().split("\n")
        packed = PackedMolecules(**tensors)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None
    if not len(canonical) == len(packed) == n_molecules:
        return None
    return np.array(canonical, dtype=object), packed


def _write_cached(file: Path, canonical: NDArray, packed: PackedMolecules) -> None:
    """Write to the cache; warn if the folder is not writable."""
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


ATOM_FEATURIZERS = ("v1", "v2", "organic", "rigr")
"""chemprop's sets of atom features; v1 is chemprop 1's and the paper's, v2 chemprop 2's."""
CHUNK = 500
MANY = 4000
"""The number of molecules from which parallel processes and the disk cache pay off."""


def read_molecules(
    smiles: ArrayLike, *, atom_featurizer: str = "v1", n_jobs: int = -1, cache: bool = True
) -> Molecules:
    """Parse SMILES and compute their graphs with chemprop's featurizers; molecules with graphs are kept.

    From a few thousand molecules on this runs in `n_jobs` processes (-1: one per core), and with `cache` the
    result is stored in the folder ``molecules`` of the cache folder.

    Examples
    --------
    >>> from lvd.molecules import read_molecules
    >>> molecules = read_molecules(["OCC", "c1ccccc1"])
    >>> len(molecules), list(molecules), molecules.packed.sizes()[:2].tolist()
    (2, ['CCO', 'c1ccccc1'], [[3, 4], [6, 12]])
    """
    check_choice(atom_featurizer, "atom_featurizer", ATOM_FEATURIZERS)
    if isinstance(smiles, Molecules):
        if smiles.atom_featurizer == atom_featurizer:
            return smiles
        smiles = smiles.smiles
    strings = as_smiles(smiles)
    file = _cache_file(strings, atom_featurizer) if cache and len(strings) >= MANY else None
    found = None if file is None else read_cached(file, len(strings))
    if found is None:
        found = _featurize(strings, atom_featurizer, n_jobs)
        if file is not None:
            _write_cached(file, *found)
    canonical, packed = found
    return Molecules(strings, canonical, packed, np.arange(len(strings)), atom_featurizer)


@dataclass(frozen=True)
class Chunk:
    """The graphs of some molecules, with their own kinds; `invalid` holds the indices of unreadable SMILES."""

    canonical: list[str]
    invalid: list[int]
    atom_kinds: Float[NDArray, "ka dv"]
    bond_kinds: Float[NDArray, "kb de"]
    atoms: Int[NDArray, "a"]
    bonds: Int[NDArray, "e 4"]
    sizes: Int[NDArray, "n 2"]


def featurize_chunk(smiles: list[str], atom_featurizer: str) -> Chunk:
    """The graphs of some molecules; runs in a worker process."""
    featurizer = chemprop_adapter().graph_featurizer(atom_featurizer)
    molecules = parse_smiles(smiles)
    valid = [molecule for molecule in molecules if molecule is not None]
    graphs = [featurizer(molecule) for molecule in valid]
    atoms, atom_kinds = _number_rows([graph.V for graph in graphs], featurizer.atom_fdim)
    kinds, bond_kinds = _number_rows([graph.E for graph in graphs], featurizer.bond_fdim)
    ends = np.concatenate([np.zeros((2, 0), np.int64), *(graph.edge_index for graph in graphs)], axis=1)
    reverse = np.concatenate([np.zeros(0, np.int64), *(graph.rev_edge_index for graph in graphs)])
    return Chunk(
        canonical=[write_canonical(molecule) for molecule in valid],
        invalid=[position for position, molecule in enumerate(molecules) if molecule is None],
        atom_kinds=atom_kinds,
        bond_kinds=bond_kinds,
        atoms=atoms,
        bonds=np.stack([kinds, *ends, reverse], axis=1),
        sizes=np.array([(len(graph.V), len(graph.E)) for graph in graphs], np.int64).reshape(-1, 2),
    )


def pack(chunks: Sequence[Chunk]) -> PackedMolecules:
    """Merge the chunks: kinds are renumbered, and dummies and the empty molecule come last."""
    atoms, atom_kinds = _merge([(chunk.atom_kinds, chunk.atoms) for chunk in chunks])
    kinds, bond_kinds = _merge([(chunk.bond_kinds, chunk.bonds[:, 0]) for chunk in chunks])
    ends = np.concatenate([chunk.bonds[:, 1:] for chunk in chunks])
    bonds = np.concatenate([np.column_stack([kinds, ends]), [[len(bond_kinds), 0, 0, 0]]])
    n_atoms, n_bonds = np.concatenate([chunk.sizes for chunk in chunks]).T
    return PackedMolecules(
        atom_kinds=_with_zero_row(atom_kinds),
        bond_kinds=_with_zero_row(bond_kinds),
        atoms=torch.tensor(np.append(atoms, len(atom_kinds)), dtype=torch.int32),
        bonds=torch.tensor(bonds, dtype=torch.int32),
        atom_offsets=_offsets(n_atoms),
        bond_offsets=_offsets(n_bonds),
    )


def _featurize(strings: NDArray, atom_featurizer: str, n_jobs: int) -> tuple[NDArray, PackedMolecules]:
    parts = [strings[rows].tolist() for rows in chunk_slices(len(strings), CHUNK)]
    if len(strings) < MANY:
        chunks = [featurize_chunk(part, atom_featurizer) for part in parts]
    else:
        from joblib import Parallel, delayed

        chunks = Parallel(n_jobs=n_jobs)(delayed(featurize_chunk)(part, atom_featurizer) for part in parts)
    refuse_invalid(
        strings.tolist(), [CHUNK * k + at for k, chunk in enumerate(chunks) for at in chunk.invalid]
    )
    canonical = [string for chunk in chunks for string in chunk.canonical]
    return np.array(canonical, dtype=object), pack(chunks)


def _number_rows(matrices: Sequence[NDArray], width: int) -> tuple[Int[NDArray, "n"], Float[NDArray, "k w"]]:
    """Each row's index among the distinct rows of all matrices, and these rows, in single precision."""
    numbers: dict[bytes, int] = {}
    rows = [row.tobytes() for matrix in matrices for row in matrix.astype(np.float32)]
    found = np.array([numbers.setdefault(row, len(numbers)) for row in rows], np.int64)
    return found, np.frombuffer(b"".join(numbers), np.float32).reshape(-1, width)


def _merge(parts: Sequence[tuple[NDArray, NDArray]]) -> tuple[Int[NDArray, "n"], Float[NDArray, "k w"]]:
    """Merge the kinds and indices of several chunks."""
    renumbered, kinds = _number_rows([own for own, _ in parts], parts[0][0].shape[1])
    firsts = np.cumsum([0, *(len(own) for own, _ in parts)])
    return np.concatenate(
        [renumbered[first + n] for first, (_, n) in zip(firsts, parts, strict=False)]
    ), kinds


def _with_zero_row(kinds: Float[NDArray, "k w"]) -> Float[Tensor, "k+1 w"]:
    return torch.from_numpy(np.concatenate([kinds, np.zeros((1, kinds.shape[1]), np.float32)]))


def _offsets(counts: Int[NDArray, "n"]) -> Int[Tensor, "n+2"]:
    """Where each molecule begins, with the empty one last."""
    ends = counts.cumsum()
    return torch.from_numpy(np.concatenate([[0], ends, ends[-1:]]))
