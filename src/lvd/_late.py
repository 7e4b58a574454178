"""Functions of higher folders that classes of lower ones offer as methods.

Folders import only from those below them, and the page is made of what methods offer; still every method has
`report`. So the package gives such a function to the classes when it is put together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_GIVEN: dict[str, Callable[..., Any]] = {}


def provide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Offer the function, which loads what it needs when it is called, under its name."""
    _GIVEN[function.__name__] = function
    return function


def provided(name: str) -> Callable[..., Any]:
    """The function of that name."""
    return _GIVEN[name]
