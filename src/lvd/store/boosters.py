"""Boosted trees of other libraries: parameters in JSON, trees in the library's own format, which holds no code.

As with scikit-learn's trees in :mod:`lvd.store.estimators`, a forged file cannot run code, but may crash the
library that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from lvd._validation import InputError, MissingExtraError


class Library(NamedTuple):
    """A library's regressors, its file extension, and how to write trees and put them back into a regressor."""

    kinds: tuple[str, ...]
    ending: str
    install: str
    is_fitted: Callable[[Any], bool]
    dump: Callable[[Any], bytes]
    load: Callable[[Any, bytes], None]


def booster_library(estimator: Any) -> str | None:
    """The library of a regressor that can be saved; subclasses cannot."""
    library = type(estimator).__module__.split(".")[0]
    return library if library in LIBRARIES and type(estimator).__name__ in LIBRARIES[library].kinds else None


def dump_booster(estimator: Any, library: str) -> bytes | None:
    """The trees as bytes; None if the regressor is not fitted."""
    how = LIBRARIES[library]
    return how.dump(estimator) if how.is_fitted(estimator) else None


def load_booster(library: str, kind: str, parameters: Mapping[str, Any], data: bytes | None) -> Any:
    """A regressor of this class, fitted if trees are given."""
    how = LIBRARIES[library]
    if kind not in how.kinds:
        raise InputError(f"{library} has no regressor {kind!r} that lvd saves")
    try:
        module = import_module(library)
    except ModuleNotFoundError:
        raise MissingExtraError(f"{library} is not installed; run: {how.install}") from None
    if odd := [name for name in parameters if not name.isidentifier() or name.startswith("_")]:
        raise InputError(f"{odd[0]!r} cannot be a parameter of {kind}")
    if kind == "Booster":
        return module.Booster(model_str=(data or b"").decode())
    estimator = getattr(module, kind)(**parameters)
    if data is not None:
        how.load(estimator, data)
    return estimator


def _dump_lightgbm(estimator: Any) -> bytes:
    booster = getattr(estimator, "booster_", estimator)
    return str(booster.model_to_string()).encode()


def _load_lightgbm(estimator: Any, data: bytes) -> None:
    booster = import_module("lightgbm").Booster(model_str=data.decode())
    names = booster.feature_name()
    vars(estimator).update(
        _Booster=booster,
        fitted_=True,
        _n_features=booster.num_feature(),
        _n_features_in=booster.num_feature(),
        _objective=estimator.objective or "regression",
        _fitted_with_feature_names=names != [f"Column_{number}" for number in range(len(names))],
    )


def _load_xgboost(estimator: Any, data: bytes) -> None:
    parameters = estimator.get_params()
    estimator.load_model(bytearray(data))
    vars(estimator).update({name: value for name, value in parameters.items() if name in vars(estimator)})


def _dump_catboost(estimator: Any) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.cbm"
        estimator.save_model(str(path), format="cbm")
        return path.read_bytes()


def _load_catboost(estimator: Any, data: bytes) -> None:
    parameters = dict(estimator._init_params)
    estimator.load_model(blob=data)
    estimator._init_params = parameters


LIBRARIES = {
    "lightgbm": Library(
        ("LGBMRegressor", "Booster"),
        "txt",
        "pip install lightgbm",
        lambda estimator: bool(getattr(estimator, "fitted_", hasattr(estimator, "model_to_string"))),
        _dump_lightgbm,
        _load_lightgbm,
    ),
    "xgboost": Library(
        ("XGBRegressor", "XGBRFRegressor"),
        "ubj",
        'pip install "lvd[boosting]"',
        lambda estimator: bool(estimator.__sklearn_is_fitted__()),
        lambda estimator: bytes(estimator.get_booster().save_raw("ubj")),
        _load_xgboost,
    ),
    "catboost": Library(
        ("CatBoostRegressor",),
        "cbm",
        'pip install "lvd[boosting]"',
        lambda estimator: bool(estimator.is_fitted()),
        _dump_catboost,
        _load_catboost,
    ),
}
"""By the name of the package."""
