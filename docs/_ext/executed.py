"""Pages whose code runs: ``python`` blocks in one namespace, and the ``lvd`` lines of ``console`` blocks."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

from lvd.cli import main

BLOCK = re.compile(r"^```(?P<language>python|console)\n(?P<code>.*?)^```\n", re.DOTALL | re.MULTILINE)
NEEDS = re.compile(r"\A---\nneeds: (?P<package>\w+)\n---\n")


def missing_package(text: str) -> str | None:
    """The package that a page says it ``needs`` in its first lines, where it is not installed."""
    needs = NEEDS.match(text)
    return None if needs is None or find_spec(needs["package"]) else needs["package"]


def execute(text: str, folder: Path) -> str:
    """The page with what its blocks print; they run in `folder`, and an error in them is raised."""
    namespace: dict[str, object] = {"__name__": "__main__"}

    def with_output(block: re.Match[str]) -> str:
        if block["language"] == "console":
            return f"```console\n{''.join(map(_run_line, block['code'].splitlines()))}```\n"
        line = text.count("\n", 0, block.start("code"))
        with captured() as printed:
            exec(compile("\n" * line + block["code"], "<page>", "exec"), namespace)
        output = printed.getvalue()
        return block[0] + (f"\n```text\n{output.rstrip()}\n```\n" if output.strip() else "")

    with chdir(folder):
        return BLOCK.sub(with_output, text)


def _run_line(line: str) -> str:
    """The line, and below it what the command prints if it is one of lvd's."""
    if not line.startswith("$ lvd "):
        return f"{line}\n"
    with (
        captured() as printed,
        patch.object(sys, "argv", shlex.split(line.removeprefix("$ "), comments=True)),
    ):
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"{line} ended with {end.code}") from end
    return f"{line}\n{printed.getvalue().strip()}\n"


@contextmanager
def captured() -> Iterator[io.StringIO]:
    """What is printed, with figures drawn to files only."""
    with redirect_stdout(io.StringIO()) as printed, patch.dict(os.environ, {"MPLBACKEND": "Agg"}):
        yield printed
