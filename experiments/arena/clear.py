"""CLEAR: calibrated learning for epistemic and aleatoric risk (Azizi, Bodik, Heiss and Yu 2026).

Implemented from the paper, since the authors' package needs older versions of NumPy and scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from experiments.arena.rivals import ToIntervals
from experiments.arena.split import ArenaSplit
from lvd._typing import Float, NDArray
from lvd.engine import conformal_quantile
from lvd.metrics import winkler_score

N_BOOTSTRAPS = 10
SHARES = (0.0, *np.linspace(0.01, 0.09, 9), *np.logspace(-1.0, 2.0, 40))
"""Candidate weights of epistemic relative to aleatoric uncertainty."""


def clear_intervals(split: ArenaSplit, level: float) -> ToIntervals:
    """``f - g (a_low + s e_low)`` to ``f + g (a_high + s e_high)``, with g conformal and s the best of `SHARES`.

    f is the median of models of bootstrap samples, e the distances to their quantiles, and a the distances to
    quantiles of the out-of-bag errors. As in the paper, the calibration rows choose s as well as g, so coverage
    is not exact.
    """
    low, high = (1.0 - level) / 2.0, (1.0 + level) / 2.0
    X, y, rng = split.X_train, split.y_train, np.random.default_rng(split.seed)

    def learn() -> tuple[list[Any], Float[NDArray, "n"]]:
        drawn = [rng.integers(len(y), size=len(y)) for _ in range(N_BOOTSTRAPS)]
        models = [split.estimator.fit(X[rows], y[rows, None]) for rows in drawn]
        y_pred = np.stack([model.evaluate(X).y_pred[:, 0] for model in models])
        for place, rows in enumerate(drawn):
            y_pred[place, rows] = np.nan
        unseen = np.isnan(y_pred).all(axis=0)  # no model left the row out, so it has no out-of-bag error
        y_pred[:, unseen] = y[unseen]
        return models, np.where(unseen, np.nan, y - np.nanmedian(y_pred, axis=0))

    models, errors = split.stages.once("CLEAR", learn)
    kept = ~np.isnan(errors)

    def quantile_model(order: float) -> HistGradientBoostingRegressor:
        model = HistGradientBoostingRegressor(
            loss="quantile",
            quantile=order,
            max_leaf_nodes=8,
            min_samples_leaf=max(10, len(y) // 50),
            random_state=split.seed,
        )
        return model.fit(X[kept], errors[kept])

    ends = [quantile_model(low), quantile_model(high)]

    def parts(X: NDArray) -> tuple[Float[NDArray, "n"], Float[NDArray, "n 2"], Float[NDArray, "n 2"]]:
        predicted = np.stack([model.evaluate(X).y_pred[:, 0] for model in models])
        f, outer = np.median(predicted, axis=0), np.quantile(predicted, [low, high], axis=0)
        aleatoric = np.column_stack([-ends[0].predict(X), ends[1].predict(X)]).clip(min=0.0)
        return f, aleatoric, np.column_stack([f - outer[0], outer[1] - f])

    f, aleatoric, epistemic = parts(split.X_calib)
    away = np.column_stack([f - split.y_calib, split.y_calib - f])
    best = (np.inf, 0.0, np.inf)
    for share in SHARES:
        units = np.maximum(aleatoric + share * epistemic, 1e-9 * np.std(y))
        (factor,) = conformal_quantile((away / units).max(axis=1), np.array([level]))
        intervals = np.column_stack([f - factor * units[:, 0], f + factor * units[:, 1]])
        score = winkler_score(split.y_calib, intervals, level)
        best = min(best, (score, share, factor))
    _, share, factor = best

    def ask(X: NDArray) -> Float[NDArray, "n 2"]:
        f, aleatoric, epistemic = parts(X)
        units = np.maximum(aleatoric + share * epistemic, 1e-9 * np.std(y))
        return np.column_stack([f - factor * units[:, 0], f + factor * units[:, 1]])

    return ask
