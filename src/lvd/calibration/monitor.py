"""Watching a model in use: do the errors still look like those it was calibrated on?"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lvd._typing import ArrayLike, Float, Labels, NDArray, RandomState
from lvd._validation import check_fraction, check_levels, check_positive, seed_from
from lvd.intervals import binomial_band

STAKES, JUMP = np.array([-1.0, 0.0, 1.0]), 0.01


@dataclass(frozen=True)
class MonitorReport:
    """What the watch knows after the latest rows.

    `evidence` is the largest capital reached so far; the alarm is raised when it reaches ``1 / false_alarm_rate``.
    `coverage` is that of the latest rows in the window, with an exact 95% band.
    """

    n_seen: int
    evidence: float
    alarm: bool
    alarm_at: int | None
    coverage: float
    coverage_band: tuple[float, float]
    confidence_level: float

    @property
    def sentence(self) -> str:
        """One plain sentence."""
        recent = f"recent coverage {self.coverage:.0%} at level {self.confidence_level:.0%}"
        if self.alarm:
            return (
                f"Recalibrate: since row {self.alarm_at} the errors do not look like those of the calibration set "
                f"(evidence {self.evidence:.3g} to 1); {recent}."
            )
        return f"No sign of drift in {self.n_seen} rows (evidence {self.evidence:.3g} to 1); {recent}."


class DriftMonitor:
    """Takes labelled rows as they arrive and says when to recalibrate.

    Each new score is ranked among the calibration scores and the new ones before it; without drift these ranks
    are uniform and independent, whatever the distribution, so false alarms come at the stated rate at most.

    The test is a martingale (the simple jumper of Vovk, Petej and Gammerman 2021): a gambler bets on each p-value
    being small, large or uniform, and changes his mind with probability `JUMP`. If the p-values are uniform his
    capital is a martingale from 1, so it ever reaches 1 / r with probability r at most (Ville).

    Parameters
    ----------
    calib_scores : the calibration scores, in any order.
    false_alarm_rate : probability of ever raising an alarm when nothing changes.
    window : number of latest rows over which coverage is shown.

    Examples
    --------
    >>> import numpy as np
    >>> from lvd.calibration.monitor import DriftMonitor
    >>> rng = np.random.default_rng(0)
    >>> watch = DriftMonitor(np.abs(rng.normal(size=500)), confidence_level=0.9, random_state=0)
    >>> watch.take(np.abs(rng.normal(size=300)), np.ones(300, dtype=bool)).alarm
    False
    >>> watch.take(np.abs(rng.normal(size=300)) * 3, np.zeros(300, dtype=bool)).alarm
    True
    """

    def __init__(
        self,
        calib_scores: Float[NDArray, "m"],
        *,
        confidence_level: float,
        false_alarm_rate: float = 0.01,
        window: int = 200,
        random_state: RandomState = None,
    ) -> None:
        check_positive(window, "window", integer=True)
        self.confidence_level = float(check_levels(confidence_level)[0])
        self.false_alarm_rate = check_fraction(false_alarm_rate, "false_alarm_rate")
        self._scores = np.sort(calib_scores)
        self._capital = np.full(3, 1.0 / 3.0)
        self._rng = np.random.default_rng(seed_from(random_state))
        self._covered: deque[bool] = deque(maxlen=window)
        self._n_seen, self._evidence = 0, 1.0
        self._alarm_at: int | None = None

    def take(self, scores: Float[NDArray, "n"], are_covered: NDArray) -> MonitorReport:
        """Take the scores of new rows, in order of arrival, and whether their intervals covered."""
        for score, is_covered in zip(scores, are_covered, strict=True):
            self._n_seen += 1
            self._capital = (1.0 - JUMP) * self._capital + JUMP / 3.0 * self._capital.sum()
            self._capital *= 1.0 + STAKES * (self._p_value(float(score)) - 0.5)
            self._evidence = max(self._evidence, float(self._capital.sum()))
            self._covered.append(bool(is_covered))
            if self._alarm_at is None and self._evidence >= 1.0 / self.false_alarm_rate:
                self._alarm_at = self._n_seen
        return self.report()

    def report(self) -> MonitorReport:
        """What is known so far."""
        seen = len(self._covered)
        band = binomial_band(sum(self._covered), seen) if seen else (0.0, 1.0)
        return MonitorReport(
            n_seen=self._n_seen,
            evidence=self._evidence,
            alarm=self._alarm_at is not None,
            alarm_at=self._alarm_at,
            coverage=sum(self._covered) / seen if seen else math.nan,
            coverage_band=(float(band[0]), float(band[1])),
            confidence_level=self.confidence_level,
        )

    def _p_value(self, score: float) -> float:
        """The smoothed rank of a score among all before it, which then counts among them."""
        left, right = (np.searchsorted(self._scores, score, side) for side in ("left", "right"))
        above, equal = len(self._scores) - right, right - left + 1
        self._scores = np.insert(self._scores, right, score)
        return float((above + self._rng.uniform() * equal) / len(self._scores))


@dataclass(frozen=True)
class RowMonitor:
    """A :class:`DriftMonitor` that takes rows: `judge` gives their scores and whether their intervals cover."""

    judge: Callable[[ArrayLike, ArrayLike, float, ArrayLike | None], tuple[NDArray, NDArray]]
    watch: DriftMonitor

    def take(self, X: ArrayLike, y: ArrayLike, *, groups: Labels = None) -> MonitorReport:
        """Take newly labelled rows, in order of arrival; with their groups where the calibration has groups."""
        return self.watch.take(*self.judge(X, y, self.watch.confidence_level, groups))

    def report(self) -> MonitorReport:
        """What is known so far."""
        return self.watch.report()
