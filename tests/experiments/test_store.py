"""Results on disk."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.paper import result_store as store
from experiments.paper.runs import BenchRun
from lvd._validation import InputError

RUN = BenchRun("paper", "yacht", "split", 3)


def result(run: BenchRun = RUN, n: int = 5) -> store.Result:
    rng = np.random.default_rng(0)
    intervals = np.sort(rng.normal(size=(n, 2, len(run.levels))), axis=1)
    intervals[0] = [[-np.inf], [np.inf]]
    y_pred = rng.normal(size=(n, len(run.levels)))
    return store.Result(run, np.arange(n), rng.normal(size=n), y_pred, intervals, 1.5)


def test_a_result_comes_back_bit_for_bit(tmp_path):
    written = result()
    store.write_result(tmp_path, written)
    read = store.read_result(store.path_of(tmp_path, RUN))
    assert (read.run, read.seconds, read.error) == (RUN, 1.5, None)
    for name in ("rows", "y", "y_pred", "intervals"):
        np.testing.assert_array_equal(getattr(read, name), getattr(written, name))
    assert store.read_error(store.path_of(tmp_path, RUN)) is None


def test_a_failure_comes_back_with_its_error(tmp_path):
    store.write_result(tmp_path, store.failure_of(RUN, "MemoryError: too big", 0.1))
    read = store.read_all(tmp_path)[0]
    assert read.error == "MemoryError: too big"
    assert read.intervals.shape == (0, 2, 2)
    assert store.read_error(store.path_of(tmp_path, RUN)) == "MemoryError: too big"


def test_what_a_killed_process_had_begun_is_not_read(tmp_path):
    store.write_result(tmp_path, result())
    (tmp_path / "runs" / ".begun.parquet.abc.part.parquet").write_bytes(b"PAR1")
    assert len(store.read_all(tmp_path)) == 1


def test_a_file_that_is_no_result_is_named(tmp_path):
    with pytest.raises(InputError, match=r"no results in .*; make some with: python -m experiments run"):
        store.read_all(tmp_path)
    store.write_result(tmp_path, result())
    path = store.path_of(tmp_path, RUN)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(
        InputError, match=r"split-3-.*is not a result of the experiments .*; delete it and run again"
    ):
        store.read_all(tmp_path)
    with pytest.raises(InputError, match="is not a result of the experiments"):
        store.read_error(path)


def test_the_processor_is_named_as_the_system_does(monkeypatch):
    cpuinfo = "processor\t: 0\nmodel name\t: Big Iron 9\nmodel name\t: Big Iron 9\n"
    monkeypatch.setattr(store.Path, "read_text", lambda path: cpuinfo)
    assert store.processor_name() == "Big Iron 9"
    monkeypatch.setattr(store.Path, "read_text", lambda path: "processor : 0\n")
    monkeypatch.setattr(store.platform, "processor", lambda: "")
    assert store.processor_name() == store.platform.machine()


def test_calls_are_recorded_and_copied(tmp_path, monkeypatch):
    assert store.read_calls(tmp_path) == []
    monkeypatch.setattr(store, "perf_counter", iter((100.0, 112.34)).__next__)
    monkeypatch.setattr(store, "_processor_seconds", iter((5.0, 25.0)).__next__)
    with store.recorded_call(tmp_path, "python -m experiments run --out RESULTS") as count:
        count(7)
    (call,) = store.read_calls(tmp_path)
    assert (call.command, call.runs) == ("python -m experiments run --out RESULTS", 7)
    assert (call.seconds, call.processor_seconds) == (12.3, 20.0)
    assert {"python", "lvd", "torch", "numpy", "blas"} <= call.versions.keys()
    assert f", {store.processor_name()} (" in call.machine
    store.write_calls([call], tmp_path / "small.json")
    assert store.read_calls(tmp_path / "small.csv") == [call]
    (tmp_path / "small.json").write_text('[{"colour": "red"}]')
    with pytest.raises(InputError, match=r"the record of calls in .* cannot be read"):
        store.read_calls(tmp_path / "small.csv")
