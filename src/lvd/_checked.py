"""Checks of the arguments of compiled functions at every call, as compiled loops do not check bounds.

A specification names the type and the sizes of an array: ``"float64 n k"``. A size is a number, one of several
(``0|3``), or a name that has the same value in all arguments of a call; only `n` may be 0, and ``m+1`` is one more
than m. ``>`` before the type marks an array that is written to, ``?`` one that may have no rows, and ``..m`` at the
end values from 0 to m.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lvd._validation import InputError

Sizes = dict[str, int]
"""The named sizes of the arguments of one call."""
PATTERN = re.compile(r"(?P<how>[>?]*)(?P<dtype>\w+)(?P<shape>( [\w|+]+)*?)( \.\.(?P<most>\w+))?")


class MisfitError(InputError):
    """An array that does not match its specification, which is the message."""


class ArrayCheck(NamedTuple):
    """A parsed specification."""

    written: bool
    may_be_empty: bool
    dtype: np.dtype[Any]
    shape: tuple[str, ...]
    most: str | None
    text: str

    @classmethod
    def of(cls, text: str) -> ArrayCheck:
        """Parse a specification."""
        found = PATTERN.fullmatch(text)
        assert found is not None, text
        how, dtype, shape = found["how"], np.dtype(found["dtype"]), tuple(found["shape"].split())
        return cls(">" in how, "?" in how, dtype, shape, found["most"], text)

    def __call__(self, array: Any, sizes: Sizes) -> None:
        """Refuse an array that does not match; sizes named for the first time are added to `sizes`."""
        fine = isinstance(array, np.ndarray) and array.dtype == self.dtype and array.ndim == len(self.shape)
        if not fine or not (array.flags.carray if self.written else array.flags.c_contiguous):
            raise MisfitError(self.text)
        if self.may_be_empty and not len(array):
            return
        for wanted, size in zip(self.shape, array.shape, strict=True):
            if wanted.isidentifier():
                fine &= sizes.setdefault(wanted, size) == size and (size > 0 or wanted == "n")
            elif wanted.endswith("+1"):
                fine &= sizes[wanted[:-2]] + 1 == size
            else:
                fine &= str(size) in wanted.split("|")
        if fine and self.most is not None and array.size:
            fine = array.min() >= 0 and array.max() <= sizes[self.most]
        if not fine:
            raise MisfitError(self.text)


Check = Callable[[Any, Sizes], None]
"""Checks one argument."""


class Checked:
    """A compiled function, `compiled`, that checks its arguments first."""

    def __init__(self, compiled: Any, checks: dict[str, Check]) -> None:
        self.compiled, self.name = compiled, compiled.py_func.__name__
        self.checks = tuple(checks.items())

    def __call__(self, *arguments: Any) -> None:
        """Check the arguments, all given by position, and run."""
        sizes: Sizes = {}
        for (name, check), argument in zip(self.checks, arguments, strict=True):
            try:
                check(argument, sizes)
            except MisfitError as misfit:
                given = f"{argument.dtype} {argument.shape}" if hasattr(argument, "dtype") else type(argument)
                raise InputError(
                    f"{name} of the compiled {self.name} must be {misfit}, where {sizes or 'nothing'} is known, "
                    f"got {given}: parts of a model that do not belong together; fit it again"
                ) from None
        self.compiled(*arguments)


def checked(**specifications: str | Check) -> Callable[[Any], Checked]:
    """Check the arguments of a compiled function, in order: arrays by a specification, ``"number"``, or a
    function."""
    checks = {name: _check_of(given) for name, given in specifications.items()}

    def wrap(compiled: Any) -> Checked:
        if not hasattr(compiled, "py_func"):
            raise InputError(
                "lvd's loops must be compiled, but NUMBA_DISABLE_JIT is set; unset it and start Python again"
            )
        return Checked(compiled, checks)

    return wrap


def _check_of(given: str | Check) -> Check:
    if not isinstance(given, str):
        return given
    return _check_number if given == "number" else ArrayCheck.of(given).__call__


def check_of_arrays(specifications: Sequence[str]) -> Check:
    """The check of a tuple of arrays."""
    checks = [ArrayCheck.of(text) for text in specifications]

    def check(arrays: Any, sizes: Sizes) -> None:
        if not isinstance(arrays, tuple) or len(arrays) != len(checks):
            raise MisfitError(f"{len(checks)} arrays")
        for one, array in zip(checks, arrays, strict=True):
            one(array, sizes)

    return check


def _check_number(value: Any, sizes: Sizes) -> None:
    if not isinstance(value, float):
        raise MisfitError("a float")
