"""The numbers in the first sheet of an Excel workbook, read with the standard library alone.

Two of the public tables come as workbooks, one of each kind. Only what they need is read: numeric cells, row
by row; headings and other text are left out, and so are rows without a number.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias
from xml.etree import ElementTree

Grid: TypeAlias = list[list[float]]

_SHEET_XML = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_LAST_SECTOR = 0xFFFFFFFA  # larger numbers mark the end of a chain or an unused slot
_SMALL_STREAM = 4096  # bytes; smaller streams are stored another way, which no workbook with 500 cells needs
_FORMULA, _EOF, _BOUNDSHEET, _MULRK, _NUMBER, _RK = 0x0006, 0x000A, 0x0085, 0x00BD, 0x0203, 0x027E


def xlsx_numbers(data: bytes) -> Grid:
    """Numeric cells of an Office Open XML workbook."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        sheet = ElementTree.fromstring(archive.read("xl/worksheets/sheet1.xml"))
    rows = []
    for row in sheet.iter(f"{_SHEET_XML}row"):
        cells = [cell for cell in row if cell.get("t", "n") == "n"]
        rows.append([float(value) for cell in cells if (value := cell.findtext(f"{_SHEET_XML}v"))])
    return [row for row in rows if row]


def xls_numbers(data: bytes) -> Grid:
    """Numeric cells of an Excel 97 workbook: BIFF8 records in a compound file."""
    workbook = _compound_stream(data, "Workbook")
    bounds = next(body for kind, body in _records(workbook) if kind == _BOUNDSHEET)
    (start,) = struct.unpack_from("<I", bounds)
    rows: dict[int, dict[int, float]] = defaultdict(dict)
    for kind, body in _records(workbook[start:]):
        for row, column, value in _numeric_cells(kind, body):
            rows[row][column] = value
    return [[rows[row][column] for column in sorted(rows[row])] for row in sorted(rows)]


def _compound_stream(data: bytes, name: str) -> bytes:
    """A named stream of a compound file, put together from its chain of sectors."""
    if not data.startswith(_COMPOUND_FILE):
        raise ValueError("not an Excel 97 workbook")
    size = 1 << struct.unpack_from("<H", data, 30)[0]
    tables = [s for s in struct.unpack_from("<109I", data, 76) if s <= _LAST_SECTOR]
    successor = [s for t in tables for s in struct.unpack_from(f"<{size // 4}I", data, (t + 1) * size)]

    def chain(sector: int) -> bytes:
        parts: list[bytes] = []
        while sector <= _LAST_SECTOR and len(parts) <= len(successor):
            parts.append(data[(sector + 1) * size : (sector + 2) * size])
            sector = successor[sector]
        return b"".join(parts)

    directory = chain(struct.unpack_from("<I", data, 48)[0])
    for at in range(0, len(directory), 128):
        (letters,) = struct.unpack_from("<H", directory, at + 64)
        if directory[at : at + max(letters - 2, 0)].decode("utf-16-le") == name:
            start, length = struct.unpack_from("<II", directory, at + 116)
            if length < _SMALL_STREAM:
                raise ValueError(f"the stream {name} of the workbook is too short to hold a table")
            return chain(start)[:length]
    raise ValueError(f"the workbook has no stream {name}")


def _records(stream: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and body of each record up to the end of the substream."""
    at, kind = 0, -1
    while kind != _EOF:
        kind, length = struct.unpack_from("<HH", stream, at)
        yield kind, stream[at + 4 : at + 4 + length]
        at += 4 + length


def _numeric_cells(kind: int, body: bytes) -> Iterator[tuple[int, int, float]]:
    """Row, column and value of the numbers in one record."""
    if kind not in (_NUMBER, _FORMULA, _RK, _MULRK):
        return
    row, column = struct.unpack_from("<HH", body)
    if kind == _NUMBER or (kind == _FORMULA and body[12:14] != b"\xff\xff"):  # else its result is no number
        yield row, column, struct.unpack_from("<d", body, 6)[0]
    elif kind == _RK:
        yield row, column, _decode_rk(struct.unpack_from("<I", body, 6)[0])
    elif kind == _MULRK:
        for j, at in enumerate(range(6, len(body) - 2, 6)):
            yield row, column + j, _decode_rk(struct.unpack_from("<I", body, at)[0])


def _decode_rk(bits: int) -> float:
    """A number in 30 bits: an integer or the upper half of a double, either in hundredths if bit 0 is set."""
    if bits & 2:
        value = float((bits >> 2) - ((bits >> 1) & 0x40000000))
    else:
        (value,) = struct.unpack("<d", struct.pack("<Q", (bits & 0xFFFFFFFC) << 32))
    return value / 100 if bits & 1 else value
