"""The server as a process, and under load: what has been answered stays, and a new model costs no request."""

from __future__ import annotations

import contextlib
import csv
import http.client
import io
import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import lvd
from lvd.serve.served import version_of
from lvd.tables.online_table import OnlineTable
from serving import ROW, listening, served

ROOT = Path(__file__).resolve().parents[2]
UNKNOWN = ROW | {"area": 5000}


def needing(program):
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"needs {program}, from the system's packages")
    return found


def run(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=60)


class Client:
    """One connection."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)

    def post(self, path, content):
        self.connection.request("POST", path, json.dumps(content), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())


def column(text, name):
    return [float(row[name]) for row in csv.DictReader(io.StringIO(text))]


def test_a_fitted_model_is_exported_served_and_asked_by_curl_and_node(homes, lvd_here, tmp_path):
    curl, node = needing("curl"), needing("node")
    outcome = lvd_here("export", homes.model, tmp_path / "homes.onnx", "--level", 0.5)
    assert outcome.code == 0, outcome.err
    reader = ROOT / "examples" / "onnx" / "read_coded_columns.py"
    of_graph = run(sys.executable, reader, tmp_path / "homes.onnx", homes.new)
    assert of_graph.returncode == 0, of_graph.stderr
    with served(homes.model) as (process, address):
        asked = run(
            *(curl, "-sS", "-H", "Content-Type: text/csv", "-H", "Accept: text/csv"),
            *("--data-binary", f"@{homes.new}", f"{address}predict?level=0.5"),
        )
        assert asked.stdout.splitlines()[0].endswith("y_pred,lower_50,upper_50,n_effective,known")
        for end in ("y_pred", "lower_50", "upper_50"):
            assert column(asked.stdout, end) == pytest.approx(column(of_graph.stdout, end), abs=1e-4)
        program = ROOT / "examples" / "ask_server.mjs"
        known, unknown = run(node, program, address, json.dumps([ROW, UNKNOWN])).stdout.splitlines()
        assert " to " in known
        assert unknown.endswith("from -Infinity to Infinity, like no row seen in training")
        refused = run(node, program, address, json.dumps({"aera": 3}))
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "the table has no column" in refused.stderr
        process.terminate()
        assert process.wait(60) == 128 + 15
    assert len(program.read_text().splitlines()) <= 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing",), "error: no saved model at 'nothing'"),
        ((".", "--host", "no.such.host.invalid"), "error: cannot listen on no.such.host.invalid:8000"),
    ],
)
def test_a_server_that_cannot_start_says_why(lvd_here, words, message):
    outcome = lvd_here("serve", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def observe_on_and_on(address, name, answered):
    """Predict a row and give its label, again and again; notes what has been answered, until the server is gone."""
    with contextlib.suppress(OSError, http.client.HTTPException), Client(address) as client:
        for number in range(100_000):
            key = f"{name}-{number}"
            status, content = client.post("/predict", ROW | {"id": key})
            assert status == 200, content
            answered["predicted"][key] = content["rows"][0]
            if number % 2:
                status, content = client.post("/observe", {"id": key, "price": 230.0})
                assert (status, content["n_taken"]) == (200, 1), content
                answered["observed"].append(key)


def test_long_tables_explanations_and_single_rows_at_once(homes):
    """They are computed on two threads, and each gets what it gets alone."""
    rows = [ROW | {"area": 40.0 + number / 10} for number in range(900)]
    wrong = []

    def upper(answers):
        return [float(one["upper_90"]) for one in answers]

    def ask_one_by_one(first):
        with Client(address) as client:
            for row in range(first, 900, 100):
                single = upper(client.post("/predict", rows[row])[1]["rows"])
                wrong.append(single != pytest.approx(alone[row : row + 1], abs=1e-3))
                (told,) = client.post("/explain", rows[row])[1]["rows"][0]
                wrong.append(float(told["upper"]) != pytest.approx(alone[row], abs=1e-3))

    def ask_for_all():
        with Client(address) as client:
            for _ in range(3):
                wrong.append(
                    upper(client.post("/predict", rows)[1]["rows"]) != pytest.approx(alone, abs=1e-3)
                )

    with listening(homes.model) as address, Client(address) as client:
        alone = upper(client.post("/predict", rows)[1]["rows"])
        threads = [threading.Thread(target=ask_one_by_one, args=(first,)) for first in range(4)]
        threads.append(threading.Thread(target=ask_for_all))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert len(wrong) == 4 * 9 * 2 + 3
    assert not any(wrong)


@pytest.mark.slow
def test_a_server_that_is_killed_has_lost_nothing_that_it_answered(homes, lvd_here, tmp_path):
    state = tmp_path / "state"
    assert lvd_here("online", "init", homes.model, "--key", "id", "--out", state).code == 0
    answered = {"predicted": {}, "observed": []}
    with served(state) as (process, address):
        threads = [
            threading.Thread(target=observe_on_and_on, args=(address, name, answered)) for name in "abcd"
        ]
        for thread in threads:
            thread.start()
        while len(answered["observed"]) < 8:
            time.sleep(0.01)
        process.kill()
        for thread in threads:
            thread.join(60)
    online = OnlineTable.load(state).online
    assert set(answered["observed"]) <= set(online.done_)
    assert set(answered["predicted"]) <= set(online.waiting_) | set(online.done_)
    waits = next(key for key in answered["predicted"] if key in online.waiting_)
    with served(state) as (_, address), Client(address) as client:
        again = client.post("/predict", ROW | {"id": waits})[1]["rows"][0]
        assert again["upper_90"] == answered["predicted"][waits]["upper_90"]
        label = {"id": answered["observed"][0], "price": 230.0}
        assert client.post("/observe", label)[1] | {"model": ""} == {
            **{"model": "", "n_rows": 1, "n_taken": 0, "n_ignored": 1, "n_unlabelled": 0}
        }


def test_a_new_model_under_load_costs_no_request(homes, tmp_path):
    """Each answer is that of the model that it names."""
    folder, others = tmp_path / "model", [tmp_path / "one", tmp_path / "other"]
    lvd.load(homes.model).save(others[0])
    lvd.load(homes.model).forget(70).save(others[1])
    models = {version_of(other): lvd.load(other) for other in others}
    expected = {name: float(one.predict_interval([ROW])[1][0, 1, 0]) for name, one in models.items()}
    shutil.copytree(others[0], folder)
    found, stop = [], threading.Event()

    def ask_on_and_on():
        with Client(address) as client:
            while not stop.is_set():
                found.append(client.post("/predict", ROW))

    with listening(folder, reload_seconds=0.01) as address:
        threads = [threading.Thread(target=ask_on_and_on) for _ in range(4)]
        for thread in threads:
            thread.start()
        for turn in range(4):
            n_before = len(found)
            models[list(models)[(turn + 1) % 2]].save(folder)
            while len(found) < n_before + 30:
                time.sleep(0.005)
        stop.set()
        for thread in threads:
            thread.join(60)
    assert {status for status, _ in found} == {200}
    seen = [(content["model"], float(content["rows"][0]["upper_90"])) for _, content in found]
    assert {name for name, _ in seen} == set(models)
    assert all(upper == pytest.approx(expected[name], rel=1e-9) for name, upper in seen)
