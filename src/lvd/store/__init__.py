"""Saving without pickle: objects become JSON and tensors in a folder, and come back checked."""

from lvd.store.decoding import load_object, proven
from lvd.store.encoding import save_object
from lvd.store.folder import check_replaceable, read_manifest
from lvd.store.storable import Saved, outdated, register

__all__ = [
    "Saved",
    "check_replaceable",
    "load_object",
    "outdated",
    "proven",
    "read_manifest",
    "register",
    "save_object",
]
