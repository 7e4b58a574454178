"""Which classes may be saved, and how each is taken apart and put together again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


def _attributes(value: Any) -> dict[str, Any]:
    return dict(vars(value))


def _anything_goes(value: Any) -> None:
    """No rule beyond those for all classes."""


@dataclass(frozen=True)
class Storable:
    """A class that may be saved. By default an object is its attributes, as `fit` left them.

    Parameters
    ----------
    cls : the class; an object of a subclass is not taken for one of it.
    take_apart : from an object to the attributes to save, in types that can be saved.
    complete : called on the rebuilt object, with the saved attributes set, to make it whole again.
    check : refuses a rebuilt object whose parameters are not valid.
    """

    cls: type[Any]
    take_apart: Callable[[Any], dict[str, Any]] = _attributes
    complete: Callable[[Any], None] = _anything_goes
    check: Callable[[Any], None] = _anything_goes

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The constructor's parameters; all other attributes are learned ones."""
        return inspect.signature(self.cls).parameters


Registry = Mapping[type[Any], Storable]


def registry(*storables: Storable) -> Registry:
    """The classes that may be saved and loaded; no other class is ever looked up."""
    return {storable.cls: storable for storable in storables}
