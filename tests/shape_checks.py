"""The run-time check of annotations in the tests; an int passes for a float, as everywhere in Python."""

from types import FunctionType

from beartype import BeartypeConf, beartype

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))
_made = {}


def check(signature: FunctionType) -> FunctionType:
    """The check of what jaxtyping hands over: an empty function with the signature of the one that is called.

    A function inside another one is made anew, with the same signature, whenever the outer one is called. Its check
    takes a millisecond to make, so it is made once.
    """
    if "<locals>" not in signature.__qualname__ or signature.__defaults__ or signature.__kwdefaults__:
        return _check(signature)
    key = (signature.__module__, signature.__qualname__, signature.__code__, repr(signature.__annotations__))
    if key not in _made:
        _made[key] = _check(signature)
    return _made[key]
