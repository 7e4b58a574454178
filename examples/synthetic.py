"""The paper's synthetic data: where are intervals wide, where infinite, and is that right?

`LVD_FIGURE=band.png python examples/synthetic.py` also draws the band.
"""

# %% Rows are dense on [-1, 1] and rare above 1; the noise is the same everywhere.
import os

import numpy as np

import lvd

QUICK = "LVD_QUICK" in os.environ
n_rows = 100 if QUICK else 400
X_train, y_train = lvd.data.make_synthetic(n_rows, random_state=0)
X_calib, y_calib = lvd.data.make_synthetic(n_rows, random_state=1)
X_test, y_test = lvd.data.make_synthetic(300 if QUICK else 2000, random_state=2)

# %% One network, two methods around it.
net = lvd.NetRegressor(n_batches=200 if QUICK else 1000, weight_decay=0.1, random_state=0)
net.fit(X_train, y_train)
methods = {
    "LVD": lvd.LVDRegressor(net, prefit=True, random_state=0),
    "split conformal": lvd.SplitConformalRegressor(net, prefit=True, random_state=0),
}
for method in methods.values():
    method.fit(X_train, y_train).conformalize(X_calib, y_calib)

# %% Where rows are dense, and where they are rare.
for part, rows in {"dense": X_test[:, 0] <= 1, "rare": X_test[:, 0] > 1}.items():
    for name, method in methods.items():
        _, intervals = method.predict_interval(X_test[rows], 0.9)
        coverage = lvd.metrics.marginal_coverage_rate(y_test[rows], intervals)
        finite, width = lvd.metrics.finite_fraction(intervals), lvd.metrics.mean_finite_width(intervals)
        print(f"{part:6} {name:16} covered {coverage:.0%}, finite {finite:.0%}, width {width:.1f}")

# %% Why is the interval of a far row what it is?
print(f"at x = 3: {methods['LVD'].explain([[3.0]])[0].sentence}")

# %% Draw the bands, if asked.
if "LVD_FIGURE" in os.environ:
    import matplotlib.pyplot as plt

    grid = np.linspace(-1.0, 3.5, 400)
    figure, panels = plt.subplots(1, 2, sharey=True, figsize=(9, 4))
    for axes, (name, method) in zip(panels, methods.items(), strict=True):
        y_pred, band = method.predict_interval(grid[:, None], 0.9)
        lower, upper = np.clip(band[:, :, 0].T, -60, 60)  # infinite ends at the edges of the panel
        axes.fill_between(grid, lower, upper, alpha=0.3, label="90% interval")
        axes.plot(grid, y_pred, label="prediction")
        axes.scatter(X_test[:200, 0], y_test[:200], s=6, color="black", label="test rows")
        axes.set(title=name, ylim=(-60, 60), xlim=(-1, 3.5))
    axes.legend()
    figure.savefig(os.environ["LVD_FIGURE"])
