"""A model in use while the world changes: notice it, recalibrate, and go on.

Rows come in weekly. From week 6 on the noise doubles. One model is left alone, one is watched and recalibrated.
"""

# %% A model, fitted and calibrated on the past.
import copy
import os

import numpy as np

import lvd

QUICK = "LVD_QUICK" in os.environ
WEEK, CHANGE, LAST = 100, 6, 12
rng = np.random.default_rng(0)


def rows(n: int, week: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What arrives in a week."""
    X = rng.uniform(-1, 1, size=(n, 3))
    spread = 0.2 * (1 + np.abs(X[:, 1])) * (1 if week < CHANGE else 2)
    return X, np.sin(3 * X[:, 0]) + spread * rng.normal(size=n)


net = lvd.NetRegressor(n_batches=200 if QUICK else 1000)
left_alone = lvd.LVDRegressor(net, random_state=0).fit(*rows(1200 if QUICK else 3000))
watched = copy.deepcopy(left_alone)
watch = watched.monitor(0.9, random_state=0)

# %% Week by week: first the intervals, then the truth, then a decision.
coverage: dict[str, list[float]] = {"left alone": [], "watched": []}
for week in range(1, LAST + 1):
    X, y = rows(WEEK, week)
    for name, reg in {"left alone": left_alone, "watched": watched}.items():
        coverage[name].append(lvd.metrics.marginal_coverage_rate(y, reg.predict_interval(X, 0.9)[1]))
    report = watch.take(X, y)
    watched.update(X, y)
    if report.alarm:
        print(f"week {week}: {report.sentence}")
        watched.forget(2 * WEEK)  # the present, and no more of the past than is needed for narrow bands
        watch = watched.monitor(0.9, random_state=0)

# %% What it was worth.
for name, weekly in coverage.items():
    before, after = np.mean(weekly[: CHANGE - 1]), np.mean(weekly[CHANGE:])
    print(
        f"{name:10} covered {before:.0%} before the change and {after:.0%} from the week after it, at level 90%"
    )

# %% Draw the weeks, if asked.
if "LVD_FIGURE" in os.environ:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for name, weekly in coverage.items():
        axes.plot(range(1, LAST + 1), weekly, marker="o", label=name)
    axes.axhline(0.9, color="black", linestyle="--", label="level")
    axes.set(xlabel="week", ylabel="coverage", ylim=(0, 1))
    axes.legend()
    figure.savefig(os.environ["LVD_FIGURE"])
