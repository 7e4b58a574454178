"""Results on disk: a Parquet file for each finished run, CSV files of metrics, and a record of every call."""

from __future__ import annotations

import csv
import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from experiments.paper.runs import BenchRun, grouped
from lvd import InputError, __version__
from lvd._files import atomic_path, write_text
from lvd._typing import Float, Int, NDArray

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Result:
    """A finished run: intervals of the test rows, or the error that ended it.

    `seconds` is what the run would have taken alone: stages shared with other methods count in full.
    """

    run: BenchRun
    rows: Int[NDArray, "n"]
    y: Float[NDArray, "n"]
    y_pred: Float[NDArray, "n l"]
    intervals: Float[NDArray, "n 2 l"]
    seconds: float
    error: str | None = None


_COLUMNS = ("y_pred", "lower", "upper")
"""At each level."""


def failure_of(run: BenchRun, error: str, seconds: float) -> Result:
    """The record of a run that failed."""
    nothing = np.empty((0, 2, len(run.levels)))
    return Result(run, np.empty(0, np.int64), np.empty(0), nothing[:, 0], nothing, seconds, error)


def path_of(folder: Path, run: BenchRun) -> Path:
    """The file for the result of `run`."""
    return folder / "runs" / f"{run.key}.parquet"


def write_result(folder: Path, result: Result) -> None:
    """Store a result atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"row": result.rows, "y": result.y}
    for index, level in enumerate(result.run.levels):
        ends = (result.y_pred[:, index], *result.intervals[:, :, index].T)
        columns |= {f"{name}_{level:g}": values for name, values in zip(_COLUMNS, ends, strict=True)}
    about = {"run": asdict(result.run), "seconds": result.seconds, "error": result.error, "lvd": __version__}
    table = pa.table(columns).replace_schema_metadata({"lvd": json.dumps(about)})
    target = path_of(folder, result.run)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as part:
        pq.write_table(table, part, compression="zstd")


def read_result(path: Path) -> Result:
    """The result stored in one file."""
    import pyarrow.parquet as pq

    with _explained(path):
        table = pq.read_table(path)
        about = _about(table.schema)
        run: BenchRun = about["run"]
        column = {name: table[name].to_numpy() for name in table.column_names}
        y_pred, lower, upper = (
            np.stack([column[f"{name}_{level:g}"] for level in run.levels], axis=1) for name in _COLUMNS
        )
        intervals = np.stack([lower, upper], axis=1)
        return Result(run, column["row"], column["y"], y_pred, intervals, about["seconds"], about["error"])


def read_error(path: Path) -> str | None:
    """The error of a stored run, None if it succeeded."""
    return _read_about(path)["error"]


def files_of(folder: Path) -> list[Path]:
    """All result files in a folder; hidden files were left by a killed process."""
    files = sorted((folder / "runs").glob("[!.]*.parquet"))
    if not files:
        raise InputError(f"no results in {folder}; make some with: python -m experiments run --out {folder}")
    return files


def read_all(folder: Path) -> list[Result]:
    """Read all results in a folder."""
    return [read_result(file) for file in files_of(folder)]


def files_by_split(folder: Path) -> dict[tuple[str, str, int], list[Path]]:
    """The result files of a folder grouped by split."""
    return grouped(files_of(folder), lambda file: _read_about(file)["run"].split)


def _read_about(path: Path) -> dict[str, Any]:
    """What is stored with a result, without reading its rows."""
    import pyarrow.parquet as pq

    with _explained(path):
        return _about(pq.read_schema(path))


def _about(schema: pa.Schema) -> dict[str, Any]:
    """The stored run, its seconds and its error."""
    about = json.loads((schema.metadata or {})[b"lvd"])
    run = BenchRun(**about["run"] | {"levels": tuple(about["run"]["levels"])})
    return {"run": run, "seconds": about["seconds"], "error": about["error"]}


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, KeyError, TypeError, ValueError) as error:  # pyarrow.ArrowInvalid is a ValueError
        raise InputError(
            f"{path} is not a result of the experiments ({error}); delete it and run again"
        ) from error


T = TypeVar("T")
_KINDS = {"int": int, "float": float, "str": str}


def write_dataclasses(rows: Iterable[Any], path: Path, kind: type, *, digits: int = 9) -> None:
    """Write instances of the dataclass `kind`, floats with `digits` significant digits."""
    with atomic_path(path) as part, part.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(kind)])
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {k: f"{v:.{digits}g}" if isinstance(v, float) else v for k, v in asdict(row).items()}
            )


def read_dataclasses(path: Path, kind: type[T], *, what: str = "", made_by: str = "") -> list[T]:
    """Read rows written by :func:`write_dataclasses`; the error for any other file says that it is not `what`.

    Without `what` the error is left to the caller: OSError, KeyError, TypeError or ValueError.
    """
    kinds = {field.name: _KINDS[str(field.type)] for field in fields(kind)}  # type: ignore[arg-type]
    try:
        with path.open(newline="") as file:
            lines = csv.DictReader(file)
            return [kind(**{name: kinds[name](value) for name, value in line.items()}) for line in lines]
    except (OSError, KeyError, TypeError, ValueError) as error:
        if not what:
            raise
        raise InputError(f"{path} is not {what} ({error}); make one with: {made_by}") from error


@dataclass(frozen=True)
class ResultTable(Generic[T]):
    """A table of results of one kind: one file, or one for each job in the subfolder `part` of a folder.

    Floats are written with `digits` significant digits, and rows sorted by `order`, if it is given.
    """

    kind: type[T]
    what: str
    made_by: str
    digits: int = 9
    part: str = "runs"
    order: Callable[[T], Any] | None = None

    def read(self, source: Path) -> list[T]:
        """All rows of a folder of results, or of a compact table; at least one."""
        # Hidden files were left by a killed process.
        files = sorted((source / self.part).glob("[!.]*.csv")) if source.is_dir() else [source]
        rows = [row for file in files for row in self.read_file(file)]
        if not rows:
            raise InputError(f"no results in {source}; make some with: {self.made_by} --out {source}")
        return rows

    def read_file(self, file: Path) -> list[T]:
        """The rows of one file."""
        return read_dataclasses(file, self.kind, what=self.what, made_by=self.made_by)

    def write(self, rows: Iterable[T], path: Path) -> None:
        """Write one file."""
        in_order = rows if self.order is None else sorted(rows, key=self.order)
        write_dataclasses(in_order, path, self.kind, digits=self.digits)

    def known(self, file: Path) -> list[T]:
        """The rows that a file holds so far."""
        return self.read_file(file) if file.exists() else []

    def put(self, rows: Sequence[T], file: Path, key: Callable[[T], Hashable]) -> None:
        """Rewrite a file with these rows, which replace those with the same keys."""
        new = set(map(key, rows))
        self.write([*(row for row in self.known(file) if key(row) not in new), *rows], file)


PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "chemprop", "rdkit")
"""Packages whose versions affect results."""


@dataclass(frozen=True)
class Call:
    """A completed call of the runner: how many runs it did, in how many seconds.

    `processor_seconds` is the processor time it used on this machine, regardless of other load; None if not
    measured.
    """

    command: str
    ended: str
    versions: dict[str, str]
    machine: str
    runs: int
    seconds: float
    processor_seconds: float | None


@contextmanager
def recorded_call(folder: Path, command: str) -> Iterator[Callable[[int], None]]:
    """Time the block and record it on success, given the number of runs; nothing is recorded for none.

    `command` is stored as given, so leave private paths out.
    """
    start, spent, counts = perf_counter(), _processor_seconds(), Counter[str]()
    yield lambda n_runs: counts.update(runs=n_runs)
    if not counts["runs"]:
        return
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    versions = {"python": platform.python_version(), "lvd": __version__} | _package_versions()
    seconds, processor_seconds = perf_counter() - start, _processor_seconds() - spent
    call = Call(
        *(command, ended, versions | {"blas": _blas()}, _machine(), counts["runs"]),
        *(round(seconds, 1), round(processor_seconds, 1)),
    )
    calls = folder / "calls"
    calls.mkdir(parents=True, exist_ok=True)
    write_calls([call], calls / f"{ended.replace(':', '')}-{os.getpid()}.json")


def _package_versions() -> dict[str, str]:
    """The versions of the installed packages."""
    versions = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def processor_name() -> str:
    """The processor's model, if the system names it: results depend on its rounding."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _blas() -> str:
    """The BLAS libraries of torch and numpy."""
    import torch

    torch_blas = "MKL" if torch.backends.mkl.is_available() else "not MKL"
    numpy_blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    return f"torch {torch_blas}, numpy {numpy_blas}"


def _machine() -> str:
    import torch

    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    processor = f"{processor_name()} ({torch.backends.cpu.get_cpu_capability()})"
    return f"{platform.system()} {platform.machine()}, {processor}, {os.cpu_count()} cores{gpu}"


def _processor_seconds() -> float:
    """The processor time of this process and its finished workers so far."""
    return sum(os.times()[:4])


def write_calls(calls: list[Call], path: Path) -> None:
    """Write records as a JSON file."""
    write_text(path, json.dumps([asdict(call) for call in calls], indent=2) + "\n")


def read_calls(path: Path) -> list[Call]:
    """The records of a folder of results, next to a compact table, or in a folder of tables, if any."""
    records = sorted((path / "calls").glob("[!.]*.json")) or sorted(path.glob("[!.]*.json"))
    files = records if path.is_dir() else [path.with_suffix(".json")]
    try:
        return [Call(**entry) for file in files if file.exists() for entry in json.loads(file.read_text())]
    except (OSError, TypeError, ValueError) as error:
        raise InputError(
            f"the record of calls in {path} cannot be read ({error}); delete it and run again"
        ) from error
