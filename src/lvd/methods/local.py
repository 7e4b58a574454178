"""Methods whose intervals follow the calibration rows like each row: what they can say beside an interval."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lvd._typing import ArrayLike, Bool, Float, Int, Labels, Levels, NDArray, RandomState
from lvd._validation import (
    InputError,
    check_levels,
    check_positive,
    intervals_like,
    like,
    present_rows,
    proven,
    to_numpy,
)
from lvd.conformal import LocalConformal
from lvd.conformal.explanation import Evidence, Neighbor
from lvd.conformal.local import check_bandwidth
from lvd.conformal.monitor import DriftMonitor, RowMonitor
from lvd.conformal.transductive import Prior
from lvd.intervals import covered
from lvd.kernels import MahalanobisKernel
from lvd.methods.base import local_choices
from lvd.methods.conformal import spaces_of
from lvd.methods.predictive import PredictiveDistribution
from lvd.quantiles import conformal_quantile
from lvd.regions import Region
from lvd.scores import EvaluatedRows, TrainingRows


class Prediction(NamedTuple):
    """What :meth:`LVDRegressor.predict_with_evidence` gives for n rows, L levels and T targets.

    Parameters
    ----------
    y_pred : the predictions, (n,); for several targets (n, T).
    intervals : the prediction intervals, (n, 2, L); for several targets (n, 2, L, T).
    n_effective : how many equally weighted rows the calibration rows similar to each row are worth, (n,); for
        several targets (n, T).
    embeddings : the network's last hidden layer, (n, h).
    known : whether training rows are like each row, (n,).
    regions : for scores of all targets together, a :class:`lvd.Region` of them for each level; else none.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    >>> reg = lvd.LVDRegressor(random_state=0).fit(X, X[:, 0])
    >>> known, far = reg.predict_with_evidence([[0.0, 0.0], [1e3, 1e3]], 0.5).n_effective
    >>> bool(known > 1.0), float(far)
    (True, 0.0)
    """

    y_pred: Any
    intervals: Any
    n_effective: Any
    embeddings: Any
    known: Any
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True)
class Largest:
    """The target that makes a joint region large: how many times its usual expected error that of the row is."""

    target: int
    times: float
    name: str | None = None

    @property
    def sentence(self) -> str:
        """Which target it is."""
        name = f"target {self.target}" if self.name is None else self.name
        return (
            "The region holds all targets together. Compared with other rows it is largest in "
            f"{name}, where {self.times:.2g} times the usual error is to be expected."
        )


@dataclass(frozen=True)
class Explanation:
    """One row's interval and the evidence for it; `label` is the row's name, where it has one.

    Where the region is joint, the evidence is that of all targets, and `largest` names one of them. `reason` is why
    the row is unknown, if it is, and `beyond` the number of the input that no training row comes near, if one is.
    """

    row: int
    target: int
    y_pred: float
    lower: float
    upper: float
    evidence: Evidence
    label: str | None = None
    known: bool = True
    guarantee: str = "local"
    when_unknown: str = "infinite"
    largest: Largest | None = None
    reason: str | None = None
    beyond: int | None = None

    @property
    def score_name(self) -> str | None:
        """What neighbours' scores are beside their errors; None where they are the same, or of all targets."""
        if self.largest is not None:
            return None
        if self.evidence.expected_error is not None:
            return "times expected"
        return None if self.evidence.measure == "error" else self.evidence.measure

    @property
    def sentence(self) -> str:
        """Why the interval is as wide as it is, or infinite."""
        if not self.known and self.when_unknown == "infinite":
            return f"Unknown: {self.reason}, so it gets no finite interval."
        unknown = "" if self.known else f"Unknown: {self.reason}. "
        other = (
            ""
            if self.guarantee == "local"
            else f"The guarantee of this interval is {self.guarantee}. With the local one: "
        )
        together = "" if self.largest is None else f" {self.largest.sentence}"
        return f"{unknown}{other}{self.evidence.sentence}{together}"


@dataclass(eq=False, repr=False)
class LocalRegressor(PredictiveDistribution):
    """A conformal method with a kernel: its calibration rows can be added, forgotten, watched and shown."""

    guarantee: ClassVar[str] = "local"

    _: KW_ONLY
    kernel: MahalanobisKernel | None = None

    @abstractmethod
    def _reach(self) -> tuple[float | str, float]:
        """The bandwidth of the kernel, and the mass of an adaptive one."""

    def _check_parameters(self) -> None:
        check_bandwidth(self._reach()[0])
        if self.kernel is not None and not isinstance(self.kernel, MahalanobisKernel):
            raise InputError(f"kernel must be a MahalanobisKernel or None, got {type(self.kernel).__name__}")
        self._conformity_score()

    def _kernel_template(self, training: TrainingRows | None = None) -> MahalanobisKernel:
        return self.kernel or MahalanobisKernel(device=self.device)

    def _calibrator(self, kernel: MahalanobisKernel | None) -> LocalConformal:
        assert kernel is not None
        bandwidth, mass = self._reach()
        # The levels at which the score's columns are asked: adaptive bandwidths are made for them.
        levels = [self.score_.plan(level).level for level in check_levels(self.confidence_level).tolist()]
        prior = Prior(size=self.score_.typical)
        return LocalConformal(kernel, bandwidth=bandwidth, mass=mass, confidence_level=levels, prior=prior)

    def embed(self, X: ArrayLike) -> Any:
        """The embeddings (n, h) of the rows."""
        self._check_fitted()
        with proven(self):
            return like(self.model_.evaluate(self._check_inputs(X)).embeddings, X)

    def predict_with_evidence(
        self,
        X: ArrayLike,
        confidence_level: Levels | None = None,
        *,
        guarantee: str | None = None,
        smoothed: bool = False,
        groups: Labels = None,
        weights: Labels = None,
        unknown: Labels = None,
        random_state: RandomState = 0,
    ) -> Prediction:
        """What :meth:`predict_interval` gives and the evidence for it, from one pass of the network.

        `unknown` marks rows (true) as unknown, whatever is near them.
        """
        self._check_calibrated()
        levels, (rows, bound) = self._levels(confidence_level), self._bind(self._check_inputs(X), unknown)
        choices = local_choices(guarantee, smoothed, groups, weights, random_state)
        radius = self._radii(rows, levels, **choices)
        intervals = self._clip(bound.intervals(radius, levels))
        sizes = [
            to_numpy(columns[0].effective_sample_size(rows.embeddings, groups=groups))
            for columns in self.conformals_
        ]
        all_sizes = np.stack(sizes, axis=1) * np.ones_like(bound.y_pred)
        y_pred, ends, size = map(self._as_given, (bound.y_pred, intervals, all_sizes))
        embeddings, regions = like(rows.evaluation.embeddings, X), self._regions(bound, radius)
        return Prediction(
            like(y_pred, X), intervals_like(ends, X), like(size, X), embeddings, self._known(rows), regions
        )

    def update(self, X: ArrayLike, y: ArrayLike, *, groups: Labels = None, weights: Labels = None) -> Any:
        """Add newly labelled rows to the calibration set; nothing is trained again."""
        self._check_calibrated()
        inputs, targets = self._check_rows(X, y, self.n_targets_, missing=True)
        self._check_errors()
        rows, bound = self._bind(inputs)
        self._hand_out("update", rows, bound(targets), {"groups": groups, "weights": weights})
        self.residuals_calib_ = np.concatenate([self.residuals_calib_, targets - bound.y_pred])
        self.units_calib_ = np.concatenate([self.units_calib_, bound.unit])
        self.y_calib_ = np.concatenate([self.y_calib_, targets])
        self.n_calib_ = len(self.y_calib_)
        return self

    def forget(self, n_newest: int) -> Any:
        """Keep only the newest rows of the calibration set, for data whose nature changes with time."""
        self._check_calibrated()
        self._check_errors()
        check_positive(n_newest, "n_newest", integer=True)
        complete = self._complete(self.y_calib_[-n_newest:])
        for columns, n_kept in zip(self.conformals_, complete.sum(axis=0).tolist(), strict=True):
            for conformal in columns:
                conformal.forget(n_kept)
        for name in ("residuals_calib_", "units_calib_", "y_calib_"):
            setattr(self, name, getattr(self, name)[-n_newest:])
        self.n_calib_ = len(self.y_calib_)
        return self

    def monitor(
        self,
        confidence_level: float | None = None,
        *,
        false_alarm_rate: float = 0.01,
        window: int = 200,
        random_state: RandomState = None,
    ) -> RowMonitor:
        """A monitor that takes labelled rows as they arrive and says when to recalibrate.

        For a single target, or for several with a joint region.
        """
        self._check_calibrated()
        if len(self.conformals_) > 1:
            raise InputError(
                f"monitor watches one target, but this model has {self.n_targets_}; fit a model for each, or one "
                "with a joint region"
            )
        if self.conformals_[0][0].calibration_.rows.weights is not None:
            raise InputError(
                "monitor compares new rows with the calibration rows as they are, and these came with weights= "
                "for another population; calibrate on rows of that population first"
            )
        watch = DriftMonitor(
            np.max([to_numpy(one.calibration_.scores) for one in self.conformals_[0]], axis=0),
            confidence_level=float(self._levels(confidence_level)[0]),
            false_alarm_rate=false_alarm_rate,
            window=window,
            random_state=random_state,
        )
        return RowMonitor(self._judge, watch)

    def _judge(self, X: ArrayLike, y: ArrayLike, level: float, groups: Labels) -> tuple[NDArray, NDArray]:
        """The scores of labelled rows, and whether their intervals cover."""
        inputs, targets = self._check_rows(X, y, self.n_targets_)
        rows, bound = self._bind(inputs)
        levels = np.array([level])
        radius = self._radii(rows, levels, groups=groups)
        scores = bound(targets)[:, :, 0].max(1)
        for region in self._regions(bound, radius):
            return scores, region.contains(targets)
        return scores, covered(targets[:, 0], bound.intervals(radius, levels)[..., 0])[:, 0]

    def explain(
        self,
        X: ArrayLike,
        confidence_level: float | None = None,
        *,
        n_neighbors: int = 10,
        guarantee: str | None = None,
        groups: Labels = None,
        weights: Labels = None,
        unknown: Labels = None,
    ) -> list[Explanation]:
        """For each row its interval, the calibration rows that carry the weight, and one plain sentence.

        `guarantee` is that of the intervals; the evidence is that of the local one, which all of them start from.
        `unknown` marks rows (true) as unknown, whatever is near them.
        Several targets give one explanation per row and target, the targets of a row side by side.
        """
        self._check_calibrated()
        levels, (rows, bound) = self._levels(confidence_level)[:1], self._bind(self._check_inputs(X), unknown)
        choices = local_choices(guarantee, False, groups, weights, 0)
        intervals = self._clip(bound.intervals(self._radii(rows, levels, **choices), levels))
        plan = self.score_.plan(float(levels[0]))
        errors = np.abs(getattr(self, "residuals_calib_", np.full_like(self.y_calib_, np.nan)))
        usual = self._usual_radii(levels).tolist() if (bound.unit != 1.0).any() else None
        evidence = []
        for target, (columns, numbers) in enumerate(self._by_target()):
            found = columns[plan.columns[-1]].explain(
                rows.embeddings,
                float(levels[0]),
                n_neighbors=n_neighbors,
                targets=self.y_calib_[numbers, target],
                groups=groups,
                weights=weights,
                two_sided=len(plan.columns) > 1,
            )
            told = [_told_in_y(one, numbers, errors[:, target], self.score_.measure) for one in found]
            if usual is not None:
                pairs = zip(told, bound.unit[:, target].tolist(), strict=True)
                told = [replace(one, expected_error=unit, usual_radius=usual[target]) for one, unit in pairs]
            evidence.append(told)
        known, largest = self._known(rows), self._largest_targets(bound.unit)
        reasons = self._why_unknown(rows, known)
        return [
            Explanation(
                row=row,
                target=target,
                y_pred=float(bound.y_pred[row, target]),
                lower=float(intervals[row, 0, 0, target]),
                upper=float(intervals[row, 1, 0, target]),
                evidence=evidence[target][row],
                known=bool(known[row]),
                guarantee=guarantee or "local",
                when_unknown="infinite" if self._infinite_when_unknown else "widen",
                largest=largest[row],
                reason=reasons[row][0],
                beyond=reasons[row][1],
            )
            for row, target in np.ndindex(bound.y_pred.shape)
        ]

    def _why_unknown(
        self, rows: EvaluatedRows, known: Bool[NDArray, "n"]
    ) -> list[tuple[str | None, int | None]]:
        """For each row that is unknown the reason, and the input that decides alone, if one does."""
        familiar = self.familiarity_
        of_level = "with its levels " if familiar is not None and any(familiar.levels) else ""
        columns = [None] * len(known) if familiar is None else familiar.beyond(spaces_of(rows))
        made = None if familiar is None else familiar.makeup
        strange = [None] * len(known) if made is None else made.strange(rows.inputs)
        found: list[tuple[str | None, int | None]] = []
        for fine, column, reason in zip(known.tolist(), columns, strange, strict=True):
            if fine or column is None:
                other = reason or f"no training row {of_level}is near this one"
                found.append((None if fine else other, None))
            else:
                found.append((beyond_all(f"input {column + 1}"), column))
        return found

    def _usual_radii(self, levels: Float[NDArray, "l"]) -> Float[NDArray, "t"]:
        """The radius of split conformal prediction for each target, or of its box of all: one for all rows."""
        self._check_errors()
        errors = np.abs(self.residuals_calib_)
        if self.score_.joint:
            errors = errors[self._complete(errors)[:, 0]]
            means = errors.mean(axis=0)
            means = np.where(means > 0.0, means, 1.0)
            return means * conformal_quantile((errors / means).max(axis=1), levels)[0]
        return np.array([conformal_quantile(column[present_rows(column)], levels)[0] for column in errors.T])

    def _largest_targets(self, unit: Float[NDArray, "n t"]) -> list[Largest | None]:
        """For each row the target whose expected error is largest beside that of the calibration rows."""
        if not self.score_.joint:
            return [None] * len(unit)
        times = unit / np.median(self.units_calib_, axis=0)
        return [Largest(int(row.argmax()), float(row.max())) for row in times]


def beyond_all(name: str) -> str:
    """Why a row is unknown that has a number which no training row comes near."""
    return f"{name} is beyond the values of all training rows"


def _told_in_y(
    evidence: Evidence, numbers: Int[NDArray, "k"], errors: Float[NDArray, "m"], measure: str
) -> Evidence:
    """The same neighbours with their errors, counted among all calibration rows, the target known or not."""
    neighbors: list[Neighbor] = []
    for one in evidence.neighbors:
        number = int(numbers[one.index])
        error = None if np.isnan(errors[number]) else float(errors[number])
        neighbors.append(replace(one, index=number, error=error))
    return replace(evidence, neighbors=tuple(neighbors), measure=measure)
