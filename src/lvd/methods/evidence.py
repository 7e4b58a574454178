"""Evidence for intervals: what predictions rest on, and explanations of single rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from lvd._typing import Float, Int, NDArray
from lvd.calibration.explanation import Evidence, Neighbor
from lvd.intervals import Region
from lvd.methods.attribution import (
    FEWEST_ROWS,
    N_ORDERS,
    ColumnPlaces,
    ColumnShare,
    mix,
    shapley_values,
    told,
)

MOST_ASKED_FIRST = 50
"""How many rows to check first for whether widths differ at all."""


class Prediction(NamedTuple):
    """What :meth:`LVDRegressor.predict_with_evidence` returns for n rows, L levels and T targets.

    Parameters
    ----------
    y_pred : the predictions, (n,), or (n, T) for several targets.
    intervals : the prediction intervals, (n, 2, L), or (n, 2, L, T) for several targets.
    n_effective : the effective sample size of each row's local weights, (n,), or (n, T) for several targets.
    embeddings : the network's last hidden layer, (n, h).
    known : whether the row resembles training rows, (n,).
    regions : for joint scores, one :class:`lvd.Region` per level; otherwise empty.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    >>> reg = lvd.LVDRegressor(random_state=0).fit(X, X[:, 0])
    >>> known, far = reg.predict_with_evidence([[0.0, 0.0], [1e3, 1e3]], 0.5).n_effective
    >>> bool(known > 1.0), float(far)
    (True, 0.0)
    """

    y_pred: Any
    intervals: Any
    n_effective: Any
    embeddings: Any
    known: Any
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True)
class Largest:
    """The target that enlarges a joint region most: its expected error at the row relative to its usual one."""

    target: int
    times: float
    name: str | None = None

    @property
    def sentence(self) -> str:
        """Name this target in a sentence."""
        name = f"target {self.target}" if self.name is None else self.name
        return (
            "The region holds all targets together. Compared with other rows it is largest in "
            f"{name}, where the expected error is {self.times:.2g} times the usual one."
        )


@dataclass(frozen=True)
class Explanation:
    """One row's interval and the evidence for it; `label` is the row's name, if it has one.

    For a joint region the evidence covers all targets, and `largest` names one of them. `reason` says why an
    unknown row is unknown, and `column` is the index of the input that alone decides it, if one does; `remark`
    is the score's comment on the row's errors. `shares` holds, per column, the factor by which its value widens
    the interval, the most important first; it is empty without background rows.
    """

    row: int
    target: int
    y_pred: float
    lower: float
    upper: float
    evidence: Evidence
    label: str | None = None
    known: bool = True
    guarantee: str = "local"
    when_unknown: str = "infinite"
    largest: Largest | None = None
    reason: str | None = None
    column: int | None = None
    remark: str | None = None
    shares: tuple[ColumnShare, ...] = ()

    @property
    def score_name(self) -> str | None:
        """What the neighbours' scores measure; None if they are plain errors or cover all targets."""
        if self.largest is not None:
            return None
        if self.evidence.measure != "error":
            return self.evidence.measure
        return None if self.evidence.expected_error is None else "times expected"

    @property
    def sentence(self) -> str:
        """Why the interval is as wide as it is, or why it is infinite."""
        unknown = ""
        if self.reason is not None:
            if self.when_unknown == "infinite":
                return f"Unknown: {self.reason}, so it gets no finite interval."
            unknown = f"Unknown: {self.reason}. "
        other = (
            ""
            if self.guarantee == "local"
            else f"The guarantee of this interval is {self.guarantee}. With the local one: "
        )
        together = "" if self.largest is None else f" {self.largest.sentence}"
        more = "".join(f" {one}" for one in (self.remark, told(self.shares)) if one is not None)
        return f"{unknown}{other}{self.evidence.sentence}{together}{more}"


def in_units_of_y(
    evidence: Evidence, indices: Int[NDArray, "k"], errors: Float[NDArray, "m"], measure: str
) -> Evidence:
    """The same neighbours with their errors, indexed among all calibration rows, including those without the
    target."""
    neighbors: list[Neighbor] = []
    for one in evidence.neighbors:
        index = int(indices[one.index])
        error = None if np.isnan(errors[index]) else float(errors[index])
        neighbors.append(replace(one, index=index, error=error))
    return replace(evidence, neighbors=tuple(neighbors), measure=measure)


def with_shares(
    explanations: Sequence[Explanation],
    X: Any,
    others: Any,
    places: ColumnPlaces,
    log_widths: Callable[[Any, float], Float[NDArray, "k t"]],
    *,
    n_orders: int = N_ORDERS,
) -> list[Explanation]:
    """The explanations with each column's share of the width compared with `others`; unchanged if `others` are
    too few or no column changes the width."""
    if len(others) < FEWEST_ROWS or not len(places) or not explanations:
        return list(explanations)
    few = _safe_indexing(others, np.arange(min(MOST_ASKED_FIRST, len(others))))
    if not np.ptp(log_widths(few, explanations[0].evidence.confidence_level), axis=0).any():
        return list(explanations)  # all widths are equal

    def times(row: int, level: float) -> Float[NDArray, "c t"]:
        own, counts = _safe_indexing(X, [row]), (len(places), len(others))
        asked = partial(mix, own, others, places)
        return np.exp(shapley_values(lambda one: log_widths(asked(one), level), *counts, n_orders=n_orders))

    found = {
        row: times(row, level) for row, level in {(e.row, e.evidence.confidence_level) for e in explanations}
    }
    return [
        replace(one, shares=_largest_first(places, found[one.row][:, one.target])) for one in explanations
    ]


def _largest_first(places: ColumnPlaces, times: Float[NDArray, "c"]) -> tuple[ColumnShare, ...]:
    if np.allclose(times, 1.0):
        return ()
    shares = [ColumnShare(name, one) for (name, _), one in zip(places, times.tolist(), strict=True)]
    return tuple(sorted(shares, key=lambda share: -abs(np.log(share.times))))
