"""Saving without pickle: objects become JSON and tensors in a folder, and come back checked."""

from lvd.store.decoding import decode
from lvd.store.encoding import encode
from lvd.store.folder import check_replaceable, read_folder, read_manifest, write_folder
from lvd.store.storable import Registry, Saved, Storable, anything_goes, outdated, registry

__all__ = [
    "Registry",
    "Saved",
    "Storable",
    "anything_goes",
    "check_replaceable",
    "decode",
    "encode",
    "outdated",
    "read_folder",
    "read_manifest",
    "registry",
    "write_folder",
]
