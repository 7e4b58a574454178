"""Pictures of intervals for notebooks; each function draws into matplotlib axes and returns them.

Infinite intervals are drawn as hatched strips over the whole height, and counted in the legend.

Examples
--------
>>> import numpy as np, lvd
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, size=(400, 2))
>>> y = X[:, 0] + rng.normal(size=400) * np.abs(X[:, 1])
>>> reg = lvd.LVDRegressor("trees", random_state=0).fit(X[:300], y[:300])
>>> lvd.plot.intervals(reg, X[300:], y[300:], feature=1).get_ylabel()
'y'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lvd._typing import ArrayLike, Float, Levels, NDArray
from lvd._validation import InputError, check_levels, check_same_length, check_vector, to_numpy
from lvd.intervals import binomial_band, covered, widths
from lvd.methods.base import IntervalRegressor

__all__ = ["calibration", "distribution", "intervals", "width_and_error"]

BLUE, ORANGE, BLACK, GREY = "#0072B2", "#D55E00", "#111111", "#A8A8A8"
SHADES = ("#D6E9F3", "#9CCAE4", "#5FA8D3")
UNKNOWN: dict[str, Any] = {"facecolor": "#F1F1F1", "edgecolor": GREY, "hatch": "///", "linewidth": 0.0}
LEVELS = np.linspace(0.05, 0.95, 19)
SHARE = 0.05
QUANTILES = np.arange(SHARE / 2.0, 1.0, SHARE)


def intervals(
    reg: IntervalRegressor,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    feature: int | str | None = None,
    confidence_level: Levels | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The intervals of rows along a feature: a bar for each row and level, the prediction, and y where it is given.

    Without `feature` the rows are in the order of their predictions.
    """
    axes, levels = _axes(ax), np.sort(check_levels(_levels_of(reg, confidence_level)))
    y_pred, ends = _prediction_of(reg, X, levels)
    along, name = (y_pred, "prediction") if feature is None else _column(X, feature)
    order = np.argsort(along, kind="stable")
    x, y_pred, ends = along[order], y_pred[order], ends[order]
    finite = np.isfinite(ends[:, 0]) & np.isfinite(ends[:, 1])
    room = max(float(np.ptp(x)) / 200.0, np.spacing(np.abs(x).max()))
    for number in range(len(levels))[::-1]:
        some = finite[:, number]
        shade = SHADES[max(0, len(SHADES) - 1 - number)] if len(levels) > 1 else SHADES[1]
        axes.vlines(
            x[some], *ends[some, :, number].T, color=shade, linewidth=3.0, label=f"level {levels[number]:g}"
        )
    infinite = ~finite[:, -1]
    for place, one in enumerate(x[infinite].tolist()):
        label = f"infinite ({infinite.sum()})" if not place else None
        axes.axvspan(one - room / 2.0, one + room / 2.0, zorder=0, label=label, **UNKNOWN)
    axes.plot(x, y_pred, ".", color=BLACK, markersize=3, label="prediction")
    if y is not None:
        targets = _targets(y, len(x))[order]
        inside = covered(targets, ends[..., -1:])[:, 0]
        for some, text, style in ((inside, "inside", (BLUE, "o")), (~inside, "outside", (ORANGE, "X"))):
            axes.scatter(
                *(x[some], targets[some]),
                color=style[0],
                marker=style[1],
                s=14,
                zorder=3,
                label=f"{text} ({some.sum()})",
            )
    axes.set(xlabel=name, ylabel="y")
    axes.legend(frameon=False, fontsize="small")
    return axes


def calibration(
    reg: IntervalRegressor,
    X: ArrayLike,
    y: ArrayLike,
    *,
    confidence_level: Levels = LEVELS,
    ax: Axes | None = None,
) -> Axes:
    """The share of rows covered at each level, with its 95% band, against the level.

    The rows must be new: on rows that trained or calibrated the model the curve is meaningless.
    """
    axes, levels = _axes(ax), np.sort(check_levels(confidence_level))
    _, ends = _prediction_of(reg, X, levels)
    inside = covered(_targets(y, len(ends)), ends)
    low, high = binomial_band(inside.sum(axis=0), len(inside))
    axes.plot([0, 1], [0, 1], ":", color=BLACK, label="as promised on average")
    axes.fill_between(levels, low, high, color=SHADES[0], label="95% band")
    axes.plot(levels, inside.mean(axis=0), color=BLUE, marker=".", label=f"covered, of {len(inside)} rows")
    axes.set(xlabel="confidence level", ylabel="share of rows covered", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False, fontsize="small", loc="upper left")
    return axes


def width_and_error(
    reg: IntervalRegressor,
    X: ArrayLike,
    y: ArrayLike,
    *,
    confidence_level: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The absolute error of each row against the width of its interval: wide intervals should have large errors.

    The line joins the mean errors of ten groups of rows, in order of width.
    """
    axes = _axes(ax)
    level = check_levels(_levels_of(reg, confidence_level))[-1:]
    y_pred, ends = _prediction_of(reg, X, level)
    width, errors = widths(ends)[:, 0], np.abs(_targets(y, len(ends)) - y_pred)
    finite = np.isfinite(width)
    inside = covered(_targets(y, len(ends)), ends)[:, 0]
    for some, text, colour in ((inside, "inside", BLUE), (~inside, "outside", ORANGE)):
        chosen = some & finite
        axes.scatter(width[chosen], errors[chosen], s=8, color=colour, label=f"{text} ({chosen.sum()})")
    order = np.flatnonzero(finite)[np.argsort(width[finite], kind="stable")]
    groups = [group for group in np.array_split(order, 10) if len(group)]
    means = np.array([[width[group].mean(), errors[group].mean()] for group in groups]).reshape(-1, 2)
    axes.plot(*means.T, color=BLACK, marker="o", markersize=4, label="mean of a tenth of the rows")
    left_out = "" if finite.all() else f"; {int((~finite).sum())} infinite intervals are left out"
    axes.set(xlabel=f"width at level {level[0]:g}{left_out}", ylabel="absolute error", ylim=(0.0, None))
    axes.legend(frameon=False, fontsize="small")
    return axes


def distribution(reg: Any, row: ArrayLike, y: float | None = None, *, ax: Axes | None = None) -> Axes:
    """The distribution of y at one row: its density between quantiles, and the interval at the regressor's level.

    For :class:`lvd.LVDRegressor` and one target; `row` is one row of X: a matrix or frame of one row, or a vector.
    """
    if not hasattr(reg, "predict_distribution"):
        raise InputError(
            f"{type(reg).__name__} has no predict_distribution; plot.distribution is for LVDRegressor"
        )
    rows = row if hasattr(row, "columns") or np.ndim(row) == 2 else np.reshape(to_numpy(row), (1, -1))
    if len(rows) != 1:
        raise InputError(f"row must be one row of X, got {len(rows)}; pick one, such as X[:1]")
    axes = _axes(ax)
    level = check_levels(_levels_of(reg, None))[-1:]
    y_pred, ends = _prediction_of(reg, rows, level)
    found = to_numpy(reg.predict_distribution(rows).quantile(QUANTILES))[0]
    quantiles = found[np.isfinite(found)]
    if len(quantiles) > 1:
        # Equal quantiles, which occur if one row carries much weight, become one tall, narrow bar.
        least = max(float(np.ptp(quantiles)) / 80.0, np.spacing(np.abs(quantiles).max()))
        edges = np.concatenate(
            [quantiles[:1], quantiles[:1] + np.maximum(np.diff(quantiles), least).cumsum()]
        )
        axes.stairs(SHARE / np.diff(edges), edges, fill=True, color=SHADES[1], label="density")
    else:
        axes.text(0.5, 0.5, "nothing is known here", ha="center", va="center", transform=axes.transAxes)
    for end in ends[0, :, 0][np.isfinite(ends[0, :, 0])].tolist():
        axes.axvline(end, color=BLUE, linestyle="--")
    said = "infinite" if np.isinf(ends).any() else f"{ends[0, 0, 0]:.4g} to {ends[0, 1, 0]:.4g}"
    axes.plot([], [], "--", color=BLUE, label=f"level {level[0]:g}: {said}")
    axes.axvline(float(y_pred[0]), color=BLACK, label=f"prediction {y_pred[0]:.4g}")
    if y is not None:
        axes.axvline(float(y), color=ORANGE, label=f"y {float(y):.4g}")
    axes.set(xlabel="y", ylabel="density", ylim=(0.0, None))
    axes.legend(frameon=False, fontsize="small")
    return axes


def _axes(given: Axes | None) -> Axes:
    """The given axes or new ones; in a notebook those of pyplot's figure, which is then shown."""
    if given is not None:
        return given
    import sys

    pyplot = sys.modules.get("matplotlib.pyplot")
    figure = Figure(figsize=(6.4, 4.2), layout="constrained") if pyplot is None else pyplot.figure()
    return figure.add_subplot()


def _levels_of(reg: IntervalRegressor, confidence_level: Levels | None) -> Levels:
    return reg.confidence_level if confidence_level is None else confidence_level


def _prediction_of(
    reg: IntervalRegressor, X: ArrayLike, levels: Float[NDArray, "l"]
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n 2 l"]]:
    """Predictions and intervals of one target."""
    y_pred, ends = (to_numpy(part) for part in reg.predict_interval(X, levels))
    if y_pred.ndim > 1:
        raise InputError(f"plots are of one target, and this model has {y_pred.shape[1]}; fit one for each")
    return y_pred, ends


def _targets(y: ArrayLike, n_rows: int) -> Float[NDArray, "n"]:
    targets = check_vector(y)
    check_same_length(X=np.empty(n_rows), y=targets)
    return targets


def _column(X: ArrayLike, feature: int | str) -> tuple[Float[NDArray, "n"], str]:
    """A column, by number or by its name in a frame, and its label."""
    names: Sequence[Any] = list(getattr(X, "columns", []))
    if isinstance(feature, str):
        if feature not in names:
            raise InputError(f"feature must be a column of X, {', '.join(map(repr, names))}, got {feature!r}")
        feature = names.index(feature)
    columns = len(names) or np.shape(X)[1]
    if not 0 <= feature < columns:
        raise InputError(f"feature must be from 0 to {columns - 1}, got {feature}")
    column = X[names[feature]] if names else to_numpy(X)[:, feature]
    return check_vector(column, "feature"), str(names[feature]) if names else f"feature {feature}"
