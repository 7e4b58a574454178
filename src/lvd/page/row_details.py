"""The rows on the page, each with its neighbours and the sentence of ``lvd explain``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from markupsafe import Markup
from sklearn.utils import _safe_indexing

from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError, Parameter
from lvd.intervals import covered, widths
from lvd.methods.evidence import Explanation
from lvd.page.evaluation import Evaluated
from lvd.page.numbers import short
from lvd.tables.column_values import check_columns, to_texts
from lvd.tables.table_encoder import read_targets
from lvd.tables.table_model import TableModel

Draw: TypeAlias = Callable[[str], str | None]
"""Draws a cell as SVG, or returns None."""

STATUS, ROWS_MISSING, KNOWN = 6, 9, 13
"""Positions in a row's record; the page's script names all of them where it unpacks a record."""
N_NEIGHBORS, MOST_ROWS = 8, 1000
MOST_COLUMNS, LONGEST_CELL = 24, 60
MOST_TOLD, N_FEW_ORDERS, MOST_OTHERS, ASKED = 100, 12, 1000, 60_000
"""For how many rows the page tells which columns make them wide, the orders and background rows used, and the
most mixed rows to predict."""
BYTES = 3_800_000
"""The rows' share of a page of 5 MB."""


@dataclass(frozen=True)
class Pictures:
    """Which column to draw, and how."""

    column: str
    draw: Draw


def read_neighbors(model: TableModel, target: str, table: pa.Table | None) -> pa.Table | None:
    """The calibration rows' cells in the table that the model was fitted on, which must be the same table.

    Without it, the cells that the model keeps, if any.
    """
    if table is None:
        return None if model.cells is None else pa.table({model.encoder.inputs[0]: list(model.cells)})
    refusal = Parameter("fitted_on"), " must be the table that the model was fitted on"
    if table.num_rows != model.n_rows:
        raise InputError(*refusal, f", of {model.n_rows:,} rows, got one of {table.num_rows:,}")
    numbers = model.calibration_rows
    there = numbers <= table.num_rows  # others were added by update
    known = model.regressor.y_calib_[there, model.find_target(target)]
    found = read_targets(table.take(numbers[there] - 1), [target])
    if not np.array_equal(found, known, equal_nan=True):
        raise InputError(*refusal, "; the target of this one has other values, or another order")
    return table.take(pa.array(np.where(there, numbers - 1, 0), mask=~there))


def missed_by(y: Float[NDArray, "n"], intervals: Float[NDArray, "n 2"]) -> Float[NDArray, "n"]:
    """How far y is outside its interval; 0 inside."""
    outside: NDArray = np.maximum(intervals[:, 0] - y, y - intervals[:, 1])
    return np.maximum(outside, 0.0)


def choose_rows(evaluated: Evaluated, *, n_most: int = MOST_ROWS) -> Int[NDArray, "k"]:
    """In turn the worst miss, an infinite interval, the widest finite one and a random row, each row once.

    Infinite ones are in random order too. Cutting the list at any length leaves the same mixture.
    """
    missed, width = missed_by(evaluated.y, evaluated.intervals), widths(evaluated.intervals)
    anyone = np.random.default_rng(0).permutation(len(missed))
    worst_missed = np.argsort(-missed, kind="stable")[: np.count_nonzero(missed)]
    finite = np.flatnonzero(~evaluated.unlimited)
    widest = finite[np.argsort(-width[finite], kind="stable")]
    lists = [worst_missed, anyone[evaluated.unlimited[anyone]], widest, anyone]
    turns = np.concatenate([np.arange(len(rows)) for rows in lists])
    in_turn = np.concatenate(lists)[np.argsort(turns, kind="stable")]
    _, first = np.unique(in_turn, return_index=True)
    return in_turn[np.sort(first)][:n_most]


def embed_rows(
    evaluated: Evaluated,
    chosen: Int[NDArray, "k"],
    *,
    first_columns: Sequence[str] = (),
    neighbors: pa.Table | None = None,
    pictures: Pictures | None = None,
    n_bytes: int = BYTES,
) -> dict[str, Any]:
    """The `chosen` rows as plain data for the page's script, as many as fit into `n_bytes`.

    `neighbors` are the calibration rows, if their cells are to be shown; `first_columns` are shown before others.
    """
    table, model = evaluated.table, evaluated.model
    names = _choose_columns(table, evaluated.target, first_columns)
    cells = _cells(table.take(chosen), names) if names else [[]] * len(chosen)
    neighbor_names = [] if neighbors is None else [name for name in names if name in neighbors.column_names]
    neighbor_cells = [] if neighbors is None else _cells(neighbors, neighbor_names)
    gallery = _Gallery(pictures)
    row_texts, neighbor_texts = gallery.texts(table), gallery.texts(neighbors)
    own = _explanations(evaluated, chosen)
    finite_or_not = np.where(evaluated.unlimited, "infinite", "covered")
    status = np.where(covered(evaluated.y, evaluated.intervals), finite_or_not, "missed")
    places = [] if model is None else model.calibration_rows.tolist()
    rows: list[list[Any]] = []
    known: dict[int, list[Any]] = {}
    size = 0
    for row, line, explanation in zip(chosen.tolist(), cells, own, strict=True):
        record = [
            *(*_figures(evaluated, row), str(status[row])),
            *_reasons(explanation, places),
            *(line, gallery.add(row_texts, row), bool(evaluated.known[row])),
            _times_of_columns(explanation, names),
        ]
        size += _json_size(record)
        if neighbors is not None and explanation is not None:
            for index in (neighbor.index for neighbor in explanation.evidence.neighbors):
                if places[index] not in known:
                    known[places[index]] = [neighbor_cells[index], gallery.add(neighbor_texts, index)]
                    size += _json_size(known[places[index]])
        if rows and size + gallery.size > n_bytes:
            break
        rows.append(record)
    return {
        "columns": names,
        "score": next((one.score_name for one in own if one is not None), None),
        "rows": rows,
        "neighborColumns": neighbor_names,
        "neighbors": {str(key): value for key, value in known.items()},
        "pictures": gallery.drawings,
    }


def _explanations(evaluated: Evaluated, chosen: Int[NDArray, "k"]) -> Sequence[Explanation | None]:
    """The explanations of the page's target; empty for methods that give none."""
    if evaluated.model is None:
        return [None] * len(chosen)
    rows, X = evaluated.table.take(chosen), _safe_indexing(evaluated.X, chosen)
    found = evaluated.model.explain_rows(rows, X, evaluated.confidence_level, n_neighbors=N_NEIGHBORS)
    own = [one for one in found if one.target == evaluated.place]
    n_columns = len(evaluated.model.encoder.column_places)
    n_told = min(MOST_TOLD, ASKED // (N_FEW_ORDERS * (n_columns + 1)))
    others = _safe_indexing(evaluated.X, np.arange(min(MOST_OTHERS, len(evaluated.y)))) if n_columns else []
    return [
        *evaluated.model.with_shares(own[:n_told], X, others, n_orders=N_FEW_ORDERS),
        *own[n_told:],
    ]


def _times_of_columns(explanation: Explanation | None, names: Sequence[str]) -> list[float | None] | None:
    """How many times wider the interval is because of each of these cells, if known."""
    if explanation is None or not explanation.shares:
        return None
    times = {share.column: share.times for share in explanation.shares}
    return [short(times[name]) if name in times else None for name in names]


def _reasons(explanation: Explanation | None, places: Sequence[int]) -> list[Any]:
    """The sentence, the weight at infinity, the number of missing rows, and the neighbours."""
    if explanation is None:
        return ["", 0.0, 0, []]
    evidence = explanation.evidence
    weight = short(evidence.weight_at_infinity)
    return [explanation.sentence, weight, evidence.rows_missing, _neighbors(explanation, places)]


class _Gallery:
    """Drawings by number, each made and stored once."""

    def __init__(self, pictures: Pictures | None) -> None:
        self.pictures = pictures
        self.drawings: list[str] = []
        self.size = 0
        self._numbers: dict[str, int | None] = {}

    def texts(self, table: pa.Table | None) -> list[str] | None:
        """The cells to draw, of every row."""
        if self.pictures is None or table is None:
            return None
        check_columns(table, [self.pictures.column])
        return list(to_texts(table[self.pictures.column]).to_pylist())

    def add(self, texts: Sequence[str] | None, row: int) -> int | None:
        """The number of this row's drawing; None if there is none."""
        if self.pictures is None or texts is None:
            return None
        if texts[row] not in self._numbers:
            drawing = self.pictures.draw(texts[row])
            self._numbers[texts[row]] = None if drawing is None else len(self.drawings)
            if drawing is not None:
                self.drawings.append(drawing)
                self.size += _json_size(drawing)
        return self._numbers[texts[row]]


def _figures(evaluated: Evaluated, row: int) -> list[Any]:
    """A row's number, y, prediction, interval ends and effective sample size."""
    lower, upper = evaluated.intervals[row].tolist()
    values = (evaluated.y[row], evaluated.y_pred[row], lower, upper, evaluated.n_effective[row])
    return [int(evaluated.row_numbers[row]), *(short(float(value)) for value in values)]


def _neighbors(explanation: Explanation, places: Sequence[int]) -> list[list[Any]]:
    """Each neighbour's row in the table of ``lvd fit``, weight, similarity, error and target.

    Then its score, if that is not the error.
    """
    named = explanation.score_name is not None
    return [
        [
            places[one.index],
            *map(short, (one.weight, one.similarity, one.score if one.error is None else one.error)),
            short(one.target or 0.0),
            *([short(one.score)] if named else []),
        ]
        for one in explanation.evidence.neighbors
    ]


def _choose_columns(table: pa.Table, target: str, first: Sequence[str]) -> list[str]:
    """The columns whose cells are shown: those that can be shown as text, except the target."""
    wanted = [name for name in dict.fromkeys([*first, *table.column_names]) if name != target]
    return [name for name in wanted if has_texts(table[name])][:MOST_COLUMNS]


def has_texts(values: pa.ChunkedArray) -> bool:
    """Whether the cells can be shown as texts."""
    try:
        to_texts(values.slice(0, 1))
    except InputError:
        return False
    return True


def _cells(table: pa.Table, names: Sequence[str]) -> list[list[str]]:
    """The texts of each row, long ones cut."""
    columns = [[cut(text) for text in to_texts(table[name]).to_pylist()] for name in names]
    return [list(line) for line in zip(*columns, strict=True)] if columns else [[]] * table.num_rows


def cut(text: str) -> str:
    """The text, cut to the length of a cell."""
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"


def _json_size(value: Any) -> int:
    """The size in bytes on the page, including a comma."""
    return len(to_script_json(value).encode()) + 1


def to_script_json(content: Any) -> Markup:
    """JSON for a script element, with ``<`` escaped so that nothing ends the element."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))
