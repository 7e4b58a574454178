"""Saving without pickle: objects become JSON and tensors in a folder, and come back checked."""

from lvd.store.decoding import load_object
from lvd.store.encoding import EXTENSIBLE, class_named, register, save_object
from lvd.store.folder import check_replaceable, locked, read_manifest

__all__ = [
    "EXTENSIBLE",
    "check_replaceable",
    "class_named",
    "load_object",
    "locked",
    "read_manifest",
    "register",
    "save_object",
]
