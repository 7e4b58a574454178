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
    "LVD": lvd.LVDRegressor(net, prefit=True, calib_size=None, random_state=0),
    "split conformal": lvd.SplitConformalRegressor(net, prefit=True, calib_size=None, random_state=0),
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
    from lvd.reproduction.figures import Band, band_figure, save_figure

    grid = np.linspace(-1.0, 3.5, 400)[:, None]
    bands = {}
    for name, method in methods.items():
        y_pred, band = method.predict_interval(grid, 0.9)
        of_rows = method.predict_interval(X_test[:200], 0.9)[1][:, :, 0]
        judged = X_test[:200, 0], y_test[:200], of_rows
        bands[name] = Band(grid[:, 0], y_pred, band[:, :, 0], *judged)
    save_figure(band_figure(bands, 0.9), os.environ["LVD_FIGURE"])
