"""Saving and loading of fitted methods; nothing is pickled, and nothing that is loaded runs."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from lvd import _store
from lvd._validation import InputError, check_levels
from lvd.conformal import LocalConformal
from lvd.conformal import saving as conformal_saving
from lvd.methods import ALL_METHODS, IntervalRegressor
from lvd.methods.errors import ErrorModel
from lvd.methods.lvd import LVDRegressor
from lvd.nets import NetRegressor
from lvd.nets.adapters import FunctionModel, SklearnModel
from lvd.nets.model import Fitted
from lvd.nets.molecules import ChempropEstimator, TrainedMPNN
from lvd.nets.molecules import storing as molecule_storing
from lvd.nets.molecules.ensemble import MoleculeStack
from lvd.nets.probabilistic import ProbabilisticNet
from lvd.nets.stack import NetStack


def save(
    method: IntervalRegressor, folder: str | os.PathLike[str], *, columns: Any = None, replace: bool = True
) -> None:
    """Write a method to a folder that :func:`load` reads.

    `columns` describes, in types that JSON has, the columns of the table that the method was fitted on. Without
    `replace` a model that is there stays.
    """
    _store.write_folder(folder, _store.encode(method, CLASSES, columns=columns), replace=replace)


def load(folder: str | os.PathLike[str], estimator: Any = None, **parts: Any) -> Any:
    """What ``save(folder)`` wrote: the same method, with the same bits in every prediction.

    Functions and torch modules of your own are not in the folder, as they are code. Give them again as they
    were given to the constructor: ``lvd.load(folder, estimator=module)``, ``lvd.load(folder, embed=function)``.
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
    contents = _store.read_folder(folder)
    model = _store.decode(contents, CLASSES, folder, roots=(*ALL_METHODS, LocalConformal), given=given)
    if not given:
        _try_out(model, folder)
    return model


def load_columns(folder: str | os.PathLike[str]) -> Any:
    """The `columns` that a method was saved with."""
    return _store.read_manifest(folder).get("columns")


def _try_out(model: IntervalRegressor | LocalConformal, folder: str | os.PathLike[str]) -> None:
    """Use a model of lvd's own parts once: those that do not fit together are found now, not in use."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for n_rows in conformal_saving.TRIALS:
                if isinstance(model, LocalConformal):
                    conformal_saving.try_out(model, n_rows)
                elif hasattr(model, "model_"):
                    _try_rows(model, n_rows)
    except NotFittedError:  # saved before conformalize
        return
    except Exception as error:  # which one depends on what does not fit
        raise InputError(
            f"the parts of the model in {os.fspath(folder)!r} do not fit together "
            f"({type(error).__name__}: {error}); save the model again"
        ) from error


def _try_rows(model: IntervalRegressor, n_rows: int) -> None:
    conformals = getattr(model, "conformals_", [])
    labels = conformal_saving.labels_of_rows(conformals[0], n_rows) if conformals else {}
    rows = _examples(model, n_rows)
    intervals = model.predict_interval(rows, **labels)[1]
    if intervals.shape[:2] != (n_rows, 2) or np.isnan(intervals).any():
        raise InputError("an interval is not a number")
    if isinstance(model, LVDRegressor):
        model.explain(rows, **labels)


def _examples(model: IntervalRegressor, n_rows: int) -> Any:
    """Rows of the kind that the model takes: methane, or the mean of the training rows, or zeros."""
    base = model.model_.model if isinstance(model.model_, Fitted) else model.model_
    if isinstance(base, ChempropEstimator | TrainedMPNN | MoleculeStack):
        return ["C"] * n_rows
    mean = base.x_mean_ if hasattr(base, "x_mean_") else np.zeros(model.n_features_in_)
    return np.tile(mean, (n_rows, 1))


def _check_method(method: Any) -> None:
    check_levels(method.confidence_level)
    method._check_bounds()
    if hasattr(method, "_check_parameters"):
        method._check_parameters()


CLASSES = _store.registry(
    *conformal_saving.STORABLES,
    _store.Storable(NetRegressor, check=NetRegressor._check_parameters),
    _store.Storable(SklearnModel),
    _store.Storable(FunctionModel),
    _store.Storable(Fitted),
    _store.Storable(NetStack),
    _store.Storable(ProbabilisticNet),
    _store.Storable(ErrorModel),
    *molecule_storing.STORABLES,
    *(_store.Storable(method, check=_check_method) for method in ALL_METHODS),
)
