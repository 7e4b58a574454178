"""Many molecular graphs as a few tensors, from which a batch is gathered by index.

Atoms with equal features are one kind, and so are bonds: QM9's 1.2 million atoms have about 40 kinds. An atom
is stored as the index of its kind, which is lossless and takes 4 bytes instead of 532.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lvd._typing import Float, Int, NDArray
from lvd.molecules.domain import MoleculeParts


@dataclass(frozen=True)
class PackedMolecules:
    """The graphs of n molecules, followed by an empty one that owns a dummy atom and a dummy bond.

    Parameters
    ----------
    atom_kinds, bond_kinds : the distinct feature rows; the last one is zero, for the dummies.
    atoms : the kind of every atom, molecule by molecule; the last one is the dummy.
    bonds : kind, source, target and reverse of every directed bond; the last three count within the molecule.
    atom_offsets, bond_offsets : where each molecule begins, and finally where the last one ends.
    """

    atom_kinds: Float[Tensor, "ka dv"]
    bond_kinds: Float[Tensor, "kb de"]
    atoms: Int[Tensor, "a"]
    bonds: Int[Tensor, "e 4"]
    atom_offsets: Int[Tensor, "m"]
    bond_offsets: Int[Tensor, "m"]
    _elsewhere: dict[torch.device, PackedMolecules] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __len__(self) -> int:
        return len(self.atom_offsets) - 2

    def __reduce__(self) -> tuple[type[PackedMolecules], tuple[Tensor, ...]]:
        return PackedMolecules, tuple(self.tensors().values())  # without the copies on other devices

    def to(self, device: torch.device) -> PackedMolecules:
        """The same graphs on `device`; copied there once and cached."""
        device = torch.empty(0, device=device).device  # "cuda" is "cuda:0", or whichever is current
        if device == self.atoms.device:
            return self
        if device not in self._elsewhere:
            self._elsewhere[device] = PackedMolecules(
                **{name: tensor.to(device) for name, tensor in self.tensors().items()}
            )
        return self._elsewhere[device]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if not f.name.startswith("_")}

    def sizes(self) -> Int[NDArray, "m 2"]:
        """The number of atoms and bonds of each molecule; 0 for the empty one."""
        return np.stack([np.diff(o.cpu().numpy()) for o in (self.atom_offsets, self.bond_offsets)], axis=1)


@dataclass
class GraphBatch:
    """A batch that chemprop's modules accept in place of their BatchMolGraph.

    Positions beyond the last atom hold dummies, which belong to an extra molecule at the end.
    """

    V: Float[Tensor, "a dv"]
    E: Float[Tensor, "e de"]
    edge_index: Int[Tensor, "2 e"]
    rev_edge_index: Int[Tensor, "e"]
    batch: Int[Tensor, "a"]
    atoms_per_molecule: Int[Tensor, "b"]

    def __len__(self) -> int:
        return len(self.atoms_per_molecule)


def gather(packed: PackedMolecules, rows: Int[Tensor, "b"], n_atoms: int, n_bonds: int) -> GraphBatch:
    """Gather the molecules `rows` into one batch of `n_atoms` atoms and `n_bonds` bonds.

    Both are either exactly what the molecules have, or at least one more of each, for the dummies. All shapes
    follow from the arguments' shapes and the two numbers, and nothing waits for the device, so a step on such a
    batch can be captured in a CUDA graph.
    """
    rows = torch.nn.functional.pad(rows, (0, 1), value=len(packed))
    atoms = _lay_out(packed.atom_offsets, rows, n_atoms, len(packed.atoms) - 1)
    bonds = _lay_out(packed.bond_offsets, rows, n_bonds, len(packed.bonds) - 1)
    kind, source, target, reverse = packed.bonds.index_select(0, bonds.items).long().unbind(1)
    ends = torch.stack([source, target]) + atoms.starts.index_select(0, bonds.molecules)
    return GraphBatch(
        V=packed.atom_kinds.index_select(0, packed.atoms.index_select(0, atoms.items)),
        E=packed.bond_kinds.index_select(0, kind),
        edge_index=ends,
        rev_edge_index=reverse + bonds.starts.index_select(0, bonds.molecules),
        batch=atoms.molecules,
        atoms_per_molecule=atoms.counts[:-1],
    )


@dataclass(frozen=True)
class _Layout:
    """Where each molecule starts in a batch, and what each position holds."""

    counts: Int[Tensor, "c"]
    starts: Int[Tensor, "c"]
    molecules: Int[Tensor, "p"]
    items: Int[Tensor, "p"]


def _lay_out(offsets: Int[Tensor, "n"], rows: Int[Tensor, "c"], n_positions: int, dummy: int) -> _Layout:
    """The atoms (or bonds) of the molecules `rows` in sequence; the last row is the empty molecule."""
    first = offsets.index_select(0, rows)
    counts = offsets.index_select(0, rows + 1) - first
    ends = counts.cumsum(0)
    starts = ends - counts
    positions = torch.arange(n_positions, device=rows.device)
    molecules = torch.searchsorted(ends[:-1], positions, right=True)
    items = (first - starts).index_select(0, molecules) + positions
    return _Layout(counts, starts, molecules, items.clamp_(max=dummy))


@dataclass(frozen=True)
class Molecules:
    """Rows of molecules; a subset shares the packed graphs of the whole.

    Iterating yields canonical SMILES, so rows compare as molecules, however they are written. The graphs are
    those of the SMILES as given, because chemprop's chirality features depend on atom order.
    """

    smiles: NDArray
    canonical: NDArray
    packed: PackedMolecules
    rows: Int[NDArray, "n"]
    atom_featurizer: str
    parts_are: ClassVar[str] = MoleculeParts.parts_are

    def parts(self) -> list[list[str]]:
        """The non-hydrogen atoms of each row."""
        return MoleculeParts(self.canonical.tolist()).parts()

    @property
    def shape(self) -> tuple[int]:
        """The shape: one column."""
        return (len(self.rows),)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self.canonical)

    def __getitem__(self, key: Any) -> Molecules:
        if isinstance(key, tuple):  # scikit-learn indexes rows as array[rows, ...]
            (key,) = (part for part in key if part is not Ellipsis)
        return replace(
            self, smiles=self.smiles[key], canonical=self.canonical[key], rows=np.asarray(self.rows[key])
        )
