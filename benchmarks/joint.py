"""Joint regions of several targets: ``python -m benchmarks.joint --data-dir FOLDER``.

Bonferroni, boxes and ellipsoids, local and with one size for all rows, on the same network, training,
calibration and test rows. Each finished split is written at once, and a second call resumes from there.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import chi2

import lvd
from experiments.paper.formats import Grid, bare_table
from experiments.paper.result_store import read_dataclasses, write_dataclasses
from experiments.paper.runs import grouped
from lvd import metrics
from lvd._files import write_text
from lvd._typing import Float, NDArray
from lvd.intervals import Ellipsoids, Region
from lvd.molecules.domain import count_fingerprints

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results" / "joint.csv", ROOT / "docs" / "joint.md"
LEVEL, SEEDS = 0.9, 5
SYNTHETIC_ROWS, MOLECULES, BITS = 3000, 3000, 128
QM8_FOUR, QM8_ALL, QM9_ALL = slice(1, 5), slice(1, 17), slice(5, 17)
"""Columns of the targets: CC2's two energies and strengths, those of all four methods, and QM9's twelve."""


class Data(NamedTuple):
    """Inputs, targets and, if the truth is known, the noise covariance and the mean of each row."""

    X: Float[NDArray, "n p"]
    y: Float[NDArray, "n t"]
    mean: Float[NDArray, "n t"] | None = None
    covariance: Float[NDArray, "n t t"] | None = None


@dataclass(frozen=True)
class Result:
    """One method on one split of one dataset."""

    dataset: str
    method: str
    seed: int
    targets: int
    correlation: float
    coverage: float
    finite: float
    log_volume: float
    worst_slab: float
    ert: float


def energy(folder: Path, seed: int) -> Data:
    """The heating and the cooling load of 768 buildings."""
    table = np.genfromtxt(folder / "energy.csv", delimiter=",", skip_header=1)
    return Data(table[:, :8], table[:, 8:])


def synthetic(rho: float) -> Callable[[Path, int], Data]:
    """Three targets whose noise grows with one input; where another is positive, its correlation is `rho`."""

    def draw(folder: Path, seed: int) -> Data:
        rng = np.random.default_rng([seed, round(100 * rho)])
        X = rng.uniform(-1.0, 1.0, size=(SYNTHETIC_ROWS, 4))
        together = np.where(X[:, 1, None, None] > 0.0, rho, 0.0)
        correlation = np.where(np.eye(3) > 0.0, 1.0, together)
        scale = (0.1 + np.abs(X[:, :1])) * [1.0, 5.0, 0.2]
        covariance = correlation * scale[:, :, None] * scale[:, None]
        mean = np.column_stack([X[:, 0] + X[:, 1], 5.0 * np.sin(2.0 * X[:, 2]), 0.2 * X[:, 3]])
        factors = np.linalg.cholesky(covariance)
        noise = (factors @ rng.normal(size=(SYNTHETIC_ROWS, 3, 1)))[..., 0]
        return Data(X, mean + noise, mean, covariance)

    return draw


def molecules(name: str, targets: slice) -> Callable[[Path, int], Data]:
    """Some molecules of a table as counts of circular substructures, and their properties."""

    def read(folder: Path, seed: int) -> Data:
        with gzip.open(folder / f"{name}.csv.gz", "rt") as file:
            head, *rows = csv.reader(file)
        chosen = np.random.default_rng(seed).permutation(len(rows))[:MOLECULES]
        X = count_fingerprints((rows[i][head.index("smiles")] for i in chosen), BITS)
        return Data(X, np.array([[float(cell) for cell in rows[i][targets]] for i in chosen]))

    return read


DATASETS: dict[str, Callable[[Path, int], Data]] = {
    "energy": energy,
    "synthetic, correlated": synthetic(0.9),
    "synthetic, independent": synthetic(0.0),
    "QM8": molecules("qm8", QM8_FOUR),
    "QM8, all targets": molecules("qm8", QM8_ALL),
    "QM9, all targets": molecules("qm9", QM9_ALL),
}
BONFERRONI, ORACLE = "Bonferroni, local", "the truth"
METHODS = (
    BONFERRONI,
    "box, local",
    "ellipsoid, local",
    "Bonferroni, one size",
    "box, one size",
    "ellipsoid, one size",
)


def regressor(method: str, network: Any, n_targets: int, seed: int) -> Any:
    """The method around an already trained network."""
    shape, _, kind = method.partition(", ")
    own_level = 1.0 - (1.0 - LEVEL) / n_targets
    settings: dict[str, Any] = {"prefit": True, "calib_size": None, "random_state": seed}
    settings["confidence_level"] = own_level if shape == "Bonferroni" else LEVEL
    if kind == "local":
        return lvd.LVDRegressor(network, joint=None if shape == "Bonferroni" else shape, **settings)
    score: Any = "absolute" if shape == "Bonferroni" else lvd.scores.JointResidual(shape, scales=())
    return lvd.SplitConformalRegressor(network, conformity_score=score, **settings)


def run(dataset: str, data: Data, seed: int) -> Iterator[Result]:
    """All methods on one split: 60% of the rows train, 20% calibrate, 20% test."""
    order = np.random.default_rng(seed).permutation(len(data.y))
    train, calib, test = np.split(order, [round(0.6 * len(order)), round(0.8 * len(order))])
    network = lvd.NetRegressor(random_state=seed).fit(data.X[train], data.y[train])
    errors = data.y[test] - network.predict(data.X[test])
    correlation = float(np.corrcoef(errors.T)[np.triu_indices(data.y.shape[1], 1)].mean())
    low, high = data.y[train].min(axis=0), data.y[train].max(axis=0)
    bounds = low - 0.1 * (high - low), high + 0.1 * (high - low)

    def judged(method: str, region: Region | NDArray) -> Result:
        hits = metrics.joint_coverage_rate(data.y[test], region)
        boxes = region.project() if isinstance(region, Region) else region
        inputs = (data.X[test] - data.X[train].mean(0)) / np.maximum(data.X[train].std(0), 1e-9)
        slab = metrics.worst_slab_coverage(inputs, data.y[test], region, random_state=seed)
        risk = metrics.excess_risk_of_target_coverage(data.X[test], data.y[test], region, LEVEL)
        finite = float(np.isfinite(boxes).all(axis=(1, 2)).mean())
        volume = metrics.mean_log_volume(region, y_range=bounds)
        n_targets = data.y.shape[1]
        return Result(
            *(dataset, method, seed, n_targets, correlation, hits, finite, volume, slab.coverage, risk.total)
        )

    for method in METHODS:
        reg = regressor(method, network, data.y.shape[1], seed)
        reg.fit(data.X[train], data.y[train]).conformalize(data.X[calib], data.y[calib])
        if method.startswith("Bonferroni"):
            yield judged(method, reg.predict_interval(data.X[test])[1][:, :, 0])
        else:
            yield judged(method, reg.predict_region(data.X[test]))
    if data.mean is not None and data.covariance is not None:
        scale = np.full(len(test), chi2.ppf(LEVEL, data.y.shape[1]) ** 0.5)
        yield judged(ORACLE, Ellipsoids(data.mean[test], data.covariance[test], scale))


HEAD = """# Several targets together, measured

Written by `python -m benchmarks.joint --page` from `results/joint.csv`; no figure on this page is typed. On
each of up to {seeds} splits (60% of the rows train, 20% calibrate, 20% test) all methods share one network, and
predict regions that hold all targets at {level:.0%}. Bonferroni gives each target an interval at a level so
high that all hold together. "One size" is the same region for all rows, moved to the prediction. Coverage:
the share of test rows of which all targets are in the region. Volume: the geometric mean, relative to local
Bonferroni's; an infinite region counts as the range of the training targets, a tenth wider on each side.
Worst slab: the lowest joint coverage found between two parallel planes that hold a tenth of the rows, judged
on rows that were not searched. ERT: how far joint coverage is from the level row by row; lower is better.
"The truth" is the ellipsoid of the noise that the rows were drawn with, around the true mean.

"""


def write_page(path: Path, results: Sequence[Result]) -> None:
    """Write a table for each dataset, and a summary in sentences."""
    seeds = len({result.seed for result in results})
    parts = [HEAD.format(seeds=seeds, level=LEVEL), said(results)]
    parts += starmap(table, grouped(results, attrgetter("dataset")).items())
    write_text(path, "\n".join(parts))


def relative_volume(results: Sequence[Result], method: str, other: str) -> float:
    """The geometric mean, over splits, of a method's volumes relative to the other's."""
    volumes = {(result.method, result.seed): result.log_volume for result in results}
    seeds = {result.seed for result in results}
    return float(np.exp(np.mean([volumes[method, seed] - volumes[other, seed] for seed in seeds])))


def short(ratio: float) -> str:
    """Two decimals, or a power of ten: volumes in many dimensions differ by orders of magnitude."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.0e}"


def table(dataset: str, results: Sequence[Result]) -> str:
    """The methods on one dataset."""
    correlation = np.mean([result.correlation for result in results])
    lines = [
        f"## {dataset[0].upper()}{dataset[1:]}\n",
        f"{results[0].targets} targets, {len({result.seed for result in results})} splits; the mean correlation of "
        f"the targets' errors is {correlation:.2f}.\n",
    ]
    rows = []
    for method, own in grouped(results, attrgetter("method")).items():
        coverage, finite, slab, ert = (
            float(np.nanmean([getattr(result, name) for result in own]))
            for name in ("coverage", "finite", "worst_slab", "ert")
        )
        volume = short(relative_volume(results, method, BONFERRONI))
        rows.append([method, f"{coverage:.1%}", volume, f"{finite:.1%}", f"{slab:.1%}", f"{ert:.3f}"])
    grid = Grid("", "", ("method", "coverage", "volume", "finite", "worst slab", "ERT"), rows)
    return "\n".join([*lines, bare_table(grid)]) + "\n"


def said(results: Sequence[Result]) -> str:
    """Sentences that follow from the figures."""
    lines = []
    for first, second in (
        ("box, local", BONFERRONI),
        ("ellipsoid, local", "box, local"),
        ("box, local", "box, one size"),
    ):
        ratios = {
            dataset: relative_volume(own, first, second)
            for dataset, own in grouped(results, attrgetter("dataset")).items()
        }
        smaller = [f"{name} ({short(ratio)})" for name, ratio in ratios.items() if ratio < 1.0]
        larger = [f"{name} ({short(ratio)})" for name, ratio in ratios.items() if ratio >= 1.0]
        text = f"- The volume of *{first}* is below that of *{second}* on {', '.join(smaller) or 'none'}"
        lines.append(text + (f", and not on {', '.join(larger)}." if larger else "."))
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data-dir", type=Path, default=Path(), help="folder with energy.csv, qm8.csv.gz and qm9.csv.gz"
    )
    parser.add_argument("--datasets", nargs="+", choices=tuple(DATASETS), default=tuple(DATASETS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--page", type=Path, nargs="?", const=PAGE, help="only write the page of the results so far"
    )
    arguments = parser.parse_args()
    done = read_dataclasses(arguments.results, Result) if arguments.results.exists() else []
    if arguments.page:
        write_page(arguments.page, done)
        return
    torch.set_num_threads(1)
    for dataset in arguments.datasets:
        for seed in range(arguments.seeds):
            if any((result.dataset, result.seed) == (dataset, seed) for result in done):
                continue
            done += run(dataset, DATASETS[dataset](arguments.data_dir, seed), seed)
            write_dataclasses(done, arguments.results, Result, digits=17)
            print(*done[-len(METHODS) - 1 :], sep="\n", flush=True)


if __name__ == "__main__":
    main()
