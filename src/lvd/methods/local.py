"""Methods whose intervals follow the calibration rows like each row: what they can say beside an interval."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from lvd._typing import ArrayLike, Float, Labels, Levels, NDArray, RandomState
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
from lvd.conformal.distribution import LocalDistribution
from lvd.conformal.explanation import Evidence
from lvd.conformal.local import check_bandwidth
from lvd.conformal.monitor import DriftMonitor, RowMonitor
from lvd.conformal.transductive import Prior
from lvd.intervals import covered
from lvd.kernels import MahalanobisKernel
from lvd.methods.base import local_choices
from lvd.methods.conformal import ConformalBase, rows_of_labels
from lvd.methods.predictive import PredictiveDistribution, Spread
from lvd.quantiles import conformal_quantile


class Prediction(NamedTuple):
    """What :meth:`LVDRegressor.predict_with_evidence` gives for n rows, L levels and T targets.

    Parameters
    ----------
    y_pred : the predictions, (n,); for several targets (n, T).
    intervals : the prediction intervals, (n, 2, L); for several targets (n, 2, L, T).
    n_effective : how many equally weighted calibration rows the calibration rows like each row are worth, (n,);
        for several targets (n, T).
    embeddings : the network's last hidden layer, (n, h).
    known : whether training rows are near each row, (n,).

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


@dataclass(frozen=True)
class Explanation:
    """One row's interval and the evidence for it; `label` is the row's name, where it has one."""

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

    @property
    def sentence(self) -> str:
        """Why the interval is as wide as it is, or infinite."""
        if not self.known and self.when_unknown == "infinite":
            return "Unknown: no training row is near this one, so it gets no finite interval."
        unknown = "" if self.known else "Unknown: no training row is near this one. "
        other = (
            ""
            if self.guarantee == "local"
            else f"The guarantee of this interval is {self.guarantee}. With the local one: "
        )
        return f"{unknown}{other}{self.evidence.sentence}"


class KnownErrors(NamedTuple):
    """The calibration rows' signed errors, and the units in which the score measures them."""

    residuals: Float[NDArray, "m t"]
    units: Float[NDArray, "m t"]


class LocalRegressor(ConformalBase, PredictiveDistribution):
    """A conformal method with a kernel: its calibration rows can be added, forgotten, watched and shown."""

    kernel: MahalanobisKernel | None

    @abstractmethod
    def _reach(self) -> tuple[float | str, float]:
        """The bandwidth of the kernel, and the mass of an adaptive one."""

    def _check_parameters(self) -> None:
        check_bandwidth(self._reach()[0])
        if self.kernel is not None and not isinstance(self.kernel, MahalanobisKernel):
            raise InputError(f"kernel must be a MahalanobisKernel or None, got {type(self.kernel).__name__}")
        self._conformity_score()

    def _kernel_template(self) -> MahalanobisKernel:
        return self.kernel or MahalanobisKernel(device=self.device)

    def _calibrator(self, kernel: MahalanobisKernel | None) -> LocalConformal:
        assert kernel is not None
        bandwidth, mass = self._reach()
        # The levels at which the score's columns are asked: adaptive bandwidths are made for them.
        levels = [self.score_.plan(level).level for level in check_levels(self.confidence_level).tolist()]
        return LocalConformal(kernel, bandwidth=bandwidth, mass=mass, confidence_level=levels, prior=Prior())

    def embed(self, X: ArrayLike) -> Any:
        """The embeddings (n, h) of the rows."""
        check_is_fitted(self, "model_")
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
        random_state: RandomState = 0,
    ) -> Prediction:
        """What :meth:`predict_interval` gives and the evidence for it, from one pass of the network."""
        self._check_calibrated()
        levels, (rows, bound) = self._levels(confidence_level), self._bind(self._check_inputs(X))
        choices = local_choices(guarantee, smoothed, groups, weights, random_state)
        intervals = self._clip(self._intervals(rows, bound, levels, **choices))
        sizes = [
            to_numpy(columns[0].effective_sample_size(rows.embeddings, groups=groups))
            for columns in self.conformals_
        ]
        y_pred, ends, size = map(self._as_given, (bound.y_pred, intervals, np.stack(sizes, axis=1)))
        embeddings = like(rows.evaluation.embeddings, X)
        return Prediction(
            like(y_pred, X), intervals_like(ends, X), like(size, X), embeddings, self._known(rows)
        )

    def update(self, X: ArrayLike, y: ArrayLike, *, groups: Labels = None, weights: Labels = None) -> Any:
        """Add newly labelled rows to the calibration set; nothing is trained again."""
        self._check_calibrated()
        inputs, targets = self._check_rows(X, y, self.n_targets_, missing=True)
        (rows, bound), known = self._bind(inputs), self._known_errors()
        scores = bound(targets)
        for target, columns in enumerate(self.conformals_):
            some = present_rows(targets[:, target])
            own = rows_of_labels({"groups": groups, "weights": weights}, some)
            for number, conformal in enumerate(columns):
                conformal.update(rows.embeddings[some], scores[some, number, target], **own)
        self.residuals_calib_ = np.concatenate([known.residuals, targets - bound.y_pred])
        self.units_calib_ = np.concatenate([known.units, bound.unit])
        self.y_calib_ = np.concatenate([self.y_calib_, targets])
        self.n_calib_ = len(self.y_calib_)
        return self

    def forget(self, n_newest: int) -> Any:
        """Keep only the newest rows of the calibration set, for data whose nature changes with time."""
        self._check_calibrated()
        known = self._known_errors()
        check_positive(n_newest, "n_newest", integer=True)
        for columns, y in zip(self.conformals_, self.y_calib_.T, strict=True):
            for conformal in columns:
                conformal.forget(int((~np.isnan(y[-n_newest:])).sum()))
        self.residuals_calib_, self.units_calib_ = known.residuals[-n_newest:], known.units[-n_newest:]
        self.y_calib_ = self.y_calib_[-n_newest:]
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
        """A watch that takes labelled rows as they arrive and says when to recalibrate; for a single target."""
        self._check_calibrated()
        if self.n_targets_ > 1:
            raise InputError(
                f"monitor watches one target, but this model has {self.n_targets_}; fit a model for each"
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
        intervals = self._intervals(rows, bound, np.array([level]), groups=groups)
        return bound(targets)[:, :, 0].max(1), covered(targets[:, 0], intervals[..., 0])[:, 0]

    def explain(
        self,
        X: ArrayLike,
        confidence_level: float | None = None,
        *,
        n_neighbors: int = 10,
        guarantee: str | None = None,
        groups: Labels = None,
        weights: Labels = None,
    ) -> list[Explanation]:
        """For each row its interval, the calibration rows that carry the weight, and one plain sentence.

        `guarantee` is that of the intervals; the evidence is that of the local one, which all of them start from.
        Several targets give one explanation per row and target, the targets of a row side by side.
        """
        self._check_calibrated()
        levels, (rows, bound) = self._levels(confidence_level)[:1], self._bind(self._check_inputs(X))
        labels = {"groups": groups, "weights": weights}
        choices = local_choices(guarantee, False, groups, weights, 0)
        intervals = self._clip(self._intervals(rows, bound, levels, **choices))
        plan = self.score_.plan(float(levels[0]))
        evidence = [
            columns[plan.columns[-1]].explain(
                rows.embeddings,
                float(levels[0]),
                n_neighbors=n_neighbors,
                targets=y[present_rows(y)],
                two_sided=len(plan.columns) > 1,
                **labels,
            )
            for columns, y in zip(self.conformals_, self.y_calib_.T, strict=True)
        ]
        evidence = [
            [_counted_among_all(one, y) for one in found]
            for found, y in zip(evidence, self.y_calib_.T, strict=True)
        ]
        known, scaled = self._known(rows), bool((bound.unit != 1.0).any())
        usual = self._usual_radii(levels) if scaled else None
        return [
            Explanation(
                row=row,
                target=target,
                y_pred=float(bound.y_pred[row, target]),
                lower=float(intervals[row, 0, 0, target]),
                upper=float(intervals[row, 1, 0, target]),
                evidence=evidence[target][row]
                if usual is None
                else replace(
                    evidence[target][row],
                    expected_error=float(bound.unit[row, target]),
                    usual_radius=float(usual[target]),
                ),
                known=bool(known[row]),
                guarantee=guarantee or "local",
                when_unknown="infinite" if self._infinite_when_unknown else "widen",
            )
            for row in range(len(bound.y_pred))
            for target in range(len(evidence))
        ]

    def _usual_radii(self, levels: Float[NDArray, "l"]) -> Float[NDArray, "t"]:
        """The radius of split conformal prediction for each target: one for all rows."""
        columns = np.abs(self._known_errors().residuals).T
        return np.array([conformal_quantile(column[present_rows(column)], levels)[0] for column in columns])

    def _locate(self, X: ArrayLike, **labels: ArrayLike | None) -> tuple[Spread, list[LocalDistribution]]:
        self._check_calibrated()
        rows, bound = self._bind(self._check_inputs(X))
        first = [columns[0] for columns in self.conformals_]
        known = self._known_errors()
        scores = (column[present_rows(column)] for column in (known.residuals / known.units).T)
        signed = map(LocalConformal.rescored, first, scores)
        spread = Spread(bound.y_pred, bound.unit, rows.keys)
        return spread, [conformal.distribution(rows.embeddings, **labels) for conformal in signed]

    def _known_errors(self) -> KnownErrors:
        """The signed errors of the calibration rows."""
        if not hasattr(self, "residuals_calib_"):
            raise InputError(
                "this model was saved by an older lvd, which kept no signed errors: conformalize it again"
            )
        return KnownErrors(self.residuals_calib_, self.units_calib_)

    def _target_columns(self, X: ArrayLike, y: ArrayLike) -> Float[NDArray, "n t"]:
        return self._check_rows(X, y, self.n_targets_)[1]


def _counted_among_all(evidence: Evidence, y: Float[NDArray, "m"]) -> Evidence:
    """The same neighbours, counted among all calibration rows instead of those whose target is known."""
    numbers = np.arange(len(y))[present_rows(y)]
    neighbors = tuple(replace(one, index=int(numbers[one.index])) for one in evidence.neighbors)
    return replace(evidence, neighbors=neighbors)
