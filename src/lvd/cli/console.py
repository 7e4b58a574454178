"""Printing: results to standard output, all else to standard error; colours and progress on terminals only.

And how options are declared, for the help that is printed.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer

from lvd._json import to_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lvd.tables.writing import Unseen

_WIDE = 1000
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that act on the terminal, break the line, or turn the direction of writing."""
_HOUR = 3600.0


def examples(*commands: str) -> str:
    """The text below a command's help."""
    return "\n".join(["Examples:", "", "\b", *(f"  {command}" for command in commands)])


def option(metavar: str, text: str, default: bool | str = False, *names: str, **limits: Any) -> Any:
    """An option with a value; `default` is shown in its help, or what to say in its place."""
    return typer.Option(*names, metavar=metavar, show_default=default, help=text, **limits)


def argument(metavar: str, text: str) -> Any:
    """An argument, which `metavar` names in the help."""
    return typer.Argument(metavar=metavar, show_default=False, help=text)


def show(text: str = "") -> None:
    """Print a line of the result."""
    _console().print(escape_controls(text), soft_wrap=True)


def escape_controls(text: str) -> str:
    """Names from a table or a command could move the cursor and rewrite the screen: such characters are spelled."""
    return CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def show_unknown(n_unknown: int, unseen: Unseen, n_rows: int) -> None:
    """How many rows the model knows too little about, and which texts it has never seen."""
    if n_unknown:
        be, them = ("is", "it") if n_unknown == 1 else ("are", "them")
        show(f"{n_unknown:,} of {n_rows:,} rows {be} unknown: no training row is similar to {them}")
    if unseen.n_levels:
        columns = "; ".join(
            f"{column}: {', '.join(repr(text) if text else 'missing' for text in texts)}"
            for column, texts in unseen.levels.items()
        )
        hold = "holds" if unseen.n_levels == 1 else "hold"
        show(f"{unseen.n_levels:,} of these {hold} a text that no training row has ({columns})")
    if unseen.n_groups:
        belong, are = (
            ("belongs", "its interval is") if unseen.n_groups == 1 else ("belong", "their intervals are")
        )
        show(
            f"{unseen.n_groups:,} of {n_rows:,} rows {belong} to a group without calibration rows: {are} infinite"
        )


def show_left_out(n_skipped: int, n_unlabelled: int) -> None:
    """How many rows are left out, and why."""
    if n_skipped or n_unlabelled:
        show(f"left out: {left_out(n_skipped, n_unlabelled)}")


def left_out(n_skipped: int, n_unlabelled: int) -> str:
    """``3 rows that the model cannot read, 1 row without a target``; ``no row``."""
    counts = ((n_skipped, "that the model cannot read"), (n_unlabelled, "without a target"))
    return ", ".join(f"{n:,} row{'' if n == 1 else 's'} {why}" for n, why in counts if n) or "no row"


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
    """Print the result for machines; infinity, for which JSON has no number, is a string, and NaN is null."""
    sys.stdout.write(to_json(content, indent=2) + "\n")


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
def stages(what: str, weights: Mapping[str, float]) -> Iterator[Callable[[str], None]]:
    """Say which stage is at work and about how long the rest will take; call with each stage that begins.

    `weights` are how long the stages take, relative to each other, by the beginning of their names; in a stage
    whose name ends in ``2 of 5`` the parts take equally long.
    """
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TimeElapsedColumn

    start, total, done, ends = monotonic(), sum(weights.values()), 0.0, math.inf

    def text_left() -> str:
        left = ends - monotonic()
        return "" if math.isinf(left) else f"about {max(1, round(left))} s left"

    columns = SpinnerColumn(), "{task.description}", BarColumn(), TimeElapsedColumn()
    with Progress(*columns, _live_column(text_left), console=_console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def begin(stage: str) -> None:
            nonlocal done, ends
            reached = done_before(stage, weights)
            done = done if reached is None else max(done, reached)
            if reached:
                ends = start + (monotonic() - start) * total / done
            bar.update(task, description=f"{what}: {stage}", completed=done)

        yield begin


def done_before(stage: str, weights: Mapping[str, float]) -> float | None:
    """The weight of all that comes before this stage; None for a stage that is not among them."""
    names = list(weights)
    found = next((name for name in names if stage.startswith(name)), None)
    if found is None:
        return None
    before = sum(weights[name] for name in names[: names.index(found)])
    part = re.search(r"(\d+) of (\d+)$", stage)
    return before + (weights[found] * (int(part[1]) - 1) / int(part[2]) if part else 0.0)


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar over `total` rows, or a count of rows where the total is unknown; call with the rows just done."""
    if not sys.stderr.isatty():
        yield lambda n_rows: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    times = TimeElapsedColumn(), "left", TimeRemainingColumn()
    columns = "{task.description}", BarColumn(), MofNCompleteColumn(), *times
    with Progress(
        *columns, console=_console(stderr=True), transient=True, speed_estimate_period=_HOUR
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n_rows: bar.advance(task, n_rows)


def _live_column(text: Callable[[], str]) -> Any:
    """A column that asks for its text again whenever it is drawn."""
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Live(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(text())

    return Live()


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    # Without a terminal there is no width to fit in.
    return Console(
        stderr=stderr, width=None if terminal else _WIDE, markup=False, emoji=False, highlight=False
    )
