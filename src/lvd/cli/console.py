"""Printing: results to standard output, all else to standard error; colours and progress on terminals only."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_WIDE = 1000
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that act on the terminal, break the line, or turn the direction of writing."""
_HOUR = 3600.0


def examples(*commands: str) -> str:
    """The text below a command's help."""
    return "\n".join(["Examples:", "", "\b", *(f"  {command}" for command in commands)])


def show(text: str = "") -> None:
    """Print a line of the result."""
    _console().print(escape_controls(text), soft_wrap=True)


def escape_controls(text: str) -> str:
    """Names from a table or a command could move the cursor and rewrite the screen: such characters are spelled."""
    return CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def count_refused(n_rows: int) -> str:
    """``3 rows that the model cannot read``."""
    return f"{n_rows:,} row{'' if n_rows == 1 else 's'} that the model cannot read"


def show_unknown(n_unknown: int, n_unseen_groups: int, n_rows: int) -> None:
    """How many rows the model knows too little about."""
    if n_unknown:
        show(f"{n_unknown:,} of {n_rows:,} rows are unknown: no training row is near them")
    if n_unseen_groups:
        show(
            f"{n_unseen_groups:,} of {n_rows:,} rows are of a group that no calibration row has: "
            "their intervals are infinite"
        )


def show_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 1) -> None:
    """Print a table of the result; all but the first `text_columns` are numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(escape_controls(heading), justify="left" if number < text_columns else "right")
    for row in rows:
        table.add_row(*map(escape_controls, row))
    _console().print(table)


def show_parts(parts: Iterable[RenderableType]) -> None:
    """Print texts and tables of rich one below the other; a table too wide for the terminal is not cut."""
    console = _console()
    for part in parts:
        console.print(part, width=max(console.width, console.measure(part).minimum), crop=False)


def show_json(content: Any) -> None:
    """Print the result for machines; what JSON has no number for, infinity and NaN, is null."""
    sys.stdout.write(json.dumps(_without_infinity(content), indent=2) + "\n")


def complain(kind: str, message: str) -> None:
    """Print an error or a warning to standard error."""
    console = _console(stderr=True)
    console.print(f"{kind}: ", style="bold red" if kind == "error" else "yellow", end="")
    console.print(escape_controls(message), soft_wrap=True)


def foretell(text: str) -> None:
    """Say what comes next, on terminals only."""
    if sys.stderr.isatty():
        _console(stderr=True).print(text)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Say what takes so long while it takes; call with each stage that begins."""
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    with _console(stderr=True).status(what) as status:
        yield lambda stage: status.update(f"{what}: {stage}")


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar over `total` rows, or a count of rows where the total is unknown; call with the rows just done."""
    if not sys.stderr.isatty():
        yield lambda n_rows: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=_console(stderr=True), transient=True, speed_estimate_period=_HOUR
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n_rows: bar.advance(task, n_rows)


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    # Without a terminal there is no width to fit in.
    return Console(
        stderr=stderr, width=None if terminal else _WIDE, markup=False, emoji=False, highlight=False
    )


def _without_infinity(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_infinity(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_without_infinity(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
