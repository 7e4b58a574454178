"""False alarms come at the stated rate at most; abrupt and slow drifts are found; a broken watch is caught."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from lvd.calibration.monitor import DriftMonitor

ALWAYS = np.ones(1000, dtype=bool)


def alarms(new_scores, *, trials, monitor=DriftMonitor, rate=0.05, n=200):
    count = 0
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        watch = monitor(
            np.abs(rng.normal(size=100)), confidence_level=0.9, false_alarm_rate=rate, random_state=trial
        )
        count += watch.take(new_scores(rng, n), ALWAYS[:n]).alarm
    return count


def test_false_alarms_stay_below_the_stated_rate():
    count = alarms(lambda rng, n: np.abs(rng.normal(size=n)), trials=100)
    assert binomtest(count, 100, 0.05, alternative="greater").pvalue > 1e-6


def test_a_watch_that_ranks_against_old_rows_only_raises_false_alarms():
    class Broken(DriftMonitor):
        def _p_value(self, score):
            before = self._scores
            p_value = super()._p_value(score) ** 0.5  # p-values that are not uniform
            self._scores = before
            return p_value

    count = alarms(lambda rng, n: np.abs(rng.normal(size=n)), trials=40, monitor=Broken)
    assert binomtest(count, 40, 0.05, alternative="greater").pvalue < 1e-6


@pytest.mark.parametrize(
    "drift",
    [
        lambda rng, n: np.abs(rng.normal(size=n)) * 2.0,
        lambda rng, n: np.abs(rng.normal(size=n)) * np.linspace(1.0, 3.0, n),
        lambda rng, n: np.abs(rng.normal(size=n)) * 0.3,
    ],
    ids=["abrupt", "slow", "better than calibrated"],
)
def test_drift_is_found(drift):
    assert alarms(drift, trials=10, n=400) >= 9


def test_the_report_speaks_plainly():
    rng = np.random.default_rng(0)
    watch = DriftMonitor(np.abs(rng.normal(size=200)), confidence_level=0.9, window=50, random_state=0)
    assert watch.report().sentence.startswith("No sign of drift in 0 rows")
    report = watch.take(rng.normal(size=200) ** 2 + 3.0, np.zeros(200, dtype=bool))
    assert report.alarm
    assert report.sentence.startswith(f"Recalibrate: since row {report.alarm_at}")
    assert report.coverage == 0.0
    assert report.coverage_band[1] < 0.1
