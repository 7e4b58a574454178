"""Several methods on one table: coverage, also in the worst slab, and whether the width tells anything."""

# %% The diabetes table, and rows that no method sees before the end.
import os

import numpy as np

import lvd

QUICK = "LVD_QUICK" in os.environ
LEVEL = 0.8
data = lvd.data.load_dataset("diabetes")
X_train, X_calib, X_test, y_train, y_calib, y_test = lvd.three_way_split(
    data.X, data.y, sizes=(0.4, 0.3, 0.3), random_state=0
)
X_fit, y_fit = np.concatenate([X_train, X_calib]), np.concatenate([y_train, y_calib])

# %% Methods with a calibration step share one network; the others train on all rows, as they would in use.
batches = 100 if QUICK else 500
net = lvd.NetRegressor(n_batches=batches, weight_decay=0.1, random_state=0).fit(X_train, y_train)
fresh = lvd.NetRegressor(n_batches=batches, weight_decay=0.1)
shared = {"prefit": True, "confidence_level": LEVEL, "random_state": 0}
conformal = {
    "LVD": lvd.LVDRegressor(net, **shared),
    "LVD as in the paper": lvd.LVDRegressor(net, preset="paper", **shared),
    "split conformal": lvd.SplitConformalRegressor(net, **shared),
    "MADSplit": lvd.MADSplitRegressor(net, error_estimator=fresh, **shared),
}
others = {
    "CQR": lvd.ConformalizedQuantileRegressor(fresh, confidence_level=LEVEL, random_state=0),
    "CV+": lvd.JackknifePlusRegressor(fresh, cv=5, confidence_level=LEVEL, random_state=0),
    "deep ensemble": lvd.DeepEnsembleRegressor(epochs=3 if QUICK else 40, random_state=0),
}
for method in conformal.values():
    method.fit(X_train, y_train).conformalize(X_calib, y_calib)
for method in others.values():
    method.fit(X_fit, y_fit)

# %% One line each. Slabs are sought in standardised columns.
X_scaled = (X_test - X_fit.mean(0)) / X_fit.std(0)
print(f"{'at level ' + format(LEVEL, '.0%'):20} coverage  worst slab  AUROC  finite  width")
for name, method in (conformal | others).items():
    y_pred, intervals = method.predict_interval(X_test, LEVEL)
    coverage = lvd.metrics.marginal_coverage_rate(y_test, intervals)
    worst = lvd.metrics.worst_slab_coverage(X_scaled, y_test, intervals, random_state=0).coverage
    auroc = lvd.metrics.residual_auroc(y_test, y_pred, intervals)
    finite, width = lvd.metrics.finite_fraction(intervals), lvd.metrics.mean_finite_width(intervals)
    print(f"{name:20} {coverage:8.1%} {worst:11.1%} {auroc:6.1%} {finite:7.1%} {width:6.1f}")

# %% How to read it.
print(
    "Coverage should be at the level or above, also in the worst slab. An AUROC of 50% says that the width tells "
    "nothing about the error. Compare widths at equal coverage only, and beside the share that is finite."
)
