"""Saving and loading of fitted methods; nothing is pickled, and nothing that is loaded runs."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from lvd import store
from lvd._validation import InputError, check_levels
from lvd.conformal import GlobalConformal, LocalConformal
from lvd.conformal import storing as conformal_storing
from lvd.kernels.regression import KernelRegressor
from lvd.methods import ALL_METHODS, ConformalRegressor, IntervalRegressor, LVDRegressor
from lvd.methods.conformal import SCORES
from lvd.models import NetRegressor
from lvd.models.adapters import FunctionModel, SklearnModel
from lvd.models.losses import NormalLoss, PinballLoss, SquaredLoss
from lvd.models.model import Fitted
from lvd.models.probabilistic import ProbabilisticNet
from lvd.models.quantile_model import QuantileModel
from lvd.models.stack import NetStack
from lvd.scores import NormalizedResidual, QuantileResidual
from lvd.scores.error_model import ErrorModel

EXTENSIONS = ("lvd.molecules.storing",)
"""Parts of lvd whose models can be saved too; each names its classes in ``STORABLES``."""


def save(
    method: IntervalRegressor, folder: str | os.PathLike[str], *, columns: Any = None, replace: bool = True
) -> None:
    """Write a method to a folder that :func:`load` reads.

    `columns` describes, in types that JSON has, the columns of the table that the method was fitted on. Without
    `replace` a model that is there stays.
    """
    store.write_folder(folder, store.encode(method, classes(), columns=columns), replace=replace)


def load(folder: str | os.PathLike[str], estimator: Any = None, **parts: Any) -> Any:
    """What ``save(folder)`` wrote: the same method, with the same bits in every prediction.

    Functions and torch modules of your own are not in the folder, as they are code. Give them again as they
    were given to the constructor: ``lvd.load(folder, estimator=module)``, ``lvd.load(folder, embedding=function)``.
    The weights that were saved go into a copy of the module. A model saved on a GPU that this machine does not
    have gets ``device="auto"``, and a generator given as `random_state` comes back as None.

    Examples
    --------
    >>> import numpy as np, lvd, tempfile
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> reg = lvd.SplitConformalRegressor(random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     reg.save(folder)
    ...     loaded = lvd.load(folder)
    >>> bool((loaded.predict(X) == reg.predict(X)).all())
    True
    """
    given = {name: part for name, part in {"estimator": estimator, **parts}.items() if part is not None}
    contents = store.read_folder(folder)
    roots = (*ALL_METHODS, ConformalRegressor, LocalConformal)
    model = store.decode(contents, classes(), folder, roots=roots, given=given)
    if not given:
        vars(model)["loaded_from_"] = os.fspath(folder)
    return model


def load_columns(folder: str | os.PathLike[str]) -> Any:
    """The `columns` that a method was saved with."""
    return store.read_manifest(folder).get("columns")


def _check_method(method: Any) -> None:
    check_levels(method.confidence_level)
    method._check_bounds()
    method._check_parameters()
    lengths = {len(vars(method)[name]) for name in ("residuals_calib_", "units_calib_", "y_calib_") if name in vars(method)}
    if lengths - {vars(method).get("n_calib_")}:
        raise InputError("the calibration rows and their errors are not equally many")


def _upgrade(parameters: dict[str, Any], learned: dict[str, Any]) -> store.Saved:
    """What all methods of version 0.1 were: ``y_min`` and ``y_max`` have become ``y_range``."""
    if "y_min" in parameters:
        bounds = parameters.pop("y_min"), parameters.pop("y_max", None)
        parameters["y_range"] = None if bounds == (None, None) else bounds
    return parameters, learned


def _upgrade_lvd(parameters: dict[str, Any], learned: dict[str, Any]) -> store.Saved:
    """What an LVDRegressor of version 0.1 was: score, sides and second model have become one score."""
    parameters, learned = _upgrade(parameters, learned)
    if "sides" not in parameters:
        return parameters, learned
    sides, kind = parameters.pop("sides"), parameters.pop("score")
    name = {"each": "signed", "joint": "sided"}.get(sides, kind)
    error_model, errors = learned.pop("error_model_", None), learned.pop("train_errors_", None)
    if parameters.pop("predictor", "net") != "net" or (name != kind and error_model is not None):
        raise store.outdated("its predictor or score")
    score = SCORES[name]()
    if isinstance(score, NormalizedResidual):
        score = NormalizedResidual(parameters["error_estimator"])
        score.error_model_ = error_model
    if errors is not None:
        vars(score)["train_errors_"] = errors
    parameters["embedding"] = parameters.pop("embed", None) or parameters.pop("embedding_layer", None)
    for gone in ("error_estimator", "smoothness", "n_components", "max_infinite", "kernel_floor", "search", "embedding_layer"):
        parameters.pop(gone, None)
    if parameters.get("bandwidth") == "auto":
        parameters["bandwidth"] = learned["conformals_"][0].bandwidth
    residuals = learned.pop("errors_calib_", None)
    if residuals is not None and error_model is None:
        learned |= {"residuals_calib_": residuals, "units_calib_": np.ones_like(residuals)}
    learned["conformals_"] = [[conformal] for conformal in learned.get("conformals_", [])]
    return parameters | {"conformity_score": name}, learned | {"score_": score}


@cache
def classes() -> store.Registry:
    """All that may be saved and loaded."""
    own = (NetRegressor, SklearnModel, FunctionModel, Fitted, QuantileModel, NetStack, ProbabilisticNet, KernelRegressor)
    parts = (ErrorModel, GlobalConformal, QuantileResidual, *SCORES.values(), SquaredLoss, PinballLoss, NormalLoss)
    return store.registry(
        *conformal_storing.STORABLES,
        *(store.Storable(cls, check=getattr(cls, "_check_parameters", store.anything_goes)) for cls in own),
        *map(store.Storable, parts),
        *(
            store.Storable(
                method, check=_check_method, upgrade=_upgrade_lvd if method is LVDRegressor else _upgrade
            )
            for method in (*ALL_METHODS, ConformalRegressor)
        ),
        *(storable for name in EXTENSIONS for storable in import_module(name).STORABLES),
    )
