"""Downloading tables from their public sources: over HTTP with the standard library, or through scikit-learn."""

from __future__ import annotations

import http.client
import io
import time
import urllib.error
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lvd.data import cells as table
from lvd.data.cells import Cells

OnBytes: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes received and the bytes expected (None if the server does not say)."""

_CHUNK = 1 << 16
_WORTH_A_RETRY = (408, 429, 500, 502, 503, 504)
_UNREADABLE = (
    ValueError,  # bad numbers, encodings, rows
    LookupError,  # no such member of the archive
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
)


class DownloadError(OSError):
    """A table that could not be fetched; the message says why."""


def parse_csv(data: bytes, columns: Sequence[str]) -> Cells:
    """Parse comma-separated text with its own header; columns that are not wanted are dropped."""
    cells = table.from_csv(data.decode("utf-8-sig"))
    return {column: cells[column] for column in columns}


def parse_whitespace(data: bytes, columns: Sequence[str]) -> Cells:
    """Parse whitespace-separated numbers without a header."""
    return table.from_rows(columns, [line.split() for line in data.decode("ascii").splitlines()])


def parse_workbook(data: bytes, columns: Sequence[str]) -> Cells:
    """The numbers in the first sheet of an Excel workbook, row by row; text, such as headings, is ignored."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError:
        raise DownloadError(
            "it is an Excel workbook, and the package that reads these is missing; install it with: "
            "pip install 'lvd[datasets]'"
        ) from None
    try:
        # Our workbooks are members of zip archives, whose checksums catch corrupt bytes before this point.
        sheet = CalamineWorkbook.from_filelike(io.BytesIO(data)).get_sheet_by_index(0).to_python()
    except CalamineError as error:
        raise ValueError(f"not an Excel workbook: {error}") from error
    numbers = [
        [repr(float(cell)) for cell in row if isinstance(cell, int | float) and not isinstance(cell, bool)]
        for row in sheet
    ]
    return table.from_rows(columns, numbers)


PARSERS = {"csv": parse_csv, "whitespace": parse_whitespace, "workbook": parse_workbook}


@dataclass(frozen=True)
class WebFile:
    """A table at a web address, possibly a member of a zip archive, with its parser."""

    url: str
    parse: Callable[[bytes, Sequence[str]], Cells]
    member: str | None = None
    attempts: int = 3

    def fetch(self, columns: Sequence[str], progress: OnBytes | None = None) -> Cells:
        """Download the table's cells, or raise DownloadError."""
        data = read_url(self.url, progress, attempts=self.attempts)
        try:
            if self.member is not None:
                with zipfile.ZipFile(io.BytesIO(data)) as archive:
                    data = archive.read(self.member)
            return self.parse(data, columns)
        except _UNREADABLE as error:
            raise DownloadError(f"it sent {len(data)} bytes that are not the table ({error})") from error


@dataclass(frozen=True)
class OpenML:
    """A dataset on openml.org, downloaded by scikit-learn, which also caches it in its own data folder."""

    data_id: int

    @property
    def url(self) -> str:
        """The dataset's page."""
        return f"https://www.openml.org/d/{self.data_id}"

    def fetch(self, columns: Sequence[str], progress: OnBytes | None = None) -> Cells:
        """Download the table's cells, or raise DownloadError; scikit-learn reports no progress."""
        from sklearn.datasets import fetch_openml

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings about retries; the outcome is reported below
                bunch = fetch_openml(
                    data_id=self.data_id, target_column=None, as_frame=False, parser="liac-arff", n_retries=1
                )
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise DownloadError(f"scikit-learn could not fetch it ({error})") from error
        values = dict(zip(bunch.feature_names, bunch.data.T, strict=True))
        for name, categories in bunch.categories.items():  # such columns hold indices into a list of labels
            values[name] = [float(categories[int(position)]) for position in values[name]]
        return {name: [repr(float(value)) for value in values[name]] for name in columns if name in values}


Source: TypeAlias = WebFile | OpenML


def read_url(
    url: str,
    progress: OnBytes | None = None,
    *,
    timeout_s: float = 30.0,
    attempts: int = 3,
    pause_s: float = 1.0,
) -> bytes:
    """The content at an address, following redirects and retrying after temporary failures.

    `timeout_s` limits the wait for each chunk; the pause between attempts doubles.
    """
    failure: Exception
    for attempt in range(1, attempts + 1):
        try:
            return _read_once(url, timeout_s, progress)
        except urllib.error.HTTPError as error:
            error.close()
            failure, reason = error, f"answered {error.code} {error.reason}"
            if error.code not in _WORTH_A_RETRY:
                break
        except TimeoutError as error:
            failure, reason = error, f"did not answer within {timeout_s:g} s"
        except (OSError, http.client.HTTPException) as error:
            failure, reason = error, f"failed ({error})"
        if attempt < attempts:
            time.sleep(pause_s * 2 ** (attempt - 1))
    raise DownloadError(f"it {reason}; attempts: {attempt}") from failure


def _read_once(url: str, timeout_s: float, progress: OnBytes | None) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": "lvd"})
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        total = response.length
        data = bytearray()
        while chunk := response.read(_CHUNK):
            data += chunk
            if progress is not None:
                progress(len(data), total)
    # http.client silently returns a partial body if the connection breaks.
    if total is not None and len(data) != total:
        raise ConnectionError(f"the connection ended after {len(data)} of {total} bytes")
    return bytes(data)
