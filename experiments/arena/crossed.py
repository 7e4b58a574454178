"""CV+ (Barber et al. 2021) combined with "ten lines": every row trains and calibrates.

Cross-validated errors are divided by a boosted model of errors, which has not seen the row's fold either.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from experiments.arena.rivals import ToIntervals
from experiments.arena.split import ArenaSplit
from lvd._typing import Float, Int, NDArray
from lvd.models.candidates import held_out_folds


def crossed_ten_lines(split: ArenaSplit, level: float) -> ToIntervals:
    """Quantiles over all rows i of ``y_pred(x) -+ |e_i| / s(x_i) s(x)``, from the models without i's fold."""
    X, y = split.rows_but_test
    folds = list(held_out_folds(len(y), split.seed))
    models = [split.estimator.fit(X[inside], y[inside, None]) for inside, _ in folds]
    y_pred, fold_of = np.empty(len(y)), np.empty(len(y), np.int64)
    for fold, (_, outside) in enumerate(folds):
        y_pred[outside], fold_of[outside] = models[fold].evaluate(X[outside]).y_pred[:, 0], fold
    errors, rows = np.abs(y - y_pred), np.column_stack([X, y_pred])
    least = 0.1 * float(np.median(errors))
    scales = split.stages.once(
        "crossed scales", lambda: [boosted_errors(rows[inside], errors[inside]) for inside, _ in folds]
    )
    scores = np.empty(len(y))
    for scale, (_, outside) in zip(scales, folds, strict=True):
        scores[outside] = errors[outside] / np.maximum(scale.predict(rows[outside]), least)

    def intervals(X_new: Float[NDArray, "n p"]) -> Float[NDArray, "n 2"]:
        means = np.stack([model.evaluate(X_new).y_pred[:, 0] for model in models])
        inputs = [np.column_stack([X_new, mean]) for mean in means]
        units = np.stack([scale.predict(rows) for scale, rows in zip(scales, inputs, strict=True)])
        return plus_ends(means, np.maximum(units, least), scores, fold_of, level)

    return intervals


def plus_ends(
    means: Float[NDArray, "k n"],
    units: Float[NDArray, "k n"],
    scores: Float[NDArray, "m"],
    fold_of: Int[NDArray, "m"],
    level: float,
) -> Float[NDArray, "n 2"]:
    """The quantiles of CV+, with a scale of errors per fold and new row; infinite with too few rows."""
    m = len(scores)
    rank = int(np.ceil(level * (m + 1) - 1e-9))
    if rank > m:
        return np.tile([-np.inf, np.inf], (means.shape[1], 1))
    ends = np.empty((means.shape[1], 2))
    for first in range(0, len(ends), 500):  # this many new rows at once, each compared with all rows
        some = slice(first, first + 500)
        centre, radius = means[fold_of, some], scores[:, None] * units[fold_of, some]
        ends[some, 0] = np.partition(centre - radius, m - rank, axis=0)[m - rank]
        ends[some, 1] = np.partition(centre + radius, rank - 1, axis=0)[rank - 1]
    return ends


def boosted_errors(rows: Float[NDArray, "n p"], errors: Float[NDArray, "n"]) -> HistGradientBoostingRegressor:
    """The model of absolute errors used in "ten lines"."""
    model = HistGradientBoostingRegressor(
        max_iter=200,
        learning_rate=0.05,
        max_leaf_nodes=8,
        min_samples_leaf=max(10, len(errors) // 50),
        early_stopping=len(errors) > 1000,
        random_state=0,
    )
    return model.fit(rows, np.minimum(errors, np.quantile(errors, 0.99)))
