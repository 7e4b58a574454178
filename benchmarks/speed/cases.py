"""Calibration rows and queries, the calls that answer them, and how they are timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import lvd
from benchmarks import rivals
from benchmarks.timing import timed
from lvd.calibration.transductive import Prior
from lvd.engine.oracle import gaussian_weights, weighted_quantile

LEVELS = [0.9, 0.95]
N_COMPONENTS, N_COLUMNS = 10, 100
NEAR, FAR = "near", "far apart"
TRAINING_ROWS = 4096
ROUNDS, MOST_REPEATS = 3, 100
SLOW_SECONDS = 4.0
"""Anything slower than this is timed once, without a warm-up call."""

Call = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """A kernel that projects embeddings, calibration rows with scores, and queries, all as embeddings."""

    kernel: lvd.MahalanobisKernel
    rows: Any
    scores: Any
    queries: Any
    kind: str

    @classmethod
    def of(cls, n: int, m: int, kind: str, device: str = "cpu") -> Case:
        """Near: one dense cloud, where every row has weight. Far apart: few rows have weight for a query."""
        rng = np.random.default_rng(0)
        axes = np.linalg.qr(rng.normal(size=(N_COLUMNS, N_COMPONENTS)))[0]
        draw = _cloud if kind == NEAR else _sheet
        points = [draw(size, m, rng) for size in (TRAINING_ROWS, m, n)]
        training, rows, queries = (torch.as_tensor(part @ axes.T, device=device) for part in points)
        kernel = lvd.MahalanobisKernel.from_components(
            axes.T,
            mean=np.zeros(N_COLUMNS),
            scale=np.ones(N_COLUMNS),
            distance="sum",
            embeddings=training,
            y=np.zeros(TRAINING_ROWS),
            device=device,
        )
        scores = torch.as_tensor(rng.exponential(size=m), device=device)
        if device == "cpu":
            rows, scores, queries = (part.numpy() for part in (rows, scores, queries))
        return cls(kernel, rows, scores, queries, kind)

    @property
    def size(self) -> dict[str, Any]:
        """The sizes that a figure records."""
        return {"case": self.kind, "queries": len(self.queries), "rows": len(self.rows)}

    def conformal(self, **choices: Any) -> lvd.LocalConformal:
        """The public class, calibrated."""
        conformal = lvd.LocalConformal(self.kernel, confidence_level=LEVELS, prior=Prior(), **choices)
        return conformal.conformalize(self.rows, self.scores)

    def plain_torch(self) -> Call:
        """Projection, the full weight matrix, its cumulative sums and a search, all in float32."""
        rows, radii = self._sorted(torch.float32)
        queries = torch.as_tensor(self.queries).float()
        components = queries.new_tensor(self.kernel.components_)
        return lambda: rivals.full_matrix_radii(queries @ components.T, rows, radii, LEVELS)

    def by_differences(self) -> torch.Tensor:
        """All radii in plain float64 operations on differences, as exact as float64 allows."""
        rows, radii = self._sorted(torch.float64)
        parts = self.kernel.coordinates(self.queries).split(max(1, 2**26 // len(rows)))
        return radii[torch.cat([rivals.float64_ranks(part, rows, LEVELS) for part in parts])]

    def by_oracle(self, n_queries: int) -> np.ndarray:
        """The radii of the first queries, from the definition, in float64."""
        points = self.kernel.coordinates(self.rows).cpu().numpy()
        scores = torch.as_tensor(self.scores).cpu().numpy()
        order = np.argsort(scores, kind="stable")
        points, scores = points[order], scores[order]
        weights = (
            gaussian_weights(q, points)
            for q in self.kernel.coordinates(self.queries[:n_queries]).cpu().numpy()
        )
        return np.array([[weighted_quantile(scores, w, 1.0, level) for level in LEVELS] for w in weights])

    def _sorted(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        return rivals.sorted_by_score(self.kernel.coordinates(self.rows), self.scores, dtype)


def _cloud(size: int, m: int, rng: np.random.Generator) -> np.ndarray:
    return 0.6 / N_COMPONENTS**0.5 * rng.normal(size=(size, N_COMPONENTS))


def _sheet(size: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """Two directions of variation, wide enough that about five hundred of m rows have weight for a query."""
    points = 0.05 * rng.normal(size=(size, N_COMPONENTS))
    points[:, :2] += rng.uniform(0.0, (m / 160.0) ** 0.5, size=(size, 2))
    return points


def count_equal(found: Any, expected: np.ndarray) -> dict[str, float]:
    """How many of the radii equal the expected ones, as a figure."""
    some = torch.as_tensor(found).cpu().numpy()[: len(expected)]
    return {"equal": float((some == expected).sum()), "checked": float(expected.size)}


def race(calls: dict[str, Call], seconds: float, device: str = "cpu") -> dict[str, float]:
    """The median time of each, alternating, repeated for about this many seconds.

    A turn is several calls after an uncounted one, which excludes cache contents and still spinning threads
    left by another contestant.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    if device != "cpu":
        for call in calls.values():  # compiles
            timed(call, device)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            if times[name] and sum(times[name]) > max(seconds, SLOW_SECONDS):
                continue
            first = timed(call, device)[0]
            if first > SLOW_SECONDS:
                times[name].append(first)
                continue
            repeats = int(np.clip(seconds / ROUNDS / first, 1, MOST_REPEATS))
            times[name] += [timed(call, device)[0] for _ in range(repeats)]
    return {name: float(np.median(found)) for name, found in times.items()}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Limit torch and numpy's products to this many threads."""
    before = torch.get_num_threads()
    with threadpool_limits(count):
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)
