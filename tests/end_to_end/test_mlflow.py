"""Models in MLflow: a local tracking store, the registry, pyfuncs, and MLflow's own server in this process."""

from __future__ import annotations

import io
import json
import pickletools

import numpy as np
import pytest

pytest.importorskip("mlflow", reason="needs the extra mlflow")

import mlflow
import pandas as pd

import lvd
import lvd.mlflow
from lvd.tables.reading import read_table
from lvd.tables.table_model import TableModel
from serving import ROW, TestClient

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own


@pytest.fixture(scope="module", params=["file", pytest.param("sqlite", marks=pytest.mark.slow)])
def store(request, tmp_path_factory):
    """A tracking store and a registry on this machine; it takes MLflow seconds to make the tables of one in SQL."""
    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder / 'store.db'}" if request.param == "sqlite" else (folder / "store").as_uri()
    before = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        mlflow.set_tracking_uri(uri)
        mlflow.set_registry_uri(uri)
        mlflow.create_experiment("homes", artifact_location=(folder / "artifacts").as_uri())
        mlflow.set_experiment("homes")
        yield folder
    mlflow.set_tracking_uri(before[0])
    mlflow.set_registry_uri(before[1])


@pytest.fixture(scope="module")
def logged(store, homes):
    with mlflow.start_run():
        return lvd.mlflow.log_model(homes.model, "homes", registered_model_name="homes")


@pytest.fixture(scope="module")
def frame(homes):
    return pd.read_csv(homes.new)


def test_what_is_logged_scores_as_the_table_model_does(logged, homes, frame):
    scored = mlflow.pyfunc.load_model(logged.model_uri)
    expected = TableModel.load(homes.model).predict(read_table(homes.new, as_text=True))
    found = scored.predict(frame.set_index("id", drop=False))
    assert list(found.index[:2]) == ["home-0", "home-1"]
    for name, values in expected.items():
        np.testing.assert_allclose(found[name].astype(float), values.astype(float), rtol=1e-9)
    other = scored.predict(frame, params={"confidence_level": [0.5, 0.8], "guarantee": "calibrated"})
    assert list(other.columns) == [
        "y_pred",
        "lower_50",
        "upper_50",
        "lower_80",
        "upper_80",
        "n_effective",
        "known",
    ]


def test_the_registry_gives_it_back(logged, homes, frame):
    reg = lvd.mlflow.load_model("models:/homes/1")
    assert isinstance(reg, lvd.LVDRegressor)
    ours = lvd.load(homes.model)
    rows = frame[list(ROW)]
    np.testing.assert_array_equal(reg.predict_interval(rows)[1], ours.predict_interval(rows)[1])


def test_the_signature_names_the_columns(logged):
    signature = mlflow.models.get_model_info(logged.model_uri).signature
    assert signature.inputs.input_names() == list(ROW)
    assert signature.outputs.input_names() == ["y_pred", "lower_90", "upper_90", "known"]
    assert [one.name for one in signature.params] == ["confidence_level", "guarantee"]
    with pytest.raises(mlflow.MlflowException, match="missing inputs"):
        mlflow.pyfunc.load_model(logged.model_uri).predict(pd.DataFrame([{"area": 85.5}]))


def test_nothing_is_pickled(logged, store):
    files = [path for path in (store / "artifacts").rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"MLmodel", "manifest.json", "tensors.safetensors"}
    for path in files:
        with pytest.raises(ValueError):  # noqa: PT011  (whatever is wrong with it)
            pickletools.dis(path.read_bytes(), out=io.StringIO())


def test_mlflows_own_server(logged):
    from mlflow.pyfunc import scoring_server

    with TestClient(scoring_server.init(mlflow.pyfunc.load_model(logged.model_uri))) as client:
        assert client.get("/ping").status_code == 200
        asked = {"dataframe_records": [ROW], "params": {"confidence_level": [0.5]}}
        (found,) = json.loads(client.post("/invocations", json=asked).text)["predictions"]
    assert found["lower_50"] < found["y_pred"] < found["upper_50"]


def test_a_fitted_method_is_saved(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 2))
    reg = lvd.SplitConformalRegressor("trees", random_state=0).fit(X, X[:, 0])
    lvd.mlflow.save_model(reg, tmp_path / "saved")
    found = mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict(
        pd.DataFrame(X[:5], columns=["x1", "x2"])
    )
    np.testing.assert_allclose(found["upper_90"], reg.predict_interval(X[:5])[1][:, 1, 0])
    again = lvd.mlflow.load_model(str(tmp_path / "saved"))
    np.testing.assert_array_equal(again.predict(X[:5]), reg.predict(X[:5]))


def test_refusals(homes, lvd_here, tmp_path):
    with pytest.raises(lvd.InputError, match="must be a fitted method of lvd or the folder"):
        lvd.mlflow.save_model(3, tmp_path / "saved")
    state = tmp_path / "state"
    lvd_here("online", "init", homes.model, "--key", "id", "--out", state)
    with pytest.raises(lvd.InputError, match="change with every row"):
        lvd.mlflow.save_model(state, tmp_path / "saved")
    (tmp_path / "other").mkdir()
    with pytest.raises(lvd.InputError, match="is not an lvd model"):
        lvd.mlflow.load_model(str(tmp_path / "other"))
    with pytest.raises(lvd.InputError, match="the folder is not empty"):
        lvd.mlflow.save_model(homes.model, homes.model)
