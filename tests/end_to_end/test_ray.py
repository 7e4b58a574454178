"""Prediction and experiments on a real Ray cluster of two cores, which all tests here share."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import ray_cluster
from command_line import experiments_here
from experiments.paper.result_store import read_all
from lvd._validation import InputError
from lvd.tables import distributed
from lvd.tables.reading import read_rows, regroup
from lvd.tables.table_model import TableModel

pytestmark = ray_cluster.MARKS
BATCH_ROWS = 50


@pytest.fixture(scope="module")
def ray():
    with ray_cluster.started() as ray:
        yield ray


@pytest.fixture(scope="module")
def parts(homes, tmp_path_factory) -> list[Path]:
    return ray_cluster.write_parts(tmp_path_factory.mktemp("parts"), homes.new)


@pytest.mark.slow
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
def test_what_ray_prints_is_not_in_the_answer(ray, homes, parts):
    """Ray tells of a dead worker by print(), from a thread of its own."""
    model, answer, noise = TableModel.load(homes.model), io.TextIOWrapper(io.BytesIO()), io.StringIO()
    kill_one = ray_cluster.Killer()

    def on_rows(n_rows):
        kill_one(n_rows)
        print("(raylet) A worker died")

    with contextlib.redirect_stdout(answer), contextlib.redirect_stderr(noise):
        report = distributed.predict_to("-", parts, model, batch_rows=BATCH_ROWS, on_rows=on_rows)
        print("after")
    answer.flush()
    header, *lines = answer.buffer.getvalue().decode().splitlines()
    assert header.startswith("id,area,")
    assert lines.pop() == "after"
    assert len(lines) == report.n_rows
    assert all(line.startswith(chr(34) + "home-") for line in lines)
    assert "(raylet) A worker died" in noise.getvalue()


@pytest.mark.slow
def test_the_blocks_of_a_dataset_change_nothing(ray, homes, parts):
    model = TableModel.load(homes.model)
    table = pq.read_table(parts[1])
    dataset = ray.data.from_arrow([table.slice(0, 7), table.slice(7, 90), table.slice(97)])
    predicted = distributed.predict_interval(dataset, homes.model, 0.8, batch_rows=BATCH_ROWS)
    found = pa.concat_tables(predicted.iter_batches(batch_size=None, batch_format="pyarrow"))
    assert found.column_names[: table.num_columns] == table.column_names
    columns = [model.predict(batch, 0.8) for batch in regroup([table], BATCH_ROWS)]
    for name in ("y_pred", "lower_80", "upper_80", "n_effective"):
        np.testing.assert_array_equal(found[name], np.concatenate([part[name] for part in columns]))
    assert found["id"].to_pylist() == table["id"].to_pylist()


def test_the_command_line_writes_the_same_file(ray, lvd_here, homes, tmp_path):
    header, *rows = homes.new.read_text().splitlines()
    for name, part in (("b.csv", rows[:40]), ("a.csv", rows[40:])):
        (tmp_path / name).write_text("\n".join([header, *part, ""]))
    words = ("predict", homes.model, tmp_path / "[ab].csv", "--level", 0.7, "--guarantee", "calibrated")
    words += ("--side", "upper", "--above", 300)
    local = lvd_here(*words, "--out", tmp_path / "local.csv.gz")
    outcome = lvd_here(*words, "--out", tmp_path / "ray.csv.gz", "--engine", "ray")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == local.out.replace("local.csv.gz", "ray.csv.gz")
    assert (tmp_path / "ray.csv.gz").read_bytes() == (tmp_path / "local.csv.gz").read_bytes()


@pytest.mark.slow
def test_a_refused_row_is_named_as_by_the_local_engine(ray, lvd_here, homes, tmp_path):
    lines = homes.new.read_text().splitlines()
    (tmp_path / "1.csv").write_text("\n".join([*lines[:31], ""]))
    (tmp_path / "2.csv").write_text("\n".join([lines[0], lines[1], "x,inf,3,north,true,1", ""]))
    words = ("predict", homes.model, tmp_path / "*.csv", "--out", tmp_path / "out.csv")
    local, outcome = lvd_here(*words), lvd_here(*words, "--engine", "ray")
    assert outcome == local
    assert "(row 32)" in outcome.err
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.slow
def test_experiments_give_the_results_of_the_local_engine(ray, tmp_path):
    run = ("run", "--protocol", "sound", "--datasets", "synthetic", "--methods", "split", "--seeds", "0:2")
    for engine in ("local", "ray"):
        outcome = experiments_here(*run, "--engine", engine, "--out", tmp_path / engine)
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

    @pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}", "RAY_ADDRESS"])
    def test_nobody_answers(self, monkeypatch, address):
        ray = pytest.importorskip("ray")
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        if address == "RAY_ADDRESS":
            monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        given = None if address == "RAY_ADDRESS" else address.format(port=port)
        start = time.monotonic()
        with (
            pytest.raises(InputError, match=rf"no Ray cluster at .*127.0.0.1:{port}: .*refused.*`ray start"),
            distributed.cluster(given),
        ):
            pass
        assert time.monotonic() - start < 60

    @pytest.mark.slow  # Ray asks for 40 seconds
    def test_somebody_else_answers(self, monkeypatch):
        ray = pytest.importorskip("ray")
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            with (
                pytest.raises(InputError, match=f"no Ray cluster at {address}"),
                distributed.cluster(address),
            ):
                pass

    @pytest.mark.parametrize("address", ["nowhere", "host:port"])
    def test_no_address(self, monkeypatch, address):
        ray = pytest.importorskip("ray")
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        with pytest.raises(InputError, match=f"no Ray cluster at {address}"), distributed.cluster(address):
            pass


class TestKilled:
    """Ray runs in a process of its own, which it ends when its services are killed."""

    @pytest.fixture(autouse=True)
    def no_cluster(self, monkeypatch):
        monkeypatch.setattr(pytest.importorskip("ray"), "is_initialized", lambda: False)

    @pytest.mark.parametrize("serve", ["import os; os._exit(1)", "import sys; sys.stdout.write('(raylet)')"])
    def test_the_process_of_ray_ends(self, lvd_here, homes, tmp_path, monkeypatch, serve):
        monkeypatch.setattr(distributed, "SERVE", serve)
        outcome = lvd_here(
            "predict", homes.model, homes.new, "--engine", "ray", "--out", tmp_path / "out.csv"
        )
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("error: Ray ended while it was at work (status ")
        assert len(outcome.err.splitlines()) == 1
        assert list(tmp_path.iterdir()) == []

    def test_what_it_refuses_is_refused_here(self, lvd_here, homes, tmp_path, monkeypatch):
        error = "InputError('no ', Parameter('confidence_level'))"
        words = "import pickle, sys; from lvd._validation import InputError, Parameter"
        serve = f"{words}; pickle.load(sys.stdin.buffer); pickle.dump({error}, sys.stdout.buffer)"
        monkeypatch.setattr(distributed, "SERVE", serve)
        outcome = lvd_here(
            "predict", homes.model, homes.new, "--engine", "ray", "--out", tmp_path / "out.csv"
        )
        assert outcome == (2, "", "error: no --level\n")

    def test_it_ends_when_nobody_wants_more(self, monkeypatch):
        words = (
            "import os, pickle, sys, time; pickle.dump(os.getpid(), sys.stdout.buffer); sys.stdout.flush();"
        )
        monkeypatch.setattr(distributed, "SERVE", f"{words} time.sleep(600)")
        answers = distributed._predict_apart()
        pid = next(answers)
        assert Path(f"/proc/{pid}").exists()
        answers.close()
        assert not Path(f"/proc/{pid}").exists()

    def test_it_ends_with_the_process_that_asked(self):
        command = [sys.executable, "-c", distributed.SERVE]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            pickle.dump((time.sleep, 600), process.stdin)
            process.stdin.close()
            assert process.wait(120) == 1

    def test_an_actor_or_a_worker_dies(self):
        import ray.exceptions

        for error in (ray.exceptions.ActorDiedError(), ray.exceptions.WorkerCrashedError()):
            refused = pytest.raises(InputError, match=r"Ray lost a worker or a service \(\w+\), perhaps")
            with refused, distributed.own_errors(ray):
                raise error

    def test_a_service_dies_while_ray_starts(self, monkeypatch):
        import ray

        def fail(*_, **__):
            raise Exception("Failed to start GCS.\n\n.Please check it")

        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setattr(ray, "init", fail)
        refused = pytest.raises(
            InputError, match=r"on this machine \(Failed to start GCS. .Please check it\), "
        )
        with refused, distributed.cluster():
            pass

    @pytest.mark.slow  # without its control service Ray tries for a minute
    @pytest.mark.parametrize("service", ["raylet/raylet", "gcs/gcs_server"])
    @pytest.mark.parametrize("at_work", [True, False])
    def test_a_service_is_killed(self, lvd_start, homes, tmp_path, service, at_work):
        table = pa.concat_tables([pa_csv.read_csv(homes.new)] * 300)
        pq.write_table(table, tmp_path / "big.parquet", row_group_size=1000)
        with ray_cluster.settings():
            words = ("predict", homes.model, tmp_path / "big.parquet", "--engine", "ray")
            process = lvd_start(*words, "--out", tmp_path / "out.csv")
            ray_cluster.wait_for(process, "ray::MapWorker" if at_work else service)
            for victim in ray_cluster.descendants(process.pid, service):
                os.kill(victim, signal.SIGKILL)
            out, err = process.communicate(timeout=240)
        assert (process.returncode, out) == (2, b""), err
        assert err.startswith(b"error: Ray ")
        assert len(err.splitlines()) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["big.parquet"]
