"""Deprecation: a public name keeps working, warns about its replacement, and is removed in an announced version."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

Named = TypeVar("Named", bound=Callable[..., Any])


class Deprecation(NamedTuple):
    """A deprecated name, the version that deprecated it, the one that removes it, and what replaces it."""

    name: str
    since: str
    gone_in: str
    instead: str

    @property
    def sentence(self) -> str:
        """The warning."""
        return (
            f"{self.name} is deprecated since lvd {self.since}, to be removed in {self.gone_in}: "
            f"use {self.instead}"
        )


DEPRECATIONS: list[Deprecation] = []
"""All deprecated names. A test fails if one is still there in the version that should have removed it."""


def deprecated(*, since: str, gone_in: str, instead: str) -> Callable[[Named], Named]:
    """Make a function, method or class warn its caller.

    Examples
    --------
    >>> import warnings
    >>> from lvd._deprecation import deprecated
    >>> @deprecated(since="1.1", gone_in="1.3", instead="lvd.load")
    ... def read(folder):
    ...     return folder
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     read("model")
    'model'
    >>> print(caught[0].message)
    read is deprecated since lvd 1.1, to be removed in 1.3: use lvd.load
    """

    def decorate(named: Named) -> Named:
        going = Deprecation(named.__qualname__, since, gone_in, instead)
        DEPRECATIONS.append(going)
        if isinstance(named, type):  # it must remain a class: its constructor warns
            named.__init__ = _warning(named.__init__, going)  # type: ignore[misc]
            return named
        return _warning(named, going)  # type: ignore[return-value]

    return decorate


def _warning(function: Callable[..., Any], going: Deprecation) -> Callable[..., Any]:
    @functools.wraps(function)
    def with_warning(*given: Any, **named: Any) -> Any:
        warnings.warn(going.sentence, FutureWarning, stacklevel=2)
        return function(*given, **named)

    return with_warning
