"""The long-run promise of levels that adapt: for hostile sequences, of any length; broken rules are caught."""

from __future__ import annotations

import numpy as np
import pytest

from lvd.calibration.level_adaptation import RULES, AdaptedLevel, excess_bound, updated_experts

ALPHA = 0.1


def run(level, answer, n_rows, *, late=0):
    """The largest excess of misses of a sequence in which `answer` gives beta, known `late` rows afterwards."""
    worst, excess, waiting = 0.0, 0.0, []
    for number in range(n_rows):
        rate = float(level.rates[0])
        beta = answer(number, rate)
        missed = beta < rate if rate > 0.0 else False
        excess += missed - ALPHA
        worst = max(worst, excess)
        waiting.append((np.full(len(level.experts), beta), missed))
        if len(waiting) > late:
            level.take(waiting[0][0], missed=waiting[0][1])
            waiting.pop(0)
    return worst


def hostile(number, rate):
    """Misses whatever can be missed: the sequence knows the level before it answers."""
    return 0.0


def lulling(number, rate):
    """Covers for a thousand rows, so that rates rise, and then misses all it can."""
    return 1.0 if number % 2000 < 1000 else 0.0


def just_short(number, rate):
    """A little less than any rate that can be missed."""
    return max(0.0, rate - 1e-9)


SEQUENCES = [hostile, lulling, just_short, lambda number, rate: 0.05 + 0.05 * (number % 2)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("late", [0, 24])
def test_misses_never_exceed_the_bound(rule, sequence, late):
    worst = run(AdaptedLevel(ALPHA, rule, 1), sequence, 2500, late=late)
    assert worst <= excess_bound(ALPHA, rule, late) + 1e-9


def test_experts_alone_break_the_bound():
    """The mutant: weights that follow the loss alone, without the guard, on a sequence that turns against them."""

    class Unguarded(AdaptedLevel):
        @property
        def rates(self):
            return np.full(1, self.alpha)

    assert run(Unguarded(ALPHA, "dtaci", 1), hostile, 4000) > 5 * excess_bound(ALPHA, "dtaci")


def test_a_guard_of_the_wrong_sign_breaks_the_bound():
    class Backwards(AdaptedLevel):
        def take(self, beta, *, missed):
            super().take(beta, missed=not missed)

    assert run(Backwards(ALPHA, "aci", 1), hostile, 4000) > 5 * excess_bound(ALPHA, "aci")


@pytest.mark.parametrize("rule", RULES)
def test_coverage_of_exchangeable_rows_is_the_level(rule):
    rng = np.random.default_rng(0)
    level, betas = AdaptedLevel(ALPHA, rule, 1), rng.uniform(size=4000)
    missed = 0
    for beta in betas.tolist():
        misses = beta < level.rates[0]
        missed += misses
        level.take(np.array([beta]), missed=bool(misses))
    assert abs(missed / len(betas) - ALPHA) < 0.01


@pytest.mark.parametrize("rule", RULES)
def test_perfect_rows_do_not_save_up_misses(rule):
    """Rows that nothing can miss do not buy more misses later than there is room to ask for."""
    level = AdaptedLevel(ALPHA, rule, 1)
    for _ in range(2000):
        level.take(np.ones(1), missed=False)
    saved = -level.excess
    assert saved <= 91.0
    assert run(level, hostile, 2500) <= excess_bound(ALPHA, rule) + saved + 1e-9


def test_experts_move_by_their_steps_and_gain_by_their_loss():
    experts, weights = np.array([[0.1, 0.1, 0.2]]), np.full((1, 3), 1 / 3)
    moved, weighed = updated_experts(experts, weights, np.array([0.15]), ALPHA)
    np.testing.assert_allclose(moved, [[0.1 + 0.002 * 0.1, 0.1 + 0.008 * 0.1, 0.2 - 0.03 * 0.9]])
    assert weighed[0, 2] < weighed[0, 0] == weighed[0, 1]
    np.testing.assert_allclose(weighed.sum(), 1.0)


def test_what_cannot_be():
    with pytest.raises(ValueError, match="level must be one of 'dtaci', 'aci', 'pid', got 'none'"):
        AdaptedLevel(ALPHA, "none", 1)
    with pytest.raises(ValueError, match="n_late must be at least 0, got -1"):
        excess_bound(ALPHA, "aci", -1)
