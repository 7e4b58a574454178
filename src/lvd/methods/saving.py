"""Loading of saved methods, also of those that version 0.1 saved; nothing that is loaded runs."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import numpy as np

from lvd._validation import InputError, check_levels
from lvd.conformal import GlobalConformal
from lvd.conformal.familiar import Familiarity, Makeup, Surroundings, ranges, room_for
from lvd.conformal.transductive import Prior
from lvd.kernels.regression import KernelRegressor
from lvd.methods.conformal import SCORES
from lvd.methods.lvd import LVDRegressor
from lvd.models import NetRegressor, TreesRegressor
from lvd.models.adapters import EarlierEmbedding, FunctionModel, SklearnModel
from lvd.models.candidates import FilledModel
from lvd.models.coding import InputCoding
from lvd.models.kinds import last_step
from lvd.models.losses import NormalLoss, PinballLoss, QuantilesLoss, SquaredLoss
from lvd.models.model import Fitted
from lvd.models.probabilistic import ProbabilisticNet
from lvd.models.quantile_model import QuantileModel
from lvd.models.stack import NetStack
from lvd.models.trees import TreeEnsemble
from lvd.models.wrap import FOREIGN
from lvd.scores import (
    AbsoluteResidual,
    JointResidual,
    NormalizedResidual,
    QuantileResidual,
    ScaledResidual,
    SidedResidual,
)
from lvd.scores.joint import LocalCovariance
from lvd.scores.residuals import ErrorModel
from lvd.scores.scales import BoostedScale, KernelScale, NetworkScale
from lvd.store import OutdatedError, Saved, load_object, read_manifest, register
from lvd.store import save_object as save

__all__ = ["load", "load_columns", "register_method", "save"]

MAY_BE_UNKNOWN = {"y_calib_", "residuals_calib_", "train_errors_"}
"""Attributes with a column for each target, which hold NaN where a target is not known."""


def load(folder: str | os.PathLike[str], estimator: Any = None, **parts: Any) -> Any:
    """What ``save(folder)`` wrote: the same method, with the same bits in every prediction.

    Functions and torch modules of your own are not in the folder, as they are code. Give them again as they
    were given to the constructor: ``lvd.load(folder, estimator=module)``, or ``estimator=(None, function)`` where
    only the embedding is one. (A model that was saved with ``embedding=function`` asks for it under that name.) The
    weights that were saved go into a copy of the module. A model saved on a GPU that this machine does not
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
    for part in FOREIGN.values():  # it registers classes of its own
        import_module(part)
    given = {name: part for name, part in {"estimator": estimator, **parts}.items() if part is not None}
    return load_object(folder, given)


def load_columns(folder: str | os.PathLike[str]) -> Any:
    """The `columns` that a method was saved with."""
    return read_manifest(folder).get("columns")


def register_method(method: type[Any]) -> None:
    """Allow a method to be saved and loaded."""
    upgrade = _UPGRADES.get(method.__name__, _upgrade)
    ways = {"upgrade": upgrade, "take_apart": _fill_in, "complete": _take_out}
    register(method, root=True, check=_check_method, **ways)


def _fill_in(value: Any) -> dict[str, Any]:
    """The attributes with 0 for targets that are not known, as no file holds NaN, and beside them where that is."""
    attributes = dict(vars(value))
    for name in MAY_BE_UNKNOWN & attributes.keys():
        unknown = np.isnan(attributes[name])
        if unknown.any() and not unknown.all(axis=0).any():
            attributes |= {name: np.where(unknown, 0.0, attributes[name]), f"{name}unknown": unknown}
    return attributes


def _take_out(value: Any) -> None:
    """Turn what `_fill_in` has filled in to NaN again."""
    learned = vars(value)
    for name in MAY_BE_UNKNOWN & learned.keys():
        unknown = learned.pop(f"{name}unknown", None)
        if unknown is None:
            continue
        if np.shape(unknown) != np.shape(learned[name]) or unknown.dtype != bool:
            raise InputError(f"{name} and {name}unknown do not belong together")
        learned[name] = np.where(unknown, np.nan, learned[name])


def _check_method(method: Any) -> None:
    check_levels(method.confidence_level)
    method._check_bounds()
    method._check_parameters()
    learned = vars(method)
    lengths = {
        len(learned[name]) for name in ("residuals_calib_", "units_calib_", "y_calib_") if name in learned
    }
    if lengths - {learned.get("n_calib_")}:
        raise InputError("the numbers of calibration rows and of their errors differ")


def _upgrade(parameters: dict[str, Any], learned: dict[str, Any]) -> Saved:
    """Methods of version 0.1: ``y_min`` and ``y_max`` have become ``y_range``."""
    if "y_min" in parameters:
        bounds = parameters.pop("y_min"), parameters.pop("y_max", None)
        parameters["y_range"] = None if bounds == (None, None) else bounds
        if "train_digests_" in learned:
            learned |= {"familiarity_": None, "postponed_": False, "seed_": 0}
    return parameters, learned


def _upgrade_split(parameters: dict[str, Any], learned: dict[str, Any]) -> Saved:
    """SplitConformalRegressor and MADSplitRegressor of version 0.1, which held their scores themselves."""
    parameters, learned = _upgrade(parameters, learned)
    if "model_" not in learned or "score_" in learned:
        return parameters, learned
    score: AbsoluteResidual | NormalizedResidual = AbsoluteResidual()
    if "error_model_" in learned:
        score = NormalizedResidual(parameters["error_estimator"])
        score.error_model_ = learned.pop("error_model_")
    if "scores_" in learned:
        columns = learned.pop("scores_").T
        learned["conformals_"] = [[_holding(column, parameters["quantile"])] for column in columns]
    return parameters, learned | {"score_": score, "kernels_": []}


def _upgrade_cqr(parameters: dict[str, Any], learned: dict[str, Any]) -> Saved:
    """ConformalizedQuantileRegressor of version 0.1, which kept the radii at its levels and no scores.

    Scores that all equal a radius have it as their quantile, and no other level is ever asked for.
    """
    parameters, learned = _upgrade(parameters, learned)
    if "quantile_models_" not in learned:
        return parameters, learned
    score = QuantileResidual(parameters["symmetric"])
    score.levels_ = learned.pop("levels_")
    learned |= {
        "model_": QuantileModel(tuple(learned.pop("quantile_models_"))),
        "score_": score,
        "kernels_": [],
    }
    if "radii_" in learned:
        sides = slice(1) if score.symmetric else slice(2)
        radii = np.concatenate([ends[sides] for ends in learned.pop("radii_")])
        learned["conformals_"] = [
            [_holding(np.full(learned["n_calib_"], radius), parameters["quantile"]) for radius in column]
            for column in radii.T
        ]
    return parameters, learned


def _upgrade_lvd(parameters: dict[str, Any], learned: dict[str, Any]) -> Saved:
    """LVDRegressor before an embedding of one's own came with the estimator, and that of version 0.1.

    Of the latter score, sides and second model have become one score.
    """
    parameters, learned = _upgrade(parameters, learned)
    if "predictor" not in parameters:
        return _pair_embedding(parameters, parameters.pop("embedding", None)), learned
    kind, sides = parameters.pop("score"), parameters.pop("sides", "same")
    name = {"each": "signed", "joint": "sided"}.get(sides, kind)
    error_model, errors = learned.pop("error_model_", None), learned.pop("train_errors_", None)
    if name != kind and error_model is not None:
        raise OutdatedError(f'sides="{sides}" of normalized errors')
    score: Any = SCORES[name]()
    if isinstance(score, NormalizedResidual):
        score = NormalizedResidual(parameters["error_estimator"])
        if error_model is not None:
            score.error_model_ = error_model
    if errors is not None:
        score.train_errors_ = errors
    if parameters.pop("predictor") == "kernel":
        regression = KernelRegressor(parameters["estimator"], prefit=parameters["prefit"])
        parameters |= {"estimator": regression, "prefit": False}
        if "model_" in learned:
            regression.model_, regression.kernels_ = learned["model_"], learned["kernels_"]
            learned["model_"] = regression
    parameters = _pair_embedding(
        parameters, parameters.pop("embed", None) or parameters.pop("embedding_layer", None)
    )
    parameters = {name: parameters[name] for name in LVDRegressor._get_param_names() if name in parameters}
    if parameters.get("bandwidth") == "auto":
        parameters["bandwidth"] = learned["conformals_"][0].bandwidth if "conformals_" in learned else 1.0
    residuals = learned.pop("errors_calib_", None)
    if residuals is not None and error_model is None:
        learned |= {"residuals_calib_": residuals, "units_calib_": np.ones_like(residuals)}
    if "conformals_" in learned:
        learned["conformals_"] = [
            [one.rescored(-one.calibration_.scores), one] if name == "signed" else [one]
            for one in learned["conformals_"]
        ]
    parameters |= {"preset": "paper", "conformity_score": name}
    return parameters, learned | ({"score_": score} if "model_" in learned else {})


def _pair_embedding(parameters: dict[str, Any], embedding: Any) -> dict[str, Any]:
    return (
        parameters if embedding is None else parameters | {"estimator": (parameters["estimator"], embedding)}
    )


def _upgrade_scaled(parameters: dict[str, Any], learned: dict[str, Any]) -> Saved:
    """Before their weights were chosen, all scales counted alike."""
    if "scales_" in learned and "weights_" not in learned:
        alike = [dict.fromkeys(scales, 1.0 / max(1, len(scales))) for scales in learned["scales_"]]
        learned["weights_"] = alike
    return parameters, learned


def _upgrade_sklearn(parameters: dict[str, Any], learned: dict[str, Any]) -> Saved:
    """Before inputs were coded, they had to be finite numbers, and trees were embedded in ways of their own."""
    if "fitted_" in learned and "coding_" not in learned:
        fitted, leaf_means = learned["fitted_"], learned.pop("leaf_means_", None)
        as_now = learned.pop("embeds_inputs_", False) or hasattr(last_step(fitted), "coefs_")
        if not as_now and parameters["embed"] is None:
            parameters["embed"] = EarlierEmbedding(fitted, leaf_means)
        learned |= {"coding_": None, "x_mean_": None}
    return parameters, learned


def _upgrade_trees(parameters: dict[str, Any], learned: dict[str, Any]) -> Saved:
    """Before categories were found and numbers could be missing, all inputs were numbers, of unknown mean."""
    if "ensembles_" in learned:
        n = learned["n_features_in_"]
        learned = {"coding_": InputCoding((np.nan,) * n, (False,) * n, ((),) * n), "blocks_": []} | learned
    return parameters, learned


def _upgrade_surroundings(parameters: dict[str, Any], learned: dict[str, Any]) -> Saved:
    """Before ranges were looked at, a row was unknown by its distance alone; the rows that were kept have some."""
    if "rows" in parameters and "room" not in parameters:
        lowest, highest, overshoots = ranges(parameters["rows"])
        parameters |= {"lowest": lowest, "highest": highest, "room": room_for(overshoots)}
    return parameters, learned


def _holding(scores: Any, quantile: str) -> GlobalConformal:
    conformal = GlobalConformal(quantile)
    conformal.scores_ = scores
    return conformal


_UPGRADES = {
    "LVDRegressor": _upgrade_lvd,
    "SplitConformalRegressor": _upgrade_split,
    "MADSplitRegressor": _upgrade_split,
    "ConformalizedQuantileRegressor": _upgrade_cqr,
}

for _part in (
    *(
        NetRegressor,
        FilledModel,
        EarlierEmbedding,
        FunctionModel,
        InputCoding,
        Fitted,
        QuantileModel,
        NetStack,
        ProbabilisticNet,
    ),
    *(SquaredLoss, PinballLoss, NormalLoss, QuantilesLoss),
    *(KernelRegressor, ErrorModel, QuantileResidual, *SCORES.values()),
    *(KernelScale, BoostedScale, NetworkScale, TreeEnsemble, Familiarity, Makeup, Prior),
    *(JointResidual, LocalCovariance),
):
    register(_part)
register(ScaledResidual, upgrade=_upgrade_scaled)
register(SklearnModel, upgrade=_upgrade_sklearn)
register(TreesRegressor, upgrade=_upgrade_trees)
register(Surroundings, upgrade=_upgrade_surroundings)
register(SidedResidual, take_apart=_fill_in, complete=_take_out)
