"""Levels that adapt to the misses of a sequence: ACI, DtACI and conformal PID, with a guard that makes the
bound hold for any sequence.

Levels are expressed as the target miss rate of an interval. At a rate of 0 or below the interval must not miss,
so the sum of ``missed - alpha`` stays below a constant; the guarantee is nothing more than that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lvd._typing import Float, NDArray
from lvd._validation import InputError, Parameter, check_choice

RULES = ("dtaci", "aci", "pid")
STEPS = np.array([0.002, 0.008, 0.03])
"""The experts' step sizes (Gibbs and Candès 2024)."""
MEMORY = 500
"""The number of rows that the experts are tuned for."""
GUARD = {"dtaci": 0.005, "aci": 0.01, "pid": 0.01}
"""How much each excess miss lowers the target miss rate."""
MOST_RAISED = 0.1
"""The most by which the experts' guard raises the rate: a larger credit of misses would have to be paid back."""
SATURATION = 0.05
"""Conformal PID: the integral saturates at ``pi / 2`` times this many excess misses for each ``t / log(t)``
rows."""


def expert_rates(experts: Float[NDArray, "h e"], weights: Float[NDArray, "h e"]) -> Float[NDArray, "h"]:
    """The weighted mean of the experts' miss rates."""
    return (experts * weights).sum(axis=1) / weights.sum(axis=1)


def learning_rate(alpha: float, n_experts: int, memory: int = MEMORY) -> float:
    """The learning rate of the experts' weights (Gibbs and Candès 2024, section 3.2)."""
    spread = (1.0 - alpha) ** 2 * alpha**3 + alpha**2 * (1.0 - alpha) ** 3
    return math.sqrt(3.0 / memory) * math.sqrt((math.log(n_experts * memory) + 2.0) / spread)


def updated_experts(
    experts: Float[NDArray, "h e"], weights: Float[NDArray, "h e"], beta: Float[NDArray, "h"], alpha: float
) -> tuple[Float[NDArray, "h e"], Float[NDArray, "h e"]]:
    """Experts and weights after one row; `beta` is the largest miss rate at which it would have been covered.

    Each expert moves by its own step, and its weight decreases with the pinball loss of its rate against `beta`.
    """
    short = beta[:, None] - experts
    loss = np.where(short < 0.0, (alpha - 1.0) * short, alpha * short)
    share = 0.5 / MEMORY
    grown = weights * np.exp(-learning_rate(alpha, experts.shape[1]) * loss)
    grown /= grown.sum(axis=1, keepdims=True)
    stepped = experts + STEPS * (alpha - (short < 0.0))
    return stepped, (1.0 - share) * grown + share / experts.shape[1]


def saturated(excess: float, n_rows: int) -> float:
    """The integral term of conformal PID (Angelopoulos, Candès and Tibshirani 2023): a tangent that bounds the
    sum."""
    angle = excess * math.log(n_rows + 2.0) / ((n_rows + 2.0) * SATURATION)
    return math.tan(min(max(angle, -1.57), 1.57))


class AdaptedLevel:
    """Target miss rates for h ways of making intervals, one of which is used for each row.

    Parameters
    ----------
    alpha : the long-run miss rate to achieve.
    rule : ``"dtaci"``, ``"aci"`` or ``"pid"``.
    n_ways : the number of ways; with ``"dtaci"`` each has its own experts.

    Examples
    --------
    >>> import numpy as np
    >>> from lvd.calibration.level_adaptation import AdaptedLevel
    >>> level = AdaptedLevel(0.1, "aci", 1)
    >>> level.take(np.array([0.02]), missed=True)
    >>> level.rates
    array([0.091])
    """

    def __init__(self, alpha: float, rule: str, n_ways: int) -> None:
        self.alpha, self.rule = alpha, check_choice(rule, "level", RULES)
        self.experts = np.full((n_ways, len(STEPS)), alpha)
        self.weights = np.full((n_ways, len(STEPS)), 1.0 / len(STEPS))
        self.excess, self.n_rows = 0.0, 0

    @property
    def rates(self) -> Float[NDArray, "h"]:
        """The target miss rates; 0 or below requires an interval that cannot miss."""
        guard = GUARD[self.rule] * self.excess
        if self.rule == "dtaci":
            return expert_rates(self.experts, self.weights) - guard
        integral = self.alpha * saturated(self.excess, self.n_rows) if self.rule == "pid" else 0.0
        return np.full(len(self.experts), self.alpha - guard - integral)

    def take(self, beta: Float[NDArray, "h"], *, missed: bool) -> None:
        """Update with one row: `beta` for each way, and whether the issued interval missed it."""
        if self.rule == "dtaci":
            self.experts, self.weights = updated_experts(self.experts, self.weights, beta, self.alpha)
        self.n_rows += 1
        self.excess = max(self.excess + float(missed) - self.alpha, -self._most_saved)

    @property
    def _most_saved(self) -> float:
        """The largest credit of avoided misses; beyond it the target rate cannot rise further."""
        most = MOST_RAISED if self.rule == "dtaci" else 1.0 - self.alpha
        return most / GUARD[self.rule]

    def bound(self, n_late: int = 0) -> float:
        """The upper bound of the sum of ``missed - alpha`` over any sequence; see :func:`excess_bound`."""
        return excess_bound(self.alpha, self.rule, n_late)

    def to_dict(self) -> dict[str, Any]:
        """The complete state, for saving."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, saved: dict[str, Any], n_ways: int) -> AdaptedLevel:
        """Restore and check the output of `to_dict`."""
        level = cls(float(saved["alpha"]), str(saved["rule"]), n_ways)
        for name in ("experts", "weights"):
            array = np.asarray(saved[name])
            if array.shape != level.experts.shape or not np.isfinite(array).all():
                raise InputError(f"the saved {name} of a level do not belong to it")
            setattr(level, name, array)
        level.excess, level.n_rows = float(saved["excess"]), int(saved["n_rows"])
        return level


def excess_bound(alpha: float, rule: str, n_late: int = 0) -> float:
    """The most misses above ``alpha T`` in any sequence of T rows, if intervals at rate 0 never miss.

    Once the excess reaches ``r / step`` the target rate is at most 0, with r the largest rate that the rule
    itself can choose: alpha, or ``1 + max(STEPS)`` for experts. From there the excess can only fall, except for
    the row that took it there and up to `n_late` rows predicted earlier whose labels were not known yet.
    """
    check_choice(rule, "level", RULES)
    if n_late < 0:
        raise InputError(Parameter("n_late"), f" must be at least 0, got {n_late}")
    largest = 1.0 + float(STEPS.max()) if rule == "dtaci" else alpha
    return largest / GUARD[rule] + (1.0 - alpha) * (1 + n_late)
