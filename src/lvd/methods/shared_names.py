"""A method and a constructor's parameter of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class SharedName:
    """Decorates a method whose name the constructor takes too: read it is the method, assigned the parameter.

    The parameter lives in the instance dictionary, ``vars(self)[name]``; `get_params` must look there.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self.method.__get__(instance, owner)

    def __set__(self, instance: Any, parameter: Any) -> None:
        vars(instance)[self.method.__name__] = parameter
