"""The command ``lvd`` and what it does about refused input; what computes is loaded by the commands that use it."""

from __future__ import annotations

import sys
import warnings
from io import TextIOWrapper
from typing import Annotated

import typer

import lvd
from lvd.cli import console
from lvd.cli.bench import bench
from lvd.cli.data import data
from lvd.cli.demo import EXAMPLES as DEMO_EXAMPLES
from lvd.cli.demo import demo
from lvd.cli.evaluate import EXAMPLES as EVALUATE_EXAMPLES
from lvd.cli.evaluate import evaluate
from lvd.cli.explain import EXAMPLES as EXPLAIN_EXAMPLES
from lvd.cli.explain import explain
from lvd.cli.fit import EXAMPLES as FIT_EXAMPLES
from lvd.cli.fit import fit
from lvd.cli.predict import EXAMPLES as PREDICT_EXAMPLES
from lvd.cli.predict import predict
from lvd.cli.report import EXAMPLES as REPORT_EXAMPLES
from lvd.cli.report import report

app = typer.Typer(
    name="lvd",
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
    )
)
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Prediction intervals for any table: wide where similar rows went wrong, infinite where none are known.

    Fit a model on a table, then predict, evaluate and explain with it. Tables are CSV (.csv, .csv.gz; UTF-8,
    comma-separated, with a header) or Parquet. Each command has its own --help with examples.

    The exit status is 0, or 2 for input that is refused: the message then says why, and nothing is written.
    """


app.command(epilog=FIT_EXAMPLES, no_args_is_help=True)(fit)
app.command(epilog=PREDICT_EXAMPLES, no_args_is_help=True)(predict)
app.command(epilog=EVALUATE_EXAMPLES, no_args_is_help=True)(evaluate)
app.command(epilog=EXPLAIN_EXAMPLES, no_args_is_help=True)(explain)
app.command(epilog=REPORT_EXAMPLES, no_args_is_help=True)(report)
app.command(epilog=DEMO_EXAMPLES)(demo)
app.add_typer(data)
app.add_typer(bench)


def main() -> None:
    """Run the command line; refused input is told in a message, with exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a name that the terminal cannot show is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_: console.complain("warning", " ".join(str(message).split()))
        try:
            app()
        except ValueError as error:
            from lvd._validation import InputError  # loads numpy, for which the help need not wait

            if not isinstance(error, InputError):
                raise
            console.complain("error", str(error))
            sys.exit(2)
