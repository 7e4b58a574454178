"""Fits whose models are trained as Ray tasks: the same model to the bit, workers that die, and what is refused."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

import lvd
import ray_cluster
from lvd._parallel import Jobs, Threads, at_once
from lvd._progress import listening
from lvd._validation import InputError, RowError
from lvd.tables import distributed

pytestmark = ray_cluster.MARKS


@pytest.fixture(scope="module")
def ray():
    with ray_cluster.started() as ray:
        yield ray


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(300, 3))
    first = X[:, 0] + rng.exponential(size=300) * (1.2 + X[:, 1])
    return X, np.stack([first, X[:, 2] + 0.3 * rng.normal(size=300)], axis=1)


def files_of(model, folder: Path) -> dict[str, bytes]:
    model.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def on_tasks(function, items, **named):
    """The answers of jobs on Ray."""
    with distributed.on_ray():
        return at_once(Jobs(function, items, **named), None, np.zeros((10, 2)))


@pytest.mark.slow  # the default suite has that of a worker that dies
@pytest.mark.parametrize("calibration", ["split", "cross", "ensemble"])
def test_a_fit_is_the_same_to_the_bit(ray, table, full_training, tmp_path, calibration):
    X, y = table
    settings = {
        "calibration": calibration,
        "random_state": 0,
        "folds": "auto" if calibration == "split" else 3,
    }
    local, far, stages, far_stages = lvd.LVDRegressor(**settings), lvd.LVDRegressor(**settings), [], []
    with listening(stages.append):
        local.fit(X, y)
    with distributed.on_ray(), listening(far_stages.append):
        far.fit(X, y)
    assert files_of(far, tmp_path / "far") == files_of(local, tmp_path / "local")
    assert far_stages == stages
    assert any("fold 2 of" in stage for stage in stages)


def test_the_command_writes_the_same_model(ray, lvd_here, homes, full_training, tmp_path):
    words = ("fit", homes.table, "--target", "price", "--epochs", 5)
    for engine in ("local", "ray"):
        outcome = lvd_here(*words, "--engine", engine, "--out", tmp_path / engine)
        assert (outcome.code, outcome.err) == (0, "")
    for path in (tmp_path / "local").iterdir():
        assert (tmp_path / "ray" / path.name).read_bytes() == path.read_bytes(), path.name


def test_jobs_run_elsewhere_and_answers_are_in_order(ray):
    begun, ended = [], []
    answers = on_tasks(
        lambda item: (item, os.getpid()), [3, 1, 2], begins=begun.append, ended=lambda: ended.append(1)
    )
    assert [item for item, _ in answers] == [3, 1, 2]
    assert os.getpid() not in {process for _, process in answers}
    assert (begun, len(ended)) == ([3, 1, 2], 3)


def test_jobs_may_write_to_what_they_are_given(ray):
    shared = np.zeros(300_000)

    def write(rows):
        shared[rows] += 1.0
        rows += 1
        return shared.sum(), rows.sum()

    assert on_tasks(write, [np.arange(200_000), np.arange(100)]) == [
        (200_000.0, 200_000 * 200_001 // 2),
        (100.0, 5050),
    ]
    assert not shared.any()


def test_jobs_have_as_many_threads_as_here(ray):
    import torch

    def count(_):
        import torch

        from lvd._parallel import usable_threads

        return usable_threads(), torch.get_num_threads()

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        here = Threads.here()
        assert on_tasks(count, [0, 1]) == [(here.usable, 3)] * 2
    finally:
        torch.set_num_threads(before)


def deadly_model(marker: Path):
    """A model whose training ends the process of the first worker that tries."""
    parent = os.getpid()

    class Deadly(RegressorMixin, BaseEstimator):  # defined here, so that workers get it whole
        def fit(self, X, y):
            if os.getpid() != parent and not marker.exists():
                marker.touch()
                os._exit(1)
            self.mean_, self.slope_ = y.mean(), np.linalg.lstsq(X, y, rcond=None)[0]
            return self

        def predict(self, X):
            return X @ self.slope_

    return Deadly()


def test_a_worker_dies_and_the_fit_is_the_same(ray, table, full_training, tmp_path):
    X, y = table[0], table[1][:, 0]
    marker = tmp_path / "died"
    local, far = (lvd.LVDRegressor(deadly_model(marker), random_state=0) for _ in range(2))
    local.fit(X, y)
    assert not marker.exists()
    with distributed.on_ray():
        far.fit(X, y)
    assert marker.exists()
    np.testing.assert_array_equal(far.predict_interval(X)[1], local.predict_interval(X)[1])


@pytest.mark.slow  # Ray waits between the attempts
def test_workers_that_always_die_are_told_of(ray):
    with pytest.raises(InputError, match=r"Ray lost a worker or a service \(WorkerCrashedError\)"):
        on_tasks(lambda item: os._exit(1), [0, 1])


def test_the_error_of_the_first_item_comes_as_it_is(ray):
    def fail(item):
        if item == 0:
            return item
        raise RowError(f"item {item}: rows ", (4,), " are odd") if item < 3 else KeyError(item)

    with pytest.raises(RowError, match="item 1: rows 4 are odd") as refused:
        on_tasks(fail, [0, 1, 2, 3])
    assert refused.value.rows == (4,)
    with pytest.raises(KeyError):
        on_tasks(fail, [0, 3])


def test_warnings_come_along(ray):
    def warn(item):
        warnings.warn(f"careful with {item}", RuntimeWarning, stacklevel=1)

    with pytest.warns(RuntimeWarning) as noted:
        on_tasks(warn, [1, 2])
    assert {str(one.message) for one in noted} == {"careful with 1", "careful with 2"}


def test_after_the_block_jobs_run_here_again(ray):
    on_tasks(lambda item: item, [1, 2])
    assert at_once(Jobs(lambda item: os.getpid(), [1, 2]), None, np.zeros((2, 2))) == [os.getpid()] * 2


@pytest.mark.parametrize(
    ("nodes", "n_tasks", "n_gpus", "share"),
    [
        ([16], 5, 0, {"num_cpus": 3.0}),
        ([2], 5, 0, {"num_cpus": 1.0}),
        ([4, 16, 0], 2, 0, {"num_cpus": 4.0}),
        ([8], 4, 1, {"num_cpus": 2.0, "num_gpus": 0.25}),
        ([8], 2, 4, {"num_cpus": 4.0, "num_gpus": 1.0}),
    ],
)
def test_what_a_task_reserves_fits_on_every_machine(nodes, n_tasks, n_gpus, share):
    class Ray:
        def nodes(self):
            return [{"Resources": {"CPU": float(n)} if n else {}, "Alive": True} for n in nodes]

        def cluster_resources(self):
            return {"GPU": float(n_gpus)} if n_gpus else {}

    assert distributed._share_of_task(Ray(), n_tasks) == share


class TestRefusals:
    @pytest.fixture(autouse=True)
    def words(self, homes, tmp_path):
        self.words = ("fit", homes.table, "--target", "price", "--epochs", 1, "--out", tmp_path / "model")

    def test_without_ray(self, lvd_here, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        outcome = lvd_here(*self.words, "--engine", "ray")
        assert outcome == (2, "", "error: engine='ray' needs Ray: pip install 'lvd[ray]'\n")

    def test_an_address_without_ray(self, lvd_here):
        outcome = lvd_here(*self.words, "--address", "auto")
        assert outcome.code == 2
        assert "give --engine ray with it" in outcome.err

    def test_nobody_answers(self, lvd_here, monkeypatch, tmp_path):
        ray = pytest.importorskip("ray")
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        outcome = lvd_here(*self.words, "--engine", "ray", "--address", "127.0.0.1:1")
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("error: no Ray cluster at 127.0.0.1:1: ")
        assert len(outcome.err.splitlines()) == 1
        assert list(tmp_path.iterdir()) == []

    def test_the_process_of_ray_ends(self, lvd_here, monkeypatch, tmp_path):
        ray = pytest.importorskip("ray")
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(distributed, "SERVE", "import os; os._exit(1)")
        outcome = lvd_here(*self.words, "--engine", "ray")
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("error: Ray ended while it was at work (status 1)")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow  # a cluster of its own, in a process of its own
def test_a_cluster_of_its_own(table, full_training, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    X, y = table[0], table[1][:, 0]
    local, far = (lvd.LVDRegressor("trees", random_state=0) for _ in range(2))
    local.fit(X, y)
    with ray_cluster.settings(), distributed.on_ray():
        far.fit(X, y)
    assert files_of(far, tmp_path / "far") == files_of(local, tmp_path / "local")
