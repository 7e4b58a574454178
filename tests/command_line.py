"""The command lines, run as a user runs them or inside this process."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
import typer

from experiments.commands import app as experiments
from lvd.cli.app import app, main

ROOT = Path(__file__).resolve().parents[1]
COMMAND = Path(sys.executable).with_name("lvd")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def run_here(
    *arguments: object,
    commands: typer.Typer = app,
    stream_type: type[io.TextIOWrapper] = io.TextIOWrapper,
    out: io.TextIOWrapper | None = None,
) -> Outcome:
    """``lvd arguments`` in this process, which spares loading torch; with `out` it prints there."""
    streams = [stream_type(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with (
        patch.object(sys, "argv", ["lvd", *map(str, arguments)]),
        contextlib.redirect_stdout(streams[0] if out is None else out),
        contextlib.redirect_stderr(streams[1]),
        pytest.raises(SystemExit) as end,
    ):
        main(commands)
    texts = []
    for stream in streams:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return Outcome(end.value.code, *texts)


def start(
    *arguments: object, command: tuple[object, ...] = (COMMAND,), **options: object
) -> subprocess.Popen:
    """The real command, on one thread."""
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **options,
    )


def run_outside(*arguments: object, timeout: float = 280, **options: object) -> Outcome:
    with start(*arguments, **options) as process:
        out, err = process.communicate(timeout=timeout)
    return Outcome(process.returncode, out.decode(), err.decode())


experiments_here = functools.partial(run_here, commands=experiments)
start_experiments = functools.partial(start, command=(sys.executable, "-m", "experiments"), cwd=ROOT)
