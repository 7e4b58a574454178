"""Shared by all commands: declaring options, checking them before the work starts, and printing results.

Results go to standard output, everything else to standard error; colours and progress are for terminals only.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lvd._json import to_json
from lvd._progress import StageTimes

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lvd.tables.table_encoder import Unseen
    from lvd.tables.table_model import TableModel

_WIDE = 1000
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that control the terminal, break the line, or reverse the writing direction."""
_HOUR = 3600.0
LEAST_SECONDS = 0.05
"""Stages that take less are not reported."""


def examples(*commands: str) -> str:
    """The text below a command's help."""
    return "\n".join(["Examples:", "", "\b", *(f"  {command}" for command in commands)])


def option(metavar: str, text: str, default: bool | str = False, *names: str, **limits: Any) -> Any:
    """An option with a value; `default` says whether the help shows the default, or what it shows instead."""
    return typer.Option(*names, metavar=metavar, show_default=default, help=text, **limits)


def argument(metavar: str, text: str) -> Any:
    """An argument, which `metavar` names in the help."""
    return typer.Argument(metavar=metavar, show_default=False, help=text)


ALARMED = 3
"""The exit status when there is an alarm."""
Guarantee = Literal["local", "calibrated", "randomized", "transductive"]
"""The coverage guarantees of :meth:`lvd.LocalConformal.radius`."""
Model = Annotated[Path, argument("MODEL", "The folder that lvd fit wrote.")]
Data = Annotated[Path, argument("DATA", "A table with a header: .csv, .csv.gz or .parquet.")]
Levels = Annotated[
    list[float] | None,
    option(
        "LEVEL",
        "Confidence level between 0 and 1; repeat for several levels.",
        "the level given to lvd fit",
        "--level",
    ),
]
GuaranteeOfFit = Annotated[
    Guarantee | None,
    typer.Option(
        "--guarantee", show_default="as in lvd fit", help="The coverage guarantee; see lvd fit --help."
    ),
]
Trust = Annotated[
    list[str] | None,
    option(
        "MODULE:CLASS",
        "Trust a class of your own that the model uses, such as that of lvd fit --kernel: its code will run. "
        "Repeat for several.",
        "none; models that use such a class are refused",
        "--trust",
    ),
]
Level = Annotated[
    float | None,
    typer.Option(show_default="the level given to lvd fit", help="Confidence level between 0 and 1."),
]
SkipInvalid = Annotated[
    bool,
    typer.Option(
        "--skip-invalid",
        help="Skip and count rows that the model cannot read, instead of stopping with an error.",
    ),
]
Engine = Annotated[Literal["local", "ray"], typer.Option(help="This machine, or a Ray cluster (extra ray).")]
Address = Annotated[
    str | None,
    option(
        "HOST:PORT",
        "The Ray cluster to use; auto finds the one running on this machine.",
        "a new one on this machine",
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help='Print JSON; infinite numbers become the strings "Infinity" and "-Infinity", undefined ones null.',
    ),
]


def own_class(name: str) -> type[Any]:
    """The class that an option names as MODULE:CLASS, from the current folder or an installed package."""
    from lvd.store import class_named

    folder = str(Path.cwd())
    if folder not in sys.path:  # an installed command does not search it
        sys.path.append(folder)
    return class_named(name)


def load_fitted(
    folder: Path,
    trust: Sequence[str] | None,
    *,
    skip_invalid: bool = False,
    guarantee: Guarantee | None = None,
) -> TableModel:
    """Load a model and the classes it may use, with another guarantee if one is given."""
    from lvd.tables.table_model import TableModel

    trusted = [own_class(name) for name in trust or ()]
    fitted = TableModel.load(folder, skip_invalid=skip_invalid, trusted=trusted)
    return fitted if guarantee is None else replace(fitted, guarantee=guarantee)


def check_engine(engine: str, address: str | None) -> None:
    """Refuse --address without --engine ray."""
    from lvd._validation import InputError

    if address is not None and engine != "ray":
        raise InputError(f"--address names a Ray cluster; give --engine ray with it, got --engine {engine}")


def check_files(
    files: Mapping[str, Path | None], *inputs: str | Path | None, model: Path | None = None
) -> None:
    """Before the work, check that the output `files`, by option, can be written and are no inputs.

    See :func:`check_apart`; `model` is the folder of --out.
    """
    from lvd._files import check_output

    check_apart({"--out": model} | dict(files), *inputs)
    for file in filter(None, files.values()):
        check_output(file)


def check_apart(written: Mapping[str, Path | None], *inputs: str | Path | None) -> None:
    """Refuse an output that is an input or another output, under any name, or is inside one of them."""
    from lvd._files import overlap
    from lvd._validation import InputError

    outputs = [(name, out) for name, out in written.items() if out is not None]
    for number, (name, out) in enumerate(outputs):
        others = [f"{other} {str(place)!r}" for other, place in outputs[:number] if overlap(out, place)]
        others += [
            f"its own input {str(given)!r}" for given in inputs if given is not None and overlap(out, given)
        ]
        if others:
            raise InputError(f"{name} {str(out)!r} would overwrite {others[0]}; give another name")


def check_free(out: Path, *, force: bool) -> None:
    """Refuse to write a model where something exists; with --force, only an older model may be replaced."""
    from lvd import store

    check_new(out, force=force)
    store.check_replaceable(out)


def check_new(out: Path, *, force: bool) -> None:
    """Refuse to replace an existing file or folder without --force."""
    from lvd._validation import InputError

    if os.path.exists(out) and not force:  # noqa: PTH110  (Path.exists fails for a name that is too long)
        raise InputError(f"{out} exists already; give --force to replace it, or another name")


def warn_of_training_rows(
    n_repeated: int, n_rows: int, fitted: TableModel, consequence: str, *, n_calibrating: int = 0
) -> None:
    """Warn of rows that the model was trained or calibrated on: results on them say nothing about new rows."""
    from lvd.calibration import CalibrationWarning

    warned = []
    if n_repeated:
        known = f"{n_repeated} of {n_rows} rows {fitted.encoder.repeated}"
        warned.append(f"{known}: if the model was trained on them, {consequence}")
    if n_calibrating:
        warned.append(
            f"{n_calibrating} of {n_rows} rows are calibration rows of the model: its intervals were made to "
            "contain them; use rows that it has not seen"
        )
    for text in warned:
        warnings.warn(text, CalibrationWarning, stacklevel=1)


def show(text: str = "") -> None:
    """Print a line of the result."""
    _console().print(escape_controls(text), soft_wrap=True)


def escape_controls(text: str) -> str:
    """Spell out control characters: a name in a table could otherwise move the cursor and rewrite the screen."""
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
    """Print rich's texts and tables one below the other; a table too wide for the terminal is not cut."""
    console = _console()
    for part in parts:
        console.print(part, width=max(console.width, console.measure(part).minimum), crop=False)


def show_json(content: Any) -> None:
    """Print the result as JSON; infinity, which JSON lacks, becomes a string, and NaN becomes null."""
    sys.stdout.write(to_json(content, indent=2) + "\n")


def complain(kind: str, message: str) -> None:
    """Print an error or a warning to standard error."""
    console = _console(stderr=True)
    console.print(f"{kind}: ", style="bold red" if kind == "error" else "yellow", end="")
    console.print(escape_controls(message), soft_wrap=True)


def show_stage(text: str) -> None:
    """Print the name of the stage that begins, on terminals only."""
    if sys.stderr.isatty():
        _console(stderr=True).print(text)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show `what` with a spinner while the block runs; call with the name of each stage."""
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    with _console(stderr=True).status(what) as status:
        yield lambda stage: status.update(f"{what}: {stage}")


@contextmanager
def stages(what: str, expected: Mapping[str, float]) -> Iterator[Callable[[str], None]]:
    """On a terminal, show the current stage and the estimated time left, and at the end the time of each stage.

    Yields a function to call with the name of each stage as it begins. `expected` holds the seconds of the stages,
    see :class:`lvd._progress.StageTimes`.
    """
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TimeElapsedColumn

    times = StageTimes(expected)

    def text_left() -> str:
        left = times.total - (times.clock() - times.start)
        return f"about {max(1, round(left))} s left"

    columns = SpinnerColumn(), "{task.description}", BarColumn(), TimeElapsedColumn()
    with Progress(*columns, _live_column(text_left), console=_console(stderr=True), transient=True) as bar:
        task, done = bar.add_task(what, total=1.0), 0.0

        def begin(stage: str) -> None:
            nonlocal done
            times.begin(stage)
            done = max(done, times.share)  # the bar never goes back
            bar.update(task, description=f"{what}: {stage}", completed=done)

        yield begin
    show_stage(stage_text(times.finish()))


def stage_text(taken: Mapping[str, float]) -> str:
    """The seconds of each stage, in one line."""
    parts = [f"{name} {seconds:.1f}" for name, seconds in taken.items() if seconds >= LEAST_SECONDS]
    return f"{sum(taken.values()):.1f} s in all{': ' * bool(parts)}{', '.join(parts)}"


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
    """A column that computes its text whenever it is drawn."""
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Live(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(text())

    return Live()


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    # Without a terminal there is no width to fit into.
    return Console(
        stderr=stderr, width=None if terminal else _WIDE, markup=False, emoji=False, highlight=False
    )
