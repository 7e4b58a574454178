"""Intervals over time: a calibrated regressor whose weights fade with age and whose level adapts to misses."""

from __future__ import annotations

import copy
import math
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from lvd._parallel import few_threads
from lvd._typing import ArrayLike, Bool, Float, Labels, NDArray
from lvd._validation import (
    InputError,
    Parameter,
    check_choice,
    check_levels,
    check_positive,
    check_same_length,
    check_targets,
    intervals_like,
    like,
    load_errors_explained,
    present_rows,
    to_numpy,
)
from lvd.calibration import LocalConformal
from lvd.calibration.fading import FadingRows, read_half_lives
from lvd.calibration.level_adaptation import RULES, AdaptedLevel
from lvd.intervals import binomial_band
from lvd.methods.lvd import LVDRegressor
from lvd.metrics.rolling import TimeBlocks, sums_of
from lvd.models import Evaluation
from lvd.models.candidates import BlockFolds
from lvd.models.model import Fitted
from lvd.scores import (
    BoundScore,
    DistributionalResidual,
    EvaluatedRows,
    NormalizedResidual,
    QuantileResidual,
    SignedResidual,
    TrainingRows,
)
from lvd.scores.distributional import BoundDistribution
from lvd.store import save_object
from lvd.support import TrainingSupport

JUDGED_OVER = 1000.0
"""The half-life, in rows, of the interval scores used to choose a half-life."""
SHARES = np.array(
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0]
)
"""Miss rates, as multiples of the target's, among which to find the one that would just have covered a row."""
MOST_LEVEL = 0.99
"""Bandwidths are wide enough for a finite interval at the level in force, but no higher than this one."""
NEAR_ROWS = 2000
"""A row is also known if it is near one of this many of the newest observed rows."""
FEWEST_TO_LEARN, N_BLOCKS = 500, 5
"""Fewest rows for relearning kernels and scores, and the number of time-ordered folds that hold them out."""
COUNTS = ("n_predicted", "n_unknown", "n_infinite", "n_observed", "n_counted", "n_missed")
SHOWN = 1000
"""How many of the latest rows the status summarises."""


ALARM_BELOW, ALARM_UNKNOWN, FEWEST_RECENT = 1e-4, 0.2, 50
"""Raise an alarm if coverage this low has this probability, or this share of the latest rows was unknown, once
this many have labels."""


class OnlinePrediction(NamedTuple):
    """Predictions (n,) and intervals (n, 2, 1), or (n, T) and (n, 2, 1, T) for several targets; `keys` identify
    the rows when their labels arrive, and `known` marks rows like those of training or those observed."""

    y_pred: Any
    intervals: Any
    keys: NDArray
    known: Bool[NDArray, "n"]


class Observed(NamedTuple):
    """How many labels were used, and how many ignored: labels already known, or of rows never predicted or
    predicted too long ago."""

    n_taken: int
    n_ignored: int


@dataclass(frozen=True)
class OnlineStatus:
    """How the intervals of one target perform, on the latest `n_recent` labelled rows and in the long run.

    `half_life` is in rows, or in days if `in_days`. `coverage` of the latest rows has an exact 95% band;
    `level` is the adapted level now used in place of `confidence_level`. Of all `n_predicted` rows,
    `n_infinite` got an infinite interval, and `n_waiting` have no label yet. `long_run_bound` is how far
    long-run coverage can fall below the level, for any sequence.
    """

    confidence_level: float
    n_predicted: int
    n_observed: int
    n_waiting: int
    n_infinite: int
    n_unknown: int
    n_recent: int
    unknown_share: float
    coverage: float
    coverage_band: tuple[float, float]
    long_run_coverage: float
    long_run_bound: float
    level: float
    half_life: float
    n_rows_kept: int
    mean_width: float
    in_days: bool = False

    @property
    def alarms(self) -> list[str]:
        """What needs attention, in plain sentences; usually empty."""
        found: list[str] = []
        if self.n_recent < FEWEST_RECENT:
            return found
        n_covered = round(self.coverage * self.n_recent)
        _, most = binomial_band(n_covered, self.n_recent, significance=2.0 * ALARM_BELOW)
        if most < self.confidence_level:
            found.append(
                f"only {self.coverage:.1%} of the latest {self.n_recent:,} labelled rows were covered; the world "
                "changes faster than the intervals follow: shorten the half-life, or train the model again"
            )
        if self.unknown_share > ALARM_UNKNOWN:
            found.append(
                f"{self.unknown_share:.0%} of the latest {self.n_recent:,} labelled rows resemble no earlier row; "
                "train the model again, with them"
            )
        return found

    @property
    def sentence(self) -> str:
        """The status in plain words."""
        if not self.n_recent:
            return f"No label has been observed yet; {self.n_waiting:,} rows wait for theirs."
        span = f"{self.half_life:,.3g} days" if self.in_days else f"{self.half_life:,.0f} more"
        return (
            f"{self.coverage:.1%} of the latest {self.n_recent:,} labelled rows were covered, "
            f"{self.long_run_coverage:.1%} of all {self.n_observed:,}; {self.confidence_level:.0%} is wanted, and "
            f"{self.level:.1%} is the level now in use. Rows count half after {span}."
        )


class Waiting(NamedTuple):
    """A row whose label has not arrived: what is needed to score it, and the interval each target got.

    `ends` holds w x g intervals per target: for each way (a kind of score with a half-life), at its adapted
    level and at fixed miss rates. `number` counts rows, and `moment` is the row's day. `passed_over` marks
    targets whose interval is infinite because the row is unknown, which says nothing about the level; `left`
    marks targets whose label is still missing.
    """

    number: int
    moment: float
    model: int
    known: bool
    evaluation: Evaluation
    issued: Float[NDArray, "t 2"]
    ends: Float[NDArray, "t w g 2"]
    passed_over: Bool[NDArray, "t"]
    left: Bool[NDArray, "t"]


class OnlineIntervals:
    """Prediction intervals for rows that arrive one after the other while the distribution changes.

    Wraps a calibrated :class:`LVDRegressor`: rows are predicted before their labels are known and observed when
    they are, in any order, late, or never. Calibration weights halve every `half_life` rows, on top of the
    similarity to the row being predicted, and the level adapts to the misses seen.

    The guarantee, for any sequence, even an adversarial one: among T observed rows there are at most
    ``alpha T + C`` misses, with ``alpha = 1 - confidence_level`` and C of :meth:`long_run_bound`; rows with an
    infinite interval because they are unknown do not count. If `max_infinite` forbids the infinite interval
    that this needs, twice the largest score seen replaces it, and each further miss doubles that: for scores
    below b there are at most ``log2(b / first) + 1`` more misses. Coverage near each row is a goal, not a
    guarantee.

    Parameters
    ----------
    regressor : a calibrated :class:`LVDRegressor` with one score per target; it is not modified.
    confidence_level : the target coverage; defaults to the regressor's.
    level : how the level adapts: ``"dtaci"`` (Gibbs and Candès 2024), ``"aci"`` (Gibbs and Candès 2021), or
        ``"pid"`` (Angelopoulos, Candès and Tibshirani 2023).
    half_life : the number of rows after which a calibration row counts half; infinity keeps full weights. Or a
        duration, such as ``"12h"``, ``"30d"`` or ``"2w"``: then each row comes with its time, and the
        regressor's own calibration rows are as old as the first one. From a list, the one with the best
        interval score on the rows seen is used; ``"auto"`` stands for 300, 1,000 and 3,000 rows.
    max_rows : how many calibration rows to keep.
    max_waiting : how many rows may wait for their label; beyond it the oldest are dropped.
    max_infinite : the largest share of infinite intervals, counting unknown rows and rows that must not miss.
        Beyond it an unknown row gets the interval that similar rows suggest.
    refit_every : number of observed rows after which the kernel, the scale and the shape of errors are
        relearned from the newest rows; None never relearns.
    retrain : called with this object after every `refit_every` observed rows; returns a new calibrated
        regressor, or None to keep the old one. The model itself never changes otherwise.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(900, 2))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=900)
    >>> reg = lvd.LVDRegressor("trees", random_state=0).fit(X[:600], y[:600])
    >>> online = lvd.OnlineIntervals(reg)
    >>> for row in range(600, 900, 10):
    ...     found = online.predict_interval(X[row : row + 10])
    ...     online.observe(found.keys, y[row : row + 10])  # doctest: +ELLIPSIS
    Observed(n_taken=10, n_ignored=0)...
    >>> (status,) = online.status()
    >>> status.n_observed, bool(status.coverage > 0.8)
    (300, True)
    """

    def __init__(
        self,
        regressor: LVDRegressor,
        *,
        confidence_level: float | None = None,
        level: str = "dtaci",
        half_life: float | str | Sequence[float | str] = "auto",
        max_rows: int = 10_000,
        max_waiting: int = 10_000,
        max_infinite: float = 0.02,
        refit_every: int | None = None,
        retrain: Callable[[OnlineIntervals], LVDRegressor | None] | None = None,
    ) -> None:
        self.regressor = regressor
        self.confidence_level = confidence_level
        self.level = level
        self.half_life = half_life
        self.max_rows = max_rows
        self.max_waiting = max_waiting
        self.max_infinite = max_infinite
        self.refit_every = refit_every
        self.retrain = retrain
        self._check_parameters()
        self._begin()

    def _check_parameters(self) -> None:
        check_choice(self.level, "level", RULES)
        for name in ("max_rows", "max_waiting"):
            check_positive(getattr(self, name), name, integer=True)
        if self.refit_every is not None:
            check_positive(self.refit_every, "refit_every", integer=True)
        if not (isinstance(self.max_infinite, int | float) and 0.0 <= self.max_infinite <= 1.0):
            raise InputError(Parameter("max_infinite"), f" must lie in [0, 1], got {self.max_infinite!r}")
        read_half_lives(self.half_life)
        _check_regressor(self.regressor)
        if self.confidence_level is not None:
            check_levels(self.confidence_level)

    def _begin(self) -> None:
        """Set the state before the first row."""
        self._alpha = 1.0 - float(self.regressor._levels(self.confidence_level)[0])
        rates = self._alpha * SHARES
        self._rates = rates[rates < 1.0]
        self._half_lives, self.in_days = read_half_lives(self.half_life)
        self.n_kinds = self._count_kinds()
        n_ways = self.n_kinds * len(self._half_lives)
        self.levels_ = [AdaptedLevel(self._alpha, self.level, n_ways) for _ in range(self.n_targets)]
        self.losses_ = np.zeros((self.n_targets, n_ways))
        self.counts_ = {name: np.zeros(self.n_targets, np.int64) for name in COUNTS}
        self.largest_ = np.zeros((self.n_targets, self.n_kinds))
        targets = self.regressor.y_calib_
        self.seen_range_ = np.stack([np.nanmin(targets, axis=0), np.nanmax(targets, axis=0)])
        self.recent_: list[deque[tuple[bool, float, bool]]] = [
            deque(maxlen=SHOWN) for _ in range(self.n_targets)
        ]
        self.history_ = [TimeBlocks() for _ in range(self.n_targets)]
        self.newest_: deque[tuple[float, Evaluation, NDArray]] = deque(maxlen=self._most_newest)
        self.waiting_: dict[Any, Waiting] = {}
        self.done_: dict[Any, None] = {}
        self.time_ = self.most_late_ = self.n_models_ = 0
        self.n_complete_ = self.refitted_at_ = 0
        self.latest_, self.dated_ = 0.0, False
        self._take_regressor(self.regressor)

    def _count_kinds(self) -> int:
        """How many ways errors are measured: 2 (with and without shapes) if the score learns a shape per row.

        Drift first breaks a shape learned from old errors.
        """
        score = self.regressor.score_
        shaped = isinstance(score, DistributionalResidual) and any(score.shapes_)
        return 2 if shaped else 1

    def _kinds(self, bound: BoundScore) -> list[BoundScore]:
        """The score bound to the rows, and the one without shapes if there are two."""
        plain = bound.residual if isinstance(bound, BoundDistribution) else bound
        return [bound, plain][: self.n_kinds]

    @property
    def n_targets(self) -> int:
        """The number of targets; each has its own calibration rows and level."""
        return int(self.regressor.n_targets_)

    @property
    def target_level(self) -> float:
        """The long-run coverage to achieve."""
        return 1.0 - self._alpha

    @property
    def _most_newest(self) -> int:
        return NEAR_ROWS if self.refit_every is None else max(self.max_rows, NEAR_ROWS)

    @property
    def _now(self) -> float:
        """The current time: a number of rows, or the latest day."""
        return self.latest_ if self.in_days else float(self.time_)

    def _take_regressor(self, regressor: LVDRegressor, times: Float[NDArray, "m"] | None = None) -> None:
        """Start from a regressor's calibration rows, dated now unless `times` says otherwise."""
        self.regressor_ = regressor
        self._last: tuple[list[Any], BoundScore, list[NDArray]] | None = None
        self.rows_ = []
        for target, calibrator in enumerate(regressor.calibrators_):
            known = calibrator.calibration_
            plain = np.abs(regressor.residuals_calib_ / regressor.units_calib_)[:, target]
            both = [to_numpy(known.scores)[:, 0], plain[present_rows(plain)]]
            scores = np.stack(both[: self.n_kinds], axis=1)
            ages = np.zeros(len(scores)) if self.in_days else np.arange(len(scores), 0.0, -1.0)
            when = self._now - ages
            if times is not None:
                when = times[present_rows(regressor.y_calib_[:, target])]
            self.rows_.append(FadingRows(to_numpy(known.rows.points), scores, when, most=self.max_rows))
            self.largest_[target] = scores.max(axis=0)

    def predict_interval(
        self, X: ArrayLike, *, keys: Labels = None, unknown: Labels = None, times: Labels = None
    ) -> OnlinePrediction:
        """Predictions and intervals of rows whose labels are not known yet.

        `keys`, strings or integers, identify the rows when their labels arrive; by default rows are numbered. A
        row whose key is still waiting for its label gets the same interval as before and is not counted again.
        `unknown` (boolean) marks rows that resemble no training row. `times` are dates and times, or days as
        numbers, and are required if a half-life is a duration.
        """
        with load_errors_explained(self):
            inputs = self.regressor_._check_inputs(X)
            names = self._new_names(keys, len(inputs))
            days = self._days(times, len(names))
            new = [number for number, name in enumerate(names) if name not in self.waiting_]
            if new:
                rows = inputs if len(new) == len(names) else _safe_indexing(inputs, new)
                marked = None if unknown is None else to_numpy(unknown)[new]
                self._pass_time(days[new], dated=times is not None)
                self._predict(rows, [names[number] for number in new], days[new], marked)
        found = [self.waiting_[name] for name in names]
        self._give_up()
        y_pred = np.concatenate([one.evaluation.y_pred for one in found])
        ends = np.stack([one.issued.T[:, None] for one in found])
        if self.regressor.single_target_:
            y_pred, ends = y_pred[:, 0], ends[..., 0]
        known = np.array([one.known for one in found])
        return OnlinePrediction(like(y_pred, X), intervals_like(ends, X), _as_keys(names), known)

    def _days(self, times: Labels, n_rows: int) -> Float[NDArray, "n"]:
        """The days of the rows, or their numbers without times; either all rows have times or none has."""
        if times is None:
            if self.in_days or self.dated_:
                raise InputError(
                    "each row needs its time, as half_life is a span or earlier rows had theirs; give times="
                )
            return np.arange(self.time_, self.time_ + n_rows, dtype=np.float64)
        if self.time_ and not self.dated_:
            raise InputError(
                "the rows before these came without times; leave times= out, or start a new OnlineIntervals"
            )
        days = as_days(times)
        check_same_length(X=range(n_rows), times=days)
        return days

    def _pass_time(self, days: Float[NDArray, "n"], *, dated: bool) -> None:
        """Advance the clock; the initial calibration rows are as old as the first row."""
        if not self.time_ and self.in_days:
            for kept in self.rows_:
                kept.times = np.full(len(kept), days.min())
        latest = float(days.max())
        self.latest_, self.dated_ = max(self.latest_, latest) if self.time_ else latest, dated

    def _new_names(self, keys: Labels, n_rows: int) -> list[Any]:
        """The keys of the rows to predict, checked to be distinct and not yet observed."""
        if keys is None:
            return list(range(self.time_, self.time_ + n_rows))
        names = _names(keys)
        check_same_length(X=range(n_rows), keys=names)
        if len(set(names)) < n_rows:
            raise InputError("keys must differ from row to row; give each row a key of its own")
        done = [name for name in names if name in self.done_]
        if done:
            raise InputError(
                f"the label of {done[0]!r} was observed already, so it cannot be predicted again; leave "
                "such rows out, or give new rows new keys"
            )
        return names

    def _predict(self, inputs: Any, names: list[Any], days: Float[NDArray, "n"], unknown: Labels) -> None:
        """Add the rows to those waiting for a label, with their intervals."""
        regressor, n_rows = self.regressor_, len(names)
        rows, bound = regressor._bind(inputs, unknown)
        known, n_ways = self._known(rows), self.n_kinds * len(self._half_lives)
        by_kind = (self.n_kinds, len(self._half_lives), 1 + len(self._rates))
        shape = (n_rows, self.n_targets, *by_kind)
        radii, points = np.empty(shape), []
        for target, (calibrator, kept) in enumerate(zip(regressor.calibrators_, self.rows_, strict=True)):
            asked = np.column_stack([self.levels_[target].rates, np.tile(self._rates, (n_ways, 1))])
            placed, widths = self._placed(calibrator, kept, rows, float(1.0 - asked[:, 0].min()))
            points.append(placed)
            levels = (1.0 - asked).reshape(by_kind)
            radii[:, target] = kept.quantiles(placed, widths, self._now, self._half_lives, levels)
        issued, passed_over = self._issued(radii.reshape(n_rows, self.n_targets, n_ways, -1), known)
        ends, given = self._ends(bound, radii, issued)
        evaluation = rows.evaluation._replace(inputs=rows.numbers, quantiles=None)
        for number, name in enumerate(names):
            self.waiting_[name] = Waiting(
                self.time_ + number,
                float(days[number]),
                self.n_models_,
                bool(known[number]),
                row_of(evaluation, number),
                given[number],
                ends[number],
                passed_over[number],
                np.ones(self.n_targets, bool),
            )
        self.time_ += n_rows
        self.most_late_ = max(self.most_late_, len(self.waiting_))
        self._last = names, bound, points

    def _ends(
        self, bound: BoundScore, radii: Float[NDArray, "n t s h g"], issued: Float[NDArray, "n t"]
    ) -> tuple[Float[NDArray, "n t w g 2"], Float[NDArray, "n t 2"]]:
        """The intervals of all ways and miss rates, and the ones issued."""
        n_rows, n_targets, _, n_half_lives, n_rates = radii.shape
        used, found, given = self.losses_.argmin(axis=1) // n_half_lives, [], np.empty((*issued.shape, 2))
        for kind, one in enumerate(self._kinds(bound)):
            own = radii[:, :, kind].reshape(n_rows, n_targets, -1)
            together = np.concatenate([own, issued[:, :, None]], axis=2)
            levels = np.full(together.shape[2], 1.0 - self._alpha)
            ends = self.regressor_._clip(one.intervals(together.transpose(0, 2, 1)[:, None], levels))
            ends = ends.transpose(0, 3, 2, 1)
            given[:, used == kind] = ends[:, used == kind, -1]
            found.append(ends[:, :, :-1].reshape(n_rows, n_targets, n_half_lives, n_rates, 2))
        return np.concatenate(found, axis=2), given

    def _placed(
        self, calibrator: LocalConformal, kept: FadingRows, rows: EvaluatedRows, level: float
    ) -> tuple[Float[NDArray, "n k"], Float[NDArray, "n h"]]:
        """The rows' coordinates, and bandwidths that expect enough weight for a finite interval."""
        masses = kept.masses(self._now, self._half_lives)
        points, widths = calibrator.placed(rows.placed, masses.tolist(), min(level, MOST_LEVEL))
        return to_numpy(points), np.stack([to_numpy(one) for one in widths], axis=1)

    def _known(self, rows: EvaluatedRows) -> Bool[NDArray, "n"]:
        """Which rows resemble training rows or observed rows."""
        known = self.regressor_._check_support(rows).known
        rule = self.regressor_.support_
        # A user's own rule has the last word.
        if known.all() or not self.newest_ or not isinstance(rule, TrainingSupport):
            return known
        newest = [evaluation for _, evaluation, _ in self.newest_][-NEAR_ROWS:]
        return known | rule.near(rows, EvaluatedRows(None, stacked(newest)))

    def _issued(
        self, radii: Float[NDArray, "n t w g"], known: Bool[NDArray, "n"]
    ) -> tuple[Float[NDArray, "n t"], Bool[NDArray, "n t"]]:
        """The issued radii, and a mask of those infinite because the row is unknown; updates the counts."""
        chosen = self.losses_.argmin(axis=1)
        issued = radii[:, np.arange(self.n_targets), chosen, 0].copy()
        unknown = ~known if self.regressor_._infinite_when_unknown else np.zeros(len(known), bool)
        passed_over = np.zeros(issued.shape, bool)
        for row, target in np.ndindex(issued.shape):
            self.counts_["n_predicted"][target] += 1
            self.counts_["n_unknown"][target] += not known[row]
            if not (unknown[row] or np.isinf(issued[row, target])):
                continue
            if self._may_be_infinite(target):
                passed_over[row, target] = unknown[row]
                issued[row, target] = np.inf
                self.counts_["n_infinite"][target] += 1
            elif np.isinf(issued[row, target]):
                issued[row, target] = 2.0 * self.largest_[target, chosen[target] // len(self._half_lives)]
        return issued, passed_over

    def _may_be_infinite(self, target: int) -> bool:
        n_infinite, n_predicted = (int(self.counts_[name][target]) for name in ("n_infinite", "n_predicted"))
        return self.max_infinite > 0.0 and n_infinite < 1.0 + self.max_infinite * n_predicted

    def _give_up(self) -> None:
        """Drop the rows that have waited longest, to bound memory."""
        for name in list(self.waiting_)[: max(0, len(self.waiting_) - self.max_waiting)]:
            del self.waiting_[name]

    def observe(self, keys: Labels, y: ArrayLike) -> Observed:
        """Take the labels of predicted rows, identified by their keys, in any order.

        Labels of rows that are not waiting are ignored, so sending the same labels twice is harmless. With
        several targets, labels not known yet may be NaN and sent later.
        """
        names = _names(keys)
        targets = check_targets(y, missing=self.n_targets > 1)
        check_same_length(keys=names, y=targets)
        if targets.shape[1] != self.n_targets:
            raise InputError(
                f"y has {targets.shape[1]} target column(s), but the model has {self.n_targets}; give the same"
            )
        places = {name: place for place, name in enumerate(names) if name in self.waiting_}
        if places:
            with load_errors_explained(self):
                self._observe(list(places), targets[list(places.values())])
        return Observed(len(places), len(names) - len(places))

    def _observe(self, names: list[Any], y: Float[NDArray, "n t"]) -> None:
        waiting = [self.waiting_[name] for name in names]
        fresh = np.isfinite(y) & np.stack([one.left for one in waiting])
        # Coordinates and scores of rows predicted by an earlier model do not apply to this one.
        own = np.array([one.model == self.n_models_ for one in waiting])
        bound, points = self._bound_again(names, waiting) if own.all() else (None, None)
        if bound is None and own.any():
            some = np.flatnonzero(own).tolist()
            bound, points = self._bound_again([names[i] for i in some], [waiting[i] for i in some])
        times = np.array([self._born(one) for one in waiting])
        for target, kept in enumerate(self.rows_):
            for row in np.flatnonzero(fresh[:, target]).tolist():
                self._judge(target, waiting[row], float(y[row, target]))
            learned = fresh[own, target]
            if bound is not None and points is not None and learned.any():
                labels = np.where(fresh, y, 0.0)[own]
                scores = np.stack([one(labels)[learned, 0, target] for one in self._kinds(bound)], axis=1)
                kept.add(points[target][learned], scores, times[own][learned], longest=self._half_lives.max())
                self.largest_[target] = np.maximum(self.largest_[target], scores.max(axis=0))
        for name, one, row, labels in zip(names, waiting, fresh, y, strict=True):
            self._settle(name, one._replace(left=one.left & ~row), labels)
        if self.refit_every is not None and self.n_complete_ - self.refitted_at_ >= self.refit_every:
            self.refitted_at_ = self.n_complete_
            self._refit()

    def _bound_again(self, names: list[Any], waiting: list[Waiting]) -> tuple[BoundScore, list[NDArray]]:
        """The score bound to waiting rows, and their coordinates; cached for the rows predicted last."""
        if self._last is not None:
            last, bound, points = self._last
            places = {name: place for place, name in enumerate(last)}
            if all(name in places for name in names):
                some = np.array([places[name] for name in names])
                return bound[some], [one[some] for one in points]
        regressor = self.regressor_
        rows = EvaluatedRows(None, stacked([one.evaluation for one in waiting]), regressor.kernels_)
        placed = [to_numpy(one.placed(rows.placed, [], 0.9)[0]) for one in regressor.calibrators_]
        return regressor._bound(rows), placed

    def _judge(self, target: int, waiting: Waiting, y: float) -> None:
        """Update the level, the counts and the half-lives' losses from one label."""
        ends = waiting.ends[target]
        lower, upper = waiting.issued[target]
        missed = not lower <= y <= upper
        if not waiting.passed_over[target]:
            covered = ((ends[:, 1:, 0] <= y) & (y <= ends[:, 1:, 1])).sum(axis=1)
            edges = np.concatenate([[0.0], self._rates, [1.0]])
            self.levels_[target].take((edges[covered] + edges[covered + 1]) / 2.0, missed=missed)
            self.counts_["n_counted"][target] += 1
        self.counts_["n_observed"][target] += 1
        self.counts_["n_missed"][target] += missed
        self.recent_[target].append((not missed, float(upper - lower), not waiting.known))
        row = (waiting.moment, not missed, upper - lower, waiting.known)
        self.history_[target].add(sums_of(*(np.array([one]) for one in row))[0])
        low, high = self.seen_range_[:, target]
        scores = interval_score(ends[:, 0], y, self._alpha, 1.2 * (high - low))
        self.losses_[target] = 0.5 ** (1.0 / JUDGED_OVER) * self.losses_[target] + scores
        self.seen_range_[:, target] = min(low, y), max(high, y)

    def _settle(self, name: Any, waiting: Waiting, y: Float[NDArray, "t"]) -> None:
        """Stop waiting for a row once all its labels are known."""
        self.waiting_[name] = waiting
        if waiting.left.any():
            return
        del self.waiting_[name]
        self.done_[name] = None
        if len(self.done_) > self.max_waiting:
            del self.done_[next(iter(self.done_))]
        self.n_complete_ += 1
        if waiting.model == self.n_models_ and np.isfinite(y).all():
            self.newest_.append((self._born(waiting), waiting.evaluation, y))

    def _born(self, waiting: Waiting) -> float:
        """The time from which a row ages, in rows or days."""
        return waiting.moment if self.in_days else float(waiting.number)

    def _refit(self) -> None:
        """Relearn the kernels and the score from observed rows, on out-of-fold errors."""
        retrained = None if self.retrain is None else self.retrain(self)
        if retrained is not None:
            _check_regressor(retrained)
            if retrained.n_targets_ != self.n_targets:
                raise InputError("retrain must return a regressor of the same targets")
            self.n_models_ += 1
            self.newest_.clear()
            self._take_regressor(retrained)
            return
        if len(self.newest_) < FEWEST_TO_LEARN:
            return
        times, evaluations, labels = zip(*self.newest_, strict=True)
        y, rows = np.stack(labels), EvaluatedRows(None, stacked(list(evaluations)))
        folds = BlockFolds(N_BLOCKS).split(y)
        refreshed = copy.copy(self.regressor_)
        refreshed.score_ = clone(self.regressor_.score_)
        model = Fitted(self.regressor_.model_)
        training = TrainingRows(rows, y, model, refreshed.device, refreshed.seed_, rows.y_pred, folds)
        with few_threads(rows.embeddings):
            learned = refreshed._learn(training)
            assert learned is not None
            refreshed._take_calibration(*learned, y, {})
        self._take_regressor(refreshed, np.array(times, dtype=np.float64))

    def long_run_bound(self, target: int = 0) -> float:
        """The constant C: among T counted rows there are at most ``alpha T + C`` misses, for any sequence."""
        return self.levels_[target].bound(self.most_late_)

    def status(self) -> list[OnlineStatus]:
        """The status of each target."""
        return [self._status(target) for target in range(self.n_targets)]

    def _status(self, target: int) -> OnlineStatus:
        counts = {name: int(values[target]) for name, values in self.counts_.items()}
        covered, widths, unknown = np.array(self.recent_[target], dtype=np.float64).reshape(-1, 3).T
        band = binomial_band(covered.sum(), len(covered)) if len(covered) else (0.0, 1.0)
        chosen, n_observed = int(self.losses_[target].argmin()), counts["n_observed"]
        finite = widths[np.isfinite(widths)]
        return OnlineStatus(
            confidence_level=1.0 - self._alpha,
            n_predicted=counts["n_predicted"],
            n_observed=n_observed,
            n_waiting=sum(bool(one.left[target]) for one in self.waiting_.values()),
            n_infinite=counts["n_infinite"],
            n_unknown=counts["n_unknown"],
            n_recent=len(covered),
            unknown_share=float(unknown.mean()) if len(covered) else 0.0,
            coverage=float(covered.mean()) if len(covered) else math.nan,
            coverage_band=(float(band[0]), float(band[1])),
            long_run_coverage=1.0 - counts["n_missed"] / n_observed if n_observed else math.nan,
            long_run_bound=min(1.0, self.long_run_bound(target) / max(1, counts["n_counted"])),
            level=float(np.clip(1.0 - self.levels_[target].rates[chosen], 0.0, 1.0)),
            half_life=float(self._half_lives[chosen % len(self._half_lives)]),
            n_rows_kept=len(self.rows_[target]),
            mean_width=float(finite.mean()) if len(finite) else math.nan,
            in_days=self.in_days,
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the model and the state atomically to a folder that :func:`lvd.load` reads."""
        save_object(self, folder)


def interval_score(
    ends: Float[NDArray, "w 2"], y: float, alpha: float, infinite: float
) -> Float[NDArray, "w"]:
    """The width plus ``2 / alpha`` times the distance by which y is missed; an infinite interval's score is
    `infinite`."""
    lower, upper = ends.T
    score = upper - lower + 2.0 / alpha * (np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0))
    return np.where(np.isfinite(score), score, infinite)


def as_days(times: Any) -> Float[NDArray, "n"]:
    """Convert dates and times, or day numbers, to days since 1970."""
    array = np.asarray(times)
    try:
        if array.dtype.kind not in "iuf":
            moments = array.astype("datetime64[us]")
            array = np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 86.4e9)
        days = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"times must be dates and times, or days as numbers ({error})") from None
    if days.ndim != 1 or not np.isfinite(days).all():
        raise InputError("times must be a list of moments, one for each row, and none may be missing")
    return days


def _check_regressor(regressor: Any) -> None:
    """Raise unless intervals over time can be built on this regressor."""
    if not isinstance(regressor, LVDRegressor):
        raise InputError(
            f"OnlineIntervals needs a calibrated LVDRegressor, got {type(regressor).__name__}; fit one first"
        )
    regressor._check_calibrated()
    score = regressor.score_
    if score.joint or isinstance(score, NormalizedResidual | QuantileResidual | SignedResidual):
        raise InputError(
            Parameter("conformity_score"),
            f" {type(score).__name__} has no single radius at every level, which levels that adapt need; fit with "
            "'scaled', 'distributional', 'absolute' or 'sided'",
        )
    for calibrator in regressor.calibrators_:
        if (
            calibrator.calibration_.rows.groups is not None
            or calibrator.calibration_.rows.weights is not None
        ):
            raise InputError(
                "OnlineIntervals takes no regressor that was calibrated with groups= or weights=; "
                "calibrate without, or keep one OnlineIntervals for each group"
            )


def _names(keys: Labels) -> list[Any]:
    """The keys as a list of strings or integers."""
    array = np.asarray(keys)
    if array.ndim != 1 or not (
        array.dtype.kind in "iuU" or all(type(key) in {str, int} for key in array.tolist())
    ):
        raise InputError("keys must be a list of texts or whole numbers, one for each row")
    return array.tolist()


def _as_keys(names: list[Any]) -> NDArray:
    numbers = all(type(name) is int for name in names)
    return np.array(names, dtype=np.int64 if numbers else object)


def row_of(evaluation: Evaluation, row: int) -> Evaluation:
    """One row of an evaluation."""
    parts: Any = (None if part is None else part[row : row + 1] for part in evaluation)
    return Evaluation(*parts)


def stacked(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The evaluations of several rows by one model, concatenated."""
    columns = zip(*evaluations, strict=True)
    joined: Any = (None if parts[0] is None else np.concatenate(parts) for parts in columns)
    return Evaluation(*joined)
