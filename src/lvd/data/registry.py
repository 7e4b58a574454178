"""What is known about each dataset: its columns and their roles, its source, and the checksum of its table."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from lvd._validation import InputError
from lvd.data import cells as table
from lvd.data.cells import Cells
from lvd.data.download import PARSERS, OpenML, Source, WebFile


@dataclass(frozen=True)
class Entry:
    """A dataset stored in a file.

    Attributes:
        rows: The numbers of rows a copy may have; the first is the usual one.
        columns: Names of the file's columns, in its order.
        targets: The columns to predict.
        home: Where the table is published, in words.
        source: How to fetch it from there.
        checksums: `table_checksum` of the copies known to be good.
        unused: Columns that are neither inputs nor targets.
        one_hot: Inputs coded as one 0/1 column per value.
        leaking: Columns that give the target away; the paper protocol has them among the inputs.
        text_input: The column of text that is the only input, where there is one.
        distinct: Whether such inputs that occur in more than one row are dropped.
        rows_note: What else is to be said of the number of rows.
        checked_rows: Labels, in the first column, of the rows that the checksum covers; None for all rows.
    """

    name: str
    rows: tuple[int, ...]
    columns: tuple[str, ...]
    targets: tuple[str, ...]
    home: str
    source: Source
    checksums: tuple[str, ...]
    license_note: str = "terms: see its page; check them before passing the data on"
    unused: tuple[str, ...] = ()
    one_hot: tuple[str, ...] = ()
    leaking: tuple[str, ...] = ()
    text_input: str | None = None
    distinct: bool = False
    rows_note: str = ""
    checked_rows: tuple[str, ...] | None = None

    @property
    def files(self) -> tuple[str, str]:
        """The file names under which to look for the table."""
        return f"{self.name}.csv", f"{self.name}.csv.gz"


def check_table(cells: Cells, entry: Entry) -> Cells:
    """The cells, after checking that they are the table that `entry` describes."""
    missing = [column for column in entry.columns if column not in cells]
    if missing:
        raise InputError(f"the {entry.name} table lacks the columns {', '.join(missing)}")
    n = len(cells[entry.columns[0]])
    if n not in entry.rows:
        raise InputError(
            f"the {entry.name} table must have {' or '.join(map(str, entry.rows))} rows, got {n}"
        )
    found = table_checksum(cells, entry)
    if found not in entry.checksums:
        raise InputError(
            f"the {entry.name} table does not hold the expected values (checksum {found[:12]}, "
            f"expected {' or '.join(good[:12] for good in entry.checksums)})"
        )
    return cells


def table_checksum(cells: Cells, entry: Entry) -> str:
    """The checksum of the used columns, over the rows that `entry` names."""
    numeric = [c for c in entry.columns if c not in entry.unused and c != entry.text_input]
    if entry.checked_rows is None:
        return table.checksum(cells, numeric=numeric, text=[entry.text_input] if entry.text_input else [])
    labels = set(entry.checked_rows)
    rows = [i for i, label in enumerate(cells[entry.columns[0]]) if label in labels]
    # Copies of such a table format their text differently, so only the numbers are compared.
    return table.checksum({c: [cells[c][i] for i in rows] for c in numeric}, numeric=numeric)


def _read_entry(name: str, about: dict[str, Any]) -> Entry:
    """Parse a registry entry: lists become tuples, and a source is a web address or an OpenML number."""
    about = {key: tuple(value) if isinstance(value, list) else value for key, value in about.items()}
    if "openml" in about:
        source: Source = OpenML(about.pop("openml"))
    else:
        source = WebFile(about.pop("url"), PARSERS[about.pop("parse")], about.pop("member", None))
    if labels := about.pop("checked_rows", None):
        numbers = range(labels["start"], labels["stop"])
        about["checked_rows"] = tuple(f"{labels['prefix']}{number}" for number in numbers)
    return Entry(name=name, source=source, **about)


_FILE = (files("lvd.data") / "datasets.toml").read_text(encoding="utf-8")
ENTRIES = {name: _read_entry(name, about) for name, about in tomllib.loads(_FILE).items()}
