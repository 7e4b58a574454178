"""chemprop is an optional dependency and slow to import, so it is imported on first use."""

from __future__ import annotations

from types import ModuleType

from lvd._validation import MissingExtraError
from lvd.molecules.smiles import EXTRA


def chemprop_adapter() -> ModuleType:
    """Import lvd's chemprop adapter; the error says what to install."""
    try:
        from lvd.molecules import adapter
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"graph networks of molecules need chemprop ({error}): {EXTRA}") from error
    return adapter
