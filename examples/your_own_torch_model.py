"""Intervals around a torch model of your own, which stays as it is: several targets, saved and loaded again."""

# %% A model with a branch, trained the way you train.
import os
import tempfile

import numpy as np
import torch
from torch import nn

import lvd

QUICK = "LVD_QUICK" in os.environ


class TwoBranches(nn.Module):
    """A model that `lvd` has never seen, with two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(2, 24), nn.Linear(2, 24)
        self.head = nn.Linear(48, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Predictions (n, 2)."""
        return self.head(torch.cat([self.left(x[:, :2]).relu(), self.right(x[:, 2:]).tanh()], 1))


rng = np.random.default_rng(0)
n_rows = 600 if QUICK else 3000
X = rng.uniform(-1, 1, size=(n_rows, 4)).astype(np.float32)
noise = rng.normal(size=(n_rows, 2)) * np.where(X[:, :1] > 0, 0.5, 0.05)
y = np.stack([np.sin(3 * X[:, 0]), X[:, 0] * X[:, 2]], 1) + noise
X_train, X_calib, X_test, y_train, y_calib, y_test = lvd.three_way_split(X, y, random_state=0)

with torch.random.fork_rng():
    torch.manual_seed(0)
    model = TwoBranches()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
inputs, targets = torch.tensor(X_train), torch.tensor(y_train, dtype=torch.float32)
for _ in range(100 if QUICK else 500):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()

# %% The kernel is learned on the training rows, the intervals are calibrated on rows the model has not seen.
reg = lvd.LVDRegressor(model, prefit=True, random_state=0)
reg.fit(X_train, y_train).conformalize(X_calib, y_calib)

# %% Intervals (rows, 2, levels, targets).
y_pred, intervals = reg.predict_interval(X_test, [0.5, 0.9])
for target in range(2):
    print(f"target {target}")
    print(lvd.metrics.summary(y_test[:, target], y_pred[:, target], intervals[..., target], [0.5, 0.9]))
widths = intervals[:, 1, 0, 0] - intervals[:, 0, 0, 0]
noisy, quiet = (np.median(widths[rows]) for rows in (X_test[:, 0] > 0, X_test[:, 0] <= 0))
print(f"median width at 50% of target 0: {noisy:.2f} where the noise is large, {quiet:.2f} elsewhere")

# %% The weights are saved, your code is not: give the module again when you load.
with tempfile.TemporaryDirectory() as folder:
    reg.save(folder)
    loaded = lvd.load(folder, estimator=TwoBranches())
print("same predictions after loading:", bool((loaded.predict(X_test) == y_pred).all()))
