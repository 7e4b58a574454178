"""A model behind HTTP: what is answered, what is refused and how, and what stays when things go wrong."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("fastapi", reason="lvd serve needs fastapi")
pytest.importorskip("httpx", reason="fastapi's client needs httpx")

import lvd
from lvd.serve import RequestLimits, create_app
from lvd.serve.answers import answer_all
from lvd.serve.bodies import Asked
from lvd.serve.served import ServedTable, load_served
from lvd.tables.forecasting import ForecastPlan
from lvd.tables.reading import read_table
from lvd.tables.table_model import TableModel
from serving import HEADER, ROW, client_of, malformed

CSV = {"Content-Type": "text/csv"}


@pytest.fixture(scope="module")
def client(homes):
    with client_of(homes.model, limits=RequestLimits(max_bytes=20_000, max_rows=150)) as one:
        yield one


@pytest.fixture(scope="module")
def expected(homes):
    """What the library says about the new homes."""
    return TableModel.load(homes.model).predict(read_table(homes.new, as_text=True), [0.5, 0.9])


def as_json(homes):
    with homes.new.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {
            "area": float(row["area"]),
            "rooms": int(row["rooms"]),
            "district": row["district"],
            "garden": row["garden"] == "true",
        }
        for row in rows
    ]


def check_same(rows, expected):
    for name, values in expected.items():
        np.testing.assert_allclose(np.array([row[name] for row in rows], np.float64), values, rtol=1e-9)


class TestPredict:
    def test_json_and_csv_get_what_the_library_says(self, client, homes, expected):
        options = {"level": [0.5, 0.9]}
        found = client.post("/predict", json=as_json(homes), params=options)
        assert found.status_code == 200
        check_same(found.json()["rows"], expected)
        text = homes.new.read_bytes()
        check_same(
            client.post("/predict", content=text, headers=CSV, params=options).json()["rows"], expected
        )
        table = client.post(
            "/predict", content=text, headers=CSV | {"Accept": "text/csv"}, params=options
        ).text
        first = next(csv.DictReader(io.StringIO(table)))
        assert first["id"] == "home-0"
        assert float(first["upper_90"]) == pytest.approx(expected["upper_90"][0])

    def test_infinite_ends_are_texts(self, client):
        found = client.post("/predict", json=ROW | {"area": 5000})
        (row,) = found.json()["rows"]
        assert (row["lower_90"], row["upper_90"], row["known"]) == ("-Infinity", "Infinity", False)

    def test_another_guarantee(self, client):
        local, calibrated = (
            client.post("/predict", json=ROW, params={"guarantee": name}).json()["rows"][0]
            for name in ("local", "calibrated")
        )
        assert local["y_pred"] == calibrated["y_pred"]
        assert local["upper_90"] != calibrated["upper_90"]

    def test_cross_calibration_offers_the_local_guarantee_alone(self, tmp_path):
        X = np.random.default_rng(0).normal(size=(80, 1))
        lvd.LVDRegressor("trees", random_state=0).fit(X, X[:, 0]).save(tmp_path / "model")
        with client_of(tmp_path / "model") as client:
            parameters = client.get("/openapi.json").json()["paths"]["/predict"]["post"]["parameters"]
            (offered,) = (one["schema"]["enum"] for one in parameters if one["name"] == "guarantee")
            refused = client.post("/predict", json={"x1": 1.0}, params={"guarantee": "calibrated"})
        assert offered == ["local"]
        assert refused.status_code == 422
        assert "or fit again with" in refused.text

    def test_those_who_ask_at_once_get_their_own_answers(self, homes, expected):
        """Rows are answered together; a broken one and one of other options do not touch the others."""
        served = load_served(homes.model)
        rows = as_json(homes)[:20]
        asked = [Asked("/predict", json.dumps(row).encode(), levels=(0.5, 0.9)) for row in rows]
        asked[3] = asked[3]._replace(body=json.dumps(rows[3] | {"area": "x"}).encode())
        asked[5] = asked[5]._replace(levels=(0.8,))
        asked[7] = asked[7]._replace(body=json.dumps(rows[7] | {"rooms": 10**30}).encode())
        outcomes = answer_all(served, asked, 10)
        assert [one.status for one in (outcomes[3], outcomes[7])] == [422, 422]
        assert "lower_80" in json.loads(outcomes[5].body)["rows"][0]
        for number in set(range(20)) - {3, 5, 7}:
            (row,) = json.loads(outcomes[number].body)["rows"]
            check_same([row], {name: values[[number]] for name, values in expected.items()})


class TestRefusals:
    def test_malformed_requests_get_4xx_and_one_line_each(self, client):
        for seed in range(200):
            body, content_type, query = malformed(seed)
            found = client.post(
                f"/predict?{query}",
                content=body,
                headers={"Content-Type": content_type} if content_type else {},
            )
            assert 400 <= found.status_code < 500, (seed, body[:200], query, found.text)
            assert found.text.count("\n") == 1, seed
            assert set(found.json()) == {"error", "where", "what_to_do"}, seed
            assert all(found.json().values()), seed

    def test_the_words_are_those_of_the_command_line(self, client, lvd_here, homes, tmp_path):
        (tmp_path / "bad.csv").write_text(f"{HEADER}\n85.5,3,north,true\nlarge,3,north,true\n")
        told = lvd_here("predict", homes.model, tmp_path / "bad.csv", "--out", tmp_path / "out.csv").err
        found = client.post("/predict", content=(tmp_path / "bad.csv").read_bytes(), headers=CSV).json()
        assert told == f"error: {found['error']}; {found['what_to_do']}\n"
        assert found["where"] == "column 'area', row 2"

    @pytest.mark.parametrize(
        ("rows", "error", "where"),
        [
            ([ROW, {"area": 1}], "the table has no column 'rooms', 'district', 'garden'", "row 2"),
            ([ROW | {"area": None}], "column 'area': 1 missing value (row 1)", "column 'area', row 1"),
            (
                [ROW | {"garden": "perhaps"}],
                "column 'garden': must be true or false",
                "column 'garden', row 1",
            ),
        ],
    )
    def test_where_it_is(self, client, rows, error, where):
        found = client.post("/predict", json=rows)
        assert found.status_code == 422
        assert found.json()["error"].startswith(error)
        assert found.json()["where"] == where

    def test_limits(self, client):
        assert client.post("/predict", json=[ROW] * 151).status_code == 413
        long = client.post("/predict", content=b" " * 20_001, headers={"Content-Type": "application/json"})
        assert (long.status_code, long.json()["error"]) == (413, "the body has more than 20,000 bytes")
        parts = client.post("/predict", content=iter([b" " * 15_000] * 2), headers=CSV)
        assert parts.status_code == 413

    def test_paths_and_methods(self, client):
        assert client.get("/nowhere").json()["where"] == "path"
        assert client.get("/predict").status_code == 405
        observed = client.post("/observe", json={"key": 1})
        assert observed.status_code == 409
        assert "lvd online init" in observed.json()["what_to_do"]

    def test_an_error_of_ours_tells_nothing_of_the_request(self, homes, monkeypatch):
        monkeypatch.setattr("lvd.serve.application.read_request", lambda *_: 1 / 0)
        with client_of(homes.model) as client:
            found = client.post("/predict", json=ROW | {"district": "a secret"})
        assert found.status_code == 500
        assert "ZeroDivisionError" in found.json()["error"]
        assert "secret" not in found.text

    def test_no_answer_in_time(self, homes, monkeypatch):
        free = threading.Event()
        work = "lvd.serve.application.answer_all"
        with client_of(homes.model, limits=RequestLimits(seconds=0.05, most_waiting=1)) as client:
            monkeypatch.setattr(work, lambda served, asked, _: [free.wait(20) for _ in asked])
            found = client.post("/predict", json=ROW)
            assert (found.status_code, found.json()["where"]) == (504, "server")
            assert [client.post("/predict", json=ROW).status_code for _ in range(2)] == [504, 503]
            free.set()


class TestToken:
    def test_without_it_only_health_is_told(self, homes):
        with client_of(homes.model, token="sésame") as client:
            for path in ("/model", "/metrics", "/openapi.json"):
                assert client.get(path).status_code == 401
            assert client.post("/predict", json=ROW).status_code == 401
            assert client.post("/predict", json=ROW, headers={"Authorization": "Bearer x"}).status_code == 401
            right = {"Authorization": "Bearer sésame".encode()}
            assert client.post("/predict", json=ROW, headers=right).status_code == 200
            assert "problem" not in client.get("/health").json()
            assert client.get("/health", headers=right).json()["problem"] is None

    def test_a_name_of_another_site_is_no_way_in(self, homes):
        with client_of(homes.model, hosts=("127.0.0.1", "localhost")) as client:
            assert client.post("/predict", json=ROW, headers={"Host": "evil.example"}).status_code == 421
            assert client.post("/predict", json=ROW, headers={"Host": "localhost:8000"}).status_code == 200


class TestExplain:
    def test_as_on_the_command_line(self, client, homes, lvd_here):
        told = json.loads(lvd_here("explain", homes.model, homes.new, "--row", 2, "--json").out)
        found = client.post("/explain", json=as_json(homes)[1]).json()["rows"][0]
        assert found[0]["sentence"] == told[0]["sentence"]
        assert len(found[0]["evidence"]["neighbors"]) == 10
        quantiles = found[0]["distribution"]
        assert len(quantiles) == 99
        assert float(quantiles[4]) <= float(quantiles[49]) <= float(quantiles[94])

    def test_options(self, client):
        found = client.post("/explain", json=ROW, params={"level": 0.5, "neighbors": 2}).json()["rows"][0][0]
        assert found["evidence"]["confidence_level"] == 0.5
        assert len(found["evidence"]["neighbors"]) == 2
        assert client.post("/explain", json=ROW, params={"level": [0.5, 0.9]}).status_code == 422
        assert client.post("/explain", json=[ROW] * 21).status_code == 413

    def test_cells_of_the_neighbours(self, homes, tmp_path):
        with client_of(homes.model, fitted_on=homes.table) as client:
            found = client.post("/explain", json=ROW).json()["rows"][0][0]["evidence"]["neighbors"]
        table = read_table(homes.table)
        for one in found:
            row = table.slice(one["index"] - 1, 1).to_pylist()[0]
            assert one["target"] == pytest.approx(row["price"])
            assert float(one["cells"]["area"]) == row["area"]
            assert list(one["cells"]) == list(ROW)
        with pytest.raises(lvd.InputError, match="must be the table that the model was fitted on"):
            create_app(homes.model, fitted_on=homes.new)


class TestAbout:
    def test_columns_with_usual_values(self, client):
        found = client.get("/model").json()
        assert found["targets"] == ["price"]
        columns = {column["name"]: column for column in found["columns"]}
        assert list(columns) == list(ROW)
        assert 90 < columns["area"]["usual"] < 140
        assert columns["area"]["low"] == pytest.approx(30, abs=2)
        assert columns["district"]["levels"] == ["north", "old, town", "south"]
        usual = {name: column["usual"] for name, column in columns.items()}
        assert client.post("/predict", json=usual).json()["rows"][0]["known"]

    def test_openapi_names_the_columns(self, client):
        found = client.get("/openapi.json").json()
        row = found["components"]["schemas"]["Row"]
        kinds = {name: schema["type"][0] for name, schema in row["properties"].items()}
        assert kinds == {"area": "number", "rooms": "number", "district": "string", "garden": "boolean"}
        assert row["required"] == list(ROW)

    def test_metrics(self, homes):
        with client_of(homes.model) as client:
            client.post("/predict", json=[ROW, ROW, ROW | {"area": 5000}])
            client.post("/predict", content=b"[", headers={"Content-Type": "application/json"})
            text = client.get("/metrics").text
            model = client.get("/health").json()["model"]
        for line in (
            'lvd_requests_total{path="/predict",status="200"} 1.0',
            'lvd_requests_total{path="/predict",status="400"} 1.0',
            'lvd_rows_total{path="/predict"} 3.0',
            "lvd_unknown_rows_total 1.0",
            f'lvd_model_info{{version="{model}"}} 1.0',
            'lvd_request_seconds_count{path="/predict"} 2.0',
        ):
            assert line in text
        assert float(text.split("\nlvd_unknown_share ")[1].split()[0]) == pytest.approx(1 / 3)

    def test_requests_are_logged_only_when_asked(self, homes):
        lines = []
        with client_of(homes.model, log=lines.append) as client:
            client.post("/predict", json=ROW | {"district": "a secret"})
        assert lines[0].startswith("/predict 200, 1 rows, ")
        assert "secret" not in lines[0]


class TestModelsOfPython:
    def test_fitted_on_a_frame(self, tmp_path):
        pd = pytest.importorskip("pandas", reason="a frame is pandas'")
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(
            {"x": rng.normal(size=300), "kind": rng.choice(["a", "b"], 300), "on": rng.random(300) < 0.5}
        )
        frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 300), unit="D")
        y = pd.Series(frame["x"] + (frame["kind"] == "a"), name="load")
        reg = lvd.LVDRegressor("trees", random_state=0).fit(frame, y)
        reg.save(tmp_path / "model")
        with client_of(tmp_path / "model") as client:
            assert client.get("/model").json()["targets"] == ["load"]
            row = {"x": 0.5, "kind": "a", "on": True, "day": "2024-05-05"}
            (found,) = client.post("/predict", json=row).json()["rows"]
            usual = {one["name"]: one["usual"] for one in client.get("/model").json()["columns"]}
            assert set(usual) == set(row)
            sentence = client.post("/explain", json=row).json()["rows"][0][0]["sentence"]
        frame = pd.DataFrame([row]).astype(frame.dtypes.to_dict())
        y_pred, intervals = reg.predict_interval(frame)
        np.testing.assert_allclose(
            [found["y_pred"], found["lower_90"], found["upper_90"]], [*y_pred, *intervals[0, :, 0]], rtol=1e-9
        )
        assert sentence == reg.explain(frame)[0].sentence

    def test_fitted_on_an_array(self, tmp_path):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(300, 2))
        y = np.column_stack([X[:, 0], X[:, 1]])
        reg = lvd.LVDRegressor("trees", random_state=0).fit(X, y)
        reg.save(tmp_path / "model")
        with client_of(tmp_path / "model") as client:
            (found,) = client.post("/predict", json={"x1": 0.5, "x2": -0.5}).json()["rows"]
            usual = [one["usual"] for one in client.get("/model").json()["columns"]]
        y_pred, intervals = reg.predict_interval([[0.5, -0.5]])
        assert [found["y_pred_y1"], found["y_pred_y2"]] == pytest.approx(y_pred[0].tolist())
        assert found["upper_90_y2"] == pytest.approx(intervals[0, 1, 0, 1])
        assert usual == pytest.approx(np.median(X[:200], axis=0).tolist(), abs=0.3)

    def test_of_another_method(self, tmp_path):
        X = np.random.default_rng(0).normal(size=(300, 2))
        reg = lvd.SplitConformalRegressor("trees", random_state=0).fit(X, X[:, 0])
        reg.save(tmp_path / "model")
        with client_of(tmp_path / "model") as client:
            (found,) = client.post("/predict", json={"x1": 0.5, "x2": -0.5}).json()["rows"]
            explained = client.post("/explain", json={"x1": 0.5, "x2": -0.5})
        assert found["known"] is None
        assert found["lower_90"] == pytest.approx(reg.predict_interval([[0.5, -0.5]])[1][0, 0, 0])
        assert (explained.status_code, explained.json()["error"][:25]) == (409, "a SplitConformalRegressor")

    def test_of_no_method(self, tmp_path):
        X = np.random.default_rng(0).normal(size=(300, 2))
        lvd.OnlineIntervals(lvd.LVDRegressor("trees", random_state=0).fit(X, X[:, 0])).save(
            tmp_path / "model"
        )
        with pytest.raises(lvd.InputError, match="a OnlineIntervals cannot be served"):
            load_served(tmp_path / "model")

    def test_of_forecasts(self, homes):
        days = pa.table({"day": ["2024-03-01", "2024-03-02", "2024-03-03"], "sold": [1.0, 2.0, 4.0]})
        plan = ForecastPlan.of(days, time="day", target="sold", lags=[1], horizons=[1])
        model = replace(TableModel.load(homes.model), forecast=plan)
        with pytest.raises(lvd.InputError, match="forecasts a series, and requests hold single rows"):
            ServedTable(homes.model, model)


class TestOnline:
    @pytest.fixture
    def state(self, homes, lvd_here, tmp_path):
        outcome = lvd_here("online", "init", homes.model, "--key", "id", "--out", tmp_path / "state")
        assert outcome.code == 0, outcome.err
        return tmp_path / "state"

    def test_a_label_counts_once_and_is_on_disk(self, state, lvd_here):
        with client_of(state) as client:
            rows = [ROW | {"id": f"home-{number}"} for number in range(3)]
            first = client.post("/predict", json=rows).json()["rows"]
            assert client.post("/predict", json=rows[:1]).json()["rows"] == first[:1]
            label = {"id": "home-1", "price": 230.0}
            counts = [client.post("/observe", json=label).json() for _ in range(2)]
            assert [(one["n_taken"], one["n_ignored"]) for one in counts] == [(1, 0), (0, 1)]
            status = json.loads(lvd_here("online", "status", state, "--json").out)["price"]
            assert (status["n_predicted"], status["n_observed"], status["n_waiting"]) == (3, 1, 2)
            assert "1 labelled rows" in client.get("/health").json()["online"]["price"]["sentence"]

    def test_rows_with_dates(self, homes, lvd_here, tmp_path):
        options = ("--key", "id", "--time", "day", "--half-life", "30d", "--out", tmp_path / "state")
        assert lvd_here("online", "init", homes.model, *options).code == 0
        with client_of(tmp_path / "state") as client:
            names = [column["name"] for column in client.get("/model").json()["columns"]]
            assert names == [*ROW, "day", "id"]
            row = ROW | {"id": "a"}
            assert (
                client.post("/predict", json=row).json()["error"].startswith("the table has no column 'day'")
            )
            assert client.post("/predict", json=row | {"day": "2024-03-31"}).status_code == 200
            assert client.post("/observe", json={"id": "a", "price": 230.0}).json()["n_taken"] == 1

    def test_what_others_change_is_seen(self, state, lvd_here, tmp_path):
        (tmp_path / "rows.csv").write_text(f"id,{HEADER}\nhome-7,85.5,3,north,true\n")
        with client_of(state) as client:
            client.post("/predict", json=ROW | {"id": "home-1"})
            out = tmp_path / "out.csv"
            assert lvd_here("online", "predict", state, tmp_path / "rows.csv", "--out", out).code == 0
            labels = [{"id": "home-7", "price": 230.0}, {"id": "home-1", "price": 231.0}]
            assert client.post("/observe", json=labels).json()["n_taken"] == 2

    def test_a_refused_request_changes_nothing(self, state):
        served = load_served(state)
        rows = [ROW | {"id": "a"}, ROW | {"id": "b", "area": "x"}, ROW | {"id": "c"}]
        outcomes = answer_all(served, [Asked("/predict", json.dumps(row).encode()) for row in rows], 10)
        assert [getattr(one, "status", 200) for one in outcomes] == [200, 422, 200]
        assert set(served.table.online.waiting_) == {"a", "c"}
        assert load_served(state).table.online.time_ == 2

    def test_what_it_does_not_do(self, state):
        with client_of(state) as client:
            row = ROW | {"id": "a"}
            assert client.post("/explain", json=row).status_code == 409
            level = client.post("/predict", json=row, params={"level": 0.5})
            assert (level.status_code, level.json()["where"]) == (422, "option level")
            assert (
                client.post("/observe", json={"id": "a"})
                .json()["error"]
                .startswith("the table has no column")
            )


def test_a_missing_extra_is_named(lvd_here, monkeypatch):
    monkeypatch.setitem(sys.modules, "lvd.serve.application", None)
    outcome = lvd_here("serve", "model")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.endswith("is not installed; run: pip install 'lvd[serve]'\n")


class TestReload:
    def test_a_new_model_is_taken_and_a_broken_one_is_not(self, homes, tmp_path):
        folder = tmp_path / "model"
        shutil.copytree(homes.model, folder)
        with client_of(folder, reload_seconds=0.01) as client:
            first = client.get("/health").json()
            (folder / "tensors.safetensors").write_bytes(b"broken")
            broken = wait_for(client, lambda health: health["problem"])
            assert broken["model"] == first["model"]
            assert broken["status"] == "old model in force"
            assert "tensors.safetensors" in broken["problem"]
            assert client.post("/predict", json=ROW).status_code == 200
            shutil.rmtree(folder)
            wait_for(client, lambda health: "no saved model" in (health["problem"] or ""))
            lvd.load(homes.model).forget(80).save(folder)
            fresh = wait_for(client, lambda health: health["problem"] is None)
            assert fresh["model"] != first["model"]
            assert client.post("/predict", json=ROW).headers["lvd-model"] == fresh["model"]


def wait_for(client, found, seconds=20.0):
    end = time.monotonic() + seconds
    while not found(health := client.get("/health").json()):
        assert time.monotonic() < end, health
        time.sleep(0.01)
    return health
