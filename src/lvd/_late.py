"""Functions of higher layers that classes of lower layers offer as methods.

Folders import only from lower layers, and the page is built from the methods, so a method cannot import the
page; yet every method has `report`. The package registers such functions here when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_GIVEN: dict[str, Callable[..., Any]] = {}


def provide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function under its name; it imports what it needs when it is called."""
    _GIVEN[function.__name__] = function
    return function


def provided(name: str) -> Callable[..., Any]:
    """The function of that name."""
    return _GIVEN[name]
