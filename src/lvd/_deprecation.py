"""How a public name goes: it works on, says by what it is replaced, and is deleted in a version that was named."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

Named = TypeVar("Named", bound=Callable[..., Any])


class Deprecation(NamedTuple):
    """What goes, the version that said so first, the one in which it is gone, and what to use."""

    name: str
    since: str
    gone_in: str
    instead: str

    @property
    def sentence(self) -> str:
        """What a user is told."""
        return (
            f"{self.name} is deprecated since lvd {self.since} and gone in {self.gone_in}: use {self.instead}"
        )


DEPRECATIONS: list[Deprecation] = []
"""All that goes. A test fails as soon as one of them is still here in the version in which it was to be gone."""


def deprecated(*, since: str, gone_in: str, instead: str) -> Callable[[Named], Named]:
    """Let a function, method or class warn when it is called, at the place that calls it.

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
    read is deprecated since lvd 1.1 and gone in 1.3: use lvd.load
    """

    def decorate(named: Named) -> Named:
        going = Deprecation(named.__qualname__, since, gone_in, instead)
        DEPRECATIONS.append(going)
        if isinstance(named, type):  # stays a class: its constructor warns
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
