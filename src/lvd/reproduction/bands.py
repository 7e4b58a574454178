"""Bands over one input: the synthetic data, the introduction's three kinds of band, and a thought experiment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression

from lvd._typing import Bool, Float, NDArray
from lvd.conformal import LocalConformal
from lvd.intervals import from_radius
from lvd.kernels import MahalanobisKernel
from lvd.methods import IntervalRegressor, JackknifePlusRegressor, LVDRegressor
from lvd.methods.conformal import ConformalBase
from lvd.quantiles import conformal_quantile
from lvd.reproduction.datasets import load
from lvd.reproduction.figures import Band

LEVEL = 0.9
GRID_POINTS = 400

Predict = Callable[[Float[NDArray, "n"]], tuple[Float[NDArray, "n"], Float[NDArray, "n 2"]]]
"""From positions to predictions and intervals."""


def synthetic_band(regressor: type[IntervalRegressor]) -> Band:
    """A method with its default settings, LVD as in the paper, on the synthetic data.

    A third of the rows train, a third calibrate, where the method has that step, and a third are judged.
    """
    data = load("synthetic")
    train, calib, test = np.split(np.arange(len(data.y)), 3)
    settings: dict[str, Any] = {"preset": "paper"} if regressor is LVDRegressor else {}
    model = regressor(random_state=0, **settings)
    if isinstance(model, ConformalBase):
        model.set_params(calib_size=None).fit(data.X[train], data.y[train])
        model.conformalize(data.X[calib], data.y[calib])
    else:
        model.fit(data.X[train], data.y[train])
    return _band(_by_position(model), data.X[test, 0], data.y[test])


def illustration() -> tuple[dict[str, Band], Bool[NDArray, "n"]]:
    """A curve with a cluster of rows that its prediction misses: the introduction's figure, and these rows.

    The constant band is split conformal. The one that is too narrow follows the mean error of the rows nearby:
    it says where errors are large, not how large they get. The local one is LVD's with a kernel of fixed width.
    """
    rng = np.random.default_rng(1)
    x_calib, y_calib, _ = _curve_with_cluster(4000, rng)
    x_rows, y_rows, cluster = _curve_with_cluster(300, rng)
    scores = np.abs(y_calib - _curve(x_calib))
    kernel = MahalanobisKernel.from_components([[8.0]], mean=[0.0], scale=[1.0], device="cpu")
    local = LocalConformal(kernel).conformalize(x_calib[:, None], scores)
    constant = float(conformal_quantile(scores, np.array([LEVEL]), quantile="finite_sample")[0])

    def mean_error(x: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
        weights = np.asarray(kernel(x[:, None], x_calib[:, None]))
        return weights @ scores / weights.sum(axis=1)

    def around_curve(radius: Callable[[Float[NDArray, "n"]], Float[NDArray, "n"]]) -> Band:
        return _band(lambda x: (_curve(x), from_radius(_curve(x), radius(x))), x_rows, y_rows)

    bands = {
        "Marginally valid": around_curve(lambda x: np.full_like(x, constant)),
        "Discriminative, not valid": around_curve(mean_error),
        "Locally valid": around_curve(lambda x: local.radius(x[:, None], LEVEL)),
    }
    return bands, cluster


def thought_experiment(repeats: int = 20) -> Band:
    """The paper's argument that Jackknife+ does not tell large errors from small ones: Y = |X| and a straight line.

    X takes the values -10 to 10 equally often, and the model is a line through 0 by least squares. Its slope is 0,
    and next to 0 without any one row, so the errors are |x| and all intervals come close to [-9, 9] at level 90%.
    """
    x = np.arange(-10.0, 11.0)
    X = np.repeat(x, repeats)[:, None]
    line = LinearRegression(fit_intercept=False)
    model = JackknifePlusRegressor(line, random_state=0).fit(X, np.abs(X[:, 0]))
    y_pred, intervals = _by_position(model)(x)
    return Band(x, y_pred, intervals, x, np.abs(x), intervals)


def _by_position(model: Any) -> Predict:
    def predict(x: Float[NDArray, "n"]) -> tuple[Float[NDArray, "n"], Float[NDArray, "n 2"]]:
        y_pred, intervals = model.predict_interval(x[:, None], LEVEL)
        return y_pred, intervals[:, :, 0]

    return predict


def _band(predict: Predict, x_rows: Float[NDArray, "n"], y_rows: Float[NDArray, "n"]) -> Band:
    x = np.linspace(x_rows.min(), x_rows.max(), GRID_POINTS)
    return Band(x, *predict(x), x_rows, y_rows, predict(x_rows)[1])


def _curve(x: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
    return np.sin(x) + 0.3 * x


def _curve_with_cluster(
    n_rows: int, rng: np.random.Generator
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"], Bool[NDArray, "n"]]:
    """Rows around the curve; those with x from 6.1 to 6.9 are well above it, and spread widely."""
    x = rng.uniform(0.0, 10.0, n_rows)
    cluster = (x > 6.1) & (x < 6.9)
    error = np.where(cluster, rng.normal(2.2, 0.8, n_rows), rng.normal(0.0, 0.35, n_rows))
    return x, _curve(x) + error, cluster
