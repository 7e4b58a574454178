"""The command ``lvd`` and how it reports refused input; each command loads the heavy modules that it needs."""

from __future__ import annotations

import atexit
import gc
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from io import TextIOWrapper
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import lvd
from lvd._progress import STANDARD_OUTPUT, WRITTEN
from lvd.cli import (
    console,
    evaluate,
    example_data,
    explain,
    export,
    fit,
    online,
    predict,
    report,
    server,
    watch,
)

if TYPE_CHECKING:
    from lvd._validation import InputError, Parameter

LOADED_LATE = frozenset({"scipy.stats", "numpy.f2py", "numpy.testing"})
"""Modules that scikit-learn and scipy import but no prediction uses: a third of their loading time."""
FIRST_COLLECTED, COLLECTED = 1_000_000, 100_000
"""Number of new objects that triggers the first garbage collection (more than a short command creates), and the
later ones."""
REFUSED, UNFINISHED = 2, 1
"""Exit statuses: nothing was written; something was, or standard output was closed early."""
SIGNALLED = 128
"""A shell's exit status for a process that a signal has ended is this plus the number of the signal."""
NAMED = 5
"""An error names at most this many of the files that were written before it."""
ONCE_MORE = 60.0
"""Seconds after which a process that survived such a signal is ended again."""
NAMES = {
    "column": "--smiles",
    "confidence_level": "--level",
    "conformity_score": "--score",
    "level": "--adapt",
    "n_newest": "--newest",
    "trusted": "--trust",
}
"""Options whose name differs from that of the library's parameter."""


class Commands(TyperGroup):
    """All commands; a removed one says what to use instead."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        if cmd_name == "bench":
            from lvd._validation import InputError

            raise InputError(
                "lvd bench is no longer part of the package; in a checkout of lvd's repository, type "
                "python -m experiments instead, with the same commands and options"
            )
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    name="lvd",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"lvd {lvd.__version__}")
        raise typer.Exit
    return wanted


@app.callback(
    epilog=console.examples(
        "lvd fit homes.csv --target price --out homes-model",
        "lvd predict homes-model new-homes.csv --level 0.5 --level 0.9 --out priced.csv",
        "lvd evaluate homes-model sold-homes.csv --by district",
        "lvd explain homes-model new-homes.csv --row 17",
        "lvd monitor homes-model sold-in-may.csv",
        "lvd update homes-model sold-in-may.csv",
    )
)
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Prediction intervals for any table: wide where similar rows had large errors, infinite if no row is similar.

    Fit a model on a table, then predict, evaluate and explain with it, and keep it up to date. Tables are CSV
    (.csv, .csv.gz; UTF-8, comma-separated, with a header) or Parquet. Each command has its own --help.

    The exit status is 0 on success and 2 if input is refused: a message then says why, and nothing is written. It
    is 1 if something failed after a file was written, which the message names, or if standard output could not be
    written in full, and 3 if lvd monitor or lvd online status raises an alarm.
    """


app.command(epilog=fit.EXAMPLES, no_args_is_help=True)(fit.fit)
app.command(epilog=predict.EXAMPLES, no_args_is_help=True)(predict.predict)
app.command("evaluate", epilog=evaluate.EXAMPLES, no_args_is_help=True)(evaluate.evaluate_table)
app.command("explain", epilog=explain.EXAMPLES, no_args_is_help=True)(explain.explain_row)
app.command("report", epilog=report.EXAMPLES, no_args_is_help=True)(report.report_table)
app.command("update", epilog=watch.UPDATE_EXAMPLES, no_args_is_help=True)(watch.update_model)
app.command("monitor", epilog=watch.MONITOR_EXAMPLES, no_args_is_help=True)(watch.monitor_model)
app.command("export", epilog=export.EXAMPLES, no_args_is_help=True)(export.export_graph)
app.command(epilog=example_data.DEMO_EXAMPLES)(example_data.demo)
app.command("serve", epilog=server.EXAMPLES, no_args_is_help=True)(server.serve_model)
app.add_typer(online.online)
app.add_typer(example_data.data)


def main(commands: typer.Typer = app) -> None:
    """Run the command line; refused input gives a message and exit status 2."""
    # Loading torch and scikit-learn creates only long-lived objects: collecting garbage during that time took a
    # sixth of the time of a short command, and still a fifteenth with a collection per 100,000 objects.
    gc.set_threshold(FIRST_COLLECTED, 50, 50)
    if collect_more_often not in gc.callbacks:
        gc.callbacks.append(collect_more_often)
    atexit.register(gc.freeze)  # collecting once more at the end took a quarter of it
    if not any(isinstance(finder, ImportedLater) for finder in sys.meta_path):
        sys.meta_path.insert(0, ImportedLater())
    if sys.stderr is None:  # it is closed
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  (as long as the process runs)
    if sys.stdout is None:
        console.complain("error", "standard output is closed; send it to a file, a pipe or /dev/null")
        sys.exit(REFUSED)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # do not fail on a name that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    WRITTEN.clear()
    with ending_orderly(), warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.simplefilter("ignore", FutureWarning)  # meant for those who write code with these libraries
        warnings.showwarning = lambda message, *_: console.complain("warning", " ".join(str(message).split()))
        sys.exit(_run(commands))


class ImportedLater(MetaPathFinder):
    """Defers loading the modules of :data:`LOADED_LATE` until something in them is used."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module, with a lazy loader."""
        found = PathFinder.find_spec(fullname, path, target) if fullname in LOADED_LATE else None
        if found is not None and found.loader is not None:
            found.loader = LazyLoader(found.loader)
        return found


def collect_more_often(phase: str, _: Any) -> None:
    """Garbage-collector callback: by the end of the first collection, the packages have been loaded."""
    if phase == "stop":
        gc.set_threshold(COLLECTED, 50, 50)
        gc.callbacks.remove(collect_more_often)


def _run(commands: typer.Typer) -> int | str | None:
    """Run a command and return its exit status. Failing to print is an error, except into a closed pipe."""
    status: int | str | None = REFUSED
    try:
        try:
            commands()
        except SystemExit as end:
            status = end.code
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _drop_output()
        return UNFINISHED
    except OSError as error:
        _drop_output()
        where = "standard output" if error.filename is None else repr(os.fspath(error.filename))
        return _complain(
            f"cannot read or write {where}: {error.strerror or error}; check its name, permissions and disk",
            printed=error.filename is None,
        )
    except ValueError as error:
        from lvd._validation import InputError  # loads numpy, which the help does not need

        if not isinstance(error, InputError):
            raise
        return _complain(name_options(error))


def _complain(message: str, *, printed: bool = False) -> int:
    """Report an error, and what was written to files or (`printed`) to standard output before it; the status."""
    from lvd._files import cache_folder

    cache = os.path.realpath(cache_folder())
    kept = [path for path in dict.fromkeys(WRITTEN) if path.exists() and not path.is_relative_to(cache)]
    files = list(map(str, kept))
    if printed := printed or STANDARD_OUTPUT in WRITTEN:
        message += "; what is on standard output is incomplete"
    if files:
        more = f" and {len(files) - NAMED:,} more" if len(files) > NAMED else ""
        message += f"; written before: {', '.join(files[:NAMED])}{more}"
    console.complain("error", message)
    return UNFINISHED if printed or files else REFUSED


def name_options(error: InputError) -> str:
    """The message of an error with its parameters written as options: ``--drop id`` for ``drop=['id']``."""
    return "".join(piece if isinstance(piece, str) else _as_option(piece) for piece in error.pieces)


@cache
def option_names() -> dict[str, str]:
    """The parameters of the library that are options of some command."""
    groups: list[Any] = [typer.main.get_command(one) for one in (app, example_data.data, online.online)]
    parameters = [one for group in groups for command in group.commands.values() for one in command.params]
    return {one.name: one.opts[0] for one in parameters if one.opts[0].startswith("--")} | NAMES


def _as_option(parameter: Parameter) -> str:
    name, value = option_names().get(parameter.name), parameter.value
    if name is None:
        return str(parameter)
    if value is None or value is True:
        return name
    given = value if isinstance(value, list) else [value]
    return " ".join(f"{name} {shlex.quote(str(one))}" for one in given)


def _drop_output() -> None:
    """Discard what is left in Python's buffers, which Python would try to write again at exit."""
    try:
        number = sys.stdout.fileno()
    except OSError:  # a test's own stream
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


@contextmanager
def ending_orderly() -> Iterator[None]:
    """End the process by an exception when a signal asks for it, so that half-written files are removed."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ours = []  # only the main thread may set what a signal does

    def end(number: int, frame: FrameType | None) -> None:
        for one in ours:
            signal.signal(one, signal.SIG_IGN)
        if hasattr(signal, "setitimer"):  # libraries may catch whatever is raised while they are imported
            signal.signal(signal.SIGALRM, lambda *_: end(number, frame))
            signal.setitimer(signal.ITIMER_REAL, ONCE_MORE)
        sys.exit(SIGNALLED + number)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        if ours and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
