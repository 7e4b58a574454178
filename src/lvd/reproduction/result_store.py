"""Results on disk: one Parquet file per finished run, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lvd
from lvd._files import atomic_path
from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError
from lvd.reproduction.runs import Run


@dataclass(frozen=True)
class Result:
    """A run that has ended: intervals of the test rows, or the error that ended it.

    `seconds` is what the run would have taken alone: stages shared with other methods count in full.
    """

    run: Run
    rows: Int[NDArray, "n"]
    y: Float[NDArray, "n"]
    y_pred: Float[NDArray, "n l"]
    intervals: Float[NDArray, "n 2 l"]
    seconds: float
    error: str | None = None


def failure(run: Run, error: str, seconds: float) -> Result:
    """The record of a run that failed."""
    n_levels = len(run.levels)
    empty = np.empty(0)
    return Result(
        run,
        empty.astype(np.int64),
        empty,
        np.empty((0, n_levels)),
        np.empty((0, 2, n_levels)),
        seconds,
        error,
    )


def path_of(folder: Path, run: Run) -> Path:
    """Where the result of `run` stands, or will."""
    return folder / "runs" / f"{run.key}.parquet"


def write(folder: Path, result: Result) -> None:
    """Store a result; a reader sees all of it or nothing."""
    columns = {"row": result.rows, "y": result.y}
    for index, level in enumerate(result.run.levels):
        columns[f"y_pred_{level:g}"] = result.y_pred[:, index]
        columns[f"lower_{level:g}"] = result.intervals[:, 0, index]
        columns[f"upper_{level:g}"] = result.intervals[:, 1, index]
    about = {
        "run": asdict(result.run),
        "seconds": result.seconds,
        "error": result.error,
        "lvd": lvd.__version__,
    }
    table = pa.table(columns).replace_schema_metadata({"lvd": json.dumps(about)})
    target = path_of(folder, result.run)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as part:
        pq.write_table(table, part, compression="zstd")


def read(path: Path) -> Result:
    """The result stored in one file."""
    with _explained(path):
        table = pq.read_table(path)
        about = _about(table.schema)
        run = _run_of(about)
        column = {name: table[name].to_numpy() for name in table.column_names}
        names = [f"{level:g}" for level in run.levels]
        return Result(
            run,
            column["row"],
            column["y"],
            np.stack([column[f"y_pred_{name}"] for name in names], axis=1),
            np.stack([[column[f"{end}_{name}"] for end in ("lower", "upper")] for name in names]).transpose(
                2, 1, 0
            ),
            about["seconds"],
            about["error"],
        )


def read_run(path: Path) -> Run:
    """The run whose result is stored there; its rows are not read."""
    with _explained(path):
        return _run_of(_about(pq.read_schema(path)))


def read_error(path: Path) -> str | None:
    """The error of a stored run, None if it went well; its rows are not read."""
    with _explained(path):
        error: str | None = _about(pq.read_schema(path))["error"]
        return error


def files_of(folder: Path) -> list[Path]:
    """All results in a folder; hidden files are what a killed process had begun to write."""
    files = sorted((folder / "runs").glob("[!.]*.parquet"))
    if not files:
        raise InputError(f"no results in {folder}; make some with: lvd bench run --out {folder}")
    return files


def read_all(folder: Path) -> list[Result]:
    """All results in a folder, read."""
    return [read(file) for file in files_of(folder)]


def files_by_split(folder: Path) -> list[list[Path]]:
    """The results of a folder, those of one split of one dataset together; their rows are not read."""
    splits: dict[tuple[str, str, int], list[Path]] = {}
    for file in files_of(folder):
        run = read_run(file)
        splits.setdefault((run.protocol, run.dataset, run.seed), []).append(file)
    return list(splits.values())


def _about(schema: pa.Schema) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((schema.metadata or {})[b"lvd"])
    return about


def _run_of(about: dict[str, Any]) -> Run:
    return Run(**{**about["run"], "levels": tuple(about["run"]["levels"])})


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a result of lvd bench ({error}); delete it and run again") from error
