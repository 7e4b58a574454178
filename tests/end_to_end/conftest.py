"""The command line, run as a user runs it or inside this process, and one model that the tests share."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest

from lvd.cli import main

COMMAND = Path(sys.executable).with_name("lvd")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def run_here(*arguments: object, stream_type: type[io.TextIOWrapper] = io.TextIOWrapper) -> Outcome:
    """``lvd arguments`` in this process, which spares loading torch."""
    streams = [stream_type(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with (
        patch.object(sys, "argv", ["lvd", *map(str, arguments)]),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
        pytest.raises(SystemExit) as end,
    ):
        main()
    texts = []
    for stream in streams:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return Outcome(end.value.code, *texts)


def start(*arguments: object, **options: object) -> subprocess.Popen:
    """The real command, on one thread."""
    return subprocess.Popen(
        [COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **options,
    )


def run_outside(*arguments: object, **options: object) -> Outcome:
    with start(*arguments, **options) as process:
        out, err = process.communicate(timeout=280)
    return Outcome(process.returncode, out.decode(), err.decode())


@pytest.fixture(scope="session")
def lvd_here():
    return run_here


@pytest.fixture(scope="session")
def lvd_on_terminal():
    return functools.partial(run_here, stream_type=Terminal)


@pytest.fixture(scope="session")
def lvd_outside():
    return run_outside


@pytest.fixture(scope="session")
def lvd_start():
    return start


def write_homes(path: Path, n_rows: int, seed: int) -> None:
    """A table with numbers, text, true/false values and an identifier."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "area", "rooms", "district", "garden", "price"])
        for number in range(n_rows):
            area, rooms = rng.uniform(30, 200), rng.integers(1, 7)
            district, garden = rng.choice(["north", "south", "old, town"]), rng.random() < 0.5
            noise = 30.0 if district == "north" else 5.0
            price = 2.0 * area + 10.0 * rooms + 40.0 * garden + noise * rng.normal()
            writer.writerow(
                [f"home-{number}", f"{area:.2f}", rooms, district, str(bool(garden)).lower(), f"{price:.3f}"]
            )


class Homes(NamedTuple):
    model: Path
    table: Path
    new: Path
    report: str


@pytest.fixture(scope="session")
def homes(tmp_path_factory) -> Homes:
    """A fitted model, its table, and a table of rows it has not seen; not to be changed."""
    folder = tmp_path_factory.mktemp("homes")
    found = Homes(folder / "model", folder / "homes.csv", folder / "new.csv", "")
    write_homes(found.table, 500, seed=0)
    write_homes(found.new, 120, seed=1)
    outcome = run_here(
        *("fit", found.table, "--target", "price", "--drop", "id", "--epochs", 20, "--out", found.model)
    )
    assert outcome.code == 0, outcome.err
    return found._replace(report=outcome.out)


@pytest.fixture(scope="module")
def ray_settings():
    """Ray asks for no token, sends nothing, and does not look for a cluster that is there already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.delenv("RAY_ADDRESS", raising=False)
        yield
