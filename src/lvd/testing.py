"""Checks for kernels, scores, support rules and methods of your own, like scikit-learn's ``check_estimator``. Each
raises an AssertionError that says what is wrong."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.base import clone

from lvd._typing import Float, NDArray
from lvd._validation import to_numpy
from lvd.kernels import Kernel
from lvd.methods import IntervalRegressor, LVDRegressor
from lvd.models import NetRegressor
from lvd.scores import ConformityScore, EvaluatedRows
from lvd.store import load_object
from lvd.support import SupportRule

__all__ = ["check_kernel", "check_method", "check_score", "check_support"]

LEVELS = [0.5, 0.8]


def check_kernel(kernel: Kernel) -> None:
    """Check a kernel: its settings, its coordinates, and the intervals of an `LVDRegressor` with it.

    Examples
    --------
    >>> import lvd
    >>> lvd.testing.check_kernel(lvd.MahalanobisKernel(2, max_iter=20, random_state=0))
    """
    _check_part(kernel, Kernel)
    X, y = _example_rows()
    fitted = clone(kernel)
    _check(fitted.fit(X, y) is fitted, "fit must return the kernel itself")
    points = to_numpy(fitted.coordinates(X))
    _check(points.ndim == 2 and len(points) == len(X), "coordinates must be (n, k), a row for each row")
    _check(
        points.dtype == np.float64 and bool(np.isfinite(points).all()), "coordinates must be finite float64"
    )
    alone = np.concatenate([to_numpy(fitted.coordinates(X[[row]])) for row in range(5)])
    same = np.allclose(alone, points[:5], rtol=1e-9, atol=1e-12)
    _check(same, "a row's coordinates must not depend on the other rows")
    training = fitted.train_points_ if fitted.knows_training_rows else ()
    shape = np.shape(training)
    _check(
        len(shape) == 2 and shape[1] == points.shape[1],
        "fit must set train_points_, the coordinates (r, k) of training rows",
    )
    _check_behaviour(LVDRegressor(_net(), kernel=clone(kernel), random_state=0), type(kernel))


def check_score(score: ConformityScore) -> None:
    """Check a score: its settings, that intervals contain targets that score at most the radius, and nesting.

    Examples
    --------
    >>> import lvd
    >>> lvd.testing.check_score(lvd.scores.AbsoluteResidual())
    """
    _check_part(score, ConformityScore)
    X, y = _example_rows()
    y = np.stack([y, -y], axis=1) if score.joint else y
    reg = LVDRegressor(_net(), conformity_score=clone(score), confidence_level=LEVELS, random_state=0).fit(
        X, y
    )
    columns = y.reshape(len(y), -1)
    _, bound = reg._bind(reg._check_inputs(X))
    scores = bound(columns)
    _check(scores.ndim == 3 and len(scores) == len(X), "a bound score must give (n, columns, targets)")
    _check(bool(np.isfinite(scores).all()), "scores of finite targets must be finite")
    for level in LEVELS:
        plan = reg.score_.plan(level)
        largest = scores[:, list(plan.columns)]
        radius, levels = largest[:, :, None], np.array([level])
        ends = bound.intervals(radius, levels)[:, :, 0]
        slack = 1e-6 * (1.0 + np.abs(columns))
        inside = (ends[:, 0] - slack <= columns) & (columns <= ends[:, 1] + slack)
        _check(bool(inside.all()), "the interval at a row's own score must contain its target")
    _check_behaviour(
        LVDRegressor(_net(), conformity_score=clone(score), confidence_level=LEVELS, random_state=0),
        type(score),
        several=score.joint,
    )


def check_support(rule: SupportRule) -> None:
    """Check a support rule: its settings, that most training rows are known, and that unknown rows have a reason.

    Examples
    --------
    >>> import lvd
    >>> lvd.testing.check_support(lvd.support.TrainingSupport())
    """
    _check_part(rule, SupportRule)
    X, y = _example_rows()
    model = _net().fit(X, y[:, None])
    fitted = clone(rule)
    _check(fitted.fit(EvaluatedRows(X, model.evaluate(X)), 0) is fitted, "fit must return the rule itself")
    asked = np.concatenate([X, X[:5] + 1e3])
    support = fitted.check(EvaluatedRows(asked, model.evaluate(asked)))
    _check(support.known.shape == (len(asked),) and support.known.dtype == bool, "known must be a mask (n,)")
    _check(bool(support.known[: len(X)].mean() > 0.9), "most training rows must be known")
    unknown = np.flatnonzero(~support.known).tolist()
    _check(sorted(support.reasons) == unknown, "each unknown row, and no other, must have a reason")
    _check(all(one.text for one in support.reasons.values()), "a reason must not be empty")
    _check_behaviour(LVDRegressor(_net(), support=clone(rule), random_state=0), type(rule))


def check_method(method: IntervalRegressor) -> None:
    """Check an interval method: its settings, the shapes and order of its intervals, saving and loading.

    Examples
    --------
    >>> import lvd
    >>> lvd.testing.check_method(lvd.SplitConformalRegressor(lvd.NetRegressor(n_batches=20), random_state=0))
    """
    _check_part(method, IntervalRegressor)
    method = clone(method)
    if np.ndim(method.confidence_level) == 0:
        method.set_params(confidence_level=LEVELS)
    _check_behaviour(method, type(method))


def _check_part(part: Any, contract: type[Any]) -> None:
    """Checks common to all parts: the constructor only stores its parameters, so that clones are equal."""
    _check(isinstance(part, contract), f"it must derive from {contract.__module__}.{contract.__name__}")
    given = part.get_params(deep=False)
    kept = all(vars(part).get(name, value) is value for name, value in given.items())
    _check(kept, "the constructor must store its parameters unchanged under their names")
    _check(not [name for name in vars(part) if name.endswith("_")], "the constructor must not learn anything")
    copy = clone(part)
    _check(type(copy) is type(part), "a clone must be of the same class")


def _check_behaviour(reg: IntervalRegressor, trusted: type[Any], *, several: bool = False) -> None:
    """Fitting is reproducible, intervals have the right shape and are nested, and the method can be saved."""
    X, y = _example_rows()
    y = np.stack([y, -y], axis=1) if several else y
    reg = clone(reg)
    _check(reg.fit(X, y) is reg, "fit must return the estimator itself")
    y_pred, intervals = reg.predict_interval(X[:20])
    n_levels = np.size(reg.confidence_level)
    _check(np.shape(y_pred) == y[:20].shape, "predictions must have the shape of y")
    _check(
        np.shape(intervals)[:3] == (20, 2, n_levels), "intervals must be (n, 2, levels), or (n, 2, levels, T)"
    )
    _check(not np.isnan(intervals).any(), "intervals must not hold NaN; an unknown end is infinite")
    _check(bool((intervals[:, 0] <= intervals[:, 1]).all()), "the lower end must not be above the upper one")
    if reg.nested and n_levels > 1:
        inner, outer = intervals[:, :, 0], intervals[:, :, -1]
        nested = (outer[:, 0] <= inner[:, 0]) & (inner[:, 1] <= outer[:, 1])
        _check(bool(nested.all()), "an interval at a higher level must contain the one at a lower level")
    again = clone(reg).fit(X, y).predict_interval(X[:20])[1]
    _check(np.array_equal(again, intervals), "the same random_state must give the same intervals")
    with TemporaryDirectory() as folder:
        reg.save(Path(folder) / "model")
        loaded = load_object(Path(folder) / "model", {}, [trusted])
    same = np.array_equal(loaded.predict_interval(X[:20])[1], intervals)
    _check(same, "after saving and loading, intervals must be the same; learned attributes must end in _")
    if hasattr(loaded, "explain"):
        _check(
            all(one.sentence for one in loaded.explain(X[:3])), "explain must return a sentence for each row"
        )


def _example_rows() -> tuple[Float[NDArray, "n p"], Float[NDArray, "n"]]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(240, 3))
    return X, X[:, 0] + (0.1 + np.abs(X[:, 1])) * rng.normal(size=240)


def _net() -> NetRegressor:
    return NetRegressor(hidden_sizes=(8,), n_batches=30, device="cpu", random_state=0)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
