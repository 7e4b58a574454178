"""The pictures of "How it works", "Choose a method" and "Reproduction": ``python -m docs.images.draw``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import lvd
from experiments.paper.figures import jackknife, synthetic, three_bands
from lvd.demo.figures import panels_of, save_figure
from lvd.demo.homes import LVD, PAPER, SPLIT, fit_and_ask, homes_figure

FOLDER = Path(__file__).parent
LEVEL = 0.9
NEW_ROWS = {"a": (3.0, "#0072B2"), "b": (9.0, "#D55E00")}
"""The positions of two new rows, and their colours: many calibration rows are like a, few like b."""


def weights_figure() -> Figure:
    """Step 4 of the method: calibration scores with their weights for two new rows, and the weight summed up."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0.0, 7.0, 150), rng.uniform(7.0, 10.0, 12)])
    scores = np.abs(rng.normal(size=len(x))) * (0.4 + 0.2 * x)
    kernel = lvd.MahalanobisKernel.from_components([[1.0]], mean=[0.0], scale=[1.0], device="cpu")
    conformal = lvd.LocalConformal(kernel).conformalize(x[:, None], scores)
    figure, (rows, summed) = panels_of(2)
    rows.scatter(x, scores, s=8, color="#BBBBBB", label="calibration row")
    order = np.argsort(scores)
    for name, (position, colour) in NEW_ROWS.items():
        weights = kernel([[position]], x[:, None])[0]
        rows.scatter(
            x, scores, s=90 * weights, color=colour, alpha=0.6, label=f"its weight for new row {name}"
        )
        rows.axvline(position, color=colour, linestyle=":")
        reached = weights[order].cumsum() / (weights.sum() + 1.0)
        radius = float(conformal.radius([[position]], LEVEL)[0])
        said = "infinite" if np.isinf(radius) else f"{radius:.2g}"
        summed.step(
            scores[order], reached, where="post", color=colour, label=f"new row {name}: radius {said}"
        )
        if np.isfinite(radius):
            summed.plot([radius, radius], [0.0, LEVEL], color=colour, linestyle=":")
    summed.axhline(LEVEL, color="#111111", linestyle="--", label=f"level {LEVEL:.0%}")
    summed.set(xlabel="score", ylabel="summed weight", ylim=(0.0, 1.0), title="The weight, summed up")
    rows.set(xlabel="x", ylabel="score (absolute error)", title="Scores of the calibration rows")
    for axes in (rows, summed):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False, fontsize="small")
    return figure


def bandwidth_figure() -> Figure:
    """One bandwidth for all rows beside one for each row, on rows that thin out to the right."""
    rng = np.random.default_rng(0)

    def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
        x = np.concatenate([rng.uniform(0.0, 6.0, n - n // 20), rng.uniform(6.0, 10.0, n // 20)])
        return x[:, None], np.abs(rng.normal(size=n)) * (0.4 + 0.2 * x)

    x_train = rows(800)[0]
    kernel = lvd.MahalanobisKernel(1, device="cpu", random_state=0).fit(x_train, np.sin(2.0 * x_train[:, 0]))
    x_calib, scores = rows(400)
    grid = np.linspace(0.0, 10.0, 400)[:, None]
    figure, (left, right) = panels_of(2)
    left.scatter(x_calib[:, 0], scores, s=8, color="#BBBBBB", label="calibration row")
    for bandwidth, colour in ((1.0, "#D55E00"), ("adaptive", "#0072B2")):
        conformal = lvd.LocalConformal(kernel, bandwidth=bandwidth, mass=3.0).conformalize(x_calib, scores)
        radius, label = conformal.radius(grid, LEVEL), f"bandwidth={bandwidth!r}"
        infinite = f"{label}, infinite at {np.isinf(radius).mean():.0%} of all x"
        left.plot(grid, np.where(np.isinf(radius), np.nan, radius), color=colour, label=infinite)
        right.plot(grid, conformal.bandwidths(grid), color=colour, label=label)
    left.set(xlabel="x", ylabel="score (absolute error)", title=f"Radius at level {LEVEL:.0%}")
    right.set(xlabel="x", ylabel="h(x)", title="Bandwidth", ylim=(0.0, None))
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False, fontsize="small")
    return figure


def homes_pictures() -> None:
    """The demo's homes: LVD beside split conformal, as the demo draws it, and beside the paper's method."""
    outcome = fit_and_ask((LVD, SPLIT, PAPER))
    for name, rival in {"homes": SPLIT, "town": PAPER}.items():
        chosen = {method: outcome.intervals[method] for method in (LVD, rival)}
        save_figure(homes_figure(replace(outcome, intervals=chosen)), FOLDER / f"{name}.png")
    for name, rows in outcome.places().items():
        said = [f"{one} covers {outcome.among(rows, one).coverage:.0%}" for one in outcome.intervals]
        print(f"{name}: {', '.join(said)}")


if __name__ == "__main__":
    homes_pictures()
    save_figure(bandwidth_figure(), FOLDER / "bandwidth.png")
    save_figure(weights_figure(), FOLDER / "weights.png")
    save_figure(three_bands(), FOLDER / "three_bands.png")
    save_figure(synthetic(), FOLDER / "methods.png")
    save_figure(jackknife(), FOLDER / "jackknife.png")
