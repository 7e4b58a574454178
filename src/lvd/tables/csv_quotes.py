"""Stray quotes in CSV files, which turn the rows between them into one text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from lvd._validation import InputError
from lvd.tables.column_values import MISSING_MARKS, NUMBER

_QUOTED_LINE = rb'"(?>[^"\r\n]++|"")*+"'
_PLAIN = re.compile(rb'(?>(?>%b|[^",\r\n][^,\r\n]*+)?+[,\r\n])*+' % _QUOTED_LINE)
_QUOTED = re.compile(rb'"(?>[^"]++|"")*+"')
_LINE_BREAK = re.compile(rb"[\r\n]")
_DOUBLE_IT = 'remove a stray quote, and double one that belongs to a text ("5"" pipe")'


@dataclass(frozen=True)
class QuoteCheck:
    """Follows the cells of a stretch of a CSV file, and raises for quotes that swallow rows.

    A quote at the start of a cell opens a text, which ends at the next quote, possibly many lines below. Two
    stray quotes thus turn the rows between them into one text. They are distinguished from a multi-line text by
    what follows and what they enclose:

    - text after the closing quote, as when the second stray quote also starts a cell (``"abc ... "def``);
    - lines that all look like rows of the table, with as many commas as the header. The cells outside the
      quotes can rule this out: if such a cell is a number, the rows above or below would have numbers there.
    """

    path: object
    n_columns: int | None
    line: int
    """The line in which the stretch begins."""

    def check(self, text: bytes, *, final: bool) -> int:
        """Check the complete rows of the stretch; return where the first incomplete one starts."""
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
        if any(len(cells) != self.n_columns for cells in lines):
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
            f"{self.path}, line {last}: {opened} is closed before {follows!r}, where a comma or the end of the "
            f"line must follow; {_DOUBLE_IT}"
        )

    def _refuse_rows(self, text: bytes, position: int, end: int) -> NoReturn:
        first, last = self._lines(text, position, end)
        raise InputError(
            f"{self.path}, line {first}: a double quote is opened here and closed in line {last}, and each of "
            f"these lines looks like a row of its own; {_DOUBLE_IT}, or write a text of several lines in one line"
        )

    def _lines(self, text: bytes, position: int, end: int) -> tuple[int, int]:
        first = self.line + text.count(b"\n", 0, position)
        return first, first + text.count(b"\n", position, end)


def _after_last_break(text: bytes, start: int, end: int) -> int:
    return max(text.rfind(b"\n", start, end), text.rfind(b"\r", start, end)) + 1


def _unquoted(cell: str) -> str:
    """A cell without quotes; empty if missing."""
    text = cell.strip(' \t"')
    return "" if text in MISSING_MARKS else text


def _is_number(cell: str) -> bool:
    return re.match(NUMBER, _unquoted(cell)) is not None
