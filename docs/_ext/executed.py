"""Pages whose code runs: ``python`` blocks in one namespace, and the ``lvd`` lines of ``console`` blocks.

Pages among the notebooks are shown with the figures that their blocks draw, and can be had as Jupyter notebooks.
"""

from __future__ import annotations

import base64
import io
import json
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
        shown = f"\n```text\n{output.rstrip()}\n```\n" if output.strip() else ""
        return block[0] + shown + "".join(drawn_figures())

    with chdir(folder):
        return BLOCK.sub(with_output, text)


def drawn_figures() -> Iterator[str]:
    """The figures that pyplot has open, as pictures inside the page, and closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    for number in pyplot.get_fignums() if pyplot else ():
        content = io.BytesIO()
        pyplot.figure(number).savefig(content, format="png", dpi=110, facecolor="white")
        pyplot.close(number)
        data = base64.b64encode(content.getvalue()).decode()
        yield f'\n<img class="drawn" alt="What the block above draws" src="data:image/png;base64,{data}">\n'


def as_notebook(text: str) -> str:
    """The page as a Jupyter notebook without outputs: its blocks are cells, and so is the text between them."""
    cells, end = [], 0
    text = NEEDS.sub("", text)
    for block in [*BLOCK.finditer(text), None]:
        between = text[end : block.start() if block else len(text)].strip()
        cells += [_cell("markdown", between)] if between else []
        if block:
            code = re.sub(r"^\$ ", "!", block["code"], flags=re.MULTILINE)
            cells.append(_cell("code", code.strip()))
            end = block.end()
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 4}, indent=1)


def _cell(kind: str, source: str) -> dict[str, object]:
    only_code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)} | only_code


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
        os.environ.pop("DISPLAY", None)  # else pyplot warns that it cannot show anything there
        yield printed
