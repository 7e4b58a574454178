"""False alarms come at the stated rate at most; abrupt and slow drifts are found; a broken watch is caught."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from lvd.calibration.monitor import DriftMonitor, Martingale

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


def test_a_watch_that_ranks_against_old_rows_only_raises_false_alarms(monkeypatch):
    class Broken(Martingale):
        def _p_values(self, row, ties):
            before = self._known
            p_values = super()._p_values(row, ties) ** 0.5  # p-values that are not uniform
            self._known = before
            return p_values

    monkeypatch.setattr("lvd.calibration.monitor.Martingale", Broken)
    count = alarms(lambda rng, n: np.abs(rng.normal(size=n)), trials=40)
    assert binomtest(count, 40, 0.05, alternative="greater").pvalue < 1e-6


def watched(trial, *, moved, n=300, k=4, rate=0.05, at=100):
    """The report of a stream whose inputs, errors or both move after some rows."""
    rng = np.random.default_rng(trial)
    watch = DriftMonitor(
        np.abs(rng.normal(size=150)),
        calib_places=rng.normal(size=(150, k)),
        confidence_level=0.9,
        false_alarm_rate=rate,
        random_state=trial,
    )
    later = np.arange(n) >= at
    scores = np.abs(rng.normal(size=n)) * np.where(later & ("errors" in moved), 2.5, 1.0)
    places = rng.normal(size=(n, k))
    places[:, 1] += 1.5 * (later & ("inputs" in moved))
    return watch.take(scores, ALWAYS[:n], places)


def test_false_alarms_of_errors_and_inputs_together_stay_below_the_stated_rate():
    count = sum(watched(trial, moved=()).moved is not None for trial in range(40))
    assert binomtest(count, 40, 0.05, alternative="greater").pvalue > 1e-6


@pytest.mark.parametrize("moved", [("inputs",), ("errors",), ("inputs", "errors")])
def test_an_alarm_says_what_moved_and_since_when(moved):
    found = [watched(trial, moved=moved, rate=0.001) for trial in range(12)]
    assert sum(one.moved == " and ".join(moved) for one in found) >= 11
    assert abs(np.median([one.since for one in found]) - 101) <= 10
    assert sum(one.alarm for one in found) == (12 if "errors" in moved else 0)
    assert all(one.alarm_at >= one.since for one in found if one.alarm)
    start = "Alarm at row" if "errors" in moved else "No alarm, but since about row"
    assert all(one.sentence.startswith(start) for one in found)


def test_a_long_quiet_time_does_not_hide_what_comes_after():
    """The stakes of one start alone would be lost by then: after 5,000 rows they are worth exp(-30) or so."""
    rng = np.random.default_rng(0)
    watch = DriftMonitor(np.abs(rng.normal(size=200)), confidence_level=0.9, random_state=0)
    watch.take(np.abs(rng.normal(size=5000)), np.ones(5000, bool))
    report = watch.take(3 * np.abs(rng.normal(size=150)), np.ones(150, bool))
    assert report.moved == "errors"
    assert 4800 < report.since < 5030
    assert report.alarm_at < 5150


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
    assert report.since <= 3
    told = f"Alarm at row {report.alarm_at}: since about row {report.since} the errors do not look like those"
    assert report.sentence.startswith(told)
    assert report.coverage == 0.0
    assert report.coverage_band[1] < 0.1
