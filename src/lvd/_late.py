"""Functions of higher folders that classes of lower ones offer as methods.

Folders import only from those below them, and the page is made of what methods offer; still every method has
`report`. So the package says, when it is put together, where such a function is, and it is loaded when it is first
called.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

_HOMES: dict[str, str] = {}


def provide(name: str, module: str) -> None:
    """Say in which module the function is."""
    _HOMES[name] = module


def provided(name: str) -> Callable[..., Any]:
    """The function of that name."""
    found: Callable[..., Any] = getattr(import_module(_HOMES[name]), name)
    return found
