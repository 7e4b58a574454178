"""chemprop is an extra and slow to import: it is loaded when it is needed."""

from __future__ import annotations

from types import ModuleType

from lvd._validation import MissingExtraError
from lvd.molecules.smiles import EXTRA


def chemprop_adapter() -> ModuleType:
    """The module of lvd that works with chemprop, or an error that says what to install."""
    try:
        from lvd.molecules import adapter
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"graph networks of molecules need chemprop ({error}): {EXTRA}") from error
    return adapter
