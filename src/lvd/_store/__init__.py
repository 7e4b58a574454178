"""Saving without pickle: objects become JSON and tensors in a folder, and come back checked."""

from lvd._store.decoding import decode
from lvd._store.encoding import encode
from lvd._store.folder import check_replaceable, read_folder, read_manifest, write_folder
from lvd._store.storable import Storable, registry

__all__ = [
    "Storable",
    "check_replaceable",
    "decode",
    "encode",
    "read_folder",
    "read_manifest",
    "registry",
    "write_folder",
]
