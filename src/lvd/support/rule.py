"""Support rules: which rows are known, why the others are not, and the rule that is used by default.

Support is a different question from how wide an interval must be: the kernel of the errors sees only the directions
in which errors change, and a row may be far out in all others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from lvd._parallel import chunk_slices
from lvd._typing import Bool, Float, NDArray
from lvd._validation import check_matrix
from lvd.models.coding import input_columns, is_category, is_missing, looks_unique, read_texts
from lvd.models.scaling import mean_and_scale
from lvd.scores import EvaluatedRows

MOST_ROWS, CHUNK = 5000, 2**22
PARTS = (256, 1280)
"""Where the training rows, which are in random order, are divided: few of them answer for most queries."""
BEYOND = 0.002
"""The share of training rows that are further from the others than what counts as near."""
OUTLIERS, OUTLIER_ROWS = 2, 250
"""Or this many outliers, one per so many rows: an outlier or two must not decide what is far, but in a small table
the furthest rows may be ordinary ones."""
FAR, FAR_INPUTS, FAR_EMBEDDED = 1.1, 1.25, 2.0
"""A row is unknown beyond so many times the near distance: in the only space there is; in the inputs; and in the
embedding of a row whose inputs or parts are checked too, since an embedding spreads ordinary rows less evenly."""
EXCEEDED = 0.003
"""Of n rows the furthest is exceeded by one new row in n + 1. Where that is more than this share, limits are
extrapolated to it, as a power law with the exponent of the training rows' own largest distances."""
FEWEST_IN_TAIL, SHARE_IN_TAIL, LARGEST_OF_FEW = 18, 1 / 8, 0.6
"""How many of them, or which share of the rows, tell the exponent, and the largest one where so few rows tell it.

The noise of the exponent costs both ways: too small a one calls ordinary rows unknown, and too large a one knows
rows that are far out. From four distances of 45 exponential rows, 0.7% of fresh rows were unknown, and 12% of rows
ten standard deviations out were known; now it is 0.4% and 7%.
"""
MORE_IN_RANGES, MORE_EMBEDDED = 0.1, 1.0
"""Added to it for ranges, of which there are many, and for embeddings beside inputs: few rows may hardly reach a
hidden unit, so that one new row is many times as far from them as they are from each other."""
ROOM = 0.1
"""It is also unknown if an input lies outside the training range by more than this share of that range, and by
more than `FAR` times the amount by which training rows exceed one another.

Every ordinary row that is called unknown costs an infinite interval. With both rules all concrete older than 90
days is found where none was in training, and 73% of the bad and hot weather of bike. Distances alone, with a limit
of 1.1, found 98% of the former and none of the latter, and flagged half as many ordinary rows again.
"""
ColumnLevels = tuple[tuple[str, ...], ...]
"""For each column its levels, sorted; none where it has none, and no columns for inputs that are not a frame."""


class Reason(NamedTuple):
    """Why a row is unknown; `column` is the number of the input that decides it alone, where one does."""

    text: str
    column: int | None = None

    def named(self, name: str) -> str:
        """The text, with the input called by its name."""
        return self.text if self.column is None else self.text.replace(f"input {self.column + 1}", name, 1)


class Support(NamedTuple):
    """Which rows are known, and by its index the reason for each row that is not.

    Examples
    --------
    >>> import numpy as np
    >>> from lvd.support import Support
    >>> support = Support.of(np.array([True, False]), "it was measured after the sensor failed")
    >>> support.reasons[1].text
    'it was measured after the sensor failed'
    """

    known: Bool[NDArray, "n"]
    reasons: dict[int, Reason]

    @classmethod
    def of(cls, known: NDArray, reason: str | Callable[[int], Reason]) -> Support:
        """From a mask and one reason for all unknown rows, or a function from their indices to reasons."""
        give = (lambda row: Reason(reason)) if isinstance(reason, str) else reason
        return cls(known, {row: give(row) for row in np.flatnonzero(~known).tolist()})

    @classmethod
    def all_of(cls, found: Sequence[Support]) -> Support:
        """Known where all are; the reason is that of the first which does not know the row."""
        reasons: dict[int, Reason] = {}
        for one in reversed(found):
            reasons |= one.reasons
        return cls(np.logical_and.reduce([one.known for one in found]), reasons)


class SupportRule(BaseEstimator, ABC):
    """Decides whether training rows support a prediction: the constructor stores settings, `fit` learns.

    A rule sees the training rows alone, never the calibration rows, so that every promise about intervals stays.
    The rows offer `inputs`, as the model takes them; `numbers`, the same as a matrix, or None where they are not
    numbers; `embeddings`, the model's last hidden layer; and `y_pred`. :func:`lvd.testing.check_support` tests a
    rule of your own.
    """

    @abstractmethod
    def fit(self, rows: EvaluatedRows, seed: int) -> Any:
        """Learn from the training rows."""

    @abstractmethod
    def check(self, rows: EvaluatedRows) -> Support:
        """Which rows are known, and why the others are not."""


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """Standardised training rows in one space, and the distance within which a row counts as near them.

    `tail` is the exponent by which the largest distances of the training rows grow as there are more rows.
    """

    mean: Float[NDArray, "p"]
    scale: Float[NDArray, "p"]
    rows: Float[NDArray, "r p"]
    limit: float
    tail: float = 0.0

    @classmethod
    def of(cls, rows: Float[NDArray, "n p"], seed: int, more: float = 0.0) -> Neighborhood:
        """The limit leaves a small share of the training rows' own distances beyond it, and of new rows' too.

        `more` is added to the exponent of its extrapolation from few rows.
        """
        from sklearn.neighbors import NearestNeighbors  # slow to import, and only needed here

        mean, scale = mean_and_scale(rows)
        chosen = np.random.default_rng(seed).permutation(len(rows))[:MOST_ROWS]
        drawn = _standardise(rows[chosen], mean, scale)
        _, first = np.unique(drawn, axis=0, return_index=True)
        placed = drawn[np.sort(first)]  # repeated rows say nothing about how far apart rows are
        own = NearestNeighbors(n_neighbors=min(2, len(placed))).fit(placed).kneighbors(placed)[0][:, -1]
        tail = tail_exponent(own)
        return cls(mean, scale, placed, ordinary_limit(own) * times_of_few(len(own), tail + more), tail)

    def place(self, rows: Float[NDArray, "n p"]) -> Float[NDArray, "n p"]:
        """The rows in units of the training rows."""
        return _standardise(rows, self.mean, self.scale).astype(np.float64)

    def near(self, placed: Float[NDArray, "n p"], times: float) -> Bool[NDArray, "n"]:
        """Which rows have a training row within so many times the limit."""
        if self.limit == 0.0:  # all training rows are the same
            return np.all(placed == self.rows[0], axis=1)
        near = np.zeros(len(placed), bool)
        for columns, squares in self._parts:
            left = np.flatnonzero(~near)
            near[left] = _within(placed[left], columns, squares, times * self.limit)
        return near

    @cached_property
    def _parts(self) -> list[tuple[Float[NDArray, "p r"], Float[NDArray, "r"]]]:
        """The training rows in float64, a column each, and their squared lengths: made once for all queries."""
        wide = self.rows.astype(np.float64)
        parts = (np.ascontiguousarray(part.T) for part in np.split(wide, PARTS) if len(part))
        return [(columns, (columns**2).sum(axis=0)) for columns in parts]


@dataclass(frozen=True, eq=False)
class Ranges:
    """The training range of each column, and how far outside it, as a share of it, a row may be."""

    lowest: Float[NDArray, "p"]
    highest: Float[NDArray, "p"]
    room: float

    @classmethod
    def of(cls, rows: Float[NDArray, "n p"], tail: float) -> Ranges:
        """The room is what training rows need themselves, each compared with all others, and of few rows more."""
        if len(rows) < 3:
            return cls(rows.min(axis=0), rows.max(axis=0), ROOM)
        ordered = np.partition(rows, (0, 1, -2, -1), axis=0)
        lowest, next_lowest, next_highest, highest = ordered[[0, 1, -2, -1]]
        below = np.where(rows == lowest, next_lowest, lowest)
        above = np.where(rows == highest, next_highest, highest)
        own = overshoots(rows, below, above).max(axis=1, initial=0.0)
        times = FAR * times_of_few(len(own), tail + MORE_IN_RANGES)
        return cls(lowest, highest, max(ROOM, times * ordinary_limit(own)))

    def check(self, rows: Float[NDArray, "n p"]) -> Support:
        """Unknown with a column too far outside its range; the worst one is named."""
        over = overshoots(rows, self.lowest, self.highest)

        def name(row: int) -> Reason:
            column = int(over[row].argmax())
            return Reason(f"input {column + 1} is outside the range of the training rows", column)

        return Support.of(over.max(axis=1, initial=0.0) <= self.room, name)


@dataclass(frozen=True, eq=False)
class PartKinds:
    """The kinds of parts, such as a molecule's atoms, that training rows consist of, and how many they have.

    `room` is how many fewer or more a known row may have; `name` is what the parts are called.
    """

    kinds: tuple[str, ...]
    fewest: int
    most: int
    room: float
    name: str

    @classmethod
    def of(cls, inputs: Any) -> PartKinds | None:
        """Those of rows with `parts`; None where the inputs have none."""
        if not hasattr(inputs, "parts"):
            return None
        rows = inputs.parts()
        kinds = sorted({kind for parts in rows for kind in parts})
        counts = [len(parts) for parts in rows]
        room = max(1.0, ROOM * (max(counts) - min(counts)))
        return cls(tuple(kinds), min(counts), max(counts), room, inputs.parts_are)

    def check(self, inputs: Any) -> Support:
        """Unknown with a kind that is new, or with far fewer or more parts than any training row."""
        found = [self._reason(parts) for parts in inputs.parts()]
        reasons = {row: Reason(reason) for row, reason in enumerate(found) if reason is not None}
        return Support(np.array([reason is None for reason in found], bool), reasons)

    def _reason(self, parts: Sequence[str]) -> str | None:
        if new := sorted(set(parts) - set(self.kinds)):
            return f"no training row has {', '.join(new)} among its {self.name}"
        if max(self.fewest - len(parts), len(parts) - self.most) > self.room:
            name = self.name.removesuffix("s") if len(parts) == 1 else self.name
            return f"it has {len(parts)} {name}, training rows have {self.fewest} to {self.most}"
        return None


class TrainingSupport(SupportRule):
    """A row is known if it is near a training row, in the embedding and in the inputs; if no input is outside its
    training range; and if it has no level or part that no training row has.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    >>> reg = lvd.LVDRegressor(support=lvd.support.TrainingSupport(), random_state=0).fit(X, X[:, 0])
    >>> reg.predict_with_evidence([[0.0, 0.0], [0.0, 9.0]]).known
    array([ True, False])
    """

    embedding_: Neighborhood
    inputs_: Neighborhood | None
    ranges_: Ranges | None
    levels_: ColumnLevels
    parts_: PartKinds | None

    def fit(self, rows: EvaluatedRows, seed: int) -> TrainingSupport:
        """Learn what is near in each space, and the ranges, levels and parts."""
        self.levels_, self.parts_ = levels_of(rows.inputs), PartKinds.of(rows.inputs)
        alone = rows.numbers is None and self.parts_ is None
        embeddings = check_matrix(rows.embeddings, "embeddings")
        self.embedding_ = Neighborhood.of(embeddings, seed, MORE_IN_RANGES if alone else MORE_EMBEDDED)
        self.inputs_ = self.ranges_ = None
        if rows.numbers is not None:
            self.inputs_ = Neighborhood.of(rows.numbers, seed)
            placed = _standardise(rows.numbers, self.inputs_.mean, self.inputs_.scale)
            self.ranges_ = Ranges.of(placed, self.inputs_.tail)
        return self

    def near(self, rows: EvaluatedRows, observed: EvaluatedRows) -> Bool[NDArray, "n"]:
        """Which rows are as near to one of the observed rows as known rows are to a training row."""
        alone = self.inputs_ is None and self.parts_ is None
        near = _near_those(
            self.embedding_, rows.embeddings, observed.embeddings, FAR if alone else FAR_EMBEDDED
        )
        if self.inputs_ is not None and rows.numbers is not None and observed.numbers is not None:
            near &= _near_those(self.inputs_, rows.numbers, observed.numbers, FAR_INPUTS)
        return near

    def check(self, rows: EvaluatedRows) -> Support:
        """The first reason counts: ranges, parts, levels, distances."""
        found = []
        embedded = self.embedding_.place(check_matrix(rows.embeddings, "embeddings"))
        alone = self.inputs_ is None and self.parts_ is None
        near = self.embedding_.near(embedded, FAR if alone else FAR_EMBEDDED)
        if self.inputs_ is not None and self.ranges_ is not None and rows.numbers is not None:
            placed = self.inputs_.place(rows.numbers)
            near &= self.inputs_.near(placed, FAR_INPUTS)
            found.append(self.ranges_.check(placed))
        if self.parts_ is not None:
            found.append(self.parts_.check(rows.inputs))
        if any(self.levels_):
            found.append(new_levels(self.levels_, rows.inputs))
        return Support.all_of([*found, Support.of(near, "no training row is similar to this one")])


def _near_those(
    space: Neighborhood, rows: Float[NDArray, "n p"], others: Float[NDArray, "m p"], times: float
) -> Bool[NDArray, "n"]:
    placed = _standardise(others, space.mean, space.scale)
    return replace(space, rows=placed).near(space.place(rows), times)


def _standardise(
    rows: Float[NDArray, "n p"], mean: Float[NDArray, "p"], scale: Float[NDArray, "p"]
) -> NDArray:
    """Standardised rows, rounded and bounded."""
    with np.errstate(over="ignore"):
        return ((rows - mean) / scale).clip(-1e18, 1e18).astype(np.float32)


def ordinary_limit(own: Float[NDArray, "n"]) -> float:
    """What only a small share of the training rows exceed, and of few rows about as small a share of new ones."""
    beyond = max(int(BEYOND * len(own)), min(OUTLIERS, len(own) // OUTLIER_ROWS))
    return float(np.sort(own)[-1 - beyond])


def tail_exponent(own: Float[NDArray, "n"]) -> float:
    """Hill's estimate of the exponent by which the largest of n distances grows with n."""
    falling = np.sort(own[own > 0.0])[::-1]
    n_tail = min(max(FEWEST_IN_TAIL, int(SHARE_IN_TAIL * len(own))), len(falling) - 1)
    exponent = float(np.log(falling[:n_tail] / falling[n_tail]).mean()) if n_tail > 0 else 0.0
    return min(exponent, LARGEST_OF_FEW) if SHARE_IN_TAIL * len(own) < FEWEST_IN_TAIL else exponent


def times_of_few(n_rows: int, exponent: float) -> float:
    """How many times the largest of so few distances is exceeded by no more than :data:`EXCEEDED` of new rows."""
    return max(1.0, (EXCEEDED * n_rows) ** -exponent)


def overshoots(rows: Float[NDArray, "n p"], lowest: NDArray, highest: NDArray) -> Float[NDArray, "n p"]:
    """How far each value is outside its range, as a share of it; infinite outside a range of one value."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        over = np.maximum(lowest - rows, rows - highest)
        return np.where(over > 0.0, over / (highest - lowest), 0.0)


def _within(
    queries: Float[NDArray, "n p"],
    columns: Float[NDArray, "p r"],
    squares: Float[NDArray, "r"],
    distance: float,
) -> Bool[NDArray, "n"]:
    """Which queries are within a distance of some column."""
    nearest = np.empty(len(queries))
    for some in chunk_slices(len(queries), max(1, CHUNK // len(squares))):
        nearest[some] = np.min(squares - 2.0 * (queries[some] @ columns), axis=1)
    return nearest + (queries**2).sum(axis=1) <= distance**2


def levels_of(inputs: Any) -> ColumnLevels:
    """The levels of these rows, in columns of categories and of text.

    A column in which nearly every row has a value of its own has none: there a new value says nothing.
    """
    return tuple(map(_levels, input_columns(inputs))) if hasattr(inputs, "columns") else ()


def new_levels(levels: ColumnLevels, inputs: Any) -> Support:
    """Unknown are rows with a level that is not among these."""
    seen = np.ones((len(inputs), len(levels)), bool)
    texts: dict[int, Any] = {}
    for number, (column, known) in enumerate(zip(input_columns(inputs), map(set, levels), strict=True)):
        if known:
            texts[number] = read_texts(column)
            seen[:, number] = [text in known for text in texts[number]]

    def name(row: int) -> Reason:
        number = int(seen[row].argmin())
        return Reason(f"no training row has {texts[number][row]!r} in input {number + 1}", number)

    return Support.of(np.logical_and.reduce(seen, axis=1), name)


def _levels(column: Any) -> tuple[str, ...]:
    values = np.asarray(column)
    texts = values.dtype.kind in "OU" and all(isinstance(one, str) for one in values if not is_missing(one))
    if not texts and not is_category(column):
        return ()
    found = read_texts(column)
    levels = set(found.tolist())
    named = levels - {""}
    return () if not named or looks_unique(len(named), int((found != "").sum())) else tuple(sorted(levels))
