"""How much to order: money saved by deciding with a distribution instead of a prediction.

Bread that is left in the evening costs 1, bread that is missing costs 4. To order what the model predicts is wrong
twice: it ignores that missing costs more, and that some days are harder to predict than others.
"""

# %% Days of some bakeries: demand is skewed, and scatters far more on Saturdays and before holidays.
import os

import numpy as np
from sklearn.datasets import load_diabetes

import lvd

QUICK = "LVD_QUICK" in os.environ
LEFT, MISSING = 1.0, 4.0
rng = np.random.default_rng(0)
n_days = 1200 if QUICK else 6000
weekday, warmth, holiday = rng.integers(7, size=n_days), rng.normal(size=n_days), rng.random(n_days) < 0.05
usual = 100 + 30 * np.sin(weekday) + 8 * warmth + 60 * holiday
scatter = np.where((weekday == 5) | holiday, 0.45, 0.12)
demand = usual * np.exp(scatter * rng.normal(size=n_days))
days = np.column_stack([weekday, warmth, holiday])


# %% What an order costs, and three ways to order.
def cost(order: float | np.ndarray, demand: np.ndarray) -> np.ndarray:
    """What is left costs 1 apiece, what is missing 4."""
    return np.where(demand > order, MISSING * (demand - order), LEFT * (order - demand))


def compare(X: np.ndarray, y: np.ndarray, what: str) -> dict[str, float]:
    """The mean cost of a row by each way to decide; a third of the rows is only judged."""
    order = np.random.default_rng(0).permutation(len(y))
    known, new = order[len(y) // 3 :], order[: len(y) // 3]
    reg = lvd.LVDRegressor("trees", when_unknown="widen", random_state=0).fit(X[known], y[known])
    predicted = reg.predict(X[new])
    enough = MISSING / (MISSING + LEFT)  # the best order is this quantile of what may come
    spare = np.quantile(reg.residuals_calib_, enough)
    orders = {
        "the prediction": predicted,
        "the prediction and the same spare for all": predicted + spare,
        "the quantile of each row": reg.predict_quantiles(X[new], enough),
    }
    # The same for any cost, and for orders that come in packs.
    packs = np.linspace(y.min(), y.max(), 40)
    orders["the best of 40 orders, by expected cost"] = reg.decide(X[new], packs, cost).action
    costs = {name: float(cost(chosen, y[new]).mean()) for name, chosen in orders.items()}
    print(f"{what}: mean cost of a row, {len(new):,} new rows")
    for name, value in costs.items():
        print(f"  {name:42} {value:7.2f}  ({value / costs['the prediction'] - 1:+.0%})")
    return costs


# %% The bakeries.
bread = compare(days, demand, "Bread")

# %% Real rows: how far the diabetes of 442 patients advanced in a year, as the care to plan for them.
care = compare(*load_diabetes(return_X_y=True), "Care of patients with diabetes")

# %% The conclusion.
saved = 1 - bread["the quantile of each row"] / bread["the prediction"]
more = 1 - bread["the quantile of each row"] / bread["the prediction and the same spare for all"]
print(
    f"\nOrdering each day's quantile costs {saved:.0%} less than ordering the prediction, and {more:.0%} less"
)
print("than the prediction and one spare for all days: a quiet Tuesday needs little, a Saturday much.")
