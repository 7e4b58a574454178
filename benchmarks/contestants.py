"""The contestants: functions from coordinates and scores of calibration rows to intervals at two levels.

A contestant takes its calibration set and returns the function that answers queries. All get the same float64
coordinates, in which the kernel is ``exp(-||u - v||^2)``: arrays on the CPU, tensors on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

import lvd
from benchmarks import floors, rivals
from experiments.arena.rivals import TrainedRegressor

LEVELS = [0.5, 0.9]
K = 10
"""Dimensions of the rows."""
ZERO = TrainedRegressor(lambda X: np.zeros(len(X)))
"""Predicts 0, so that its errors are the scores."""

Predict = Callable[[Any], object]


def cloud(n: int, rng: np.random.Generator) -> np.ndarray:
    """All rows have weight, as in the paper's largest experiment."""
    return 0.6 / K**0.5 * rng.normal(size=(n, K))


def sheet(n: int, rng: np.random.Generator) -> np.ndarray:
    """Two directions of variation out of ten, plus a little noise: few rows have weight."""
    directions = np.linalg.qr(np.random.default_rng(1).normal(size=(K, K)))[0][:, :2]
    return rng.uniform(0, 79.0, size=(n, 2)) @ directions.T + 0.05 * rng.normal(size=(n, K))


def local_conformal(points: Any, scores: Any) -> Predict:
    """lvd through its public classes."""
    device = points.device.type if isinstance(points, torch.Tensor) else "cpu"
    kernel = lvd.MahalanobisKernel.from_components(
        np.eye(K), mean=np.zeros(K), scale=np.ones(K), distance="sum", device=device
    )
    conformal = lvd.LocalConformal(kernel).conformalize(points, scores)
    return lambda queries: conformal.radius(queries, LEVELS)


def row_by_row(points: Any, scores: Any) -> Predict:
    """One query at a time, in float32."""
    rows, radii = rivals.sorted_by_score(points, scores, torch.float32)

    def predict(queries: Any) -> torch.Tensor:
        ranks = rivals.row_by_row_ranks(torch.as_tensor(queries).float(), rows, LEVELS)
        return radii[torch.tensor(ranks, device=radii.device)]

    return predict


def plain_torch(points: Any, scores: Any) -> Predict:
    """Full weight matrices, in float32."""
    rows, radii = rivals.sorted_by_score(points, scores, torch.float32)
    return lambda queries: rivals.full_matrix_radii(torch.as_tensor(queries).float(), rows, radii, LEVELS)


def crepes_knn(points: np.ndarray, scores: np.ndarray) -> Predict:
    """Half of the rows estimate local difficulty, the other half calibrate."""
    from crepes import ConformalRegressor
    from crepes.extras import DifficultyEstimator

    half = len(points) // 2
    difficulty = DifficultyEstimator().fit(X=points[:half], residuals=scores[:half], scaler=True)
    regressor = ConformalRegressor().fit(scores[half:], sigmas=difficulty.apply(points[half:]))

    def predict(queries: np.ndarray) -> list[np.ndarray]:
        sigmas, y_pred = difficulty.apply(queries), np.zeros(len(queries))
        return [regressor.predict_int(y_pred, sigmas=sigmas, confidence=level) for level in LEVELS]

    return predict


def mapie_split(points: np.ndarray, scores: np.ndarray) -> Predict:
    from mapie.regression import SplitConformalRegressor

    regressor = SplitConformalRegressor(ZERO, confidence_level=LEVELS, prefit=True)
    return regressor.conformalize(points, scores).predict_interval


def mapie_conditional(points: np.ndarray, scores: np.ndarray) -> Predict:
    """Exact cutoffs over linear functions of the coordinates."""
    from mapie.conditional_conformal_prediction import ConditionalSplitConformalRegressor

    regressor = ConditionalSplitConformalRegressor(
        lambda X: np.column_stack([np.ones(len(X)), X]), estimator=ZERO, confidence_level=LEVELS
    )
    return regressor.conformalize(points, scores).predict_interval


@dataclass(frozen=True)
class Contestant:
    """`question` describes, for the page, what it computes; without `on_gpu` it always computes on the CPU."""

    title: str
    question: str
    calibrate: Callable[[Any, Any], Predict]
    rows: Callable[[int, np.random.Generator], np.ndarray] = cloud
    on_gpu: bool = True
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Floor:
    """A time implied by one of the machine's rates."""

    title: str
    question: str
    seconds: Callable[[int, int, str], float]
    on_gpu: bool = True
    packages: tuple[str, ...] = ()


OURS = "lvd"
CONTESTANTS: dict[str, Contestant | Floor] = {
    OURS: Contestant(
        "lvd",
        "local radii through `LocalConformal`, never narrower than in float64: checks of the input and projection "
        "included; rows in one dense cloud, where every calibration row has weight",
        local_conformal,
    ),
    "lvd-local": Contestant(
        "lvd, local data",
        "the same on rows spread over a sheet, where few calibration rows have weight for a query",
        local_conformal,
        rows=sheet,
    ),
    "rows": Contestant(
        "one row at a time",
        "the same local radii, in float32 without a check of rounding: a loop over the queries, as in the paper's "
        "script",
        row_by_row,
    ),
    "torch": Contestant(
        "plain torch, batched",
        "the same, in float32 without a check of rounding: the matrix of weights, its cumulative sums, a search; "
        "queries in chunks",
        plain_torch,
    ),
    "crepes": Contestant(
        "crepes, KNN",
        "another question: one quantile for all queries, of errors divided by a difficulty, which is the mean "
        "error of the 25 nearest rows; half of the calibration rows give the difficulty",
        crepes_knn,
        on_gpu=False,
        packages=("crepes",),
    ),
    "mapie": Contestant(
        "MAPIE, split",
        "another question: one width for all queries",
        mapie_split,
        on_gpu=False,
        packages=("mapie",),
    ),
    "mapie-conditional": Contestant(
        "MAPIE, conditional",
        "another question: widths that hold over all linear functions of the coordinates; simplex steps for each "
        "query and level",
        mapie_conditional,
        on_gpu=False,
        packages=("mapie", "cvxpy"),
    ),
    "floor-exp": Floor(
        "floor: exponentials",
        "one exponential for each pair of query and calibration row, at the rate measured in the same run; only a "
        "method that skips rows can be faster",
        floors.exponentials,
    ),
    "floor-copy": Floor(
        "floor: copying",
        "reading all inputs once and writing all radii once, at the rate at which memory outside the caches is "
        "copied, measured in the same run",
        partial(floors.copying, k=K, n_levels=len(LEVELS)),
    ),
}
