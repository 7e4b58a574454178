"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lvd.tables.table_model import TableModel

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", show_default=False, help="The folder that lvd fit wrote.")
]
Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA", show_default=False, help="A table with a header: .csv, .csv.gz or .parquet."
    ),
]
Levels = Annotated[
    list[float] | None,
    typer.Option(
        "--level",
        metavar="LEVEL",
        show_default="that of lvd fit",
        help="Confidence level between 0 and 1; repeat it for several levels.",
    ),
]
SkipInvalid = Annotated[
    bool,
    typer.Option(
        "--skip-invalid",
        help="Leave out, and count, rows whose SMILES RDKit refuses; else they are an error.",
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON for machines; null stands for infinite and undefined numbers."),
]


def load_model(folder: Path, *, skip_invalid: bool) -> TableModel:
    """The model that lvd fit wrote."""
    from lvd.tables.table_model import TableModel

    fitted = TableModel.load(folder)
    return fitted.skipping_invalid() if skip_invalid else fitted


def number_or_word(text: str, option: str, word: str) -> float | str:
    """A number, or the one word that the option knows."""
    if text == word:
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} must be a number or {word}, got {text!r}") from None
