"""What a model's columns hold, for its page and OpenAPI document: kinds, usual values, ranges, levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lvd._typing import Float, NDArray
from lvd.models.coding import InputCoding
from lvd.support import TrainingSupport
from lvd.tables.column_coding import Column
from lvd.tables.dates import DAY
from lvd.tables.frame_encoder import FrameEncoder
from lvd.tables.inputs import CellEncoder, RowEncoder

MOST_LEVELS = 200
"""The most levels to list; any text is accepted."""
VALUE, GAP, LEVEL = "value", "gap", "level "
"""What a coded feature represents: the value, whether it is missing, or one level."""


@dataclass(frozen=True)
class ColumnFacts:
    """A column as shown in forms; `usual` is an ordinary value, and `low` to `high` the training range."""

    name: str
    kind: str
    usual: Any = None
    low: float | None = None
    high: float | None = None
    levels: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingRange:
    """Median, minimum, maximum and mean (`share`) of each coded feature."""

    middle: Float[NDArray, "p"]
    low: Float[NDArray, "p"]
    high: Float[NDArray, "p"]
    share: Float[NDArray, "p"]

    @classmethod
    def of(cls, method: Any) -> TrainingRange | None:
        """The ranges kept by the support rule; None for other rules or non-numeric inputs."""
        rule = vars(method).get("support_")
        if not isinstance(rule, TrainingSupport) or rule.inputs_ is None or rule.ranges_ is None:
            return None
        space, ranges = rule.inputs_, rule.ranges_
        placed = np.median(space.rows, axis=0), ranges.lowest, ranges.highest, space.rows.mean(axis=0)
        return cls(*(space.mean + space.scale * one.astype(np.float64) for one in placed))


def describe_columns(encoder: RowEncoder, method: Any) -> tuple[ColumnFacts, ...]:
    """The columns that the model reads, with what is known about their training rows."""
    if isinstance(encoder, CellEncoder):
        return (ColumnFacts(encoder.smiles, "category"),)
    model = vars(method).get("model_")
    coding = None if model is None else vars(model.unwrapped).get("coding_")
    slots = list(_slots(encoder, coding if isinstance(coding, InputCoding) else None))
    known = TrainingRange.of(method)
    if known is not None and sum(map(len, slots)) != len(known.middle):
        known = None
    starts = np.cumsum([0, *map(len, slots)]).tolist()
    return tuple(
        _describe(column, _seen_levels(encoder, place), slots[place], known, starts[place])
        for place, column in enumerate(encoder.columns)
    )


def _seen_levels(encoder: RowEncoder, place: int) -> tuple[str, ...]:
    """The levels of a column that the model has seen, including those of a frame's categories."""
    if isinstance(encoder, FrameEncoder):
        return tuple(map(str, encoder.frame.categories[place]))
    column = encoder.columns[place]
    return (*column.categories, *column.rare)


def _slots(encoder: RowEncoder, coding: InputCoding | None) -> Iterator[list[str]]:
    """For each column, what its coded features represent."""
    if isinstance(encoder, FrameEncoder) and not encoder.as_matrix:
        for number in range(len(encoder.columns)):
            of_number = coding is None or coding.means[number] is not None
            gap = coding is not None and coding.gaps[number]
            levels = () if coding is None or of_number else coding.levels[number]
            yield [VALUE, *[GAP] * gap] if of_number else [LEVEL + level for level in levels]
        return
    gaps = iter(() if coding is None else coding.gaps)
    for column in encoder.columns:
        found = []
        for slot in _slots_of(column):
            found += [slot, GAP] if next(gaps, False) else [slot]
        yield found


def _slots_of(column: Column) -> list[str]:
    if column.kind == "category":
        pooled = ["rare", "frequency"] * bool(column.rare) + ["mean target"] * len(column.means)
        return [LEVEL + level for level in column.categories] + pooled
    return list(column.parts) if column.kind == "date" else [VALUE]


def _describe(
    column: Column, levels: tuple[str, ...], slots: list[str], known: TrainingRange | None, start: int
) -> ColumnFacts:
    if column.kind == "category":
        usual = levels[0] if levels else None
        if column.shares:
            usual = levels[int(np.argmax(column.shares))]
        elif known is not None and slots:
            usual = slots[int(known.share[start : start + len(slots)].argmax())].removeprefix(LEVEL)
        return ColumnFacts(column.name, "category", usual, levels=levels[:MOST_LEVELS])
    if column.kind == "date":
        return ColumnFacts(column.name, "date", _usual_moment(column, slots, known, start))
    if known is None:
        return ColumnFacts(column.name, column.kind, column.median)
    middle, low, high = (_as_example(float(one[start])) for one in (known.middle, known.low, known.high))
    if column.kind == "boolean":
        return ColumnFacts(column.name, "boolean", middle >= 0.5)
    return ColumnFacts(column.name, "number", middle, low, high)


def _usual_moment(column: Column, slots: list[str], known: TrainingRange | None, start: int) -> str | None:
    """The median of the training rows' dates, or the first one."""
    if not column.parts:
        return None
    days = float(known.middle[start + slots.index("days")]) if known is not None and "days" in slots else 0.0
    moment = np.datetime64(round(column.origin + DAY * days), "s")
    text = str(moment) if "hour" in column.parts else str(moment.astype("datetime64[D]"))
    if column.moments == "times of day":
        return str(moment).partition("T")[2]
    return f"{text}Z" if column.moments == "times with a zone" and "T" in text else text


def _as_example(value: float) -> float:
    """The value to four digits, enough for an example."""
    return float(f"{value:.4g}")
