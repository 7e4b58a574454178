"""Actors of a real Ray cluster that compute on a GPU; skipped where torch sees none, or without Ray."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
import torch

import ray_cluster
from command_line import run_here
from homes import Homes, fit_homes
from lvd.tables import distributed
from lvd.tables.reading import read_rows, regroup
from lvd.tables.table_model import TableModel

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch sees"),
    *ray_cluster.MARKS,
]
BATCH_ROWS = 50
LEVELS = [0.5, 0.9]


@pytest.fixture(scope="module")
def ray():
    with ray_cluster.started() as ray:
        yield ray


@pytest.fixture(scope="module")
def homes(tmp_path_factory) -> Homes:
    return fit_homes(tmp_path_factory.mktemp("homes"))


@pytest.fixture(scope="module")
def parts(homes, tmp_path_factory) -> list[Path]:
    return ray_cluster.write_parts(tmp_path_factory.mktemp("parts"), homes.new)


def watched_predictor(folder: Path) -> type:
    """Does what a Predictor does, slowly enough to be killed at work, and notes where each batch was computed.

    What is defined inside a function travels to the actors whole: they cannot import this file.
    """

    def allocations_on_gpu() -> int:
        return torch.cuda.memory_stats().get("allocation.all.allocated", 0)

    class Watched:
        def __init__(self, *given: object) -> None:
            from lvd.tables.distributed import Predictor

            self.predictor = Predictor(*given)

        def __call__(self, table):
            import ray

            before = allocations_on_gpu()
            predicted = self.predictor(table)
            regressor = self.predictor.model.regressor
            tensors = [*regressor.model_.module_.parameters()]
            for conformal in regressor.calibrators_:
                tensors += [part.sorted.points for part in conformal.calibration_.parts.values()]
            note = {
                "gpus": ray.get_runtime_context().get_accelerator_ids()["GPU"],
                "devices": sorted({tensor.device.type for tensor in tensors}),
                "allocations": allocations_on_gpu() - before,
            }
            with (folder / str(os.getpid())).open("a") as file:
                file.write(json.dumps(note) + "\n")
            time.sleep(0.1)
            return predicted

    return Watched


def test_ray_finds_the_gpus(ray):
    assert ray.cluster_resources().get("GPU") == torch.cuda.device_count()


def test_the_command_line_writes_the_bytes_of_the_local_engine(ray, homes, parts, tmp_path):
    words = ("predict", homes.model, parts[0].parent / "*.parquet", "--level", 0.7)
    local = run_here(*words, "--out", tmp_path / "local.parquet")
    outcome = run_here(*words, "--out", tmp_path / "ray.parquet", "--engine", "ray")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == local.out.replace("local.parquet", "ray.parquet")
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()


def test_an_actor_dies_on_its_gpu_and_nothing_is_lost_or_doubled(ray, homes, parts, tmp_path, monkeypatch):
    model = TableModel.load(homes.model)
    expected = model.predict_to(tmp_path / "local.parquet", regroup(read_rows(*parts), BATCH_ROWS), LEVELS)
    folder, kill_one = tmp_path / "notes", ray_cluster.Killer()
    folder.mkdir()
    monkeypatch.setattr(distributed, "Predictor", watched_predictor(folder))
    report = distributed.predict_to(
        tmp_path / "ray.parquet", parts, model, LEVELS, batch_rows=BATCH_ROWS, on_rows=kill_one
    )
    assert report == expected
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()

    notes = {int(path.name): path.read_text().splitlines() for path in folder.iterdir()}
    # The one that was killed and those that went on, one for each GPU.
    assert kill_one.killed[0] in notes
    assert len(notes) > 1
    assert sum(map(len, notes.values())) >= report.n_rows // BATCH_ROWS
    for note in (json.loads(line) for lines in notes.values() for line in lines):
        assert len(note["gpus"]) == 1
        assert note["devices"] == ["cuda"]
        assert note["allocations"] > 0
