"""The datasets of the experiments: looked up on disk, else downloaded, checked, and turned into arrays."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from lvd._typing import Float, NDArray, RandomState
from lvd._validation import check_choice
from lvd.tables.cells import Cells, numbers
from lvd.reproduction.download import Progress
from lvd._folders import find_file, find_table, search_folders
from lvd.reproduction.registry import ENTRIES, Entry
from lvd.molecules.smiles import canonical_smiles, occurs_once
from lvd.reproduction.synthetic import make_synthetic

NAMES = ("synthetic", "diabetes", *ENTRIES)
PROTOCOLS = ("paper", "sound")


@dataclass(frozen=True, eq=False)
class Dataset:
    """A regression task.

    Attributes:
        X: Inputs, float64 of shape (n, p); for molecules an object array of n SMILES strings.
        y: Targets, float64 of shape (n,), or (n, T) where there are several.
        feature_names: Names of the inputs.
        target_names: Names of the targets.
        source: Where the table is published.
        license_note: What is known of its terms.
    """

    X: NDArray
    y: Float[NDArray, "n *t"]
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    source: str
    license_note: str


@dataclass(frozen=True)
class Availability:
    """One dataset in the list of `available`; `columns` counts all columns of the table, targets too."""

    name: str
    rows: int
    columns: int
    targets: tuple[str, ...]
    where: str
    license_note: str


_SYNTHETIC = Availability("synthetic", 300, 2, ("y",), "built in", "none needed: drawn at random")
_DIABETES = Availability(
    "diabetes", 442, 11, ("progression",), "built in", "comes with scikit-learn (BSD-3-Clause)"
)


def load(
    name: str | Entry,
    *,
    protocol: str = "sound",
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: Progress | None = None,
    random_state: RandomState = 0,
) -> Dataset:
    """A dataset by name, or one described by an `Entry`.

    The file is looked for in `data_dir` (else in the folder that the environment variable ``LVD_DATA``
    names), then in the cache folder; failing that it is downloaded, unless `download` is False, and kept in
    the cache. Wherever it comes from, its columns, rows and checksum must be the known ones.

    Args:
        name: One of `NAMES`.
        protocol: ``"paper"`` gives the inputs that the published numbers were made with; for Bike these
            include the target itself and the two counts that add up to it. ``"sound"`` leaves them out.
        data_dir: A folder with the files.
        download: Whether to fetch a file that is nowhere on disk.
        progress: Called with the bytes that have come and the bytes there will be, if known.
        random_state: Seed of the synthetic data (100 rows each to train, calibrate and test, in this order).
    """
    check_choice(protocol, "protocol", PROTOCOLS)
    if name == "synthetic":
        return _synthetic(random_state)
    if name == "diabetes":
        return _diabetes()
    entry = name if isinstance(name, Entry) else ENTRIES[check_choice(name, "name", NAMES)]
    cells = find_table(entry, search_folders(data_dir), download=download, progress=progress)
    return _to_dataset(cells, entry, protocol)


def available(data_dir: str | os.PathLike[str] | None = None) -> list[Availability]:
    """The datasets and where each one is on this machine; no file is read or downloaded."""
    folders = search_folders(data_dir)
    rows = [_SYNTHETIC, _DIABETES]
    for entry in ENTRIES.values():
        where = str(find_file(entry, folders) or "not here")
        rows.append(
            Availability(
                entry.name, entry.rows[0], len(entry.columns), entry.targets, where, entry.license_note
            )
        )
    return rows


def design_matrix(
    cells: Cells, entry: Entry, *, protocol: str
) -> tuple[Float[NDArray, "n p"], tuple[str, ...]]:
    """Inputs and their names: plain columns in file order, then the one-hot columns, values ascending."""
    left_out = {*entry.unused, *entry.one_hot, *entry.targets, *entry.leaking}
    if protocol == "paper":
        left_out -= set(entry.leaking)
    columns = {column: numbers(cells, column) for column in entry.columns if column not in left_out}
    for column in entry.one_hot:
        values = numbers(cells, column)
        columns |= {
            f"{column}_{value:g}": (values == value).astype(np.float64) for value in np.unique(values)
        }
    return np.column_stack(list(columns.values())), tuple(columns)


def _to_dataset(cells: Cells, entry: Entry, protocol: str) -> Dataset:
    y = np.column_stack([numbers(cells, target) for target in entry.targets])
    if entry.smiles is None:
        X, names = design_matrix(cells, entry, protocol=protocol)
    else:
        X, names = np.array(cells[entry.smiles], dtype=object), (entry.smiles,)
        if entry.distinct:
            kept = occurs_once(canonical_smiles(X))
            X, y = X[kept], y[kept]
    if len(entry.targets) == 1:
        y = y[:, 0]
    return Dataset(X, y, names, entry.targets, entry.home, entry.license_note)


def _synthetic(random_state: RandomState) -> Dataset:
    X, y = make_synthetic(_SYNTHETIC.rows, random_state=random_state)
    return Dataset(X, y, ("x",), _SYNTHETIC.targets, "y = x^3 + N(0, 4^2)", _SYNTHETIC.license_note)


def _diabetes() -> Dataset:
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    return Dataset(
        data.data,
        data.target,
        tuple(data.feature_names),
        _DIABETES.targets,
        "scikit-learn, load_diabetes (Efron, Hastie, Johnstone, Tibshirani 2004)",
        _DIABETES.license_note,
    )
