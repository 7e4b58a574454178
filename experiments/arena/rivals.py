"""Methods from other packages: crepes and MAPIE around the shared model, using out-of-fold errors, and quantile
forests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.arena.split import ArenaSplit
from lvd._typing import Float, NDArray
from lvd.engine import conformal_quantile

ToIntervals: TypeAlias = Callable[[NDArray], NDArray]
CREPES_BINS = 5
MAPIE_FEATURES = 5


class TrainedRegressor(RegressorMixin, BaseEstimator):
    """The shared model in the form that packages expect of a fitted estimator."""

    fitted_: ClassVar[bool] = True  # MAPIE checks for it

    def __init__(self, function: Callable[[NDArray], NDArray]) -> None:
        self.function = function

    def fit(self, X: NDArray, y: NDArray) -> TrainedRegressor:
        """Do nothing: the model is already trained."""
        return self

    def predict(self, X: NDArray) -> Float[NDArray, "n"]:
        """The shared model's predictions."""
        return self.function(np.asarray(X))

    def __sklearn_is_fitted__(self) -> bool:
        return True


def crepes_normalized(split: ArenaSplit, level: float) -> ToIntervals:
    """Errors divided by crepes' difficulty."""
    from crepes import ConformalRegressor

    difficulty, predict = _difficulty(split), split.predict
    regressor = ConformalRegressor().fit(split.calib_errors, sigmas=difficulty(split.X_calib))
    return lambda X: regressor.predict_int(predict(X), sigmas=difficulty(X), confidence=level)


def crepes_mondrian(split: ArenaSplit, level: float, X_cut: NDArray | None = None) -> ToIntervals:
    """A conformal regressor in each of five bins of difficulty, cut at quantiles over training rows or `X_cut`."""
    from crepes import ConformalRegressor

    difficulty, predict = _difficulty(split), split.predict
    rows = split.X_train if X_cut is None else X_cut
    edges = np.quantile(difficulty(rows), np.linspace(0, 1, CREPES_BINS + 1)[1:-1])
    bins = np.digitize(difficulty(split.X_calib), edges)
    regressor = ConformalRegressor().fit(split.calib_errors, bins=bins)
    return lambda X: regressor.predict_int(
        predict(X), bins=np.digitize(difficulty(X), edges), confidence=level
    )


def mapie_split(split: ArenaSplit, level: float) -> ToIntervals:
    """MAPIE's split conformal prediction."""
    from mapie.regression import SplitConformalRegressor

    regressor = SplitConformalRegressor(TrainedRegressor(split.predict), confidence_level=level, prefit=True)
    regressor.conformalize(split.X_calib, split.y_calib)
    return lambda X: regressor.predict_interval(X)[1][:, :, 0]


def mapie_cqr(split: ArenaSplit, level: float, models: list[Any]) -> ToIntervals:
    """MAPIE's conformalized quantile regression around models of the lower and upper quantile and the median."""
    from mapie.regression import ConformalizedQuantileRegressor

    regressor = ConformalizedQuantileRegressor(models, confidence_level=level, prefit=True)
    regressor.conformalize(split.X_calib, split.y_calib)
    return lambda X: _in_order(regressor.predict_interval(X, symmetric_correction=True)[1][:, :, 0])


def mapie_conditional(split: ArenaSplit, level: float) -> ToIntervals:
    """Exact conditional cutoffs (Gibbs, Cherian and Candès) over linear functions of five principal components."""
    from mapie.conditional_conformal_prediction import ConditionalSplitConformalRegressor

    n_features = min(MAPIE_FEATURES, split.X_train.shape[1])
    components = make_pipeline(StandardScaler(), PCA(n_features, random_state=0)).fit(split.X_train)
    regressor = ConditionalSplitConformalRegressor(
        lambda X: np.column_stack([np.ones(len(X)), components.transform(X)]),
        estimator=TrainedRegressor(split.predict),
        confidence_level=level,
    )
    regressor.conformalize(split.X_calib, split.y_calib)
    return lambda X: _in_order(regressor.predict_interval(X)[1][:, :, 0])


def forest_cqr(split: ArenaSplit, level: float) -> ToIntervals:
    """Conformalized quantile regression around a quantile forest, which serves all levels."""
    from quantile_forest import RandomForestQuantileRegressor

    def learn() -> Any:
        forest = RandomForestQuantileRegressor(min_samples_leaf=10, random_state=split.seed, n_jobs=1)
        return forest.fit(split.X_train, split.y_train)

    forest, quantiles = split.stages.once("forest", learn), [(1 - level) / 2, (1 + level) / 2]
    return _conformalized(lambda X: forest.predict(X, quantiles=quantiles), split, level)


def lightgbm_cqr(split: ArenaSplit, level: float) -> ToIntervals:
    """Conformalized quantile regression around LightGBM's quantiles, with early stopping on held-out rows."""
    import lightgbm

    X, y = split.X_train, split.y_train
    held = np.random.default_rng(split.seed).permutation(len(y)) < len(y) // 10

    def learn(order: float) -> Any:
        model = lightgbm.LGBMRegressor(
            objective="quantile",
            alpha=order,
            n_estimators=1000,
            learning_rate=0.05,
            num_leaves=8,
            random_state=split.seed,
            n_jobs=1,
            verbose=-1,
        )
        stop = lightgbm.early_stopping(30, verbose=False)
        return model.fit(X[~held], y[~held], eval_set=[(X[held], y[held])], callbacks=[stop])

    models = [learn((1 - level) / 2), learn((1 + level) / 2)]
    return _conformalized(lambda X: np.column_stack([model.predict(X) for model in models]), split, level)


def _conformalized(ends: ToIntervals, split: ArenaSplit, level: float) -> ToIntervals:
    """Both ends are moved alike, so that they hold on the calibration rows."""
    known = ends(split.X_calib)
    scores = np.maximum(known[:, 0] - split.y_calib, split.y_calib - known[:, 1])
    (more,) = conformal_quantile(scores, np.array([level]))
    return lambda X: _in_order(ends(X) + more * np.array([-1.0, 1.0]))


def _difficulty(split: ArenaSplit) -> Callable[[NDArray], Float[NDArray, "n"]]:
    """crepes' difficulty of rows: the mean out-of-fold error of the nearest training rows."""
    from crepes.extras import DifficultyEstimator

    def learn() -> tuple[Any, Any]:
        scaler = StandardScaler().fit(split.X_train)
        errors = split.y_train - split.held_out
        estimator = DifficultyEstimator().fit(
            X=scaler.transform(split.X_train), residuals=errors, scaler=True
        )
        return scaler, estimator

    scaler, estimator = split.stages.once("difficulty", learn)
    return lambda X: estimator.apply(scaler.transform(X))


def _in_order(intervals: Float[NDArray, "n 2"]) -> Float[NDArray, "n 2"]:
    """An interval with crossed ends shrinks to its midpoint."""
    empty = intervals[:, :1] > intervals[:, 1:]
    return np.where(empty, intervals.mean(axis=1, keepdims=True), intervals)
