"""The datasets of the experiments: found on disk or downloaded, checked, and turned into arrays."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lvd._files import cache_folder
from lvd._typing import Float, NDArray, RandomState
from lvd._validation import InputError, check_choice, check_positive, seed_from
from lvd.data.cells import Cells, numbers, read_file, write_file
from lvd.data.download import DownloadError, OnBytes
from lvd.data.registry import ENTRIES, Entry, check_table
from lvd.molecules.smiles import canonical_smiles, occurs_once

NAMES = ("synthetic", "diabetes", *ENTRIES)
PROTOCOLS = ("paper", "sound")


@dataclass(frozen=True, eq=False)
class Dataset:
    """A regression task.

    Attributes:
        X: Inputs, float64 of shape (n, p), or an object array of n strings (QM8 and QM9).
        y: Targets, float64 of shape (n,), or (n, T) where there are several.
        feature_names: Names of the inputs.
        target_names: Names of the targets.
        source: Where the table is published.
        license_note: What is known of its terms.
        scaffolds: Of each molecule, where rows are split by them.
    """

    X: NDArray
    y: Float[NDArray, "n *t"]
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    source: str
    license_note: str
    scaffolds: NDArray | None = None


@dataclass(frozen=True)
class Availability:
    """One dataset in the list of `available`; `columns` counts all columns of the table, including targets."""

    name: str
    rows: int
    columns: int
    targets: tuple[str, ...]
    where: str
    license_note: str
    rows_note: str = ""


_SYNTHETIC = Availability("synthetic", 300, 2, ("y",), "built in", "none needed: drawn at random")
_DIABETES = Availability(
    "diabetes", 442, 11, ("progression",), "built in", "comes with scikit-learn (BSD-3-Clause)"
)


def load_dataset(
    name: str | Entry,
    *,
    protocol: str = "sound",
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: OnBytes | None = None,
    random_state: RandomState = 0,
) -> Dataset:
    """Load a dataset by name, or one described by an `Entry`.

    The file is searched in `data_dir` (or else the folder in the environment variable ``LVD_DATA``), then in
    the cache folder; otherwise it is downloaded, unless `download` is False, and cached. Its columns, rows and
    checksum must always be the known ones.

    Args:
        name: One of `NAMES`.
        protocol: ``"paper"`` gives the inputs that the published numbers were made with; for Bike these
            include the target itself and the two counts that add up to it. ``"sound"`` leaves them out.
        data_dir: A folder with the files.
        download: Whether to fetch a file that is nowhere on disk.
        progress: Called with the bytes received and the bytes expected, if known.
        random_state: Seed of the synthetic data (100 rows each to train, calibrate and test, in this order).
    """
    check_choice(protocol, "protocol", PROTOCOLS)
    if name == "synthetic":
        X, y = make_synthetic(_SYNTHETIC.rows, random_state=random_state)
        return Dataset(X, y, ("x",), _SYNTHETIC.targets, "y = x^3 + N(0, 4^2)", _SYNTHETIC.license_note)
    if name == "diabetes":
        return _diabetes()
    entry = name if isinstance(name, Entry) else ENTRIES[check_choice(name, "name", NAMES)]
    cells = find_table(entry, search_folders(data_dir), download=download, progress=progress)
    return _to_dataset(cells, entry, protocol)


def available(data_dir: str | os.PathLike[str] | None = None) -> list[Availability]:
    """List the datasets and where each one is on this machine, without reading or downloading files."""
    folders = search_folders(data_dir)
    in_files = [
        Availability(
            *(entry.name, entry.rows[0], len(entry.columns), entry.targets),
            *(str(find_file(entry, folders) or "not here"), entry.license_note, entry.rows_note),
        )
        for entry in ENTRIES.values()
    ]
    return [_SYNTHETIC, _DIABETES, *in_files]


def make_synthetic(
    n: int, *, random_state: RandomState = None
) -> tuple[Float[NDArray, "n 1"], Float[NDArray, "n"]]:
    """`n` rows of ``y = x^3 + N(0, 4^2)``.

    x is uniform on [-1, 1] with probability 0.9, else half-normal on [1, inf) with sigma 1.
    """
    check_positive(n, "n", integer=True)
    rng = np.random.default_rng(seed_from(random_state))
    common = rng.random(n) < 0.9
    x = np.where(common, rng.uniform(-1.0, 1.0, n), 1.0 + np.abs(rng.standard_normal(n)))
    return x[:, None], x**3 + 4.0 * rng.standard_normal(n)


def export(dataset: Dataset, path: str | os.PathLike[str]) -> int:
    """Write features, then targets, as columns of a CSV or Parquet file; return the number of rows."""
    import pyarrow as pa

    from lvd.tables.writing import TableWriter

    features = dataset.X.reshape(len(dataset.X), -1).T
    targets = dataset.y.reshape(len(dataset.y), -1).T
    names = [*dataset.feature_names, *dataset.target_names]
    table = pa.table(dict(zip(names, [*features, *targets], strict=True)))
    with TableWriter(path) as writer:
        writer.write(table, {})
    return table.num_rows


def search_folders(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """The folders to search: `data_dir`, or else the one in ``LVD_DATA``; then the cache."""
    given, name = (data_dir, "data_dir") if data_dir is not None else (os.environ.get("LVD_DATA"), "LVD_DATA")
    if not given:
        return [cache_folder() / "data"]
    if not Path(given).is_dir():
        raise InputError(f"{name} must be an existing folder, got {str(given)!r}")
    return [Path(given), cache_folder() / "data"]


def find_file(entry: Entry, folders: list[Path]) -> Path | None:
    """The first file with one of the dataset's names."""
    candidates = (folder / file for folder in folders for file in entry.files)
    return next((path for path in candidates if path.is_file()), None)


def find_table(entry: Entry, folders: list[Path], *, download: bool, progress: OnBytes | None) -> Cells:
    """The checked table, from the first folder that has it, or else from its public source."""
    path = find_file(entry, folders)
    if path is not None:
        try:
            return check_table(read_file(path), entry)
        except InputError as error:
            raise InputError(f"{path}: {error}; replace or remove this file") from error
    if not download:
        raise InputError(_not_found_text(entry, folders, "and downloading was not allowed"))
    try:
        cells = check_table(entry.source.fetch(entry.columns, progress), entry)
    except (DownloadError, InputError) as error:
        reason = f"and it could not be downloaded from {entry.source.url}: {error}"
        raise InputError(_not_found_text(entry, folders, reason)) from error
    folder = cache_folder() / "data"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / entry.files[1], cells)
    except OSError as error:
        raise InputError(
            f"the cache folder {folder} cannot be written ({error}); set LVD_CACHE to a folder that can be"
        ) from error
    return cells


def _not_found_text(entry: Entry, folders: list[Path], why: str) -> str:
    rows = " or ".join(f"{n:,}" for n in entry.rows)
    return (
        f"{' or '.join(entry.files)} was not found in {' or '.join(map(str, folders))}, {why}. "
        f"Put the table ({rows} rows; a header line with the {len(entry.columns)} columns "
        f"{', '.join(entry.columns)}; published as {entry.home}) into one of these folders, or into another "
        "and name it in data_dir or in the environment variable LVD_DATA"
    )


def design_matrix(
    cells: Cells, entry: Entry, *, protocol: str
) -> tuple[Float[NDArray, "n p"], tuple[str, ...]]:
    """Inputs and their names: plain columns in file order, then one-hot columns by ascending value."""
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
    if entry.text_input is None:
        X, names = design_matrix(cells, entry, protocol=protocol)
    else:
        X, names = np.array(cells[entry.text_input], dtype=object), (entry.text_input,)
        if entry.distinct:
            kept = occurs_once(canonical_smiles(X))  # however a molecule is written
            X, y = X[kept], y[kept]
    if len(entry.targets) == 1:
        y = y[:, 0]
    return Dataset(X, y, names, entry.targets, entry.home, entry.license_note)


def _diabetes() -> Dataset:
    from sklearn.datasets import load_diabetes

    home = "scikit-learn, load_diabetes (Efron, Hastie, Johnstone, Tibshirani 2004)"
    data = load_diabetes(scaled=False)
    names = tuple(data.feature_names)
    return Dataset(data.data, data.target, names, _DIABETES.targets, home, _DIABETES.license_note)
