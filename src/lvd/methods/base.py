"""The contract of all interval methods: fit, (conformalize,) predict, predict_interval."""

from __future__ import annotations

import inspect
import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from lvd import intervals as _intervals
from lvd._typing import ArrayLike, Float, Int, Levels, NDArray
from lvd._validation import (
    InputError,
    check_levels,
    check_names,
    check_same_length,
    check_targets,
    intervals_like,
    like,
    row_digests,
    seed_from,
    to_numpy,
)
from lvd.conformal import CalibrationWarning
from lvd.nets import Model, as_model
from lvd.nets.molecules import Molecules


class SharedRowsWarning(CalibrationWarning):
    """Calibration rows equal training rows: the same cases, used twice, or cases that are alike by nature."""


class IntervalRegressor(RegressorMixin, BaseEstimator, ABC):
    """A regressor that gives a prediction interval for every row at any confidence level.

    Targets are handled as columns inside, one or several; at the border a single target is a vector.
    """

    guarantee: ClassVar[str]
    """What coverage the intervals promise: ``"local"``, ``"marginal"``, ``"marginal 1-2a"`` or ``"none"``."""
    post_hoc: ClassVar[bool]
    """Whether the method works on a model that is trained already, and leaves it untouched."""
    nested: ClassVar[bool] = True
    """Whether an interval at a higher level always contains the one at a lower level."""

    estimator: Any
    confidence_level: Levels
    y_min: float | None
    y_max: float | None

    @abstractmethod
    def fit(self, X: ArrayLike, y: ArrayLike) -> Any:
        """Train on rows `X` with targets `y`."""

    @abstractmethod
    def _predict(self, X: Any) -> Float[NDArray, "n t"]:
        """Point predictions for checked inputs."""

    @abstractmethod
    def _predict_interval(
        self, X: Any, levels: Float[NDArray, "l"]
    ) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 l t"]]:
        """Point predictions and intervals for checked inputs."""

    def predict(self, X: ArrayLike) -> Any:
        """Point predictions, (n,); for several targets (n, T)."""
        check_is_fitted(self, "model_")
        y_pred = self._predict(self._check_inputs(X))
        return like(self._as_given(y_pred), X)

    def predict_interval(
        self, X: ArrayLike, confidence_level: Levels | None = None, **choices: Any
    ) -> tuple[Any, Any]:
        """Point predictions (n,) and intervals (n, 2, L) at L levels; for several targets (n, T), (n, 2, L, T).

        `confidence_level` is a number or a list; by default the one given to the constructor. An interval may be
        infinite: then too little is known at that row to promise a finite one. `choices` are the method's own, such
        as the `guarantee` of :class:`LVDRegressor`.
        """
        check_is_fitted(self, "model_")
        self._check_choices("predict_interval", choices)
        levels = self._levels(confidence_level)
        predict_interval: Any = self._predict_interval
        y_pred, intervals = predict_interval(self._check_inputs(X), levels, **choices)
        intervals = _intervals.clip(intervals, self.y_min, self.y_max)
        return like(self._as_given(y_pred), X), intervals_like(self._as_given(intervals), X)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write to a folder that :func:`lvd.load` reads; nothing is pickled, a saved model there is replaced."""
        from lvd.methods.saving import save

        save(self, folder)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _levels(self, confidence_level: Levels | None) -> Float[NDArray, "l"]:
        """The levels asked for, by default the constructor's."""
        return check_levels(self.confidence_level if confidence_level is None else confidence_level)

    def _check_choices(self, method: str, choices: dict[str, Any]) -> None:
        """Refuse choices that this class does not offer."""
        takes = ("X", "confidence_level", *_keywords(self._predict_interval))
        check_names(choices, takes, f"{type(self).__name__}.{method}")

    def _as_given(self, array: Float[NDArray, "n *rest t"]) -> NDArray:
        return array[..., 0] if self.single_target_ else array

    def _check_rows(self, X: ArrayLike, y: ArrayLike, n_targets: int | None = None) -> tuple[Any, NDArray]:
        """`X` as the model's inputs and `y` as target columns, of the same length."""
        inputs, targets = self._check_inputs(X, reset=n_targets is None), check_targets(y)
        check_same_length(X=inputs, y=targets)
        if n_targets is not None and targets.shape[1] != n_targets:
            raise InputError(
                f"y has {targets.shape[1]} target column(s), but {n_targets} in fit; give the same"
            )
        return inputs, targets

    def _check_inputs(self, X: ArrayLike, *, reset: bool = False) -> Any:
        """`X` as the model's inputs, a frame with the column names of `fit`; with `reset` they are noted."""
        _check_feature_names(self, X, reset=reset)
        return self.model_.check(X)

    def _remember_shape(self, inputs: Any, y: ArrayLike) -> None:
        self.single_target_ = to_numpy(y).ndim == 1
        if hasattr(inputs, "shape") and len(inputs.shape) == 2:
            self.n_features_in_ = inputs.shape[1]

    def _check_bounds(self) -> None:
        for name in ("y_min", "y_max"):
            bound = getattr(self, name)
            if bound is not None and not (isinstance(bound, Real) and math.isfinite(bound)):
                raise InputError(f"{name} must be a finite number, or None for no bound, got {bound!r}")
        if self.y_min is not None and self.y_max is not None and not self.y_min < self.y_max:
            raise InputError(f"y_min must be below y_max, got y_min={self.y_min!r}, y_max={self.y_max!r}")


class ConformalRegressor(IntervalRegressor):
    """An interval method with a calibration step on rows that training has not seen."""

    calib_size: float | None
    prefit: bool
    device: str
    random_state: Any

    @abstractmethod
    def _train(self, X: Any, y: Float[NDArray, "n t"], seed: int) -> None:
        """Learn what is learned from the training part."""

    @abstractmethod
    def _calibrate(self, X: Any, y: Float[NDArray, "m t"]) -> None:
        """Take a calibration set, replacing a former one."""

    @abstractmethod
    def _check_parameters(self) -> None:
        """Refuse parameters that cannot work, before anything is computed."""

    @abstractmethod
    def _rows_needed(self, level: float) -> int:
        """The fewest calibration rows with which an interval at this level can be finite."""

    def fit(self, X: ArrayLike, y: ArrayLike, **labels: Any) -> Any:
        """Train on a part of the rows and conformalize on the `calib_size` share set aside.

        With ``calib_size=None`` all rows train, and :meth:`conformalize` must follow. `labels` hold one value for
        each row, such as the `groups` of :class:`LVDRegressor`; those of the rows set aside are used. Rows of the
        same molecule are set aside together, or not at all.
        """
        self._check_label_names("fit", labels)
        self._check_parameters()
        self._check_bounds()
        levels = check_levels(self.confidence_level)
        seed = seed_from(self.random_state)
        self.model_: Model = as_model(
            self.estimator,
            prefit=self.prefit,
            embedding_layer=vars(self).get("embedding_layer"),
            embed=vars(self).get("embed"),
            device=self.device,
            random_state=seed,
        )
        inputs, targets = self._check_rows(X, y)
        self._remember_shape(inputs, y)
        self.n_targets_ = targets.shape[1]
        labels = _check_labels(labels, len(targets), calib_size=self.calib_size)
        # Equal rows of numbers may be different cases; equal molecules are one.
        cases = row_digests(inputs) if isinstance(inputs, Molecules) else np.arange(len(targets))
        train, calib = _split(cases, self.calib_size, seed)
        self.__dict__.pop("n_calib_", None)
        train_inputs = _safe_indexing(inputs, train)
        self._train(train_inputs, targets[train], seed)
        self.train_digests_ = np.sort(row_digests(train_inputs))
        if len(calib):
            chosen = {name: _safe_indexing(values, calib) for name, values in labels.items()}
            self._take_calibration(_safe_indexing(inputs, calib), targets[calib], levels, **chosen)
        return self

    def conformalize(self, X_calib: ArrayLike, y_calib: ArrayLike, **labels: Any) -> Any:
        """Calibrate on rows of your own that training has not seen; replaces a former calibration.

        `labels` hold one value for each row, such as the `groups` and `weights` of :class:`LVDRegressor`.
        """
        check_is_fitted(self, "train_digests_")
        self._check_label_names("conformalize", labels)
        inputs, targets = self._check_rows(X_calib, y_calib, self.n_targets_)
        shared = int(np.isin(row_digests(inputs), self.train_digests_).sum())
        if shared:
            of_molecules = isinstance(inputs, Molecules)
            which = "hold the molecule of" if of_molecules else "equal"
            warnings.warn(
                f"{shared} of {len(targets)} calibration rows {which} a training row. If the same case was used "
                "for both, its error is too small and the guarantee is lost: calibrate on cases training has not "
                "seen. If different cases are alike by nature, the guarantee holds",
                SharedRowsWarning,
                stacklevel=2,
            )
        self._take_calibration(inputs, targets, check_levels(self.confidence_level), **labels)
        return self

    def _check_label_names(self, method: str, labels: dict[str, Any]) -> None:
        """Refuse labels that this class does not take, before anything is computed."""
        takes = ("X", "y") if method == "fit" else ("X_calib", "y_calib")
        of_rows = _keywords(self._calibrate)
        hint = "" if of_rows else "; LVDRegressor takes groups= and weights="
        check_names(labels, (*takes, *of_rows), f"{type(self).__name__}.{method}", hint)

    def _take_calibration(
        self, X: Any, y: Float[NDArray, "m t"], levels: Float[NDArray, "l"], **labels: Any
    ) -> None:
        calibrate: Any = self._calibrate
        calibrate(X, y, **labels)
        self.n_calib_ = len(y)
        self._warn_if_too_few(levels)

    def _check_calibrated(self) -> None:
        check_is_fitted(self, "model_")
        check_is_fitted(
            self, "n_calib_", msg="%(name)s has no calibration set yet: call conformalize(X_calib, y_calib)"
        )

    def _warn_if_too_few(self, levels: Float[NDArray, "l"]) -> None:
        level = float(levels.max())
        needed = self._rows_needed(level)
        if self.n_calib_ < needed:
            warnings.warn(
                f"every interval at confidence_level={level:g} is infinite: that takes at least {needed} "
                f"calibration rows, there are {self.n_calib_}; give more rows or a lower level",
                CalibrationWarning,
                stacklevel=4,
            )


def _keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of its keyword-only arguments."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def rows_needed(confidence_level: float) -> int:
    """The fewest calibration rows with which an interval can be finite: m with ``level (m + 1) <= m``."""
    return int(np.ceil(confidence_level / (1.0 - confidence_level) - 1e-9))


def _check_labels(labels: dict[str, Any], n_rows: int, *, calib_size: float | None) -> dict[str, Any]:
    """The labels that were given, one for each row, for a fit that sets calibration rows aside."""
    given = {name: values for name, values in labels.items() if values is not None}
    for name, values in given.items():
        if calib_size is None:
            raise InputError(
                f"fit sets no calibration rows aside (calib_size=None), so {name}= would go unused; "
                "give it to conformalize"
            )
        check_same_length(**{"X": range(n_rows), name: values})
    return given


def _split(
    cases: NDArray, calib_size: float | None, seed: int
) -> tuple[Int[NDArray, "a"], Int[NDArray, "b"]]:
    """Row numbers for training and for calibration; all rows of one case are in the same part."""
    n_rows = len(cases)
    order = np.random.default_rng(seed).permutation(n_rows)
    if calib_size is None:
        return np.arange(n_rows), order[:0]
    if not (isinstance(calib_size, int | float) and 0.0 < calib_size < 1.0):
        raise InputError(
            f"calib_size must be None or lie in (0, 1), got {calib_size!r}; 0.25 sets a quarter aside"
        )
    order, starts = _cases_together(order, cases)
    n_calib = int(starts[np.abs(starts - max(1, round(calib_size * n_rows))).argmin()])
    if n_rows - n_calib < 2:
        raise InputError(
            f"fit needs at least 2 training rows beside the calibration rows, got {n_rows} sample(s) in all; "
            "give more rows, or calib_size=None and conformalize on rows of their own"
        )
    return np.sort(order[n_calib:]), np.sort(order[:n_calib])


def _cases_together(order: Int[NDArray, "n"], cases: NDArray) -> tuple[Int[NDArray, "n"], Int[NDArray, "c"]]:
    """The order with all rows of a case behind its first one, and the places after which a case is complete."""
    _, first, case = np.unique(cases[order], return_index=True, return_inverse=True)
    ranks = first[case]
    moved = np.argsort(ranks, kind="stable")
    return order[moved], np.append(np.flatnonzero(np.diff(ranks[moved])) + 1, len(order))
