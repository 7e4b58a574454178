"""On the CPU: radii against plain torch, the guarantees, and regressors from rows to intervals."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

import lvd
from benchmarks import floors
from benchmarks.cell import with_peak_memory
from benchmarks.speed.cases import FAR, LEVELS, NEAR, Case, count_equal, race, threads
from benchmarks.speed.figures import Recorder
from benchmarks.timing import timed
from lvd._progress import listening

N_COLUMNS = 8


class Sizes(NamedTuple):
    """The sizes of everything measured."""

    calls: tuple[tuple[int, int, str], ...]
    most_checked: int
    guarantees: tuple[int, int]
    company: tuple[int, int]
    table: int
    training: tuple[int, ...]
    seconds: float


SIZES = Sizes(
    calls=(
        (1, 100, NEAR),
        (1, 1_000, NEAR),
        (1, 26_744, NEAR),
        (100, 100, NEAR),
        (1_000, 100, NEAR),
        (100, 1_000, NEAR),
        (1_000, 1_000, NEAR),
        (1_000, 26_744, NEAR),
        (1_000, 26_744, FAR),
        (1_000, 1_000_000, NEAR),
    ),
    most_checked=40_000_000,
    guarantees=(1_000, 5_000),
    company=(1_000, 26_744),
    table=10_000,
    training=(20_000, 100_000),
    seconds=1.0,
)
QUICK = Sizes(
    ((1, 100, NEAR), (20, 600, NEAR), (20, 600, FAR)), 10_000, (20, 300), (20, 600), 300, (500,), 0.02
)


def radii(record: Recorder, sizes: Sizes, counts: list[int]) -> None:
    """Whole calls of LocalConformal.radius at two levels, against plain torch and the floor of the exponentials."""
    for n, m, kind in sizes.calls:
        case = Case.of(n, m, kind)
        conformal, plain = case.conformal(), case.plain_torch()
        conformal.radius(case.queries[:1], LEVELS)  # compiled, or read from the cache
        calls = {"lvd": lambda: conformal.radius(case.queries, LEVELS), "plain torch": plain}  # noqa: B023
        expected = case.by_oracle(max(1, min(n, sizes.most_checked // m)))
        for count in counts:
            with threads(count):
                times = race(calls, sizes.seconds)
                for name, call in calls.items():
                    equal = count_equal(call(), expected) if count == max(counts) else {}
                    record.note("radius", name, **case.size, seconds=times[name], **equal)
                floors.exponentials_per_second.cache_clear()
                floor = floors.exponentials(n, m, "cpu")
                record.note("radius", "floor of the exponentials", **case.size, seconds=floor)


def guarantees(record: Recorder, sizes: Sizes) -> None:
    """What each guarantee costs compared with the local one, in its first call and in a later one."""
    case = Case.of(*sizes.guarantees, NEAR)
    ways: dict[str, tuple[dict[str, Any], str]] = {
        "local": ({}, "local"),
        "local, adaptive bandwidth": ({"bandwidth": "adaptive"}, "local"),
        "randomized": ({}, "randomized"),
        "calibrated": ({}, "calibrated"),
        "transductive": ({}, "transductive"),
    }
    for name, (choices, guarantee) in ways.items():
        conformal = case.conformal(**choices)
        conformal.radius(case.queries[:1], LEVELS)  # compiled, or read from the cache

        def call(conformal: Any = conformal, guarantee: str = guarantee) -> Any:
            return conformal.radius(case.queries, LEVELS, guarantee=guarantee)

        first = timed(call)[0]
        later = race({name: call}, sizes.seconds)[name]
        record.note("guarantee", name, **case.size, first_seconds=first, seconds=later)


PRESETS: dict[str, dict[str, Any]] = {
    "paper preset": {"preset": "paper"},
    "default, network": {"estimator": "net"},
    "default, scaled": {"conformity_score": "scaled"},
    "default": {},
}


def regressors(record: Recorder, sizes: Sizes, device: str = "cpu") -> None:
    """LVDRegressor from rows to intervals: fitting, with its stages, predicting a tenth as many, and one."""
    X, y = make_table(sizes.table + sizes.table // 10)
    train, test = slice(sizes.table), slice(sizes.table, None)
    calls = {}
    for name, choices in PRESETS.items():
        stages: list[tuple[str, float]] = []
        regressor = lvd.LVDRegressor(random_state=0, device=device, **choices)
        start = time.perf_counter()
        with listening(lambda stage: stages.append((stage.split(":")[0], time.perf_counter()))):  # noqa: B023
            _, peak = with_peak_memory(lambda: regressor.fit(X[train], y[train]), "cpu")  # noqa: B023
        end = time.perf_counter()
        record.note("fit", name, rows=sizes.table, seconds=end - start, peak_mb=peak)
        spent: dict[str, float] = {}
        for (stage, begun), (_, ended) in zip(stages, [*stages[1:], ("", end)], strict=True):
            spent[stage] = spent.get(stage, 0.0) + ended - begun
        for stage, seconds in spent.items():
            record.note("fit", name, case=stage, rows=sizes.table, seconds=seconds)
        calls[name] = regressor.predict_interval
    for rows in (X[test], X[test][:1]):
        runs = {name: lambda call=call: call(rows, LEVELS) for name, call in calls.items()}  # noqa: B023
        peaks = {name: with_peak_memory(run, "cpu")[1] for name, run in runs.items()}
        for name, seconds in race(runs, sizes.seconds, device).items():
            record.note(
                "predict", name, queries=len(rows), rows=sizes.table, seconds=seconds, peak_mb=peaks[name]
            )


def make_table(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose noise depends on their position."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(n_rows, N_COLUMNS))
    noise = rng.normal(size=n_rows) * (0.1 + np.abs(X[:, 3]))
    return X, np.sin(3.0 * X[:, 0]) + X[:, 1] * X[:, 2] + noise
