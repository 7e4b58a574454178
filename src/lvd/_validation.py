"""Input checks: input is converted once, and an error says what is wrong, where, and what to do."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from lvd._typing import ArrayLike, Float, Levels, NDArray, RandomState


class Parameter(NamedTuple):
    """A parameter named in an error; on the command line the option of that name is printed instead.

    `value` is the value that the error recommends. Without one, `named` prints ``name=`` rather than ``name``.
    """

    name: str
    value: Any = None
    named: bool = False

    def __str__(self) -> str:
        if self.value is not None:
            return f"{self.name}={self.value!r}"
        return f"{self.name}=" if self.named else self.name


class InputError(ValueError):
    """Input that lvd refuses; the message names the argument, the rule, the value and the remedy.

    It is made of pieces: text, parameters, and other such errors.
    """

    @property
    def pieces(self) -> tuple[str | Parameter, ...]:
        """The text and the parameters of the message."""
        inner = (piece.pieces if isinstance(piece, InputError) else (piece,) for piece in self.args)
        return tuple(chain.from_iterable(inner))

    def __str__(self) -> str:
        return "".join(map(str, self.pieces))


class MissingExtraError(InputError):
    """A required optional package is not installed; the message says how to install it."""


class RowError(InputError):
    """Input refused because of some rows, counted from 0; the message is in two parts, before and after their
    numbers.

    Code that passes on part of a table can translate the numbers into those of the table.
    """

    def __init__(self, before: str, rows: tuple[int, ...], after: str) -> None:
        super().__init__(before, rows, after)
        self.rows = rows

    @property
    def pieces(self) -> tuple[str | Parameter, ...]:
        before, rows, after = self.args
        return before, ", ".join(map(str, rows)), after

    def in_table(self, numbers: Sequence[int]) -> RowError:
        """The same error with the rows renumbered as `numbers`."""
        before, _, after = self.args
        return RowError(before, tuple(numbers), after)


_ORIGINS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The folder that each loaded object came from."""


def note_origin(loaded: Any, folder: str) -> None:
    """Remember where an object was loaded from, for :func:`load_errors_explained`."""
    _ORIGINS[loaded] = folder


@contextmanager
def load_errors_explained(loaded: Any) -> Iterator[None]:
    """When a loaded object fails, name the folder to save again: loading checks only one part at a time."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # which one depends on what does not fit
        from sklearn.exceptions import NotFittedError

        folder = _ORIGINS.get(loaded)
        if folder is None or isinstance(error, NotFittedError):
            raise
        raise InputError(
            f"the parts of the model in {folder!r} do not fit together ({type(error).__name__}: {error}); save the "
            "model again"
        ) from error


def is_tensor(array: Any) -> bool:
    """Whether `array` is a torch tensor; does not import torch."""
    return type(array).__module__.split(".")[0] == "torch" and hasattr(array, "detach")


def is_frame(X: Any) -> bool:
    """Whether `X` is a pandas frame; does not import pandas."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def to_numpy(array: ArrayLike) -> NDArray:
    """A numpy view or copy of numbers from numpy, pandas, torch or lists."""
    if is_tensor(array):
        return _tensor_to_numpy(array)
    if hasattr(array, "toarray"):
        raise InputError("sparse matrices are not supported: pass a dense array, for instance X.toarray()")
    try:
        return np.asarray(array)
    except ValueError as error:
        raise InputError(
            f"rows must all have the same shape, but numpy cannot make an array of these ({error}); give every row "
            "the same number of values, and several inputs of a torch module as a tuple or a dict of arrays"
        ) from None


def _tensor_to_numpy(tensor: Any) -> NDArray:
    """The numbers of a tensor in the host's memory; as float32 if numpy lacks their type."""
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_meta:
        raise InputError("a tensor on the device 'meta' holds no numbers; pass one on the CPU or a GPU")
    if tensor.is_quantized:
        raise InputError(f"quantized tensors are not supported, got {kind}; pass tensor.dequantize()")
    if str(tensor.layout) != "torch.strided":
        layout = str(tensor.layout).removeprefix("torch.")
        raise InputError(f"sparse tensors are not supported, got {layout}; pass tensor.to_dense()")
    shared = tensor.detach().cpu().resolve_conj().resolve_neg()
    try:
        return np.asarray(
            (shared.float() if kind == "bfloat16" or kind.startswith("float8") else shared).numpy()
        )
    except (TypeError, RuntimeError) as error:
        raise InputError(
            f"tensors of {kind} have no numpy counterpart ({error}); pass tensor.float()"
        ) from None


def like(result: ArrayLike, reference: ArrayLike, *, upwards: bool = False) -> Any:
    """`result` as a torch tensor on the device of `reference` when that is a tensor; else as a numpy array.

    A tensor has the precision of `reference`, but at least float32; `upwards` never rounds down.
    """
    if not is_tensor(reference):
        return to_numpy(result)
    import torch

    exact = torch.as_tensor(result, device=reference.device)
    short = reference.dtype.is_floating_point and reference.dtype != torch.float64
    rounded = exact.to(torch.float32 if short else torch.float64)
    if not upwards or rounded.dtype == exact.dtype:
        return rounded
    next_up = torch.nextafter(rounded, torch.full_like(rounded, torch.inf))
    return torch.where(rounded.to(exact.dtype) < exact, next_up, rounded)


def intervals_like(intervals: ArrayLike, reference: ArrayLike) -> Any:
    """:func:`like` for intervals (n, 2, ...); ends are never rounded inwards."""
    if not is_tensor(reference):
        return to_numpy(intervals)
    import torch

    lower, upper = torch.as_tensor(intervals).unbind(1)
    return torch.stack([-like(-lower, reference, upwards=True), like(upper, reference, upwards=True)], 1)


def is_matrix(X: Any) -> bool:
    """Whether it is an array of two dimensions that holds floating-point numbers."""
    return isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind == "f"


def check_matrix(
    X: ArrayLike, name: str = "X", n_columns: int | None = None, *, missing: bool = False, finite: bool = True
) -> Float[NDArray, "n p"]:
    """`X` as a finite, non-empty float64 matrix; with `missing`, it may hold NaN, without `finite` infinity too."""
    columns = [str(c) for c in getattr(X, "columns", [])]
    array = _numbers(X, name)
    if array.ndim != 2:
        hint = "use .reshape(-1, 1) for one column" if array.ndim == 1 else "flatten each row first"
        raise InputError(
            f"{name} must be a 2-d array of shape (rows, columns), got {array.ndim}-d of shape {array.shape}. "
            f"Reshape your data: {hint}"
        )
    if 0 in array.shape:
        kind = "sample(s)" if array.shape[0] == 0 else "feature(s)"
        raise InputError(
            f"{name} is empty: 0 {kind} (shape={array.shape}) while a minimum of 1 is required; "
            "give at least one row and one column"
        )
    if finite:
        _check_finite(array, name, columns, missing=missing)
    if n_columns is not None and array.shape[1] != n_columns:
        raise InputError(
            f"{name} has {array.shape[1]} features, but lvd is expecting {n_columns} features as input, as in fit; "
            "give the same columns in the same order"
        )
    return array


def check_vector(y: ArrayLike, name: str = "y") -> Float[NDArray, "n"]:
    """`y` as a finite, non-empty float64 vector; a single column is flattened."""
    array = _numbers(y, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{name} must be 1-d, got shape {array.shape}; pass one target column")
    if array.size == 0:
        raise InputError(f"{name} is empty; give at least one row")
    _check_finite(array, name, [])
    return array


def check_targets(y: ArrayLike, name: str = "y", *, missing: bool = False) -> Float[NDArray, "n t"]:
    """`y` as a finite float64 matrix with one column per target; a vector is one target.

    With `missing`, unknown targets may be NaN.
    """
    if y is None:
        raise InputError(f"training requires y to be passed, but the target {name} is None")
    array = _numbers(y, name)
    if missing and (unknown := np.isnan(array)).any():
        known = check_targets(np.where(unknown, 0.0, array), name)
        return np.where(unknown.reshape(known.shape), np.nan, known)
    return check_vector(array, name)[:, None] if array.ndim == 1 else check_matrix(array, name)


def present_rows(column: Float[NDArray, "n"]) -> Any:
    """An index of the rows that have a value; a full slice where none is missing."""
    missing = np.isnan(column)
    return np.flatnonzero(~missing) if missing.any() else slice(None)


def check_same_length(**arrays: Any) -> None:
    """All arrays have the same number of rows."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InputError(f"inconsistent numbers of rows: {listed}; they must describe the same rows")


def check_levels(confidence_level: Levels, name: str = "confidence_level") -> Float[NDArray, "l"]:
    """Confidence levels as a float64 vector, each strictly between 0 and 1."""
    try:
        levels = np.array(to_numpy(confidence_level), dtype=np.float64, ndmin=1)
    except (TypeError, ValueError):
        raise InputError(
            Parameter(name), f" must be a number or a list of numbers in (0, 1), got {confidence_level!r}"
        ) from None
    if levels.ndim != 1 or levels.size == 0:
        raise InputError(Parameter(name), f" must be a number or a non-empty list, got shape {levels.shape}")
    for level in levels.tolist():
        if not 0.0 < level < 1.0:
            hint = f"; did you mean {level / 100:g}?" if 1.0 < level < 100.0 else ""
            raise InputError(Parameter(name), f" must lie in (0, 1), got {level:g}{hint}")
    return levels


def percent_name(level: float) -> str:
    """``90`` for 0.9, ``99.9`` for 0.999; different levels have different names."""
    return f"{(Decimal(repr(level)) * 100).normalize():f}"


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """`value` is one of `choices`."""
    if value not in choices:
        raise InputError(Parameter(name), f" must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return str(value)


def check_positive(value: Any, name: str, *, integer: bool = False) -> None:
    """`value` is a positive number (an integer on request)."""
    kinds = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
        kind = "integer" if integer else "number"
        raise InputError(Parameter(name), f" must be a positive {kind}, got {value!r}")


def check_fraction(value: Any, name: str) -> float:
    """A number strictly between 0 and 1."""
    if not (isinstance(value, float | np.floating) and 0.0 < value < 1.0):
        raise InputError(
            Parameter(name), f" must lie in (0, 1), got {value!r}; it is a share, not a percentage or count"
        )
    return float(value)


def seed_from(random_state: RandomState) -> int:
    """An integer seed from any kind of random state; the global generators stay untouched."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if (
        isinstance(random_state, int | np.integer)
        and not isinstance(random_state, bool)
        and 0 <= random_state < 2**32
    ):
        return int(random_state)
    raise InputError(
        "random_state must be None, a non-negative integer below 2**32, a numpy RandomState or Generator, "
        f"got {random_state!r}"
    )


def resolve_device(device: Any = "auto") -> Any:
    """The torch device; ``"auto"`` is the GPU if torch sees one, else the CPU."""
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError):
        raise InputError(
            Parameter("device"),
            f" must be 'auto' or a torch device such as 'cpu' or 'cuda:0', got {device!r}",
        ) from None
    if resolved.type == "cuda":
        n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not n_gpus:
            raise InputError(
                *(Parameter("device", device), ", but torch sees no GPU; use ", Parameter("device", "auto")),
                " or 'cpu'",
            )
        if (resolved.index or 0) >= n_gpus:
            raise InputError(
                Parameter("device", device), f", but the last GPU that torch sees is 'cuda:{n_gpus - 1}'"
            )
    elif resolved.type != "cpu":
        try:  # the device must return numbers in float64, which intervals are computed in
            torch.ones(1, dtype=torch.float64, device=resolved).item()
        except Exception as error:  # which one depends on the device
            raise InputError(
                Parameter("device", str(resolved)),
                f" cannot be used ({str(error).splitlines()[0]}); use ",
                *(Parameter("device", "auto"), " or 'cpu'"),
            ) from None
    return resolved


DIGESTED_ROWS = 65_536
"""How many rows are copied at a time."""


def row_digests(X: ArrayLike) -> NDArray:
    """A 64-bit digest of each row, of any kind, to find rows that occur in two sets."""
    rows = to_numpy(X) if is_tensor(X) or hasattr(X, "columns") else X
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "biuf":
        blocks = (rows[start : start + DIGESTED_ROWS] for start in range(0, len(rows), DIGESTED_ROWS))
        # -0.0 and 0.0 are the same number.
        encoded = (row.tobytes() for block in blocks for row in block.astype(np.float64, order="C") + 0.0)
    else:
        encoded = (repr(row.tolist() if isinstance(row, np.ndarray) else row).encode() for row in rows)
    digests = (hashlib.blake2b(row, digest_size=8).digest() for row in encoded)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def check_texts(values: Any) -> tuple[str, ...]:
    """A JSON list of texts, as a tuple."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{values!r} is not a list of texts")
    return tuple(values)


def keep(estimator: Any, given: dict[str, Any]) -> None:
    """Store a constructor's parameters, its ``locals()``, under their names."""
    vars(estimator).update(
        {name: value for name, value in given.items() if name not in {"self", "__class__"}}
    )


def _numbers(array: ArrayLike, name: str) -> NDArray:
    if np.ma.is_masked(array):
        raise InputError(
            f"{name} contains {np.ma.getmaskarray(array).sum()} masked values; remove or impute these rows first"
        )
    raw = to_numpy(array)
    if isinstance(array, Mapping):
        raise InputError(f"{name} is a dict, which only a torch module of your own accepts; give a matrix")
    if np.iscomplexobj(raw):
        raise InputError(f"{name} holds complex numbers. Complex data not supported: pass real numbers")
    try:
        return np.asarray(
            raw, dtype=np.float64, order="C"
        )  # sums must not depend on how a frame is laid out in memory
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} must hold numbers only ({error}); encode text and dates as numbers first"
        ) from None


def _check_finite(array: NDArray, name: str, columns: list[str], *, missing: bool = False) -> None:
    finite = np.isfinite(array)
    if missing:
        finite |= np.isnan(array)
    if finite.all():
        return
    bad = np.argwhere(~finite)
    where = ""
    if array.ndim == 2:
        names = dict.fromkeys(columns[b[1]] if columns else str(b[1]) for b in bad[:5])
        where = f", column {', '.join(names)}"
    raise RowError(
        f"{name} contains {len(bad)} NaN or infinity values (first at row ",
        tuple(dict.fromkeys(int(b[0]) for b in bad[:5])),
        f"{where}); remove or impute these rows first",
    )


Sizes = dict[str, int]
"""The named sizes of the arguments of one call."""
SPECIFICATION = re.compile(r"(?P<how>[>?]*)(?P<dtype>\w+)(?P<shape>( [\w|+]+)*?)( \.\.(?P<most>\w+))?")


class MisfitError(InputError):
    """An array that does not match its specification, which is the message."""


class ArrayCheck(NamedTuple):
    """A parsed specification of an array argument, as of ``"float64 n k"``.

    A size is a number, one of several (``0|3``), or a name that has the same value in all arguments of a call; only
    `n` may be 0, and ``m+1`` is one more than m. ``>`` before the type marks an array that is written to, ``?`` one
    that may have no rows, and ``..m`` at the end values from 0 to m.
    """

    written: bool
    may_be_empty: bool
    dtype: np.dtype[Any]
    shape: tuple[str, ...]
    most: str | None
    text: str

    @classmethod
    def of(cls, text: str) -> ArrayCheck:
        """Parse a specification."""
        found = SPECIFICATION.fullmatch(text)
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
    """A compiled function that checks its arguments at every call: compiled loops do not check bounds."""

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
