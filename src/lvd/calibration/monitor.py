"""Monitoring a deployed model: do rows and errors still resemble the calibration rows, and if not, since when?"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lvd._typing import ArrayLike, Bool, Float, Labels, NDArray, RandomState
from lvd._validation import check_fraction, check_levels, check_positive, seed_from
from lvd.intervals import binomial_band

STAKES, JUMP = np.array([-1.0, 0.0, 1.0])[:, None], 0.01
ADVICE = {
    "errors": "Recalibrate (update, or forget older rows); if predictions have become poor, fit again",
    "inputs": "The errors do not show it, so nothing needs to be done; seasons do that, too",
    "inputs and errors": "The world has changed: fit again with recent rows, or at least recalibrate with them",
}
"""What to do when these have moved."""


@dataclass(frozen=True)
class MonitorReport:
    """The state of the monitor after the latest rows.

    `evidence` is the largest capital reached so far against "nothing has changed", and `input_evidence` the
    same for the inputs, if they are monitored. `moved` says what no longer resembles the calibration rows,
    ``"inputs"``, ``"errors"`` or ``"inputs and errors"``, None if nothing, and `since` the row from which on.
    If errors have moved there is an `alarm`, raised at row `alarm_at`; inputs alone raise none, since they move
    with every season. `coverage` is that of the latest rows in the window, with an exact 95% band.
    """

    n_seen: int
    evidence: float
    alarm: bool
    alarm_at: int | None
    coverage: float
    coverage_band: tuple[float, float]
    confidence_level: float
    input_evidence: float | None = None
    moved: str | None = None
    since: int | None = None

    @property
    def sentence(self) -> str:
        """The report in one plain sentence."""
        recent = f"recent coverage {self.coverage:.0%} at level {self.confidence_level:.0%}"
        told = f"evidence {self.evidence:.3g} to 1 from errors"
        if self.input_evidence is not None:
            told += f", {self.input_evidence:.3g} to 1 from inputs"
        if self.moved is None:
            return f"No sign of drift in {self.n_seen} rows ({told}); {recent}."
        raised = f"Alarm at row {self.alarm_at}: since" if self.alarm else "No alarm, but since"
        return (
            f"{raised} about row {self.since} the {self.moved} do not look like those of the calibration set "
            f"({told}); {recent}. {ADVICE[self.moved]}."
        )


class Judged(NamedTuple):
    """Labelled rows, judged: their scores, whether their intervals cover, and their coordinates in the inputs."""

    scores: Float[NDArray, "n"]
    covered: Bool[NDArray, "n"]
    places: Float[NDArray, "n k"]


class Martingale:
    """Bets that the ranks of new rows among all earlier rows are not uniform, in one of k columns of numbers.

    Without drift ranks are uniform and independent, whatever the distribution. For each column a gambler bets
    on each p-value being small, large or uniform, and changes his mind with probability `JUMP` (the simple
    jumper of Vovk, Petej and Gammerman 2021). At row n he stakes another ``1 / n (n + 1)`` of his initial
    capital, so that a long quiet period costs him little. Without drift his wealth is a martingale that starts
    at 1 and ever reaches k / r with probability at most r / k (Ville): the `evidence`, the largest wealth
    divided by k, reaches 1 / r in any of the columns with probability at most r.

    `since` is the row from which one constant bet would have won most, in the column that raised the alarm (CUSUM).
    """

    def __init__(self, known: Float[NDArray, "m k"]) -> None:
        self._known = [np.sort(column) for column in known.T]
        self._capital = np.zeros((3, known.shape[1]))
        self._gained = np.zeros((3, known.shape[1]))
        self._began_at = np.ones((3, known.shape[1]), np.int64)
        self._n_seen, self.evidence = 0, 1.0 / known.shape[1]
        self.alarm_at: int | None = None
        self.since: int | None = None

    def take(self, row: Float[NDArray, "k"], ties: Float[NDArray, "k"], alarm: float) -> None:
        """Bet on a row and add it to the reference rows; raise the alarm if the evidence reaches `alarm`."""
        self._n_seen += 1
        n, bets = self._n_seen, 1.0 + STAKES * (self._p_values(row, ties) - 0.5)
        self._capital = bets * jumped(self._capital + 1.0 / (3.0 * n * (n + 1)))
        self._gained = np.maximum(self._gained + np.log(bets), 0.0)
        self._began_at[self._gained == 0.0] = n + 1
        wealth = self._capital.sum(axis=0) + 1.0 / (n + 1)
        self.evidence = max(self.evidence, float(wealth.max()) / len(wealth))
        if self.alarm_at is None and self.evidence >= alarm:
            column = int(wealth.argmax())
            began = int(self._began_at[self._gained[:, column].argmax(), column])
            self.alarm_at, self.since = n, min(n, began)

    def _p_values(self, row: Float[NDArray, "k"], ties: Float[NDArray, "k"]) -> Float[NDArray, "k"]:
        """The smoothed ranks of a row among all earlier ones, per column."""
        found = []
        for number, (value, tie) in enumerate(zip(row.tolist(), ties.tolist(), strict=True)):
            known = self._known[number]
            left, right = (np.searchsorted(known, value, side) for side in ("left", "right"))
            above, equal = len(known) - right, right - left + 1
            self._known[number] = np.insert(known, right, value)
            found.append((above + tie * equal) / (len(known) + 1))
        return np.array(found)


class DriftMonitor:
    """Takes labelled rows as they arrive and reports when and how they stop resembling the calibration rows.

    Each new score is ranked among the calibration scores and the earlier new ones (see :class:`Martingale`),
    and so are the coordinates of the inputs if they are monitored. The false alarm rate is an upper bound over
    all time, for both together.

    Parameters
    ----------
    calib_scores : the calibration scores, in any order.
    calib_places : numbers that describe the inputs of the calibration rows, such as the prediction and the
        kernel's coordinates; None monitors the errors only.
    false_alarm_rate : probability of ever raising an alarm when nothing changes.
    window : number of latest rows over which coverage is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from lvd.calibration.monitor import DriftMonitor
    >>> rng = np.random.default_rng(0)
    >>> watch = DriftMonitor(np.abs(rng.normal(size=500)), confidence_level=0.9, random_state=0)
    >>> watch.take(np.abs(rng.normal(size=300)), np.ones(300, dtype=bool)).alarm
    False
    >>> report = watch.take(np.abs(rng.normal(size=300)) * 3, np.zeros(300, dtype=bool))
    >>> report.moved, report.alarm_at < 400
    ('errors', True)
    """

    def __init__(
        self,
        calib_scores: Float[NDArray, "m"],
        *,
        calib_places: Float[NDArray, "m k"] | None = None,
        confidence_level: float,
        false_alarm_rate: float = 0.01,
        window: int = 200,
        random_state: RandomState = None,
    ) -> None:
        check_positive(window, "window", integer=True)
        self.confidence_level = float(check_levels(confidence_level)[0])
        self.false_alarm_rate = check_fraction(false_alarm_rate, "false_alarm_rate")
        self._errors = Martingale(calib_scores[:, None])
        self._inputs = None if calib_places is None else Martingale(calib_places)
        self._rng = np.random.default_rng(seed_from(random_state))
        self._covered: deque[bool] = deque(maxlen=window)
        self._n_seen = 0

    def take(
        self,
        scores: Float[NDArray, "n"],
        are_covered: NDArray,
        places: Float[NDArray, "n k"] | None = None,
    ) -> MonitorReport:
        """Take new rows in order of arrival: scores, whether their intervals covered, and input coordinates."""
        # Errors and inputs share the false alarm rate.
        alarm = (1.0 if self._inputs is None else 2.0) / self.false_alarm_rate
        for number, (score, is_covered) in enumerate(zip(scores, are_covered, strict=True)):
            self._n_seen += 1
            self._errors.take(np.array([float(score)]), self._rng.uniform(size=1), alarm)
            if self._inputs is not None and places is not None:
                self._inputs.take(places[number], self._rng.uniform(size=places.shape[1]), alarm)
            self._covered.append(bool(is_covered))
        return self.report()

    def report(self) -> MonitorReport:
        """The current report."""
        seen = len(self._covered)
        band = binomial_band(sum(self._covered), seen) if seen else (0.0, 1.0)
        watched = {"inputs": self._inputs, "errors": self._errors}
        moved = {
            name: one.since for name, one in watched.items() if one is not None and one.since is not None
        }
        return MonitorReport(
            n_seen=self._n_seen,
            evidence=self._errors.evidence,
            alarm="errors" in moved,
            alarm_at=self._errors.alarm_at,
            coverage=sum(self._covered) / seen if seen else math.nan,
            coverage_band=(float(band[0]), float(band[1])),
            confidence_level=self.confidence_level,
            input_evidence=None if self._inputs is None else self._inputs.evidence,
            moved=" and ".join(moved) or None,
            since=moved.get("errors", moved.get("inputs")),
        )


@dataclass(frozen=True)
class RowMonitor:
    """A :class:`DriftMonitor` that takes rows and turns them into scores with `judge`."""

    judge: Callable[[ArrayLike, ArrayLike, float, ArrayLike | None], Judged]
    watch: DriftMonitor

    def take(self, X: ArrayLike, y: ArrayLike, *, groups: Labels = None) -> MonitorReport:
        """Take newly labelled rows, in order of arrival, with their groups if the calibration has groups."""
        return self.watch.take(*self.judge(X, y, self.watch.confidence_level, groups))

    def report(self) -> MonitorReport:
        """The current report."""
        return self.watch.report()


def jumped(capital: Float[NDArray, "3 k"]) -> Float[NDArray, "3 k"]:
    """Redistribute some of each bet's capital to the others."""
    moved: NDArray = (1.0 - JUMP) * capital + JUMP / 3.0 * capital.sum(axis=0)
    return moved
