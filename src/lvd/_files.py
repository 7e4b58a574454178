"""Files are written completely or not at all, and read only up to a size limit."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from lvd._progress import WRITTEN
from lvd._validation import InputError

CURRENT_FOLDER, EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def cache_folder() -> Path:
    """``$LVD_CACHE``, else ``$XDG_CACHE_HOME/lvd``, else ``~/.cache/lvd``."""
    if own := os.environ.get("LVD_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lvd"


@contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `target` to write to; it is renamed to `target` when the block succeeds.

    A block that fails, or a process that is killed, leaves `target` as it was. Links are followed, and a replaced
    file's permissions are kept.
    """
    target = _behind_links(target)
    part = _part_of(target)
    try:
        part.touch(mode=0o600, exist_ok=False)
        yield part
        _flush_to_disk(part)
        _set_access(part, target, 0o666)
        part.replace(target)
        WRITTEN.append(target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: str | os.PathLike[str], *, replace: bool = True) -> Iterator[Path]:
    """The same for a folder: `target` is replaced as a whole.

    Without `replace`, a folder that is not empty is left alone, and the new one is kept next to it under a name
    that the error reports, because it may have taken hours to compute.
    """
    target = _behind_links(target)
    part = _part_of(target)
    try:
        part.mkdir(mode=0o700)
        yield part
        for file in part.iterdir():
            _flush_to_disk(file)
        _set_access(part, target, 0o777)
        if not _rename_if_free(part, target):
            if not replace:
                kept = next(name for name in _beside(target) if _rename_if_free(part, name))
                WRITTEN.append(kept)
                raise InputError(
                    f"cannot save to {str(target)!r}: something was written there in the meantime, and was not "
                    f"replaced; the result was saved to {str(kept)!r} instead"
                )
            if not _exchange(part, target):
                _replace_in_two_steps(part, target)
        WRITTEN.append(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_output(out: str | os.PathLike[str]) -> None:
    """Check before the work starts that the file `out` can be written."""
    with refusing(out):
        target = _behind_links(out)
        if target.is_dir():
            raise InputError(f"cannot write {os.fspath(out)}: it is a folder; give the name of a file")
        tempfile.TemporaryFile(dir=target.parent).close()


@contextmanager
def refusing(out: str | os.PathLike[str]) -> Iterator[None]:
    """Turn system errors while `out` is written into an `InputError`, except for a closed pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(
            f"cannot write {os.fspath(out)}: {error.strerror or error}; the folder above it must exist, be "
            "writable, and have space"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_path(path) as part:
        part.write_text(text, encoding="utf-8")


def overlap(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two paths are the same file or folder, or one contains the other."""
    first, second = Path(os.path.realpath(one)), Path(os.path.realpath(other))
    if first == second or first in second.parents or second in first.parents:
        return True
    return _has_file(first, second) or _has_file(second, first)


def read_regular(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; devices and pipes may never end."""
    # Opening a pipe would wait until something is written to it.
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if status.st_size > limit:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, and may have {limit:,}")
        return file.read(status.st_size)


def _behind_links(target: str | os.PathLike[str]) -> Path:
    path = Path(os.path.realpath(target))
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return path
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is a device or a pipe")
    return path


def _part_of(target: Path) -> Path:
    """A new short name: that of `target` may be as long as the system allows."""
    return target.with_name(f".lvd-{secrets.token_hex(8)}.part{target.suffix}")


def _beside(target: Path) -> Iterator[Path]:
    return (target.with_name(f"{target.name}-{number}") for number in count(2))


def _has_file(place: Path, file: Path) -> bool:
    """Whether `file` is the same file as `place`, or as one in that folder."""
    try:
        if file.samefile(place):
            return True
        return (
            file.is_file()
            and file.stat().st_nlink > 1
            and any(entry.samefile(file) for entry in place.rglob("*"))
        )
    except OSError:  # one of them does not exist
        return False


def _rename_if_free(part: Path, target: Path) -> bool:
    """Whether the rename succeeded; a folder that is not empty is never overwritten."""
    try:
        part.rename(target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EACCES) and target.exists():
            return False
        raise
    return True


def _exchange(one: Path, other: Path) -> bool:
    """Whether the two swapped names atomically."""
    rename = (
        getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    )
    if rename is None:
        return False
    if rename(CURRENT_FOLDER, os.fsencode(one), CURRENT_FOLDER, os.fsencode(other), EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):  # not on this system, or not on this disk
        return False
    raise OSError(number, os.strerror(number), str(other))


def _replace_in_two_steps(part: Path, target: Path) -> None:
    old = next(name for name in _beside(target) if not name.exists())
    target.rename(old)
    try:
        part.rename(target)
    except OSError as error:
        try:
            old.rename(target)
        except OSError:
            raise InputError(
                f"cannot save to {str(target)!r} ({error.strerror}); what was there is now in {str(old)!r}"
            ) from error
        raise
    shutil.rmtree(old)


def _set_access(part: Path, target: Path, mode: int) -> None:
    """Keep the owner, group and mode of the replaced file, or use those of new files."""
    mode &= ~_umask()
    if target.exists():
        old, new = target.stat(), part.stat()
        mode = stat.S_IMODE(old.st_mode)
        if hasattr(os, "chown") and (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            try:
                os.chown(part, old.st_uid, old.st_gid)
            except PermissionError:
                mode &= 0o707  # the new group differs and must not get the old one's rights
    part.chmod(mode)


def _flush_to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
