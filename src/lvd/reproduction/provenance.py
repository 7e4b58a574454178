"""How results came about: the command, the versions and the machine of every call of the runner."""

from __future__ import annotations

import json
import os
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lvd._files import atomic_path
from lvd._validation import InputError
from lvd._version import __version__

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "chemprop", "rdkit")


@dataclass(frozen=True)
class Call:
    """One call of the runner that went to its end: how many runs it did, in how many seconds.

    `processor_seconds` is what this machine's processors spent on it, whatever else they did meanwhile; None where
    it was not taken.
    """

    command: str
    ended: str
    versions: dict[str, str]
    machine: str
    runs: int
    seconds: float
    processor_seconds: float | None


def record(folder: Path, command: str, *, runs: int, seconds: float, processor_seconds: float) -> None:
    """Note a call that has just ended; `command` is kept as it is given, so leave private paths out."""
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    call = Call(
        command,
        ended,
        {"python": platform.python_version(), "lvd": __version__} | _versions() | {"blas": _blas()},
        _machine(),
        runs,
        round(seconds, 1),
        round(processor_seconds, 1),
    )
    calls = folder / "calls"
    calls.mkdir(parents=True, exist_ok=True)
    write([call], calls / f"{ended.replace(':', '')}-{os.getpid()}.json")


def _versions() -> dict[str, str]:
    """Of the packages that are installed."""
    versions = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def processor_name() -> str:
    """The processor's model, where the system tells it: results move with its rounding."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _blas() -> str:
    """Whose products of matrices: torch's, and numpy's."""
    import numpy as np
    import torch

    torch_blas = "MKL" if torch.backends.mkl.is_available() else "not MKL"
    numpy_blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    return f"torch {torch_blas}, numpy {numpy_blas}"


def _machine() -> str:
    import torch

    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    processor = f"{processor_name()} ({torch.backends.cpu.get_cpu_capability()})"
    return f"{platform.system()} {platform.machine()}, {processor}, {os.cpu_count()} cores{gpu}"


def processor_seconds() -> float:
    """What this process and its ended workers have taken until now."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def write(calls: list[Call], path: Path) -> None:
    """Records as a JSON file."""
    with atomic_path(path) as part:
        part.write_text(json.dumps([asdict(call) for call in calls], indent=2) + "\n")


def read(path: Path) -> list[Call]:
    """The records of a folder of results, or beside a compact table, or in a folder of them, if there are any."""
    records = sorted((path / "calls").glob("[!.]*.json")) or sorted(path.glob("[!.]*.json"))
    files = records if path.is_dir() else [path.with_suffix(".json")]
    try:
        return [Call(**entry) for file in files if file.exists() for entry in json.loads(file.read_text())]
    except (OSError, TypeError, ValueError) as error:
        raise InputError(
            f"the record of calls in {path} cannot be read ({error}); delete it and run again"
        ) from error
