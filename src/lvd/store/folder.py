"""The folder of a saved model: ``manifest.json``, one safetensors file, one for each estimator of another library,
and ``card.md``.

The manifest describes the other files and holds the sha256 of each of them and of itself, so any changed byte is
detected. Each file is read once: the bytes checked are the bytes used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from lvd._files import atomic_folder, read_regular
from lvd._progress import announce
from lvd._validation import InputError
from lvd._version import __version__

FORMAT = 2
MANIFEST, TENSORS, CARD = "manifest.json", "tensors.safetensors", "card.md"
FILE_NAME = re.compile(r"card\.md|tensors\.safetensors|estimator-\d+\.(skops|txt|ubj|cbm)")
MANIFEST_BYTES = 64 << 20
"""The longest manifest; a million texts or categories fit in. Parsed, it takes up to 30 times the memory."""
WAITING = "waiting for another process, which is changing this model"
REMEDY = "copy the folder again from where it was saved, or save the model again"


class Contents(NamedTuple):
    """The content of a folder: a description in JSON types, tensors, estimators in their own formats, and a text
    for people, which is written and checked, but not read."""

    description: dict[str, Any]
    tensors: dict[str, Tensor]
    estimators: dict[str, bytes]
    card: str | None = None


def write_folder(folder: str | os.PathLike[str], contents: Contents, *, replace: bool = True) -> None:
    """Write a folder atomically; only an empty folder or, on request, a saved model is replaced."""
    target = Path(folder)
    if replace:
        check_replaceable(target)
    files = {TENSORS: safetensors.save(contents.tensors), **contents.estimators}
    if contents.card is not None:
        files[CARD] = contents.card.encode()
    manifest = {
        "format": FORMAT,
        "lvd": __version__,
        "torch": torch.__version__,
        **contents.description,
        "tensors": {name: _summary(name, tensor) for name, tensor in contents.tensors.items()},
        "files": {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in files.items()},
    }
    manifest["sha256"] = _self_digest(manifest)
    files[MANIFEST] = json.dumps(manifest, indent=1, allow_nan=False).encode()
    if len(files[MANIFEST]) > MANIFEST_BYTES:
        raise InputError(
            f"{MANIFEST} of this model would have {len(files[MANIFEST]):,} bytes, more than the {MANIFEST_BYTES:,} "
            "that load() reads; fit on fewer categories or texts"
        )
    with locked(target), atomic_folder(target, replace=replace) as part:
        for name, data in files.items():
            (part / name).write_bytes(data)


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Let only one process at a time change the model saved in this folder; others wait.

    The lock is on the manifest, so no lock file is left behind, and it ends with its process. When a folder is
    replaced its lock is gone with it, so a process that has waited looks for the new manifest. Where nothing is
    saved, nothing is locked.
    """
    manifest = Path(os.path.realpath(folder), MANIFEST)
    while (known := _identity(manifest)) is not None and known not in _held.get():
        file = _open_to_lock(manifest)
        try:
            _wait_for(file, folder)
            if _identity(file) == _identity(manifest):
                token = _held.set(_held.get() | {_identity(file)})
                try:
                    yield
                finally:
                    _held.reset(token)
                return
        finally:
            os.close(file)
    yield


_held: ContextVar[frozenset[Any]] = ContextVar("held", default=frozenset())
"""The manifests locked in this context."""


def _identity(file: int | Path) -> tuple[int, int] | None:
    try:
        status = os.fstat(file) if isinstance(file, int) else file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _open_to_lock(manifest: Path) -> int:
    """Some file systems lock only files open for writing."""
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        return os.open(manifest, os.O_RDWR | flags)
    except PermissionError:
        return os.open(manifest, os.O_RDONLY | flags)


def _wait_for(file: int, folder: str | os.PathLike[str]) -> None:
    try:
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce(WAITING)
            fcntl.flock(file, fcntl.LOCK_EX)
    except (OSError, ImportError):
        warnings.warn(
            f"{os.fspath(folder)!r} cannot be locked on this disk or system: let one process at a time change it",
            UserWarning,
            stacklevel=2,
        )


def read_folder(folder: str | os.PathLike[str]) -> Contents:
    """Read and check a folder; any difference from what was written is an InputError that names the file."""
    manifest = read_manifest(folder)
    files = {name: _read_file(Path(folder), name, entry) for name, entry in _files(folder, manifest)}
    if TENSORS not in files:
        _refuse_file(folder, MANIFEST, f"does not list {TENSORS}")
    files.pop(CARD, None)
    tensors = _parse_tensors(folder, files.pop(TENSORS))
    summaries = manifest.get("tensors")
    if not isinstance(summaries, dict) or summaries.keys() != tensors.keys():
        _refuse_file(folder, MANIFEST, f"does not list the tensors of {TENSORS}")
    for name, tensor in tensors.items():
        found = _summary(name, tensor)
        if found != summaries[name]:
            _refuse_file(
                folder, TENSORS, f"holds {name} as {found}, not as the manifest says: {summaries[name]}"
            )
    return Contents(manifest, tensors, files)


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The checked content of ``manifest.json``."""
    try:
        text = read_regular(Path(folder) / MANIFEST, MANIFEST_BYTES).decode("utf-8")
        manifest = json.loads(text, parse_constant=_refuse_constant)
        if not isinstance(manifest, dict):
            raise ValueError("it is not a JSON object")
        stated, digest = manifest.pop("sha256", None), _self_digest(manifest)
    except OSError as error:
        raise InputError(
            f"no saved model at {os.fspath(folder)!r}: {MANIFEST} cannot be read ({error.strerror}); "
            "give the folder that save() wrote"
        ) from None
    except (ValueError, RecursionError) as error:
        _refuse_file(folder, MANIFEST, f"is not valid JSON ({error})")
    written = manifest.get("format")
    if type(written) is not int or written < 1:
        _refuse_file(folder, MANIFEST, "names no format version")
    if written < FORMAT:
        raise InputError(
            f"{MANIFEST} in {os.fspath(folder)!r} has format {written}, written by lvd {manifest.get('lvd')}, a "
            f"version before the first release; this lvd {__version__} does not read it: fit the model again"
        )
    if written > FORMAT:
        raise InputError(
            f"{MANIFEST} in {os.fspath(folder)!r} has format {written}, written by lvd "
            f"{manifest.get('lvd')}; this lvd {__version__} reads formats up to {FORMAT}: upgrade lvd"
        )
    if stated != digest:
        _refuse_file(folder, MANIFEST, "has been changed since it was saved (its sha256 differs)")
    return manifest


def check_replaceable(target: Path) -> None:
    """Check, before training, that a model can be saved to `target`."""
    refusal, parent = f"cannot save to {str(target)!r}", Path(os.path.realpath(target)).parent
    try:
        if not parent.is_dir():
            raise InputError(f"{refusal}: the folder {str(parent)!r} does not exist")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise InputError(f"{refusal}: you may not write to {str(parent)!r}")
        if target.exists() and not (target.is_dir() and _is_ours(target)):
            raise InputError(
                f"{refusal}: it holds something else; give a new folder, or one that holds a saved model to replace"
            )
    except OSError as error:  # a name that is too long, or a folder that may not be entered
        raise InputError(f"{refusal}: {error.strerror or error}; give another folder") from error


def _is_ours(target: Path) -> bool:
    names = [entry.name for entry in target.iterdir()]
    return not names or (MANIFEST in names and all(n == MANIFEST or FILE_NAME.fullmatch(n) for n in names))


def _files(folder: str | os.PathLike[str], manifest: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        _refuse_file(folder, MANIFEST, "does not list the files")
    for name in files:
        if not FILE_NAME.fullmatch(name):
            _refuse_file(folder, MANIFEST, f"lists a file of the forbidden name {name!r}")
    return list(files.items())


def _read_file(folder: Path, name: str, entry: dict[str, Any]) -> bytes:
    try:
        size = (folder / name).stat().st_size
        if size != entry.get("bytes"):
            _refuse_file(folder, name, "has a different size than when it was saved")
        data = read_regular(folder / name, min(size, _memory()))
    except OSError as error:
        _refuse_file(folder, name, f"cannot be read ({error.strerror})")
    if _sha256(data) != entry.get("sha256"):
        _refuse_file(folder, name, "has been changed since it was saved (its sha256 differs)")
    return data


def _parse_tensors(folder: str | os.PathLike[str], data: bytes) -> dict[str, Tensor]:
    """The tensors; their shapes are checked against the bytes that are there before memory is allocated."""
    try:
        return safetensors.load(data)
    except (SafetensorError, KeyError, RuntimeError, ValueError, TypeError, AssertionError) as error:
        _refuse_file(folder, TENSORS, f"is not a valid safetensors file ({error})")


def _summary(name: str, tensor: Tensor) -> dict[str, Any]:
    """Type, shape, and whether all is finite: an infinite number may be right, where it was saved."""
    numbers = tensor.float() if tensor.itemsize < 4 else tensor
    if bool(torch.isnan(numbers).any()):
        raise InputError(f"{name} holds NaN, so the model is broken; fit it again")
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "finite": bool(torch.isfinite(numbers).all()),
    }


def _memory() -> int:
    """The bytes of memory that this machine has."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return sys.maxsize
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _self_digest(manifest: dict[str, Any]) -> str:
    return _sha256(json.dumps(manifest, sort_keys=True, allow_nan=False).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _refuse_file(folder: str | os.PathLike[str], name: str, what: str) -> NoReturn:
    raise InputError(f"{name} in {os.fspath(folder)!r} {what}; {REMEDY}")
