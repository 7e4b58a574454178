"""The conditional methods of other packages, around the network of a split."""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lvd._typing import NDArray
from lvd.reproduction.bench_split import TableSplit

MAPIE_ROWS = 200
"""MAPIE solves one linear program per row: on the larger tables only this many test rows are asked for."""
MAPIE_FEATURES = 5
CREPES_BINS = 5


class Trained:
    """The network of a split as scikit-learn's habits have it, for packages that want an estimator."""

    def __init__(self, split: TableSplit) -> None:
        self.fitted_, self.network = True, split.estimator

    def fit(self, X: NDArray, y: NDArray) -> Trained:
        return self

    def predict(self, X: NDArray) -> NDArray:
        return self.network.predict(X)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def residuals(split: TableSplit) -> NDArray:
    """Of the calibration rows, signed."""
    return split.y[split.calib] - split.estimator.predict(split.X[split.calib])


def crepes_knn(split: TableSplit, level: float) -> NDArray:
    """Normalised conformal regression; difficulty is the mean error of 25 training rows nearby."""
    from crepes import ConformalRegressor

    calib, test = difficulties(split)
    regressor = ConformalRegressor().fit(residuals(split), sigmas=calib)
    return regressor.predict_int(split.estimator.predict(split.X[split.test]), sigmas=test, confidence=level)[
        :, :, None
    ]


def crepes_mondrian(split: TableSplit, level: float) -> NDArray:
    """Conformal regression within five bins of the same difficulty."""
    from crepes import ConformalRegressor

    calib, test = difficulties(split)
    edges = np.quantile(calib, np.linspace(0, 1, CREPES_BINS + 1)[1:-1])
    regressor = ConformalRegressor().fit(residuals(split), bins=np.digitize(calib, edges))
    return regressor.predict_int(
        split.estimator.predict(split.X[split.test]), bins=np.digitize(test, edges), confidence=level
    )[:, :, None]


def difficulties(split: TableSplit) -> tuple[NDArray, NDArray]:
    """crepes' difficulty of the calibration and of the test rows."""
    from crepes.extras import DifficultyEstimator

    errors = split.y[split.train] - split.estimator.predict(split.X[split.train])
    scaler = StandardScaler().fit(split.X[split.train])
    estimator = DifficultyEstimator().fit(
        X=scaler.transform(split.X[split.train]), residuals=errors, scaler=True
    )
    return tuple(estimator.apply(scaler.transform(split.X[rows])) for rows in (split.calib, split.test))


def mapie_conditional(split: TableSplit, level: float) -> NDArray:
    """Exact conditional cutoffs of Gibbs et al. over linear functions of five principal components."""
    from mapie.conditional_conformal_prediction import ConditionalSplitConformalRegressor

    components = make_pipeline(StandardScaler(), PCA(MAPIE_FEATURES, random_state=0)).fit(
        split.X[split.train]
    )
    regressor = ConditionalSplitConformalRegressor(
        lambda X: np.column_stack([np.ones(len(X)), components.transform(X)]),
        estimator=Trained(split),
        confidence_level=level,
    )
    regressor.conformalize(split.X[split.calib], split.y[split.calib])
    intervals = regressor.predict_interval(split.X[split.test[:MAPIE_ROWS]])[1]
    # A negative cutoff is an empty set: it shrinks to the prediction.
    empty = intervals[:, :1] > intervals[:, 1:]
    return np.where(empty, intervals.mean(axis=1, keepdims=True), intervals)
