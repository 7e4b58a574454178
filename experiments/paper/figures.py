"""The paper's figures: drawn from results, or computed here from bands over one input: the synthetic data, the
introduction's three kinds of band, and a thought experiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.linear_model import LinearRegression

from experiments.paper.bands import Band, band_figure, draw_width_error
from experiments.paper.collect import Measured, compact_tables, measure_results, read_results
from experiments.paper.layout import dataset_order, dataset_title, method_title
from experiments.paper.method_grids import FEATURED
from experiments.paper.methods import MAIN_VARIANT, REGRESSORS
from experiments.paper.result_store import Result, read_all
from experiments.paper.result_tables import only_protocol
from experiments.paper.runs import grouped
from experiments.paper.significance import sample_of
from lvd import (
    DiscriminativeJackknifeRegressor,
    InputError,
    JackknifePlusRegressor,
    LocalConformal,
    LVDRegressor,
    MahalanobisKernel,
    SplitConformalRegressor,
)
from lvd._parallel import workers
from lvd._typing import Bool, Float, NDArray
from lvd.data import load_dataset
from lvd.demo.figures import panels_of
from lvd.engine import conformal_quantile
from lvd.intervals import from_radius, widths
from lvd.methods import IntervalRegressor
from lvd.methods.conformal import ConformalMethod

LEVEL = 0.9
GRID_POINTS = 400
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#767676", "#111111")
_STYLES = dict(zip(FEATURED, zip(_COLOURS, "os^vDPX*", strict=True), strict=True))
"""Colours that colour-blind readers can distinguish (Okabe and Ito), and markers that work without colour."""


def coverage_level_figure(rows: Sequence[Measured]) -> Figure:
    """One panel per dataset: mean coverage over the seeds, with its standard deviation, at every level."""
    known = [row for row in rows if not row.error and row.method in FEATURED]
    coverage = grouped(known, lambda row: (dataset_title(row.dataset), row.method, row.confidence_level))
    shown = [method for method in FEATURED if any(row.method == method for row in known)]
    names = sorted({name for name, _, _ in coverage}, key=dataset_order)
    figure, all_axes = panels_of(len(names), shared=True)
    for axes, name in zip(all_axes, names, strict=True):
        axes.axline((50, 50), slope=1, color="#A8A8A8", linestyle="--", linewidth=1.0, label="level")
        for method in shown:
            colour, mark = _STYLES[method]
            levels = sorted(level for dataset, one, level in coverage if (dataset, one) == (name, method))
            samples = [sample_of([row.MCR for row in coverage[name, method, level]]) for level in levels]
            axes.errorbar(
                [100 * level for level in levels],
                [sample.mean for sample in samples],
                yerr=[0.0 if sample.n < 2 else sample.std for sample in samples],
                color=colour,
                marker=mark,
                markersize=5,
                linewidth=1.0,
                elinewidth=0.8,
                label=method_title(method, "features"),
            )
        axes.set_title(name)
        axes.set_xlabel("level (%)")
        axes.set_ylabel("covered test rows (%)")
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def synthetic() -> Figure:
    """All methods of the paper's comparison on the synthetic data, trained here rather than read from results."""
    return _synthetic_panels({method_title(method, "synthetic"): REGRESSORS[method] for method in FEATURED})


def jackknife() -> Figure:
    """Discriminative Jackknife, Jackknife+ and split conformal on the synthetic data, trained here."""
    return _synthetic_panels(
        {
            "Discriminative Jackknife": DiscriminativeJackknifeRegressor,
            "Jackknife+": JackknifePlusRegressor,
            "Split conformal": SplitConformalRegressor,
        }
    )


def three_bands() -> Figure:
    """The introduction's illustration: marginally valid, discriminative but not valid, locally valid."""
    bands, cluster = illustration()
    titled = {
        f"{title}: {band.covered.mean():.0%} covered,\n{band.covered[cluster].mean():.0%} of the cluster": band
        for title, band in bands.items()
    }
    figure = band_figure(titled, LEVEL, x_label="x (rings: a badly predicted cluster)")
    for axes, band in zip(figure.axes, bands.values(), strict=True):
        x, y = band.x_rows[cluster], band.y_rows[cluster]
        axes.scatter(x, y, s=70, facecolors="none", edgecolors="#C00000", linewidths=1.0, zorder=6)
    return figure


def width_error(results: Sequence[Result]) -> Figure:
    """Width of LVD's interval against the error, on the first split of every dataset."""
    local, constant = (_first_split(results, method) for method in (MAIN_VARIANT, "split"))
    both = sorted(local.keys() & constant.keys(), key=dataset_order)
    if not both:
        raise InputError(
            f"the figure of width against error needs runs of {MAIN_VARIANT} and split at level {LEVEL:g}"
        )
    figure, all_axes = panels_of(len(both))
    for axes, name in zip(all_axes, both, strict=True):
        ours, index, other = local[name], *(one[name].run.levels.index(LEVEL) for one in (local, constant))
        axes.set_title(f"{name}, LVD at {LEVEL:.0%}")
        draw_width_error(
            axes,
            np.abs(ours.y - ours.y_pred[:, index]),
            widths(ours.intervals[:, :, index]),
            split_radius=float(widths(constant[name].intervals[:, :, other]).max() / 2.0),
        )
    return figure


def read_source(path: Path, protocol: str | None) -> tuple[list[Measured], list[Result] | None]:
    """Metrics of one protocol, and the intervals of every row, None if only compact tables are left."""
    results = None if compact_tables(path) else read_all(path)
    rows = read_results(path) if results is None else measure_results(results)
    chosen = only_protocol(rows, protocol)
    return (
        [row for row in rows if row.protocol == chosen],
        None if results is None else [one for one in results if one.run.protocol == chosen],
    )


FIGURES: dict[str, Callable[[Sequence[Measured], Sequence[Result]], Figure]] = {
    "three_bands": lambda rows, results: three_bands(),
    "synthetic": lambda rows, results: synthetic(),
    "jackknife": lambda rows, results: jackknife(),
    "width_error": lambda rows, results: width_error(results),
    "coverage_level": lambda rows, results: coverage_level_figure(rows),
}
NEED_INTERVALS = ("width_error",)
"""Figures that need more than compact tables."""


def _synthetic_panels(regressors: dict[str, type[IntervalRegressor]]) -> Figure:
    with workers() as run:
        bands = dict(zip(regressors, run(synthetic_band, list(regressors.values())), strict=True))
    titled = {f"{title}: {band.covered.mean():.0%} covered": band for title, band in bands.items()}
    return band_figure(titled, LEVEL)


def _first_split(results: Sequence[Result], method: str) -> dict[str, Result]:
    """For each dataset, the method's run with the lowest seed."""
    fitting = [
        one for one in results if one.run.method == method and not one.error and LEVEL in one.run.levels
    ]
    latest_first = sorted(fitting, key=lambda result: -result.run.seed)
    return {dataset_title(result.run.dataset): result for result in latest_first}


Predict = Callable[[Float[NDArray, "n"]], tuple[Float[NDArray, "n"], Float[NDArray, "n 2"]]]
"""From positions to predictions and intervals."""


def synthetic_band(regressor: type[IntervalRegressor]) -> Band:
    """A method with its default settings, LVD as in the paper, on the synthetic data.

    A third of the rows is for training, a third for calibration, if the method has that step, and a third for
    testing.
    """
    data = load_dataset("synthetic")
    train, calib, test = np.split(np.arange(len(data.y)), 3)
    settings: dict[str, Any] = {"preset": "paper"} if regressor is LVDRegressor else {}
    model = regressor(random_state=0, **settings)
    if isinstance(model, ConformalMethod):
        model.set_params(calib_size=None).fit(data.X[train], data.y[train])
        model.conformalize(data.X[calib], data.y[calib])
    else:
        model.fit(data.X[train], data.y[train])
    return _band(_by_position(model), data.X[test, 0], data.y[test])


def illustration() -> tuple[dict[str, Band], Bool[NDArray, "n"]]:
    """A curve with a cluster of rows that the model mispredicts: the introduction's figure, and these rows.

    The constant band is split conformal. The band that is too narrow follows the mean error of nearby rows: it
    shows where errors are large, but not how large they get. The local one is LVD with a kernel of fixed width.
    """
    rng = np.random.default_rng(1)
    x_calib, y_calib, _ = _curve_with_cluster(4000, rng)
    x_rows, y_rows, cluster = _curve_with_cluster(300, rng)
    scores = np.abs(y_calib - _curve(x_calib))
    kernel = MahalanobisKernel.from_components([[8.0]], mean=[0.0], scale=[1.0], device="cpu")
    local = LocalConformal(kernel).conformalize(x_calib[:, None], scores)
    constant = float(conformal_quantile(scores, np.array([LEVEL]), quantile="finite_sample")[0])

    def mean_error(x: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
        weights = np.asarray(kernel(x[:, None], x_calib[:, None]))
        return weights @ scores / weights.sum(axis=1)

    def around_curve(radius: Callable[[Float[NDArray, "n"]], Float[NDArray, "n"]]) -> Band:
        return _band(lambda x: (_curve(x), from_radius(_curve(x), radius(x))), x_rows, y_rows)

    bands = {
        "Marginally valid": around_curve(lambda x: np.full_like(x, constant)),
        "Discriminative, not valid": around_curve(mean_error),
        "Locally valid": around_curve(lambda x: local.radius(x[:, None], LEVEL)),
    }
    return bands, cluster


def thought_experiment() -> Band:
    """The paper's argument that Jackknife+ does not separate large from small errors: Y = |X| and a straight line.

    X takes the values -10 to 10 equally often, and the model is a line through 0 by least squares. Its slope is 0,
    and next to 0 without any one row, so the errors are |x| and all intervals come close to [-9, 9] at level 90%.
    """
    x = np.arange(-10.0, 11.0)
    X = np.repeat(x, 20)[:, None]
    line = LinearRegression(fit_intercept=False)
    model = JackknifePlusRegressor(line, random_state=0).fit(X, np.abs(X[:, 0]))
    y_pred, intervals = _by_position(model)(x)
    return Band(x, y_pred, intervals, x, np.abs(x), intervals)


def _by_position(model: Any) -> Predict:
    def predict(x: Float[NDArray, "n"]) -> tuple[Float[NDArray, "n"], Float[NDArray, "n 2"]]:
        y_pred, intervals = model.predict_interval(x[:, None], LEVEL)
        return y_pred, intervals[:, :, 0]

    return predict


def _band(predict: Predict, x_rows: Float[NDArray, "n"], y_rows: Float[NDArray, "n"]) -> Band:
    x = np.linspace(x_rows.min(), x_rows.max(), GRID_POINTS)
    return Band(x, *predict(x), x_rows, y_rows, predict(x_rows)[1])


def _curve(x: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
    return np.sin(x) + 0.3 * x


def _curve_with_cluster(
    n_rows: int, rng: np.random.Generator
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"], Bool[NDArray, "n"]]:
    """Rows around the curve; those with x from 6.1 to 6.9 lie well above it, with a wide spread."""
    x = rng.uniform(0.0, 10.0, n_rows)
    cluster = (x > 6.1) & (x < 6.9)
    error = np.where(cluster, rng.normal(2.2, 0.8, n_rows), rng.normal(0.0, 0.35, n_rows))
    return x, _curve(x) + error, cluster
