"""Which classes may be saved, and how each is taken apart and put together again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lvd._validation import InputError

Saved = tuple[dict[str, Any], dict[str, Any]]
"""Parameters and learned attributes."""


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of an object, without what a ``cached_property`` keeps among them: it is made again."""
    kept = vars(value).items()
    return {
        name: item for name, item in kept if not isinstance(getattr(type(value), name, None), cached_property)
    }


@dataclass(frozen=True)
class Storable:
    """A class that may be saved. By default an object is its attributes, as `fit` left them.

    Parameters
    ----------
    cls : the class; an object of a subclass is not taken for one of it.
    parameters : those of its constructor; all other attributes are learned ones.
    root : an object of it is a model by itself, and not only a part of one.
    take_apart : from an object to the attributes to save, in types that can be saved.
    complete : called on the rebuilt object, with the saved attributes set, to make it whole again.
    check : refuses a rebuilt object whose parameters are not valid.
    upgrade : from the parameters and learned attributes that an older version saved to those of this one.
    """

    cls: type[Any]
    parameters: Mapping[str, inspect.Parameter]
    root: bool = False
    take_apart: Callable[[Any], dict[str, Any]] = attributes_of
    complete: Callable[[Any], None] | None = None
    check: Callable[[Any], None] | None = None
    upgrade: Callable[[dict[str, Any], dict[str, Any]], Saved] | None = None


STORABLES: dict[type[Any], Storable] = {}
"""The classes that may be saved and loaded, as far as the modules that register them have been imported."""


def register(cls: type[Any], **ways: Any) -> None:
    """Allow objects of this class to be saved and loaded; no other class is ever looked up.

    `ways` are those of :class:`Storable`; a class with a method ``_check_parameters`` is checked by it.
    """
    ways.setdefault("check", getattr(cls, "_check_parameters", None))
    STORABLES[cls] = Storable(cls, inspect.signature(cls).parameters, **ways)


class OutdatedError(InputError):
    """What an older version saved and this one cannot use."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the model was saved by an older lvd with {what}, which this version does not have; fit it again"
        )
