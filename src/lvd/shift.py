"""Calibration rows and new rows from different populations: likelihood ratios by a classifier."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lvd._typing import ArrayLike, Float, NDArray, RandomState
from lvd._validation import InputError, check_choice, check_matrix, seed_from

LEAST_SHARE = 0.1


class ShiftWarning(UserWarning):
    """The two populations overlap too little for weights to help."""


class ShiftWeights(NamedTuple):
    """Likelihood ratios ``p_new(x) / p_calib(x)``, of mean 1 over the calibration rows."""

    calib: Float[NDArray, "m"]
    new: Float[NDArray, "n"]


def estimate_weights(
    X_calib: ArrayLike,
    X_new: ArrayLike,
    *,
    classifier: str = "logistic",
    n_folds: int = 5,
    clip: float = 1e-3,
    random_state: RandomState = None,
) -> ShiftWeights:
    """Weights that make the calibration rows stand for the new population.

    A classifier tells the two sets apart; its odds, from models that have not seen the row, are the ratio of
    densities up to a constant (Tibshirani, Foygel Barber, Candès and Ramdas 2019). Probabilities are kept within
    ``[clip, 1 - clip]``. Warns when the weighted calibration rows are worth less than a tenth of their number.

    Parameters
    ----------
    X_calib, X_new : the rows (or embeddings) of the calibration set and of the new population.
    classifier : ``"logistic"`` on standardised columns, or ``"boosting"`` for differences that are not linear.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> weights = lvd.shift.estimate_weights(rng.normal(size=(500, 1)), rng.normal(0.5, 1, size=(500, 1)))
    >>> weights.calib.shape, weights.new.shape
    ((500,), (500,))
    """
    check_choice(classifier, "classifier", ("logistic", "boosting"))
    calib = check_matrix(X_calib, "X_calib")
    new = check_matrix(X_new, "X_new", calib.shape[1])
    if min(len(calib), len(new)) < n_folds:
        raise InputError(
            f"estimate_weights needs at least {n_folds} rows of each kind, got {len(calib)} and {len(new)}"
        )
    seed = seed_from(random_state)
    model = (
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        if classifier == "logistic"
        else HistGradientBoostingClassifier(max_depth=3, random_state=seed)
    )
    rows = np.concatenate([calib, new])
    is_new = np.r_[np.zeros(len(calib), int), np.ones(len(new), int)]
    order = np.random.default_rng(seed).permutation(len(rows))
    probability = np.empty(len(rows))
    folds = cross_val_predict(model, rows[order], is_new[order], cv=n_folds, method="predict_proba")
    probability[order] = folds[:, 1].clip(clip, 1.0 - clip)
    odds = probability / (1.0 - probability)
    odds /= odds[: len(calib)].mean()
    weights = ShiftWeights(odds[: len(calib)], odds[len(calib) :])
    worth = weights.calib.sum() ** 2 / np.square(weights.calib).sum()
    if worth < LEAST_SHARE * len(calib):
        warnings.warn(
            f"the calibration rows are worth only {worth:.0f} of {len(calib)} rows of the new population: "
            "intervals will be wide or infinite; label some rows of the new population and calibrate on them",
            ShiftWarning,
            stacklevel=2,
        )
    return weights
