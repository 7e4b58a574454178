"""CSV files, checked as text on their way to the parser, so that every error names its place."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn

import pyarrow as pa
import pyarrow.csv as pa_csv

from lvd._validation import InputError
from lvd.tables.column_values import MISSING_MARKS, NUMBER

_BLOCK_BYTES = 4 << 20
_BUFFER_BYTES = 1 << 16
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_QUOTED_LINE = rb'"(?>[^"\r\n]++|"")*+"'
_PLAIN = re.compile(rb'(?>(?>%b|[^",\r\n][^,\r\n]*+)?+[,\r\n])*+' % _QUOTED_LINE)
_QUOTED = re.compile(rb'"(?>[^"]++|"")*+"')
_LINE_BREAK = re.compile(rb"[\r\n]")
_DOUBLE_IT = 'remove a stray quote, and double one that belongs to a text ("5"" pipe")'


@dataclass(frozen=True)
class CsvBody:
    """A CSV file in memory, such as a request body; its name is used in messages."""

    content: bytes
    name: str = "the body"
    suffix: ClassVar[str] = ".csv"

    def open(self, mode: Literal["rb"]) -> io.BytesIO:
        """Open it as a path would be opened."""
        return io.BytesIO(self.content)

    def __str__(self) -> str:
        return self.name


def read_header(path: Path | CsvBody) -> list[str]:
    """The column names; raises for an empty file or a delimiter other than the comma."""
    with io.TextIOWrapper(_open_checked(path), encoding="utf-8-sig", newline="") as text:
        try:
            names = next((row for row in csv.reader(text) if row), None)
        except csv.Error as error:
            raise InputError(
                f"{path} has no readable header: {error}; is a double quote left open?"
            ) from None
    if names is None:
        raise InputError(f"{path} is empty; give a table with a header and rows")
    if len(names) == 1:
        for delimiter, label in ((";", "';'"), ("\t", "tabs"), ("|", "'|'")):
            if delimiter in names[0]:
                raise InputError(
                    f"{path} has a single column, named {names[0]!r}: it seems to be separated by {label}; "
                    "save it with commas between columns (and points in decimal numbers)"
                )
    return names


def iter_text(path: Path | CsvBody, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The table in blocks, with every column as text.

    An empty line is no row, except in a table of one column, where it is a missing cell.
    """
    alone = len(names) == 1
    ragged: list[pa_csv.InvalidRow] = []

    def note(row: pa_csv.InvalidRow) -> str:
        ragged.append(row)
        return "error"

    # The parser only reports the place of a ragged row when single-threaded, and only to a handler.
    read_options = pa_csv.ReadOptions(
        use_threads=False, block_size=_BLOCK_BYTES, skip_rows=_count_lines_above(path) if alone else 0
    )
    parse_options = pa_csv.ParseOptions(
        newlines_in_values=True, invalid_row_handler=note, ignore_empty_lines=not alone
    )
    convert = pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    try:
        with (
            _open_checked(path, len(names)) as source,
            # Close it here: an Arrow thread that still holds the source at interpreter exit would abort the
            # process.
            pa_csv.open_csv(source, read_options, parse_options, convert) as reader,
        ):
            yield from reader
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):  # a header without a line break does not even count as empty
            raise InputError(f"{path} has a header but no rows; give at least one row") from None
        if not ragged:
            raise InputError(f"{path} cannot be parsed: {error}; is a double quote left open?") from None
        row = ragged[0]
        raise InputError(
            f"{path}: row {row.number - 1} has {row.actual_columns} cells, the header {row.expected_columns} "
            f"({row.text[:60]!r}); correct it, and put text that contains a comma in double quotes"
        ) from None


def _count_lines_above(path: Path | CsvBody) -> int:
    """The number of empty lines above the header."""
    with io.TextIOWrapper(_open_checked(path), encoding="utf-8-sig") as text:
        return sum(1 for _ in takewhile(lambda line: line == "\n", text))


def _open_checked(path: Path | CsvBody, n_columns: int | None = None) -> io.BufferedReader:
    # Open before the object exists: Python 3.13 reports half-constructed objects that cannot be closed.
    return io.BufferedReader(_CheckedBytes(path, path.open("rb"), n_columns), buffer_size=_BUFFER_BYTES)


class _CheckedBytes(io.RawIOBase):
    """The bytes of a plain or gzipped CSV file, checked to be UTF-8 without quotes that swallow rows."""

    def __init__(self, path: Path | CsvBody, file: Any, n_columns: int | None) -> None:
        self._path, self._file = path, file
        self._bytes = gzip.GzipFile(fileobj=self._file) if path.suffix.lower() == ".gz" else self._file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._quotes = QuoteCheck(path, n_columns)
        self._n_lines = 0
        self._n_quotes = 0

    def readable(self) -> bool:
        """True: bytes can be read, but not sought."""
        return True

    def close(self) -> None:
        """Also close the underlying file."""
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Pass on the next bytes after checking them."""
        data = self._bytes.read(len(buffer))
        self._check(data)
        buffer[: len(data)] = data
        return len(data)

    def _check(self, data: bytes) -> None:
        try:
            self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line = 1 + self._n_lines + error.object.count(b"\n", 0, error.start)
            encoding = "UTF-16" if error.object.startswith(_UTF16_MARKS) and line == 1 else "WINDOWS-1252"
            raise InputError(
                f"{self._path}, line {line}: byte 0x{error.object[error.start]:02x} is not UTF-8; "
                f"convert the file first, for instance with `iconv -f {encoding} -t UTF-8`"
            ) from None
        if b"\0" in data:
            line = 1 + self._n_lines + data.count(b"\n", 0, data.index(b"\0"))
            raise InputError(
                f"{self._path}, line {line}: a zero byte; this is not a text file, or a damaged one"
            )
        self._n_lines += data.count(b"\n")
        self._n_quotes += data.count(b'"')
        self._quotes.check(data)
        if not data and self._n_quotes % 2:
            # The parser would read all rows after the open quote as one long text.
            raise InputError(
                f"{self._path} has an odd number of double quotes ({self._n_quotes}): close the open one, "
                'and double a quote that belongs to a text ("5"" pipe")'
            )


class QuoteCheck:
    """Follows the cells of a CSV file as its bytes pass, and raises for quotes that swallow rows.

    A quote at the start of a cell opens a text, which ends at the next quote, possibly many lines below. Two
    stray quotes thus turn the rows between them into one text. They are distinguished from a multi-line text by
    what follows and what they enclose:

    - text after the closing quote, as when the second stray quote also starts a cell (``"abc ... "def``);
    - lines that all look like rows of the table, with as many commas as the header. The cells outside the
      quotes can rule this out: if such a cell is a number, the rows above or below would have numbers there.
    """

    def __init__(self, path: Path | CsvBody, n_columns: int | None) -> None:
        self._path = path
        self._n_columns = n_columns
        self._rest = b""
        self._line = 1

    def check(self, data: bytes) -> None:
        """Check the next bytes; empty bytes mark the end of the file."""
        text = self._rest + data
        start = self._check(text, final=not data) if b'"' in text else _after_last_break(text, 0, len(text))
        self._line += text.count(b"\n", 0, start)
        self._rest = text[start:]

    def _check(self, text: bytes, *, final: bool) -> int:
        """Check the complete rows; return where the first incomplete one starts."""
        start, position = 0, 0
        while plain := _PLAIN.match(text, position):
            start = max(start, _after_last_break(text, position, plain.end()))
            position = plain.end()
            quoted = _QUOTED.match(text, position)
            if quoted is None or (quoted.end() == len(text) and not final):
                break
            end = quoted.end()
            if end < len(text) and text[end] not in b",\r\n":
                self._refuse_text_after(text, position, end)
            if _LINE_BREAK.search(text, position, end):
                line_end = _LINE_BREAK.search(text, end)
                if line_end is None and not final:
                    break
                after = text[end : line_end.start() if line_end else len(text)]
                if self._are_rows(text[start:position], text[position + 1 : end - 1], after):
                    self._refuse_rows(text, position, end)
            position = end
        return start

    def _are_rows(self, before: bytes, quoted: bytes, after: bytes) -> bool:
        before, after = (re.sub(_QUOTED_LINE, b"x", part) for part in (before, after))
        # Not splitlines: what follows the last break is also a line, and an empty one is not a row.
        lines = [line.decode().split(",") for line in re.split(rb"\r\n|\r|\n", before + quoted + after)]
        if any(len(cells) != self._n_columns for cells in lines):
            return False
        n_before, n_after = before.count(b","), after.count(b",")
        outside = [(j, lines[0], lines[1:]) for j in range(n_before)]
        outside += [(j, lines[-1], lines[:-1]) for j in range(len(lines[0]) - n_after, len(lines[0]))]
        return not any(
            _is_number(own[j])
            and not any(_is_number(cells[j]) or not _unquoted(cells[j]) for cells in others)
            for j, own, others in outside
        )

    def _refuse_text_after(self, text: bytes, position: int, end: int) -> NoReturn:
        first, last = self._lines(text, position, end)
        opened = f"the double quote opened in line {first}" if last > first else "a double quote"
        follows = text[end : end + 20].decode(errors="ignore").splitlines()[0]
        raise InputError(
            f"{self._path}, line {last}: {opened} is closed before {follows!r}, where a comma or the end of the "
            f"line must follow; {_DOUBLE_IT}"
        )

    def _refuse_rows(self, text: bytes, position: int, end: int) -> NoReturn:
        first, last = self._lines(text, position, end)
        raise InputError(
            f"{self._path}, line {first}: a double quote is opened here and closed in line {last}, and each of "
            f"these lines looks like a row of its own; {_DOUBLE_IT}, or write a text of several lines in one line"
        )

    def _lines(self, text: bytes, position: int, end: int) -> tuple[int, int]:
        first = self._line + text.count(b"\n", 0, position)
        return first, first + text.count(b"\n", position, end)


def _after_last_break(text: bytes, start: int, end: int) -> int:
    return max(text.rfind(b"\n", start, end), text.rfind(b"\r", start, end)) + 1


def _unquoted(cell: str) -> str:
    """A cell without quotes; empty if missing."""
    text = cell.strip(' \t"')
    return "" if text in MISSING_MARKS else text


def _is_number(cell: str) -> bool:
    return re.match(NUMBER, _unquoted(cell)) is not None
