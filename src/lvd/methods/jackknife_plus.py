"""Jackknife+ and CV+ (Barber, Candès, Ramdas and Tibshirani 2021)."""

from __future__ import annotations

import sys
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from functools import partial
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import _safe_indexing

from lvd._parallel import Jobs, at_once, chunk_slices, few_threads, usable_threads
from lvd._progress import progress_bar
from lvd._typing import ArrayLike, Float, Int, NDArray
from lvd._validation import InputError, check_positive
from lvd.engine import jackknife_plus_intervals
from lvd.methods.base import IntervalRegressor, refuse_choices
from lvd.models import Model
from lvd.models.candidates import train_without
from lvd.wrap import as_model

LONG_WAIT_SECONDS = 5.0
PREDICTIONS_AT_ONCE = 2**22


@dataclass(eq=False, repr=False)
class JackknifePlusRegressor(IntervalRegressor):
    """Intervals from models that each leave out a training row or fold, without a calibration set.

    All rows are used for training and for calibration: each row's error comes from a model that has not seen
    it. The guarantee is weaker in return, a coverage of at least ``1 - 2 (1 - level)``; in practice coverage is
    close to the level. The point prediction comes from the model trained on all rows, and an interval need not
    contain it.

    Parameters
    ----------
    estimator : the model. None builds an MLP (:class:`NetRegressor`); a torch module, a NetRegressor, a
        scikit-learn regressor or Pipeline. It is trained once on all rows and once without each row or fold.
    cv : None leaves out one row at a time, exactly, with one training per row. A number of folds, such as 10,
        is CV+: one training per fold, at the price of somewhat wider intervals.
    n_jobs : how many models to train in parallel, on threads; defaults to torch's number of threads.
    progress : announce how long a long computation will take and show a progress bar, in a terminal only.
    confidence_level, y_range, device, random_state : as in :class:`LVDRegressor`.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> from sklearn.linear_model import Ridge
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(40, 2))
    >>> reg = lvd.JackknifePlusRegressor(Ridge()).fit(X, X[:, 0] ** 2)
    >>> reg.predict_interval(X[:5], [0.5, 0.9])[1].shape
    (5, 2, 2)
    """

    guarantee: ClassVar[str] = "marginal 1-2a"
    post_hoc: ClassVar[bool] = False

    estimator: Any = None
    _: KW_ONLY
    cv: int | None = None
    n_jobs: int | None = None
    progress: bool = True
    device: str = "auto"

    def fit(self, X: ArrayLike, y: ArrayLike) -> JackknifePlusRegressor:
        """Train on all rows, and once without each row or fold."""
        inputs, targets, seed = self._begin(X, y)
        self.folds_ = _folds(len(targets), self.cv, seed)
        start = perf_counter()
        with few_threads(inputs):
            self.model_.fit(inputs, targets)
        seconds = perf_counter() - start
        n_folds = int(self.folds_.max()) + 1
        n_threads = min(self.n_jobs or usable_threads(), n_folds)
        self.residuals_ = np.empty_like(targets)

        long = self.progress and n_folds * seconds / n_threads >= LONG_WAIT_SECONDS
        if long and sys.stderr.isatty():
            print(_forecast(n_folds, seconds, n_threads), file=sys.stderr)
        with few_threads(inputs), progress_bar("Jackknife+", n_folds, shown=long) as advance:
            leave_out = partial(_leave_out, self._new_model(seed), inputs, targets, self.folds_)
            jobs = Jobs(leave_out, range(n_folds), ended=advance)
            answers = at_once(jobs, n_threads, inputs)
        self.fold_models_ = [model for model, _ in answers]
        for fold, (_, residuals) in enumerate(answers):
            self.residuals_[self.folds_ == fold] = residuals
        return self

    def _check_parameters(self) -> None:
        for name in ("cv", "n_jobs"):
            if vars(self)[name] is not None:
                check_positive(vars(self)[name], name, integer=True)

    def _new_model(self, seed: int) -> Model:
        model = as_model(self.estimator, device=self.device, random_state=seed)
        if model.prefit:
            raise InputError(
                "estimator must be trainable, as it is fitted again without some of the rows, got a trained model; "
                "use a post hoc method such as SplitConformalRegressor"
            )
        return model

    def _predict_interval(
        self, X: Any, levels: Float[NDArray, "l"], **choices: Any
    ) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 l t"]]:
        refuse_choices(self, choices)
        chunks = chunk_slices(len(X), max(1, PREDICTIONS_AT_ONCE // self.residuals_.size))
        intervals = [self._intervals(_safe_indexing(X, rows), levels) for rows in chunks]
        return self._predict(X), np.concatenate(intervals)

    def _intervals(self, X: Any, levels: Float[NDArray, "l"]) -> Float[NDArray, "n 2 l t"]:
        by_fold = np.stack([model.evaluate(X).y_pred for model in self.fold_models_])
        return jackknife_plus_intervals(by_fold[self.folds_], self.residuals_, levels)


def _leave_out(
    template: Model, inputs: Any, targets: Float[NDArray, "n t"], folds: Int[NDArray, "n"], fold: int
) -> tuple[Model, Float[NDArray, "k t"]]:
    """A model trained without a fold, and the sizes of its errors there."""
    kept, left = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
    model, answer = train_without(template, inputs, targets, (kept, left))
    return model, np.abs(targets[left] - answer.y_pred)


def _folds(n_rows: int, cv: int | None, seed: int) -> Int[NDArray, "n"]:
    """The fold of each row: its own, or one of `cv` random folds of nearly equal size."""
    n_folds = n_rows if cv is None else cv
    if not 2 <= n_folds <= n_rows or n_rows < 3:
        raise InputError(
            f"cv must be None or lie between 2 and the number of rows, and there must be at least 3 rows; "
            f"got cv={cv!r} and {n_rows} sample(s)"
        )
    if cv is None:
        return np.arange(n_rows)
    return np.random.default_rng(seed).permutation(np.arange(n_rows) % cv)


def _forecast(n_fits: int, seconds_each: float, n_threads: int) -> str:
    """A sentence with the expected duration of a long computation."""
    hint = " cv=10 would train 10." if n_fits > 10 else ""
    return (
        f"Jackknife+ trains {n_fits:,} models of about {seconds_each:.2g} s each on {n_threads} thread(s): "
        f"about {timedelta(seconds=round(n_fits * seconds_each / n_threads))} in all.{hint}"
    )
