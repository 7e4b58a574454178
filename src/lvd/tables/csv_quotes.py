"""Double quotes in CSV files: those that a parser would accept, and lose rows by."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NoReturn

from lvd._validation import InputError
from lvd.tables.column_values import MISSING_MARKS, NUMBER

_QUOTED_LINE = rb'"(?>[^"\r\n]++|"")*+"'
_PLAIN = re.compile(rb'(?>(?>%b|[^",\r\n][^,\r\n]*+)?+[,\r\n])*+' % _QUOTED_LINE)
_QUOTED = re.compile(rb'"(?>[^"]++|"")*+"')
_LINE_BREAK = re.compile(rb"[\r\n]")
_DOUBLE_IT = 'remove a stray one, and write one that belongs to a text twice ("5"" pipe")'


class QuoteCheck:
    """Follows the cells of a CSV file as its bytes pass, and refuses quotes that swallow rows.

    A quote at the start of a cell opens a text, which ends at the next quote, maybe many lines below. Two stray
    quotes so turn the rows between them into one text. They are told from a text of several lines by what follows
    and by what they enclose:

    - text after the closing quote, as where the second stray quote starts a cell, too (``"abc ... "def``);
    - lines that are all rows of the table: each has as many commas as the header. The cells outside the quotes
      can speak against it: where such a cell is a number, rows would have numbers in the lines above or below.
    """

    def __init__(self, path: Path, n_columns: int | None) -> None:
        self._path = path
        self._n_columns = n_columns
        self._rest = b""
        self._line = 1

    def check(self, data: bytes) -> None:
        """Check the next bytes; none are the end of the file."""
        text = self._rest + data
        start = self._check(text, final=not data) if b'"' in text else _after_last_break(text, 0, len(text))
        self._line += text.count(b"\n", 0, start)
        self._rest = text[start:]

    def _check(self, text: bytes, *, final: bool) -> int:
        """Check the rows that are complete; where the first one starts that is not."""
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
        lines = [line.decode().split(",") for line in (before + quoted + after).splitlines()]
        if any(len(cells) != self._n_columns for cells in lines):
            return False
        n_before, n_after = before.count(b","), after.count(b",")
        outside = [(j, lines[0], lines[1:]) for j in range(n_before)]
        outside += [(j, lines[-1], lines[:-1]) for j in range(len(lines[0]) - n_after, len(lines[0]))]
        return not any(
            _is_number(own[j]) and not any(_is_number(cells[j]) or not _text(cells[j]) for cells in others)
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


def _text(cell: str) -> str:
    """A cell without quotes; empty where it is missing."""
    text = cell.strip(' \t"')
    return "" if text in MISSING_MARKS else text


def _is_number(cell: str) -> bool:
    return re.match(NUMBER, _text(cell)) is not None
