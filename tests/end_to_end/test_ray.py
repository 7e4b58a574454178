"""Prediction and experiments on a real Ray cluster of two cores, which all tests here share."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ray_cluster
from lvd import distributed
from lvd._validation import InputError
from lvd.data.many_files import regroup
from lvd.experiments.store import read_all
from lvd.methods.table import TableModel
from lvd.methods.table_rows import read_rows

pytestmark = ray_cluster.MARKS
BATCH_ROWS = 50


@pytest.fixture(scope="module")
def ray():
    with ray_cluster.started() as ray:
        yield ray


@pytest.fixture(scope="module")
def parts(homes, tmp_path_factory) -> list[Path]:
    return ray_cluster.write_parts(tmp_path_factory.mktemp("parts"), homes.new)


def test_an_actor_is_killed_and_nothing_is_lost_or_doubled(ray, homes, parts, tmp_path):
    model = TableModel.load(homes.model)
    expected = model.predict_to(
        tmp_path / "local.parquet", regroup(read_rows(*parts), BATCH_ROWS), [0.5, 0.9]
    )
    kill_one = ray_cluster.Killer()
    report = distributed.predict_to(
        tmp_path / "ray.parquet", parts, model, [0.5, 0.9], batch_rows=BATCH_ROWS, on_rows=kill_one
    )
    assert kill_one.killed
    assert report == expected
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()


@pytest.mark.slow
def test_the_blocks_of_a_dataset_change_nothing(ray, homes, parts):
    model = TableModel.load(homes.model)
    table = pq.read_table(parts[1])
    dataset = ray.data.from_arrow([table.slice(0, 7), table.slice(7, 90), table.slice(97)])
    predicted = distributed.predict_interval(dataset, homes.model, 0.8, batch_rows=BATCH_ROWS)
    found = pa.concat_tables(predicted.iter_batches(batch_size=None, batch_format="pyarrow"))
    assert found.column_names[: table.num_columns] == table.column_names
    columns = [model.predict(batch, 0.8) for batch in regroup(table.to_batches(), BATCH_ROWS)]
    for name in ("y_pred", "lower_80", "upper_80", "n_effective"):
        np.testing.assert_array_equal(found[name], np.concatenate([part[name] for part in columns]))
    assert found["id"].to_pylist() == table["id"].to_pylist()


def test_the_command_line_writes_the_same_file(ray, lvd_here, homes, tmp_path):
    header, *rows = homes.new.read_text().splitlines()
    for name, part in (("b.csv", rows[:40]), ("a.csv", rows[40:])):
        (tmp_path / name).write_text("\n".join([header, *part, ""]))
    words = ("predict", homes.model, tmp_path / "[ab].csv", "--level", 0.7)
    local = lvd_here(*words, "--out", tmp_path / "local.csv.gz")
    outcome = lvd_here(*words, "--out", tmp_path / "ray.csv.gz", "--engine", "ray")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == local.out.replace("local.csv.gz", "ray.csv.gz")
    assert (tmp_path / "ray.csv.gz").read_bytes() == (tmp_path / "local.csv.gz").read_bytes()


def test_a_refused_row_is_named_as_by_the_local_engine(ray, lvd_here, homes, tmp_path):
    lines = homes.new.read_text().splitlines()
    (tmp_path / "1.csv").write_text("\n".join([*lines[:31], ""]))
    (tmp_path / "2.csv").write_text("\n".join([lines[0], lines[1], "x,80,3,nowhere,true,1", ""]))
    words = ("predict", homes.model, tmp_path / "*.csv", "--out", tmp_path / "out.csv")
    local, outcome = lvd_here(*words), lvd_here(*words, "--engine", "ray")
    assert outcome == local
    assert "(row 32)" in outcome.err
    assert not (tmp_path / "out.csv").exists()


def test_experiments_give_the_results_of_the_local_engine(ray, lvd_here, tmp_path):
    run = (
        "bench",
        "run",
        "--protocol",
        "sound",
        "--datasets",
        "synthetic",
        "--methods",
        "split",
        "--seeds",
        "0:2",
    )
    for engine in ("local", "ray"):
        outcome = lvd_here(*run, "--engine", engine, "--out", tmp_path / engine)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out == "2 runs: 0 were finished before, 2 done now, 0 failed\n"
    for one, other in zip(*(read_all(tmp_path / engine) for engine in ("local", "ray")), strict=True):
        assert one.run == other.run
        for name in ("rows", "y", "y_pred", "intervals"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


class TestRefusals:
    def test_without_ray(self, lvd_here, homes, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        outcome = lvd_here("predict", homes.model, homes.new, "--engine", "ray", "--out", "-")
        assert outcome.code == 2
        assert outcome.err == "error: engine='ray' needs Ray: pip install 'lvd[ray]'\n"

    def test_an_address_without_ray(self, lvd_here, homes):
        outcome = lvd_here("predict", homes.model, homes.new, "--address", "auto", "--out", "-")
        assert outcome.code == 2
        assert "give --engine ray with it" in outcome.err

    def test_another_kind_of_dataset(self, homes):
        pytest.importorskip("ray")
        with pytest.raises(InputError, match=r"dataset must be a ray.data.Dataset, got list"):
            distributed.predict_interval([1, 2], homes.model)

    def test_no_cluster_there(self, monkeypatch):
        ray = pytest.importorskip("ray")
        monkeypatch.setattr(ray, "is_initialized", lambda: False)

        def init(address, **options):
            raise ConnectionError("nobody answers")

        monkeypatch.setattr(ray, "init", init)
        with (
            pytest.raises(InputError, match="no Ray cluster at elsewhere:1: nobody answers"),
            distributed.cluster("elsewhere:1"),
        ):
            pass
