"""How requests are refused: an HTTP status, and the command line's message in three parts."""

from __future__ import annotations

import json
import re

from lvd._validation import InputError, Parameter

NAMES = {"confidence_level": "level", "n_neighbors": "neighbors"}
"""Request options that have another name in the library."""
OPTIONS = ("level", "guarantee", "neighbors")
COLUMN, ROWS = re.compile(r"(?:column|target) '[^']*'"), re.compile(r"\brows? \d[\d, .]*\d|\brow \d+")
LONGEST = 1000


class RefusedError(Exception):
    """A refused request: what is wrong, where, and what to do."""

    def __init__(self, status: int, error: str, where: str, what_to_do: str) -> None:
        super().__init__(f"{error}; {what_to_do}")
        self.status = status
        parts = {"error": error, "where": where, "what_to_do": what_to_do}
        self.parts = {name: " ".join(text.split())[:LONGEST] for name, text in parts.items()}

    @property
    def body(self) -> bytes:
        """The response body: one line of JSON."""
        return json.dumps(self.parts).encode() + b"\n"


def refusal_of(error: InputError, where: str | None = None, status: int = 422) -> RefusedError:
    """Split a message into parts: what follows its last semicolon is what to do."""
    lines = [line.rpartition("; ") for line in "".join(map(_told, error.pieces)).split("\n")]
    said = "; ".join(before or after for before, _, after in lines)
    remedies = dict.fromkeys(after for before, _, after in lines if before)
    if where is None:
        where = _place_of(error, said)
    return RefusedError(status, said, where, "; ".join(remedies) or "correct the request and send it again")


def _told(piece: str | Parameter) -> str:
    if isinstance(piece, str):
        return piece
    return str(piece._replace(name=NAMES.get(piece.name, piece.name)))


def _place_of(error: InputError, said: str) -> str:
    """The option, or first column and rows, named in the message; otherwise the body."""
    first = next(iter(error.pieces), "")
    if isinstance(first, Parameter) and (name := NAMES.get(first.name, first.name)) in OPTIONS:
        return f"option {name}"
    found = [pattern.search(said) for pattern in (COLUMN, ROWS)]
    return ", ".join(match[0] for match in found if match) or "body"
