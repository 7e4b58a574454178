"""A real Ray cluster on this machine, and tables and kills to try it with."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

MARKS = [
    pytest.mark.apart,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning"),
]
"""Clusters take long to start, and Ray warns of itself."""


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Ray asks for no token, sends nothing, and does not look for a cluster that is there already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


@contextlib.contextmanager
def started() -> Iterator[Any]:
    """Ray on two cores, and on the GPUs that it finds; the test is skipped where Ray is not installed."""
    ray = pytest.importorskip("ray")
    with settings():
        _start(ray)
        try:
            yield ray
        finally:
            ray.shutdown()


def _start(ray: Any, attempts: int = 3) -> None:
    """Ray gives up after 30 seconds, which is too soon where other jobs hold the cores."""
    try:
        ray.init(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    except Exception as error:
        ray.shutdown()
        if attempts == 1 or "timed out during startup" not in str(error):
            raise
        _start(ray, attempts - 1)


def write_parts(folder: Path, csv: Path) -> list[Path]:
    """Three Parquet files, the last of them long enough to be at work when an actor is killed."""
    table = pa_csv.read_csv(csv)
    table = table.append_column("kind", table["district"].dictionary_encode())
    for number, copies in enumerate([1, 2, 9]):
        part = pa.concat_tables([table] * copies).combine_chunks()
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=70)
    return sorted(folder.iterdir())


class Killer:
    """To be called after each batch: it kills an actor of this process's cluster once."""

    def __init__(self) -> None:
        self.killed: list[int] = []

    def __call__(self, n_rows: int) -> None:
        if not self.killed:
            self.killed = workers_of("ray::MapWorker")[:1]
            os.kill(self.killed[0], signal.SIGKILL)


def workers_of(name: str) -> list[int]:
    """The processes of this test's cluster that do `name`: children of a child of this process."""
    return [pid for pid in descendants(os.getpid(), name) if _parent(_parent(pid)) == os.getpid()]


def descendants(root: int, name: str) -> list[int]:
    """The processes that `root` has started, directly or not, and that do `name`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if name.encode() not in (entry / "cmdline").read_bytes():
                continue
            above = int(entry.name)
            while above > 1 and above != root:
                above = _parent(above)
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if above == root:
            found.append(int(entry.name))
    return found


def wait_for(process: subprocess.Popen, name: str) -> None:
    """Until the process has started, directly or not, one that does `name`."""
    while process.poll() is None and not descendants(process.pid, name):
        time.sleep(0.05)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
