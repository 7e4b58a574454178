"""Which classes may be saved, and how each is taken apart and put together again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lvd._validation import InputError


def _attributes(value: Any) -> dict[str, Any]:
    return dict(vars(value))


def anything_goes(value: Any) -> None:
    """No rule beyond those for all classes."""


Saved = tuple[dict[str, Any], dict[str, Any]]
"""Parameters and learned attributes."""


def _as_it_is(parameters: dict[str, Any], learned: dict[str, Any]) -> Saved:
    return parameters, learned


@dataclass(frozen=True)
class Storable:
    """A class that may be saved. By default an object is its attributes, as `fit` left them.

    Parameters
    ----------
    cls : the class; an object of a subclass is not taken for one of it.
    take_apart : from an object to the attributes to save, in types that can be saved.
    complete : called on the rebuilt object, with the saved attributes set, to make it whole again.
    check : refuses a rebuilt object whose parameters are not valid.
    upgrade : from the parameters and learned attributes that an older version saved to those of this one.
    """

    cls: type[Any]
    take_apart: Callable[[Any], dict[str, Any]] = _attributes
    complete: Callable[[Any], None] = anything_goes
    check: Callable[[Any], None] = anything_goes
    upgrade: Callable[[dict[str, Any], dict[str, Any]], Saved] = _as_it_is

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The constructor's parameters; all other attributes are learned ones."""
        return inspect.signature(self.cls).parameters


Registry = Mapping[type[Any], Storable]


def outdated(what: str) -> InputError:
    """An error for what an older version saved and this one cannot use."""
    return InputError(f"the model was saved by an older lvd with {what}, which this version does not have; fit again")


def registry(*storables: Storable) -> Registry:
    """The classes that may be saved and loaded; no other class is ever looked up."""
    return {storable.cls: storable for storable in storables}
