"""The contract of all interval methods: fit, (conformalize,) predict, predict_interval."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from html import escape
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from lvd._late import provided
from lvd._typing import ArrayLike, Bool, Float, Int, Labels, Levels, NDArray, RandomState
from lvd._validation import (
    InputError,
    RowError,
    check_choice,
    check_levels,
    check_same_length,
    check_targets,
    intervals_like,
    is_frame,
    like,
    load_errors_explained,
    percent_name,
    seed_from,
    to_numpy,
)
from lvd.models import Model
from lvd.models.coding import NEW_LEVEL
from lvd.models.frames import FrameColumns
from lvd.store import save_object

SIDES = ("lower", "upper")
"""The end that a one-sided interval keeps."""
PROMISES = {
    "local": (
        "For a fixed centre, a new case drawn near it by similarity scores at most the radius with at least the "
        "confidence level; coverage on average over all cases can fall short."
    ),
    "cross": (
        "Calibrated on cross-validated errors of all training rows: for a fixed kernel and fixed scales the local "
        "miss rate is at most twice 1 - level; that learned ones reach the level is measured, not proved."
    ),
    "ensemble": (
        "Calibrated on cross-validated errors of all training rows, and narrowed because the mean of the models is "
        "more accurate than a single one; that the level is reached is measured, not proved."
    ),
    "marginal": "On average over all new cases, coverage is at least the confidence level.",
    "marginal 1-2a": "On average at most twice 1 - level of the new cases are missed.",
    "randomized": (
        "On average over all new cases, coverage is at least the confidence level, and nearly so near each "
        "row; the interval of a row depends on a random draw."
    ),
    "calibrated": "On average over all new cases, coverage is at least the confidence level.",
    "transductive": (
        "On average over all new cases, coverage is the confidence level; near a single row nothing is "
        "promised."
    ),
    "none": "Nothing is promised: check the coverage on rows of your own.",
}
"""One sentence for each guarantee that intervals can have."""
CALIBRATION_COLUMNS = {"digests_calib_", "residuals_calib_", "signed_calib_", "units_calib_", "y_calib_"}
"""The attributes with one entry per calibration row."""
MAY_BE_UNKNOWN = {"y_calib_", "residuals_calib_", "signed_calib_", "train_errors_"}
"""Attributes with a column per target, which hold NaN for unknown targets."""


@dataclass(eq=False, repr=False)
class IntervalRegressor(RegressorMixin, BaseEstimator, ABC):
    """A regressor that returns a prediction interval for every row at any confidence level.

    Internally targets are always columns; a single target is a vector only at the public interface. Each method
    is a dataclass of its parameters, so shared parameters are declared once.
    """

    _: KW_ONLY
    confidence_level: Levels = 0.9
    y_range: tuple[float | None, float | None] | None = None
    random_state: RandomState = None

    guarantee: ClassVar[str]
    """What the intervals guarantee by default: one of :data:`PROMISES`."""
    post_hoc: ClassVar[bool]
    """Whether the method can wrap an already trained model without changing it."""
    has_local_weights: ClassVar[bool] = False
    """Whether calibration rows are weighted by their similarity to the row being predicted."""
    nested: ClassVar[bool] = True
    """Whether an interval at a higher level always contains the one at a lower level."""

    @property
    def promise(self) -> str:
        """The guarantee of the intervals, in one sentence."""
        return PROMISES[self.guarantee]

    @abstractmethod
    def _new_model(self, seed: int) -> Any:
        """The model to train."""

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise for parameters that cannot work, before anything is computed."""

    def _predict(self, X: Any) -> Float[NDArray, "n t"]:
        """Point predictions for checked inputs."""
        return self.model_.evaluate(without_new_levels(X, vars(self).get("level_places_"))[0]).y_pred

    @abstractmethod
    def _predict_interval(
        self, X: Any, levels: Float[NDArray, "l"], **choices: Any
    ) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 l t"]]:
        """Point predictions and intervals for checked inputs; `choices` come from :func:`local_choices`."""

    def predict(self, X: ArrayLike) -> Any:
        """Point predictions, (n,), or (n, T) for several targets."""
        self._check_fitted()
        with load_errors_explained(self):
            return like(self._as_given(self._check_answer(self._predict(self._check_inputs(X)))), X)

    def predict_interval(
        self,
        X: ArrayLike,
        confidence_level: Levels | None = None,
        *,
        side: str | None = None,
        guarantee: str | None = None,
        smoothed: bool = False,
        groups: Labels = None,
        weights: Labels = None,
        random_state: RandomState = 0,
        as_frame: bool = False,
    ) -> Any:
        """Point predictions (n,) and intervals (n, 2, L) at L levels; for several targets (n, T), (n, 2, L, T).

        `confidence_level` is a number or a list and defaults to the constructor's. An interval may be infinite:
        too little is known about that row to promise a finite one.

        With `as_frame`, returns one pandas frame with the rows' index: ``y_pred``, ``lower_90`` and
        ``upper_90`` for each level, and ``known`` for methods that decide it. With several targets every name
        except ``known`` ends in the target's number, as in ``y_pred_0``.

        With `side` ``"upper"`` or ``"lower"`` the interval has only that end, and every miss lies beyond it;
        this needs a method with a calibration step.

        The remaining arguments are for methods with local weights, such as :class:`LVDRegressor`: a different
        `guarantee` from the method's default (see :meth:`LocalConformal.radius`, also for `smoothed` and
        `random_state`), and the rows' `groups` and `weights` if the calibration rows had them.
        """
        self._check_fitted()
        levels = self._levels(confidence_level)
        another = None if guarantee == self.guarantee else guarantee
        choices = local_choices(another, smoothed, groups, weights, random_state)
        if side is not None:
            choices["side"] = check_choice(side, "side", SIDES)
        with load_errors_explained(self):
            inputs = self._check_inputs(X)
            y_pred, intervals = self._predict_interval(inputs, levels, **choices)
            y_pred, ends = self._check_answer(y_pred), self._clip(self._check_answer(intervals))
            if as_frame:
                return self._frame(X, y_pred, ends, levels, self._known(inputs))
            return like(self._as_given(y_pred), X), intervals_like(self._as_given(ends), X)

    def _html_repr(self) -> str:
        """HTML for notebooks: a fitted regressor's guarantee, sizes and coverage, above scikit-learn's
        diagram."""
        diagram = estimator_html_repr(self)
        if not hasattr(self, "model_"):
            return diagram
        facts = {"promise": self.promise} | self._sizes()
        rows = "".join(
            f"<tr><th style='text-align:left;vertical-align:top'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in facts.items()
        )
        return f"<div><table><caption>{type(self).__name__}</caption>{rows}</table>{diagram}</div>"

    def _sizes(self) -> dict[str, str]:
        """Row counts and calibration coverage, as text for display."""
        return {}

    def _known(self, X: Any) -> Bool[NDArray, "n"] | None:
        """Which rows resemble training rows; None for methods that do not decide this."""
        return None

    def _frame(
        self,
        X: ArrayLike,
        y_pred: Float[NDArray, "n t"],
        intervals: Float[NDArray, "n 2 l t"],
        levels: Float[NDArray, "l"],
        known: Bool[NDArray, "n"] | None,
    ) -> Any:
        try:
            from pandas import DataFrame
        except ModuleNotFoundError:
            raise InputError(
                "as_frame=True gives a pandas frame, and pandas is not installed; run: pip install pandas, or "
                "leave as_frame out"
            ) from None
        names = [""] if self.single_target_ else [f"_{target}" for target in range(self.n_targets_)]
        columns: dict[str, NDArray] = interval_columns(y_pred, intervals, levels, names)
        if known is not None:
            columns["known"] = known
        index = getattr(X, "index", None)
        return DataFrame(columns, index=None if callable(index) else index)

    def report(
        self,
        X: ArrayLike,
        y: ArrayLike,
        path: str | os.PathLike[str] = "report.html",
        *,
        by: Sequence[str] | Mapping[str, ArrayLike] = (),
        target: str | None = None,
        confidence_level: float | None = None,
    ) -> Any:
        """Write the ``lvd report`` page for rows the method has not seen, and return its verdict.

        `by` names columns of X, or holds such columns, and coverage is broken down by their values; with
        several targets `target` selects the one to report on. :func:`lvd.report` writes the page for intervals
        that you already have as arrays.

        Examples
        --------
        >>> import numpy as np, lvd, tempfile, pathlib
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(400, 2))
        >>> y = X[:, 0] + rng.normal(size=400) * np.abs(X[:, 1])
        >>> reg = lvd.LVDRegressor("trees", random_state=0).fit(X[:300], y[:300])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     verdict = reg.report(X[300:], y[300:], pathlib.Path(folder) / "report.html")
        >>> verdict.sentence.endswith(".")
        True
        """
        self._check_fitted()
        write = provided("_page_of_method")
        return write(self, X, y, path, by=by, target=target, confidence_level=confidence_level)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save to a folder that :func:`lvd.load` reads, replacing a model saved there; nothing is pickled."""
        save_object(self, folder)

    def _check_loaded(self) -> None:
        """Refuse settings and calibration rows that were not saved by a method that worked."""
        check_levels(self.confidence_level)
        self._check_bounds()
        self._check_parameters()
        learned = vars(self)
        lengths = {len(learned[name]) for name in CALIBRATION_COLUMNS & learned.keys()}
        if lengths - {learned.get("n_calib_")}:
            raise InputError("the numbers of calibration rows and of their errors differ")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):  # check_is_fitted is slow
            check_is_fitted(self, "model_")

    def _levels(self, confidence_level: Levels | None) -> Float[NDArray, "l"]:
        """The requested levels; the constructor's by default."""
        return check_levels(self.confidence_level if confidence_level is None else confidence_level)

    def _as_given(self, array: Float[NDArray, "n *rest t"]) -> NDArray:
        return array[..., 0] if self.single_target_ else array

    def _check_answer(self, answer: Float[NDArray, "n *rest t"]) -> Float[NDArray, "n *rest t"]:
        """Return the predictions after checking that they hold a number for each row and target."""
        if answer.shape[-1] != self.n_targets_:
            raise InputError(
                f"the model predicts {answer.shape[-1]} targets, but learned {self.n_targets_}; fit it again"
            )
        unknown = np.isnan(answer)
        if unknown.any():
            rows = tuple(np.unique(np.nonzero(unknown)[0])[:3].tolist())
            raise RowError("the model predicts NaN at row ", rows, "; look for huge numbers there")
        return answer

    def _check_rows(
        self, X: ArrayLike, y: ArrayLike, n_targets: int | None = None, *, missing: bool = False
    ) -> tuple[Any, NDArray]:
        """Return `X` as model inputs and `y` as target columns of the same length; without `n_targets`, store
        their shapes.

        With `missing`, rows of several targets may have NaN for unknown ones.
        """
        several = to_numpy(y).ndim == 2 and to_numpy(y).shape[1] > 1
        if n_targets is None:
            self.__dict__.pop("columns_", None)
            self.__dict__.pop("level_places_", None)
            columns = FrameColumns.of(X, y) if is_frame(X) else None
            if columns is not None:
                self.columns_: Any = columns
        inputs = self._check_inputs(X, reset=n_targets is None)
        targets = check_targets(y, missing=missing and several)
        check_same_length(X=inputs, y=targets)
        if n_targets is not None and targets.shape[1] != n_targets:
            raise InputError(
                f"y has {targets.shape[1]} target column(s), but had {n_targets} in fit; give the same"
            )
        if n_targets is None:
            self.single_target_, self.n_targets_ = to_numpy(y).ndim == 1, targets.shape[1]
            if len(getattr(inputs, "shape", ())) == 2:
                self.n_features_in_ = inputs.shape[1]
        return inputs, targets

    def _check_inputs(self, X: ArrayLike, *, reset: bool = False) -> Any:
        """Return `X` as model inputs after checking a frame's column names; with `reset`, store them.

        After `fit` on a frame, `X` may also be a dict of columns or a list of dicts.
        """
        columns = vars(self).get("columns_")
        if columns is not None and type(X) is not np.ndarray:
            X = columns.read(X)
        # A plain array has no column names, and scikit-learn takes long to find that out.
        if reset or hasattr(self, "feature_names_in_") or type(X) is not np.ndarray:
            try:
                _check_feature_names(self, X, reset=reset)
            except ValueError as error:
                raise InputError(str(error)) from None
        return self.model_.check(X)

    def _check_settings(self) -> tuple[Float[NDArray, "l"], int]:
        """Check the parameters at the start of every `fit`; return the levels and the seed."""
        self._check_parameters()
        self._check_bounds()
        return check_levels(self.confidence_level), seed_from(self.random_state)

    def _begin(self, X: ArrayLike, y: ArrayLike) -> tuple[Any, NDArray, int]:
        """Start a `fit` on all rows: checked inputs and targets for a new model, and the seed."""
        _, seed = self._check_settings()
        self.model_: Model = self._new_model(seed)
        inputs, targets = self._check_rows(X, y)
        if len(targets) < 2:
            raise InputError(f"fit needs at least 2 rows, got {len(targets)} sample(s); give more rows")
        return inputs, targets, seed

    def _check_bounds(self) -> None:
        given: Any = self.y_range
        if given is None:
            return
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise InputError(f"y_range must be None or a pair (lowest, highest), got {given!r}")
        for bound in given:
            if bound is not None and not (isinstance(bound, Real) and math.isfinite(bound)):
                raise InputError(f"y_range must hold finite numbers, or None for no bound, got {given!r}")
        if None not in given and not given[0] < given[1]:
            raise InputError(f"y_range must be (lowest, highest) with lowest < highest, got {given!r}")

    def _clip(self, intervals: Float[NDArray, "n 2 *rest"]) -> Float[NDArray, "n 2 *rest"]:
        """Intervals clipped to `y_range`."""
        return np.clip(intervals, *self._bounds)

    @property
    def _bounds(self) -> tuple[float, float]:
        low, high = self.y_range or (None, None)
        return -np.inf if low is None else low, np.inf if high is None else high


def without_new_levels(X: Any, places: Int[NDArray, "k"] | None) -> tuple[Any, Bool[NDArray, "n"] | None]:
    """The features with :data:`NEW_LEVEL` cleared at `places`, and a mask of the rows that had it."""
    if places is None:
        return X, None
    marked = X[:, places] == NEW_LEVEL
    new = np.any(marked, axis=1)
    if new.any():
        X = X.copy()
        X[:, places] = np.where(marked, 0.0, X[:, places])
    return X, new


def local_choices(
    guarantee: str | None,
    smoothed: bool,
    groups: Labels,
    weights: Labels,
    random_state: RandomState,
) -> dict[str, Any]:
    """The arguments that differ from their defaults, as a dict."""
    choices: dict[str, Any] = {"guarantee": guarantee, "groups": groups, "weights": weights}
    choices = {name: value for name, value in choices.items() if value is not None}
    if smoothed or guarantee == "randomized":
        choices |= {"smoothed": smoothed, "random_state": random_state}
    return choices


def refuse_choices(method: IntervalRegressor, choices: dict[str, Any]) -> None:
    """Raise if arguments were passed that only methods with local weights take."""
    if choices:
        raise InputError(
            f"{type(method).__name__} has no local weights and takes no {min(choices)}=; leave it out, or use "
            "LVDRegressor"
        )


def fill_in_unknown(value: Any) -> dict[str, Any]:
    """The attributes with NaN replaced by 0, since files hold no NaN, and masks of the replaced values."""
    attributes = dict(vars(value))
    for name in MAY_BE_UNKNOWN & attributes.keys():
        unknown = np.isnan(attributes[name])
        if unknown.any() and not unknown.all(axis=0).any():
            attributes |= {name: np.where(unknown, 0.0, attributes[name]), f"{name}unknown": unknown}
    return attributes


def take_out_unknown(value: Any) -> None:
    """Restore the NaN that :func:`fill_in_unknown` replaced."""
    learned = vars(value)
    for name in MAY_BE_UNKNOWN & learned.keys():
        unknown = learned.pop(f"{name}unknown", None)
        if unknown is None:
            continue
        if np.shape(unknown) != np.shape(learned[name]) or unknown.dtype != bool:
            raise InputError(f"{name} and {name}unknown do not belong together")
        learned[name] = np.where(unknown, np.nan, learned[name])


def interval_columns(
    y_pred: Float[NDArray, "n t"],
    intervals: Float[NDArray, "n 2 l t"],
    levels: Float[NDArray, "l"],
    targets: Sequence[str] = ("",),
) -> dict[str, Float[NDArray, "n"]]:
    """``y_pred``, then ``lower_90`` and ``upper_90`` for each level; the names end in the targets' names.

    >>> y_pred, intervals = np.zeros((1, 1)), np.array([[-1.0, 1.0]])[..., None, None]
    >>> list(interval_columns(y_pred, intervals, np.array([0.9]), ["_price"]))
    ['y_pred_price', 'lower_90_price', 'upper_90_price']
    """
    columns = {}
    for t, suffix in enumerate(targets):
        columns[f"y_pred{suffix}"] = y_pred[:, t]
        for number, level in enumerate(levels.tolist()):
            for side, name in enumerate(("lower", "upper")):
                columns[f"{name}_{percent_name(level)}{suffix}"] = intervals[:, side, number, t]
    return columns
