"""Which classes may be saved, and how each is taken apart and put together again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

from lvd._validation import InputError


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
    """

    cls: type[Any]
    parameters: Mapping[str, inspect.Parameter]
    root: bool = False
    take_apart: Callable[[Any], dict[str, Any]] = attributes_of
    complete: Callable[[Any], None] | None = None
    check: Callable[[Any], None] | None = None


EXTENSIBLE: list[type[Any]] = []
"""Contracts that users implement in classes of their own. Such an object is saved under the full name of its class,
and is loaded only by somebody who names that class as trusted."""


def full_name(cls: type[Any]) -> str:
    """The name under which a class of a user's own is saved."""
    return f"{cls.__module__}:{cls.__qualname__}"


def class_named(name: str | type[Any]) -> type[Any]:
    """The class of a name like that of :func:`full_name`, whose module is imported; a class itself stays."""
    if not isinstance(name, str):
        return name
    module, _, path = name.partition(":")
    if not path or not module:
        raise InputError(f"a class of your own is named as MODULE:CLASS, got {name!r}")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{name} cannot be imported ({error}); name a class of a module in the current folder or of an "
            "installed package, as MODULE:CLASS"
        ) from error
    if not isinstance(found, type):
        raise InputError(f"{name} must be a class, got {type(found).__name__}; name the class itself")
    return found


def storable_of(cls: type[Any]) -> Storable | None:
    """How objects of this class are saved; None if they cannot be."""
    if cls in STORABLES:
        return STORABLES[cls]
    return extension(cls) if issubclass(cls, tuple(EXTENSIBLE)) else None


def extension(cls: type[Any], *, root: bool = False) -> Storable:
    """How objects of a user's own class are saved: as their parameters and what `fit` learned."""
    check = getattr(cls, "_check_parameters", None)
    return Storable(cls, inspect.signature(cls).parameters, root=root, check=check)


STORABLES: dict[type[Any], Storable] = {}
"""The classes that may be saved and loaded, as far as the modules that register them have been imported."""


def register(cls: type[Any], **ways: Any) -> None:
    """Allow objects of this class to be saved and loaded; no other class is ever looked up.

    `ways` are those of :class:`Storable`; a class with a method ``_check_parameters`` is checked by it.
    """
    ways.setdefault("check", getattr(cls, "_check_parameters", None))
    STORABLES[cls] = Storable(cls, inspect.signature(cls).parameters, **ways)


def is_code(value: Any) -> bool:
    """Whether it is code of the user's, which is given again in loading: a function, or an object that predicts."""
    return callable(value) or callable(getattr(value, "predict", None))
