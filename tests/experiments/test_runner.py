"""The runner: what is done, what is skipped, and what a failure does to the rest."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest

from experiments.paper import result_store as store
from experiments.paper import runner
from experiments.paper.methods import MethodOutput
from experiments.paper.runs import BenchRun
from experiments.paper.stages import Split, Stages
from lvd._validation import InputError

RUNS = [
    BenchRun("sound", "synthetic", method, seed) for seed in (0, 1) for method in ("split", "CQR", "MADSplit")
]


@pytest.fixture
def done(monkeypatch):
    """Methods that cost nothing and say that they were called; CQR fails on seed 1."""
    calls = []

    def method(split: Split, levels: np.ndarray) -> MethodOutput:
        calls.append(split.seed)
        n = len(split.test)
        return np.zeros(n), np.tile([[-1.0], [1.0]], (n, 1, len(levels)))

    def failing(split: Split, levels: np.ndarray) -> MethodOutput:
        if split.seed == 1:
            raise MemoryError("not today")
        return method(split, levels)

    monkeypatch.setattr(runner, "METHODS", {"split": method, "CQR": failing, "MADSplit": method})
    return calls


def test_a_failed_run_is_recorded_and_the_rest_goes_on(done, tmp_path):
    counts = []

    @contextmanager
    def progress(what, total):
        counts.append((what, total))
        yield counts.append

    runner.execute(RUNS, tmp_path, progress=progress)
    assert counts == [("runs", 6), 3, 3]
    assert len(store.read_all(tmp_path)) == 6
    failed = BenchRun("sound", "synthetic", "CQR", 1)
    assert runner.failures(RUNS, tmp_path) == [(failed, "MemoryError: not today")]
    assert runner.unfinished(RUNS, tmp_path) == [failed]


def test_finished_runs_are_skipped_and_failed_ones_tried_again(done, tmp_path, monkeypatch):
    runner.execute(RUNS[:4], tmp_path)
    done.clear()
    runner.execute(RUNS, tmp_path)
    assert done == [1]
    done.clear()
    monkeypatch.setitem(runner.METHODS, "CQR", runner.METHODS["split"])
    runner.execute(RUNS, tmp_path)
    assert done == [1]
    assert runner.unfinished(RUNS, tmp_path) == []


def test_results_hold_the_rows_of_the_split(done, tmp_path):
    runner.execute(RUNS[:1], tmp_path)
    (result,) = store.read_all(tmp_path)
    assert len(result.y) == 60
    assert len(set(result.rows.tolist())) == 60
    assert result.intervals.shape == (60, 2, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "abacus"}, "engine must be one of 'local', 'ray', got 'abacus'"),
        ({"workers": 0}, "workers must be a positive integer, got 0"),
    ],
)
def test_bad_options_are_refused(done, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        runner.execute(RUNS, tmp_path, **options)


def test_without_ray_the_engine_says_how_to_get_it(done, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"engine='ray' needs Ray: pip install 'lvd\[ray\]'"):
        runner.execute(RUNS, tmp_path, engine="ray")


def test_a_missing_dataset_is_told_before_the_work_begins(done, tmp_path, monkeypatch):
    def missing(name, **options):
        raise InputError(f"no {name}")

    monkeypatch.setattr(runner, "load_dataset", missing)
    with pytest.raises(InputError, match="no synthetic"):
        runner.execute(RUNS, tmp_path / "results")
    assert done == []
    assert not (tmp_path / "results").exists()


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> float:
        self.now += seconds
        return seconds


def test_a_shared_stage_is_computed_once_and_counted_for_all(monkeypatch):
    clock, stages = Clock(), Stages()
    monkeypatch.setattr("experiments.paper.stages.process_time", clock)

    def network() -> float:
        return stages.once("network", lambda: clock.work(10.0))

    def kernel() -> float:
        return stages.once("kernel", lambda: network() + clock.work(3.0))

    def lvd() -> float:
        return kernel() + clock.work(1.0)

    assert stages.as_if_alone(lvd) == (14.0, 14.0)
    assert clock.now == 14.0
    assert stages.as_if_alone(lvd) == (14.0, 14.0)
    assert clock.now == 15.0
    assert stages.as_if_alone(network) == (10.0, 10.0)
    assert stages.as_if_alone(lambda: clock.work(2.0)) == (2.0, 2.0)


def test_a_stage_that_fails_is_tried_by_the_next():
    stages = Stages()

    def fail() -> float:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        stages.as_if_alone(lambda: stages.once("network", fail))
    assert stages.once("network", time.process_time) > 0
