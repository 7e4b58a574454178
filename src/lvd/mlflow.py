"""Models in MLflow (extra mlflow): logged, saved and loaded without pickle, and scored like any pyfunc.

The pyfunc takes a frame, or the JSON that MLflow's server reads, and returns a frame with ``y_pred``,
``lower_90`` and ``upper_90`` for each level, and ``known``. The parameters ``confidence_level``, a list, and
``guarantee`` override the model's own.

Examples
--------
>>> import mlflow, lvd, lvd.mlflow, pandas, numpy as np, tempfile
>>> frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(300, 2)), columns=["x", "z"])
>>> reg = lvd.LVDRegressor("trees", random_state=0).fit(frame, frame["x"] + frame["z"])
>>> with tempfile.TemporaryDirectory() as folder:
...     lvd.mlflow.save_model(reg, f"{folder}/saved")
...     scored = mlflow.pyfunc.load_model(f"{folder}/saved").predict(frame[:5])
>>> list(scored.columns)
['y_pred', 'lower_90', 'upper_90', 'n_effective', 'known']
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lvd._validation import InputError, MissingExtraError
from lvd._version import __version__
from lvd.methods.base import IntervalRegressor
from lvd.serve.refusals import RefusedError
from lvd.serve.served import Served, ServedTable, load_served
from lvd.tables.column_values import as_columns
from lvd.tables.loading import load

try:
    import mlflow
    import pandas as pd
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
    from mlflow.types.schema import AnyType
except ModuleNotFoundError as error:
    raise MissingExtraError(
        f"lvd.mlflow needs {error.name}, which is not installed; run: pip install 'lvd[mlflow]'"
    ) from None

__all__ = ["load_model", "log_model", "save_model"]

DATA, FLAVOR = "model", "lvd"
ENVIRONMENT = "python: {python}\nbuild_dependencies:\n- pip\ndependencies:\n- -r requirements.txt\n"


def log_model(
    lvd_model: Any, name: str = "model", *, registered_model_name: str | None = None, **choices: Any
) -> Any:
    """Log a model to the current run and, if named, to the registry; the result has its ``model_uri``.

    `lvd_model` is a fitted method, or the folder that ``lvd fit`` or `save` wrote. `choices` are those of
    ``mlflow.models.Model.log``, such as `metadata` and `tags`.
    """
    return Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[__name__],
        registered_model_name=registered_model_name,
        lvd_model=lvd_model,
        **choices,
    )


def save_model(lvd_model: Any, path: str | os.PathLike[str], *, mlflow_model: Any = None) -> None:
    """Write a folder that MLflow reads, with a signature that names the columns; nothing in it is pickled."""
    target = Path(path)
    if target.exists() and any(target.iterdir()):
        raise InputError(f"cannot save to {str(target)!r}: the folder is not empty; give a new folder")
    target.mkdir(parents=True, exist_ok=True)
    _copy_or_save(lvd_model, target / DATA)
    served = load_served(target / DATA)
    if served.keeps_rows:
        raise InputError(
            "intervals over time change with every row, but MLflow models are fixed; use lvd serve"
        )
    described = Model() if mlflow_model is None else mlflow_model
    described.signature = _signature(served)
    described.add_flavor(FLAVOR, data=DATA, lvd_version=__version__, version=served.version)
    mlflow.pyfunc.add_to_model(described, loader_module=__name__, data=DATA, python_env="python_env.yaml")
    (target / "requirements.txt").write_text(f"lvd[mlflow]=={__version__}\n")
    (target / "python_env.yaml").write_text(ENVIRONMENT.format(python=platform.python_version()))
    described.save(str(target / "MLmodel"))


def load_model(model_uri: str, *, trusted: Sequence[type[Any] | str] = (), **parts: Any) -> Any:
    """The method of a logged or saved model; the arguments are those of :func:`lvd.load`."""
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=os.fspath(model_uri)))
    if not (folder / DATA / "manifest.json").is_file():
        raise InputError(
            f"{model_uri} is not an lvd model; give one that lvd.mlflow.log_model or save_model wrote"
        )
    return load(folder / DATA, trusted=trusted, **parts)


class ScoredModel:
    """The object that MLflow calls."""

    def __init__(self, served: Served) -> None:
        self.served = served

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """A frame with a row for each row of the input."""
        given = params or {}
        levels, guarantee = given.get("confidence_level"), given.get("guarantee")
        try:
            columns = self.served.predict(self._as_table(model_input), levels, guarantee or None)
        except RefusedError as error:
            raise InputError(str(error)) from None
        index = getattr(model_input, "index", None)
        return pd.DataFrame(columns, index=None if callable(index) else index)

    def _as_table(self, model_input: Any) -> pa.Table:
        table = as_columns(model_input)
        if table is not None:
            return table
        names, matrix = self.served.needed, model_input
        if getattr(matrix, "ndim", 0) != 2 or matrix.shape[1] != len(names):
            raise InputError(f"an array must have the columns {', '.join(map(repr, names))}; give a frame")
        return pa.table({name: pa.array(column) for name, column in zip(names, matrix.T, strict=True)})


def _load_pyfunc(path: str) -> ScoredModel:
    """Called by MLflow to load the folder."""
    return ScoredModel(load_served(Path(path)))


def _copy_or_save(lvd_model: Any, folder: Path) -> None:
    """Copy a saved model, or save a fitted one."""
    if isinstance(lvd_model, str | os.PathLike):
        load_served(Path(lvd_model))
        shutil.copytree(lvd_model, folder)
    elif isinstance(lvd_model, IntervalRegressor):
        lvd_model.save(folder)
    else:
        raise InputError(
            f"lvd_model must be a fitted method of lvd or the folder of a saved one, got {type(lvd_model).__name__}"
        )


def _signature(served: Served) -> ModelSignature:
    """The named columns; those of numbers and dates accept any type, because MLflow refuses int64 for double."""
    kinds = {"boolean": DataType.boolean, "category": DataType.string}
    anything: Any = AnyType()  # type: ignore[no-untyped-call]
    inputs: list[Any] = [ColSpec(kinds.get(one.kind, anything), one.name) for one in served.columns]
    suffixes = [f"_{name}" for name in served.targets] if len(served.targets) > 1 else [""]
    ends = [f"{end}_{100 * level:.15g}" for level in served.levels for end in ("lower", "upper")]
    names = [f"{name}{suffix}" for suffix in suffixes for name in ("y_pred", *ends)]
    outputs: list[Any] = [ColSpec(DataType.double, name) for name in names] + [
        ColSpec(DataType.boolean, "known")
    ]
    params = [ParamSpec("confidence_level", DataType.double, served.levels, (-1,))]
    if isinstance(served, ServedTable):
        params.append(ParamSpec("guarantee", DataType.string, served.model.guarantee))
    return ModelSignature(Schema(inputs), Schema(outputs), ParamSchema(params))
