"""Files are written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside `target` to write a file to; it takes the name `target` when the block ends well.

    A block that fails, or a process that is killed, leaves `target` as it was.
    """
    target = Path(target)
    handle, name = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.name}.", suffix=f".part{target.suffix}"
    )
    os.close(handle)
    part = Path(name)
    try:
        yield part
        _flush_to_disk(part)
        part.chmod(0o666 & ~_umask())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: str | os.PathLike[str]) -> Iterator[Path]:
    """The same for a folder: what stood at `target` is replaced as a whole."""
    target = Path(target)
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        yield part
        part.chmod(0o777 & ~_umask())
        if target.exists():
            old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".old"))
            target.replace(old)
            part.replace(target)
            shutil.rmtree(old)
        else:
            part.replace(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _flush_to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
