"""How long stages take and how long the whole is expected to take, by a clock that the tests turn."""

from __future__ import annotations

import pytest

from lvd._progress import StageTimes
from lvd.cli.fit import expected_seconds


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def estimates_of(expected, stages, step=0.1):
    """Go through stages, each a name and its seconds, asking on the way: (share passed, estimate / truth)."""
    clock = Clock()
    times = StageTimes(expected, clock)
    whole, found = sum(seconds for _, seconds in stages), []
    for name, seconds in stages:
        times.begin(name)
        for _ in range(round(1 / step)):
            found.append(((clock.now - 100.0) / whole, times.total / whole))
            clock.now += step * seconds
    times.finish()
    return found, times


EXPECTED = {"training": 2.0, "folds": 8.0, "kernel": 1.0, "scales": 3.0, "testing": 2.0}
TRUE = [("training", 2.0), *((f"folds: {k} of 4", 2.0) for k in range(1, 5)), ("kernel", 1.0)]
TRUE += [("scales: boosted", 1.0), ("scales: network", 2.0), ("testing", 2.0)]


@pytest.mark.parametrize("slowness", [0.2, 1.0, 9.0])
@pytest.mark.parametrize("odd", [(1, 1, 1), (1.6, 1, 0.7), (0.7, 1.4, 1.4)])
def test_after_the_first_stage_the_estimate_is_within_a_factor_of_two(slowness, odd):
    stages = [(name, slowness * odd[number % 3] * seconds) for number, (name, seconds) in enumerate(TRUE)]
    first = stages[0][1] / sum(seconds for _, seconds in stages)
    found, _ = estimates_of(EXPECTED, stages)
    assert all(0.5 < ratio < 2.0 for passed, ratio in found if passed >= first)
    # A clock that only adds up what was expected, whatever the machine, would not do.
    assert slowness == 1.0 or not all(0.5 < ratio < 2.0 for passed, ratio in found if passed < first / 4)


def test_equal_parts_tell_how_long_the_others_take():
    """Folds that take ten times as long as expected."""
    stages = [("training", 2.0), *((f"folds: {k} of 4", 20.0) for k in range(1, 5)), ("kernel", 1.0)]
    found, _ = estimates_of({"training": 2.0, "folds": 8.0, "kernel": 1.0}, stages)
    assert all(0.5 < ratio < 2.0 for passed, ratio in found if passed > 22.0 / 83.0)


def test_folds_that_are_known_already_are_not_waited_for():
    stages = [(f"folds: {k} of 5", 2.0) for k in (4, 5)]
    found, _ = estimates_of({"folds": 10.0}, stages)
    assert found[-1][1] == pytest.approx(1.0, abs=0.05)


def test_stages_that_are_passed_over_take_no_time():
    found, times = estimates_of(EXPECTED, [("training", 2.0), ("testing", 2.0)])
    assert found[-1][1] == pytest.approx(1.0, abs=0.01)
    assert list(times.taken) == ["training", "testing"]


def test_a_surprise_is_waited_for_and_says_nothing_of_the_machine():
    stages = [("training", 2.0), ("compiling for the first use", 30.0), ("folds", 8.0), ("kernel", 1.0)]
    stages += [("scales", 3.0), ("testing", 2.0)]
    found, times = estimates_of(EXPECTED, stages)
    assert all(0.5 < ratio < 2.0 for passed, ratio in found if passed > 31.9 / 46.0)
    assert times.taken["compiling for the first use"] == pytest.approx(30.0)


def test_what_each_stage_took():
    _, times = estimates_of(EXPECTED, TRUE)
    assert times.taken == pytest.approx(EXPECTED)
    assert list(times.taken) == list(EXPECTED)


def test_before_anything_began_there_is_what_is_expected():
    times = StageTimes(EXPECTED, Clock())
    assert (times.total, times.share) == (16.0, 0.0)
    assert StageTimes({}, Clock()).share == 0.0


STAGES = list(expected_seconds(100_000, 5))
MEASURED = [
    (500, 5, 1, "auto", "default", (0.01, 1.96, 0.31, 0, 0.2, 0.31, 0.15, 0.01, 0.04)),
    (500, 5, 1, "net", "default", (0.01, 0, 0.26, 1.53, 0.17, 0.3, 0.15, 0.01, 0.04)),
    (2000, 20, 1, "auto", "default", (0.01, 1.8, 0.16, 0, 0.05, 0.71, 0.32, 0.02, 0.24)),
    (2000, 5, 3, "auto", "default", (0.01, 2.29, 0.31, 0, 0.22, 1.48, 0.48, 0.02, 0.18)),
    (10_000, 5, 1, "auto", "default", (0.01, 0.62, 0.93, 1.99, 0.43, 0.97, 0.65, 0.03, 0.84)),
    (10_000, 20, 1, "net", "default", (0.01, 0, 0.85, 2.48, 0.55, 0.97, 1.49, 0.05, 1.13)),
    (10_000, 20, 1, "trees", "default", (0.01, 0, 0.29, 0.79, 0.43, 0.88, 1.18, 0.06, 1.13)),
    (10_000, 20, 1, "net", "paper", (0.01, 0, 0.47, 0, 0.23, 0, 0, 0.01, 0.89)),
    (50_000, 20, 1, "trees", "default", (0.04, 0, 0.35, 0.9, 0.4, 1.99, 3.34, 0.2, 3.14)),
    (50_000, 20, 1, "net", "default", (0.04, 0, 2.48, 10.68, 0.45, 1.94, 3.52, 0.21, 2.71)),
]
"""Rows, columns, targets, model, preset, and the processor seconds of each stage of a fit, measured once."""


@pytest.mark.parametrize("slowness", [1.0, 3.0])
@pytest.mark.parametrize(("n_rows", "n_columns", "n_targets", "model", "preset", "seconds"), MEASURED)
def test_what_is_expected_of_a_fit_is_about_what_it_takes(
    n_rows, n_columns, n_targets, model, preset, seconds, slowness, full_training
):
    expected = expected_seconds(n_rows, n_columns, n_targets, model=model, preset=preset)
    stages = []
    for name, taken in zip(STAGES, seconds, strict=True):
        n_parts = 5 if name == "errors on rows held out" else 1
        parts = [f"{name}: fold {k} of 5" for k in range(1, 6)] if n_parts == 5 else [name]
        stages += [(part, slowness * taken / n_parts) for part in parts if taken]
    found, times = estimates_of(expected, stages)
    assert list(times.taken) == [name for name in expected if name in times.taken]
    # On a machine like that of the measurements at once; else when a quarter of the time has told how slow it is.
    assert all(0.5 < ratio < 2.0 for passed, ratio in found if passed >= (0.0 if slowness == 1.0 else 0.25))
