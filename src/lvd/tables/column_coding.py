"""How one column becomes features, learned from its values and never from the target."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NoReturn, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError, Parameter, check_texts
from lvd.models.coding import looks_unique
from lvd.models.level_coding import mean_targets
from lvd.tables.column_values import (
    NUMBER,
    RowNumbers,
    are_numbers,
    count,
    first_text,
    for_each_column,
    holds_levels,
    holds_numbers,
    is_text,
    list_rows,
    parse_text,
    to_mask,
    to_numbers,
    to_texts,
    without_marks,
)
from lvd.tables.dates import (
    PARTS,
    DateOrder,
    MomentKind,
    Part,
    are_dates,
    find_order,
    read_moments,
    recurring_parts,
    split_moments,
    to_moments,
    varying_parts,
)

Kind: TypeAlias = Literal["number", "boolean", "category", "date"]

MAX_CATEGORIES = 100
"""The most levels of a column with their own feature; the rest are pooled."""
LEAST_ROWS = 10
"""Levels with fewer rows than this are pooled, if a column has too many."""
MAX_CODED = 1000
"""The approximate limit on features for all levels together: with many such columns, each gets fewer."""

PLAIN_NUMBERS = "write plain numbers, such as 1234.5, without separators, units and currency signs"
_SIGNS = re.compile(r"[$\u20ac\u00a3\u00a5\u20b9%,'\s_]")
_DIGITS = r"[+-]?\d+(\.\d*)?"


@dataclass(frozen=True)
class Column:
    """How one column is coded: learned by `learn_column` and `learn_from`, applied by `encode_column`.

    Parameters
    ----------
    name : str
        Name of the column in the table.
    kind : {"number", "boolean", "category", "date"}
        Numbers and true/false values (1 and 0) give one feature, categories one per level, dates one per part.
    categories : tuple of str
        The levels with their own feature, sorted; the empty text is missing.
    median : float, optional
        Replaces a missing number or moment for models that accept none; without it, missing values are an
        error.
    rare : tuple of str
        The other levels seen in fit, sorted: they share one feature.
    shares : tuple of float
        If levels are pooled: the share of rows of each level in `categories` and `rare`, also a feature.
    means : tuple of tuples of float
        For each target, the mean over the rows of each level in `categories` and `rare`, followed by the
        overall mean, which stands for levels unseen in fit; also features. Models calibrated by
        cross-validation have none.
    parts : tuple of str
        The parts a date is split into.
    origin : float
        The first moment of a date column, from which its days are counted.
    moments : str, optional
        The kind of moments in a date column; models of older versions lack it.
    order : {"dmy", "mdy"}, optional
        Whether its texts begin with the day or the month, if they end with the year.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    median: float | None = None
    rare: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    parts: tuple[Part, ...] = ()
    origin: float = 0.0
    moments: MomentKind | None = None
    order: DateOrder | None = None
    means: tuple[tuple[float, ...], ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The column's name, or ``name=category`` per category (``name=`` for missing), ``name: year``..."""
        if self.kind == "date":
            return tuple(f"{self.name}: {part}" for part in self.parts)
        if self.kind != "category":
            return (self.name,)
        pooled = (f"{self.name}: rare", f"{self.name}: frequency") if self.rare else ()
        numbers = [""] if len(self.means) == 1 else [f" {number + 1}" for number in range(len(self.means))]
        means = tuple(f"{self.name}: mean target{number}" for number in numbers[: len(self.means)])
        return (*(f"{self.name}={category}" for category in self.categories), *pooled, *means)


def example_of_formatted(texts: Sequence[str]) -> str | None:
    """A text such as ``1,234`` or ``5%``, if at least half of the non-empty texts are such numbers.

    Only signs around and between its digits keep such a text from being a number.
    """
    known = [text for text in texts if text]
    found = [
        text
        for text in known
        if not re.match(NUMBER, text.strip()) and re.fullmatch(_DIGITS, _SIGNS.sub("", text))
    ]
    return min(found) if found and 2 * len(found) >= len(known) else None


def learn_column(
    name: str, values: pa.ChunkedArray, *, impute: bool, date_format: DateOrder | None = None
) -> Column:
    """The kind of a column with these values; `learn_from` adds medians, levels and first moments.

    With `impute`, missing numbers are accepted and replaced by the column's median for models that accept none,
    and missing categories are a category of their own. Otherwise both are errors. A dictionary (categorical)
    column is a category even if its values are integers.
    """
    if name == "" or name.startswith("__index_level_"):
        raise InputError("looks like a row index that was saved with the table")
    dated = not holds_numbers(values.type) and are_dates(values)
    if holds_levels(values.type) and not dated:
        _check_levels(values, impute)
        return Column(name, "category")
    kind: Kind = "date" if dated else "boolean" if pa.types.is_boolean(values.type) else "number"
    column = Column(name, kind, median=0.0 if impute else None)
    if dated and is_text(values.type):
        column = replace(column, order=date_format or find_order(values))
    array = _read(column, values)
    _check_missing(np.isnan(array), impute)
    if column.kind != "date":
        return column
    if not (parts := varying_parts(array[~np.isnan(array)])):
        raise InputError("is the same moment in every row")
    return replace(column, parts=parts, moments=read_moments(values, order=column.order)[1])


def encode_column(
    column: Column, values: pa.ChunkedArray, *, numbers: RowNumbers = None
) -> Float[NDArray, "n k"]:
    """The features of a column's values, with NaN for missing ones."""
    if column.kind == "category":
        return _encode_levels(column, values)
    array = _read(column, values, numbers)
    missing = np.isnan(array)
    if column.kind == "boolean" and (other := ~missing & (array != 0) & (array != 1)).any():
        raise InputError(f"must be true or false (1 or 0), got other numbers ({list_rows(other, numbers)})")
    if missing.any() and column.median is None:
        _refuse_missing(missing, numbers)
    if column.kind != "date":
        return array[:, None]
    parts = split_moments(np.where(missing, column.origin, array), column.parts, column.origin)
    return np.where(missing[:, None], np.nan, parts)


def features_of_missing(column: Column) -> list[float]:
    """The features of a missing cell, for models that accept no NaN."""
    if column.kind == "date" and column.median is not None:
        return split_moments(np.array([column.median]), column.parts, column.origin)[0].tolist()
    return [column.median or 0.0] * len(column.feature_names)


def _read(column: Column, values: pa.ChunkedArray, numbers: RowNumbers = None) -> Float[NDArray, "n"]:
    if column.kind == "date":
        return to_moments(values, kind=column.moments, order=column.order, numbers=numbers)
    return to_numbers(values, boolean=column.kind == "boolean", numbers=numbers)


def _check_levels(values: pa.ChunkedArray, impute: bool) -> None:
    texts = to_texts(values)
    missing = to_mask(pc.equal(texts, ""))
    _check_missing(missing, impute)
    if is_text(values.type):
        _check_not_numbers(texts, missing)
    known = [text for text in pc.unique(texts).to_pylist() if text]
    many = len(known) > MAX_CATEGORIES or looks_unique(len(known), int((~missing).sum()))
    if many and (example := example_of_formatted(known)) is not None:
        raise InputError(f"holds numbers that are written like {example!r}; {PLAIN_NUMBERS}")


def _check_not_numbers(texts: pa.ChunkedArray, missing: Bool[NDArray, "n"]) -> None:
    """Raise for numbers with a few slips among them, which are no categories, or too long for floats."""
    number = are_numbers(texts)
    other = ~number & ~missing
    if not (other & ~to_mask(without_marks(texts).is_null())).any():
        parse_text(texts)
    if other.any() and number.sum() >= other.sum():
        raise InputError(
            f"{count(number, 'number')} but {count(other, 'other value')}, like {first_text(texts, other)} "
            f"({list_rows(other)}); correct them, leave missing ones empty, or store it as categorical"
        )


def _check_missing(missing: Bool[NDArray, "n"], impute: bool) -> None:
    if missing.all():
        raise InputError("has no values at all")
    if missing.any() and not impute:
        _refuse_missing(missing)


def _refuse_missing(missing: Bool[NDArray, "n"], numbers: RowNumbers = None) -> NoReturn:
    raise InputError(
        f"{count(missing, 'missing value')} ({list_rows(missing, numbers)}); "
        "fill them in, remove these rows, or fit with ",
        Parameter("impute", "median"),
    )


def level_index(column: Column, values: pa.ChunkedArray) -> tuple[Int[NDArray, "n"], Bool[NDArray, "n"]]:
    """Each row's level as an index into `categories` and `rare`, and whether it is one of them."""
    levels = pa.array((*column.categories, *column.rare), pa.string())
    index = pc.fill_null(pc.index_in(to_texts(values), value_set=levels), -1).to_numpy()
    return index, index >= 0


def _encode_levels(column: Column, values: pa.ChunkedArray) -> Float[NDArray, "n k"]:
    """One-hot codes, and for pooled levels whether the level is rare, its frequency, and mean targets.

    A level unseen in fit is coded as a rare one with frequency 0.
    """
    index, seen = level_index(column, values)
    n_frequent = len(column.categories)
    one_hot = (index[:, None] == np.arange(n_frequent)).astype(np.float64)
    if not column.rare:
        return one_hot
    rare = ~seen | (index >= n_frequent)
    shares = np.where(seen, np.array(column.shares)[index], 0.0)
    means = [np.array(one)[index] for one in column.means]  # an unseen level, -1, gets the last one
    return np.column_stack([one_hot, rare, shares, *means])


def learn_from(
    columns: Sequence[Column], train: pa.Table, *, forget_dates: str | None = None
) -> tuple[Column, ...]:
    """The columns with medians, levels and first moments learned from these rows.

    For dates of column `forget_dates` only recurring parts are kept: no year, no days since the first one, and
    no month if the rows span less than a year.
    """
    by_name = {column.name: column for column in columns}
    n_coded = sum(holds_levels(train[name].type) for name in by_name)
    limit = max(LEAST_ROWS, min(MAX_CATEGORIES, MAX_CODED // max(1, n_coded)))

    def learn(name: str) -> Column:
        column = by_name[name]
        if column.kind == "category":
            return _pool(column, to_texts(train[name]), limit)
        array = _read(column, train[name])
        known = array[~np.isnan(array)]
        if not len(known):
            raise InputError("has no values at all")
        if column.median is not None:
            column = replace(column, median=float(np.median(known)))
        if column.kind != "date":
            return column
        parts = recurring_parts(column.parts, known) if name == forget_dates else column.parts
        return replace(column, origin=float(known.min()), parts=parts)

    learned = for_each_column(list(by_name), learn, noun="training rows of column", may_drop=True)
    return tuple(column for column in learned if column.feature_names)


def with_mean_targets(
    columns: Sequence[Column], train: pa.Table, y: Float[NDArray, "n t"], seed: int
) -> tuple[tuple[Column, ...], dict[str, Float[NDArray, "n t"]]]:
    """The columns with mean targets of pooled levels and, by name, the training rows' own, computed out-of-fold
    (see :class:`lvd.models.level_coding.TargetCoding`)."""
    learned, own = list(columns), {}
    for place, column in enumerate(columns):
        if not column.rare:
            continue
        codes = level_index(column, train[column.name])[0][:, None].astype(np.float64)
        n_levels = len(column.categories) + len(column.rare)
        found = [mean_targets(codes, target, seed, n_levels) for target in y.T]
        own[column.name] = np.stack([crossed for crossed, _ in found], axis=1)
        usual = y.mean(axis=0).tolist()
        means = tuple((*one.tolist(), mean) for (_, one), mean in zip(found, usual, strict=True))
        learned[place] = replace(column, means=means)
    return tuple(learned), own


def _pool(column: Column, texts: pa.ChunkedArray, limit: int) -> Column:
    """Split a column's levels by frequency: keep all, or the most frequent ones and the rare rest."""
    counts = Counter({one["values"]: one["counts"] for one in pc.value_counts(texts).to_pylist()})
    if len(counts) <= limit:
        return replace(column, categories=tuple(sorted(counts)), rare=(), shares=())
    ordered = sorted(counts, key=lambda level: (-counts[level], level))
    frequent = sorted(level for level in ordered[:limit] if counts[level] >= LEAST_ROWS)
    rare = sorted(set(counts) - set(frequent))
    shares = tuple(counts[level] / counts.total() for level in (*frequent, *rare))
    return replace(column, categories=tuple(frequent), rare=tuple(rare), shares=shares)


def column_to_dict(column: Column) -> dict[str, Any]:
    """A column in JSON types; defaults are omitted."""
    content = {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(column).items()
    }
    always = ("name", "kind", "categories", "median")
    return {name: value for name, value in content.items() if name in always or value}


def column_from_dict(entry: Any) -> Column:
    """A column from JSON; invalid input raises KeyError, TypeError, ValueError or OverflowError."""
    (name,), categories = check_texts([entry["name"]]), check_texts(entry["categories"])
    rare, parts = check_texts(entry.get("rare", [])), check_texts(entry.get("parts", []))
    shares, origin = entry.get("shares", []), entry.get("origin", 0.0)
    kind, median, moments = entry["kind"], entry["median"], entry.get("moments")
    levels, order = (*categories, *rare), entry.get("order")
    if order is not None and (kind != "date" or order not in get_args(DateOrder)):
        raise ValueError(f"order {order!r} of kind {kind!r}")
    if kind not in get_args(Kind) or (kind == "category") != bool(levels) or (kind == "date") != bool(parts):
        raise ValueError(f"kind {kind!r} with {len(levels)} categories and {len(parts)} parts")
    if moments is not None and (kind != "date" or moments not in get_args(MomentKind)):
        raise ValueError(f"moments {moments!r} of kind {kind!r}")
    if len(set(levels)) < len(levels) or len(set(parts)) < len(parts) or not set(parts) <= set(PARTS):
        raise ValueError("repeated categories or unknown parts")
    if len(shares) != (len(levels) if rare else 0) or not all(0.0 < share <= 1.0 for share in shares):
        raise ValueError("shares that are not those of the categories")
    means = tuple(tuple(map(float, one)) for one in entry.get("means", []))
    finite = all(math.isfinite(mean) for one in means for mean in one)
    if not finite or any(len(one) != len(levels) + 1 for one in means) or (means and not rare):
        raise ValueError("mean targets that are not those of the categories")
    if (median is not None and not math.isfinite(median)) or not math.isfinite(origin):
        raise ValueError(f"median {median!r}, origin {origin!r}")
    return Column(
        name,
        kind,
        categories,
        None if median is None else float(median),
        rare,
        tuple(map(float, shares)),
        tuple(part for part in PARTS if part in parts),
        float(origin),
        moments,
        order,
        means,
    )
