"""Calibration rows and new rows from different populations: likelihood ratios by a classifier."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lvd._parallel import few_threads
from lvd._typing import ArrayLike, Float, NDArray, RandomState
from lvd._validation import InputError, check_matrix, check_positive, seed_from

LEAST_SHARE = 0.1
"""Warn if the effective sample size falls below this share of the calibration rows."""


class ShiftWarning(UserWarning):
    """The two populations overlap too little for weights to help."""


class ShiftWeights(NamedTuple):
    """Likelihood ratios ``p_new(x) / p_calib(x)`` on one scale, of mean 1 over the calibration rows."""

    calib: Float[NDArray, "m"]
    new: Float[NDArray, "n"]

    @property
    def max_weight(self) -> float:
        """The largest calibration weight: the `max_weight` of :class:`LVDRegressor` if no row weighs more."""
        return float(max(self.calib.max(), self.new.max()))


def estimate_weights(
    X_calib: ArrayLike,
    X_new: ArrayLike,
    *,
    classifier: Any = "logistic",
    n_folds: int = 5,
    clip: float = 1e-3,
    random_state: RandomState = None,
) -> ShiftWeights:
    """Weights that make the calibration rows represent the new population.

    A classifier separates the two sets; its out-of-fold odds are the density ratio up to a constant
    (Tibshirani, Foygel Barber, Candès and Ramdas 2019). Guarantees that hold with the true ratios hold
    approximately with estimated ones. Warns if the effective sample size of the calibration rows is less than a
    tenth of their number.

    Parameters
    ----------
    X_calib, X_new : the rows (or embeddings) of the calibration set and of the new population, without labels.
    classifier : ``"logistic"`` on standardised columns, ``"boosting"`` for non-linear differences, or a
        scikit-learn classifier with `predict_proba`.
    n_folds : number of cross-fitting folds.
    clip : probabilities are clipped to ``[clip, 1 - clip]``.
    random_state : seeds the folds.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X_calib, X_new = rng.normal(size=(500, 1)), rng.normal(0.5, 1, size=(300, 1))
    >>> weights = lvd.calibration.shift.estimate_weights(X_calib, X_new, random_state=0)
    >>> weights.calib.shape, weights.new.shape
    ((500,), (300,))
    >>> truth = np.exp(0.5 * X_calib[:, 0] - 0.125)
    >>> bool(np.corrcoef(truth, weights.calib)[0, 1] > 0.99)
    True

    Pass them with the rows: ``reg.conformalize(X_calib, y_calib, weights=weights.calib)`` and
    ``reg.predict_interval(X_new, weights=weights.new)``.
    """
    calib = check_matrix(X_calib, "X_calib")
    new = check_matrix(X_new, "X_new", calib.shape[1])
    check_positive(n_folds, "n_folds", integer=True)
    if not 2 <= n_folds <= min(len(calib), len(new)):
        raise InputError(
            f"n_folds must be at least 2 and at most the number of rows of either kind, got {n_folds} for "
            f"{len(calib)} calibration and {len(new)} new rows"
        )
    if not 0.0 < clip < 0.5:
        raise InputError(f"clip must lie in (0, 0.5), got {clip!r}")
    seed = seed_from(random_state)
    rows, is_new = np.concatenate([calib, new]), np.repeat([0, 1], [len(calib), len(new)])
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    model = _classifier(classifier, seed)
    with few_threads(rows):
        probability = cross_val_predict(model, rows, is_new, cv=folds, method="predict_proba")[:, 1]
    probability = probability.clip(clip, 1.0 - clip)
    odds = probability / (1.0 - probability)
    odds /= odds[: len(calib)].mean()
    weights = ShiftWeights(odds[: len(calib)], odds[len(calib) :])
    worth = effective_rows(weights.calib)
    if worth < LEAST_SHARE * len(calib):
        warnings.warn(
            f"the {len(calib)} calibration rows are worth only {worth:.0f} rows of the new population: intervals "
            "will be wide or infinite; label some rows of the new population and calibrate on them",
            ShiftWarning,
            stacklevel=2,
        )
    return weights


def effective_rows(weights: Float[NDArray, "m"]) -> float:
    """The effective sample size of weighted rows, ``(sum w)^2 / sum w^2``."""
    return float(weights.sum() ** 2 / np.square(weights).sum())


def _classifier(classifier: Any, seed: int) -> Any:
    if classifier == "logistic":
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    if classifier == "boosting":
        return HistGradientBoostingClassifier(max_depth=3, random_state=seed)
    if not (hasattr(classifier, "fit") and hasattr(classifier, "predict_proba")):
        raise InputError(
            "classifier must be 'logistic', 'boosting' or a scikit-learn classifier with predict_proba, "
            f"got {classifier!r}"
        )
    return clone(classifier)
