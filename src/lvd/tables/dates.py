"""Dates and times as seconds since the start of 1970, and as numeric features."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lvd._typing import Bool, Float, NDArray
from lvd._validation import InputError, Parameter
from lvd.tables.column_values import (
    RowNumbers,
    count,
    first_text,
    in_seconds,
    is_text,
    list_rows,
    to_mask,
    without_marks,
)

Part: TypeAlias = Literal["year", "month", "weekday", "hour", "days"]
PARTS: tuple[Part, ...] = get_args(Part)
"""The parts of a moment: calendar parts, with Monday as 0, and days since an origin."""
DAY = 86_400.0
CYCLES: dict[Part, float] = {"month": 365.0 * DAY, "weekday": 7.0 * DAY, "hour": DAY}
"""The period of each recurring part; the other parts never recur, so later rows have no training values."""
_CLOCK = r"\d{1,2}:\d{2}(:\d{2}(\.\d{1,6})?)?"
_ZONE = r" ?(Z|[+-]\d{2}:?\d{2})$"
_ISO = rf"^\d{{4}}[-/]\d{{1,2}}[-/]\d{{1,2}}([T ]{_CLOCK}({_ZONE[:-1]})?)?$"
_COMPACT = r"^(\d{4})(\d{2})(\d{2})T(\d{2})(\d{2})(\d{2})$"
_TIME = rf"^{_CLOCK}$"
_LIKE_DATE = (
    r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([T ]|$)"
    r"|^\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?$"
)
_ORDERED = rf"^(\d{{1,2}})([-/.])(\d{{1,2}})[-/.](\d{{4}})(([T ]{_CLOCK})?)$"
DateOrder: TypeAlias = Literal["dmy", "mdy"]
"""Whether the day or the month comes first if the year comes last."""
MomentKind: TypeAlias = Literal["times of day", "dates or times without a zone", "times with a zone"]
"""The kinds of moments in a column; different kinds cannot be compared."""
DATE_FORMAT = Parameter("date_format", "dmy")
WRITE_ISO = "write dates as 2024-03-31, times as 17:30:00 and both as 2024-03-31T17:30:00"


def are_dates(values: pa.ChunkedArray) -> bool:
    """Whether a column holds dates or times.

    Durations are numbers. Texts are dates if all non-missing ones are, in ISO 8601 or in a rejected format.
    """
    if not is_text(values.type):
        return _is_moment(values.type)
    trimmed = without_marks(values)
    if trimmed.null_count == len(trimmed):
        return False
    return bool(pc.all(pc.match_substring_regex(trimmed, rf"{_LIKE_DATE}|{_COMPACT}")).as_py())


def to_moments(
    values: pa.ChunkedArray,
    *,
    kind: MomentKind | None = None,
    order: DateOrder | None = None,
    numbers: RowNumbers = None,
) -> Float[NDArray, "n"]:
    """Dates and times as seconds since the start of 1970, times alone since midnight; missing ones are NaN.

    The `order` of day and month is inferred from the values if they determine it. Times with a zone are
    converted to UTC. Moments of another `kind` than the given one are an error.
    """
    moments, found = read_moments(values, order=order, numbers=numbers)
    if kind is not None and found != kind and not np.isnan(moments).all():
        raise InputError(
            f"holds {found}, but the model was fitted on {kind}; write them as in that table"
            + (", for instance as 2024-03-31T17:30:00+02:00" if kind == "times with a zone" else "")
        )
    return moments


def read_moments(
    values: pa.ChunkedArray, *, order: DateOrder | None = None, numbers: RowNumbers = None
) -> tuple[Float[NDArray, "n"], MomentKind]:
    """The moments of :func:`to_moments`, and their kind."""
    kind: MomentKind = "times of day" if _are_times(values) else "dates or times without a zone"
    if is_text(values.type):
        values = _parse(values, order, numbers)
    elif not _is_moment(values.type):
        raise InputError(f"must hold dates or times, as in fit, got {values.type}; {WRITE_ISO}")
    if getattr(values.type, "tz", None) is not None:
        kind = "times with a zone"
    return in_seconds(values).to_numpy(), kind


def find_order(values: pa.ChunkedArray) -> DateOrder | None:
    """The order of day and month in these texts: determined by a value above 12, or by points as separators.

    None if no text ends with the year.
    """
    texts = without_marks(values).drop_null()
    texts = texts.filter(pc.match_substring_regex(texts, _ORDERED))
    if not len(texts):
        return None
    numbers = [
        pc.replace_substring_regex(texts, _ORDERED, rf"\{place}").cast(pa.int64()).to_numpy()
        for place in (1, 3)
    ]
    first, second = (bool((one > 12).any()) for one in numbers)
    if first != second:
        return "dmy" if first else "mdy"
    points = pc.all(pc.equal(pc.replace_substring_regex(texts, _ORDERED, r"\2"), ".")).as_py()
    if points and not second:
        return "dmy"
    why = "both the day and the month seem to come first" if first else "day or month may come first"
    raise InputError(
        f"{texts[0].as_py()!r}: {why}; write dates as 2024-03-31, or say which with ", DATE_FORMAT
    )


def split_moments(
    moments: Float[NDArray, "n"], parts: tuple[Part, ...], origin: float
) -> Float[NDArray, "n k"]:
    """The parts of each moment as columns, with days counted from `origin`."""
    stamps = np.floor(moments).astype("datetime64[s]")
    days = stamps.astype("datetime64[D]")
    found = {
        "year": days.astype("datetime64[Y]").astype(np.float64) + 1970.0,
        "month": days.astype("datetime64[M]").astype(np.int64) % 12 + 1.0,
        "weekday": (days.astype(np.int64) + 3) % 7 + 0.0,
        "hour": (moments % DAY) / 3600.0,
        "days": (moments - origin) / DAY,
    }
    return np.stack([found[part] for part in parts], axis=1)


def recurring_parts(parts: tuple[Part, ...], moments: Float[NDArray, "n"]) -> tuple[Part, ...]:
    """The parts that have recurred within these moments, none of which is missing."""
    span = float(moments.max() - moments.min())
    return tuple(part for part in parts if CYCLES.get(part, np.inf) <= span)


def varying_parts(moments: Float[NDArray, "n"]) -> tuple[Part, ...]:
    """The parts that vary between moments: no hours for plain dates, no days for plain times."""
    values = split_moments(moments, PARTS, 0.0)
    varies = values.min(axis=0) < values.max(axis=0)
    if varies[PARTS.index("hour")] and not varies[: PARTS.index("hour")].any():
        varies[PARTS.index("days")] = False
    return tuple(part for part, one in zip(PARTS, varies, strict=True) if one)


def _is_moment(arrow_type: pa.DataType) -> bool:
    return pa.types.is_temporal(arrow_type) and not pa.types.is_duration(arrow_type)


def _are_times(values: pa.ChunkedArray) -> bool:
    """Whether these are times without dates."""
    if not is_text(values.type):
        return bool(pa.types.is_time(values.type))
    return bool(to_mask(pc.match_substring_regex(without_marks(values), _TIME)).any())


def _parse(values: pa.ChunkedArray, order: DateOrder | None, numbers: RowNumbers) -> pa.ChunkedArray:
    texts = without_marks(values)
    compact = pc.replace_substring_regex(texts, _COMPACT, r"\1-\2-\3T\4:\5:\6")
    order = find_order(values) if order is None else order
    if order is not None:
        month_day = r"\1-\3" if order == "mdy" else r"\3-\1"
        compact = pc.replace_substring_regex(compact, _ORDERED, rf"\4-{month_day}\5")
    clock = to_mask(pc.match_substring_regex(compact, _TIME))
    if clock.any():
        _refuse(texts, ~clock, numbers)
        compact = pc.binary_join_element_wise("1970-01-01", compact, "T")
    _refuse(texts, ~to_mask(pc.match_substring_regex(compact, _ISO)), numbers)
    plain = pc.replace_substring(compact, "/", "-")
    for one_digit in (r"^(\d{4}-)(\d-)", r"^(\d{4}-\d{2}-)(\d(?:[T ]|$))", r"([T ])(\d:)"):
        plain = pc.replace_substring_regex(plain, one_digit, r"\1" + r"0\2")
    zoned = to_mask(pc.match_substring_regex(plain, _ZONE))
    if zoned.any():
        _refuse(texts, ~zoned, numbers, "has no time zone where others have one")
        plain = pc.replace_substring_regex(plain, " (Z|[+-])", r"\1")
    try:
        return plain.cast(pa.timestamp("us", "UTC" if zoned.any() else None))
    except pa.ArrowInvalid as error:
        raise InputError(f"holds a date or time that does not exist ({error}); correct the table") from None


def _refuse(
    texts: pa.ChunkedArray, wrong: Bool[NDArray, "n"], numbers: RowNumbers, why: str = "is not a date or time"
) -> None:
    wrong = wrong & ~to_mask(texts.is_null())
    if wrong.any():
        raise InputError(
            f"{first_text(texts, wrong)} {why} ({count(wrong, 'such value')}, {list_rows(wrong, numbers)}); "
            f"{WRITE_ISO}"
        )
