"""Distributional conformal prediction as published (Chernozhukov, Wüthrich and Zhu 2021), without local weights.

The rank of y in a predicted distribution is calibrated: both ends alike, or split so that intervals are short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Tensor

from experiments.arena.rivals import ToIntervals
from experiments.arena.split import ArenaSplit
from lvd import NetRegressor
from lvd._typing import Float, NDArray
from lvd.engine import conformal_quantile
from lvd.metrics.interval_metrics import widened_range
from lvd.models.losses import quantile_loss

ORDERS = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.995)
SHIFTS = 41
"""How many ways of splitting the misses are tried."""


@dataclass(frozen=True, eq=False)
class Quantiles:
    """The predicted distribution of each row, linear between its quantiles, which start and end at bounds of y.

    `orders` go from 0 to 1, and `values` (n, q) increase along each row.
    """

    orders: Float[NDArray, "q"]
    values: Float[NDArray, "n q"]

    def cdf(self, y: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
        """The probability of at most y."""
        return np.array([np.interp(one, row, self.orders) for one, row in zip(y, self.values, strict=True)])

    def masses_below(self, edges: Float[NDArray, "b"]) -> Float[NDArray, "n b"]:
        """The probability of at most each edge, in each row."""
        return np.array([np.interp(edges, row, self.orders) for row in self.values])

    def at(self, orders: Float[NDArray, "n *k"]) -> Float[NDArray, "n *k"]:
        """The quantiles of these orders, infinite for orders outside (0, 1)."""
        found = np.array(
            [np.interp(one, self.orders, row) for one, row in zip(orders, self.values, strict=True)]
        )
        return np.where(orders <= 0.0, -np.inf, np.where(orders >= 1.0, np.inf, found))


def learn_distribution(split: ArenaSplit) -> Callable[[Float[NDArray, "n p"]], Quantiles]:
    """Quantiles of y from the training rows: jointly by the arena's network, or each by boosted trees."""
    X, y = split.X_train, split.y_train
    if split.model == "network":
        orders = torch.as_tensor(ORDERS)

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            return quantile_loss(targets - outputs, orders.to(outputs)).mean()

        network = NetRegressor(loss=loss, device="cpu", random_state=split.seed)
        predict = network.fit(X, np.tile(y[:, None], len(ORDERS))).predict
    else:
        models = [
            HistGradientBoostingRegressor(loss="quantile", quantile=order, random_state=split.seed).fit(X, y)
            for order in ORDERS
        ]

        def predict(X: NDArray) -> NDArray:
            return np.column_stack([model.predict(X) for model in models])

    lowest, highest = widened_range(y)
    orders_with_ends = np.array([0.0, *ORDERS, 1.0])

    def ask(X: Float[NDArray, "n p"]) -> Quantiles:
        inner = np.sort(np.clip(predict(X), lowest, highest), axis=1)
        ends = (np.full((len(X), 1), lowest), np.full((len(X), 1), highest))
        return Quantiles(orders_with_ends, np.concatenate([ends[0], inner, ends[1]], axis=1))

    return ask


def distributional(split: ArenaSplit, level: float, *, shortest: bool) -> ToIntervals:
    """All y whose rank in the distribution is within a conformal distance of the centre.

    The centre is the median or, for the `shortest` intervals, the centre of the shortest interval at the level.
    """
    ask = split.stages.once("distribution", lambda: learn_distribution(split))

    def middle(found: Quantiles) -> Float[NDArray, "n"]:
        if not shortest:
            return np.full(len(found.values), 0.5)
        low = np.linspace(0.0, 1.0 - level, SHIFTS + 2)[1:-1]
        asked = np.tile(low, (len(found.values), 1))
        lengths = found.at(asked + level) - found.at(asked)
        return low[lengths.argmin(axis=1)] + level / 2.0

    known = ask(split.X_calib)
    (radius,) = conformal_quantile(np.abs(known.cdf(split.y_calib) - middle(known)), np.array([level]))

    def intervals(X: Float[NDArray, "n p"]) -> Float[NDArray, "n 2"]:
        found = ask(X)
        return found.at(middle(found)[:, None] + radius * np.array([-1.0, 1.0]))

    return intervals
