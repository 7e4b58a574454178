"""Where a dataset's table is found: a folder of the user's, the cache folder, or its public home."""

from __future__ import annotations

import os
from pathlib import Path

from lvd._validation import InputError
from lvd.tables.cells import Cells, read_file, write_file
from lvd.reproduction.download import DownloadError, Progress
from lvd.reproduction.registry import Entry, check_table


def cache_folder() -> Path:
    """``$LVD_CACHE``, else ``$XDG_CACHE_HOME/lvd``, else ``~/.cache/lvd``; tables lie in ``data`` there."""
    if own := os.environ.get("LVD_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lvd"


def search_folders(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """The folders to look in: `data_dir`, else the one that ``LVD_DATA`` names; then the cache."""
    given, name = (data_dir, "data_dir") if data_dir is not None else (os.environ.get("LVD_DATA"), "LVD_DATA")
    if not given:
        return [cache_folder() / "data"]
    if not Path(given).is_dir():
        raise InputError(f"{name} must be an existing folder, got {str(given)!r}")
    return [Path(given), cache_folder() / "data"]


def find_file(entry: Entry, folders: list[Path]) -> Path | None:
    """The first file that bears the dataset's name."""
    candidates = (folder / file for folder in folders for file in entry.files)
    return next((path for path in candidates if path.is_file()), None)


def find_table(entry: Entry, folders: list[Path], *, download: bool, progress: Progress | None) -> Cells:
    """The table from the first folder that has it, else from its public home; in either case checked."""
    path = find_file(entry, folders)
    if path is not None:
        try:
            return check_table(read_file(path), entry)
        except InputError as error:
            raise InputError(f"{path}: {error}; replace or remove this file") from error
    if not download:
        raise InputError(_not_found(entry, folders, "and downloading was not allowed"))
    try:
        cells = check_table(entry.source.fetch(entry.columns, progress), entry)
    except (DownloadError, InputError) as error:
        reason = f"and it could not be downloaded from {entry.source.url}: {error}"
        raise InputError(_not_found(entry, folders, reason)) from error
    _keep(cells, entry)
    return cells


def _keep(cells: Cells, entry: Entry) -> None:
    folder = cache_folder() / "data"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / entry.files[1], cells)
    except OSError as error:
        raise InputError(
            f"the cache folder {folder} cannot be written ({error}); set LVD_CACHE to a folder that can be"
        ) from error


def _not_found(entry: Entry, folders: list[Path], why: str) -> str:
    rows = " or ".join(f"{n:,}" for n in entry.rows)
    return (
        f"{' or '.join(entry.files)} was not found in {' or '.join(map(str, folders))}, {why}. "
        f"Put the table ({rows} rows; a header line with the {len(entry.columns)} columns "
        f"{', '.join(entry.columns)}; published as {entry.home}) into one of these folders, or into another "
        "and name it in data_dir or in the environment variable LVD_DATA"
    )
