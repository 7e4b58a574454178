"""Activations of chemprop's networks in JSON types: a name, or a class of torch's with its settings."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from lvd._validation import InputError

ELSEWHERE = ("device", "dtype", "inplace")
"""Arguments of constructors that no value depends on."""


def describe_activation(activation: Any) -> Any:
    """The name as it is, or torch's class and the arguments that it was made with; its weights are not part."""
    if not isinstance(activation, nn.Module):
        return str(activation)
    name = type(activation).__name__
    if _activation_class(name) is not type(activation):
        raise InputError(f"a network with the activation {name} cannot be saved; only torch's own can")
    settings = {argument: getattr(activation, argument, None) for argument in _arguments(type(activation))}
    if not all(isinstance(value, bool | int | float | str | None) for value in settings.values()):
        raise InputError(f"a network whose activation is {activation} cannot be saved")
    return {"class": name, "settings": settings}


def build_activation(description: Any) -> Any:
    """What `describe_activation` described."""
    if isinstance(description, str):
        return description
    found = _activation_class(description["class"])
    if found is None:
        raise InputError(f"torch has no activation {description['class']!r}; it is needed by a saved network")
    return found(**description["settings"])


def _activation_class(name: str) -> type[nn.Module] | None:
    known = nn.modules.activation.__all__
    return getattr(nn.modules.activation, name) if name in known else None


def _arguments(cls: type[nn.Module]) -> list[str]:
    parameters = inspect.signature(cls).parameters.values()
    return [
        one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD and one.name not in ELSEWHERE
    ]
