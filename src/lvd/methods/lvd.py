"""LVD: locally valid and discriminative prediction intervals (Algorithm 1 of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from lvd._typing import ArrayLike, Float, Int, Labels, Levels, NDArray, RandomState
from lvd._validation import (
    InputError,
    Parameter,
    check_choice,
    check_levels,
    check_matrix,
    check_positive,
    intervals_like,
    like,
    load_errors_explained,
    present_rows,
    row_digests,
    to_numpy,
)
from lvd.calibration import LocalConformal
from lvd.calibration.local import check_bandwidth
from lvd.calibration.monitor import DriftMonitor, Judged, RowMonitor
from lvd.calibration.transductive import Prior
from lvd.engine import conformal_quantile
from lvd.intervals import covered
from lvd.kernels import Kernel, MahalanobisKernel
from lvd.methods.attribution import ColumnPlaces
from lvd.methods.base import PROMISES, SIDES, local_choices
from lvd.methods.conformal import CALIBRATION_COLUMNS, ConformalMethod, as_score, rows_of_labels
from lvd.methods.evidence import Explanation, Largest, Prediction, in_units_of_y, with_shares
from lvd.methods.predictive import Decision, Exceedance, PartDistribution, PredictiveDistribution, parts_of
from lvd.models import Model
from lvd.models.candidates import BlockFolds, Candidates, Folds, folds_of_cases
from lvd.models.kinds import takes
from lvd.scores import ConformityScore, JointResidual, ScaledResidual, TrainingRows
from lvd.scores.joint import SHAPES
from lvd.support import SupportRule, TrainingSupport
from lvd.wrap import as_model, model_and_embedding


@dataclass(frozen=True)
class Preset:
    """Defaults that belong together; `mass` is for adaptive bandwidths, `estimator` for ``estimator=None``."""

    conformity_score: str | ConformityScore
    kernel_target: str
    bandwidth: float | str
    when_unknown: str
    estimator: str
    mass: float = 3.0


PRESETS = {
    "default": Preset("distributional", "errors", "adaptive", "infinite", "auto"),
    "paper": Preset("absolute", "y", 1.0, "widen", "paper"),
}


MOST_WATCHED = 10
"""A monitor watches so many of the kernel's coordinates."""
MOST_COUNTED = 3.0
"""The largest multiple of the typical score that a neighbour counts as (``guarantee="transductive"``)."""
CROSSED = "The errors are cross-validated: those rows are training rows, predicted by models without them."
MASS_OF_AVERAGED = 4.0
"""The `mass` with averaged kernels, in which fewer rows are near each other."""


@dataclass(eq=False, repr=False)
class LVDRegressor(ConformalMethod):
    """Prediction intervals that are wide where similar cases went wrong, and infinite where none are known.

    A network is trained (or used as given), a kernel is learned on its last hidden layer, and the calibration
    errors, weighted by their similarity to the row in question, give the radius of its interval.

    The promise is local by default; ``predict_interval(X, guarantee="randomized")`` or ``"calibrated"`` take one
    that holds on average too, from the same calibration; with ``"randomized"`` also ``smoothed=True``, which meets
    the level exactly (see :meth:`LocalConformal.radius`).

    `fit` and `conformalize` take ``groups=``, for a promise within each group, and ``weights=``, likelihood ratios
    for new rows of another population (:func:`lvd.shift.estimate_weights`); whatever predicts intervals then takes
    those of its rows, as in ``predict_interval(X, groups=..., weights=...)``.

    Parameters
    ----------
    estimator : the model. None or ``"auto"`` takes the better of ``"net"`` (:class:`NetRegressor`) and ``"trees"``
        (:class:`TreesRegressor`) by cross-validation on the training rows; in the preset ``"paper"`` None is the
        paper's network. With the other names numbers may be missing (NaN): the trees take them as they are, the
        network gets the column's mean and a flag. Or a torch module, one of lvd's regressors, a scikit-learn
        regressor or Pipeline, LightGBM, XGBoost, CatBoost or whatever else has `fit` and `predict`, or, of a
        trained model, a function `predict`. Or a pair of a model and its embedding: of a torch module the name of
        the layer whose input it is, of others a function from rows to embeddings.
    preset : the values of the next four parameters where they are None. ``"default"``: how deep errors are in the
        distribution learned for each row, a kernel of the errors, a bandwidth for each row, and infinite intervals
        for unknown rows.
        ``"paper"``: the paper's method, absolute errors and a kernel of y with bandwidth 1.
    conformity_score : what is calibrated: ``"distributional"``, how deep an error is in the distribution that is
        learned for each row, so that both ends are right where errors are not symmetric
        (:class:`lvd.scores.DistributionalResidual`); ``"scaled"`` errors, the same on both sides
        (:class:`lvd.scores.ScaledResidual`); ``"absolute"`` ones; ``"normalized"`` by
        a second model's prediction of the error; ``"signed"``, with a quantile for each end; ``"sided"``, errors
        measured by what is usual on their side; ``"quantile"``, learned quantiles moved by what similar calibration
        rows ask for; or a score of :mod:`lvd.scores`.
    kernel_target : what makes rows similar: ``"errors"`` or ``"y"``. Noise that does not move the mean is
        invisible to a kernel of y.
    bandwidth : widens the kernel by this factor; ``"adaptive"`` widens it for each row just enough to expect
        sufficient calibration rows (see :class:`LocalConformal`).
    when_unknown : the interval of a row that is unlike all training rows, in the embedding or in the inputs:
        ``"infinite"``, or ``"widen"``: as wide as the calibration rows say, flagged by ``known`` in
        :meth:`predict_with_evidence`.
    joint : for several targets, a region that holds them together instead of an interval for each (see
        :meth:`predict_region`): a ``"box"``, intervals that hold together, or an ``"ellipsoid"``, smaller where the
        errors are correlated. One kernel of the errors serves all targets, and `conformity_score` is ``"scaled"``,
        which is then the default, or ``"absolute"`` for the same units at every row.
    kernel : a :class:`MahalanobisKernel` of your settings, or another :class:`lvd.kernels.Kernel`; one that is
        fitted already is used as it is.
    support : the rule that decides which rows are known, a :class:`lvd.support.SupportRule`; None takes
        :class:`lvd.support.TrainingSupport`.
    confidence_level : the default level of :meth:`predict_interval`.
    calib_size : share of the rows of :meth:`fit` set aside for calibration, by default a quarter, and 50,000 rows
        at most. None: use all of them for training; :meth:`conformalize` is then required.
    prefit : the estimator is trained already and left untouched, as functions always are. Rows it was trained on
        must not calibrate, so no row of :meth:`fit` does: :meth:`conformalize` is required, on rows it has not
        seen.
    calibration : ``"split"``: rows that training has not seen calibrate, and the promises hold as stated.
        ``"cross"``: all rows train, and all rows calibrate by cross-validated errors, which is sharper, above all
        on small tables; `promise` says what is then proved and what is measured. For estimators that lvd trains.
    folds : of ``calibration="cross"``: how many, by default 5, or 10 of fewer than 1,000 rows, which is sharper
        there and takes twice as long as 5; or a scikit-learn splitter that holds each row out once, such as
        ``KFold(5)`` for rows in the order of time or ``PredefinedSplit(numbers)`` for whole patients; it is given the
        ``groups=`` of :meth:`fit`. Rows of one case are in one fold.
    y_range : known bounds of y, ``(lowest, highest)``, which clip the intervals; None for no bound.
    device, random_state : where to compute, and the seed of everything random.
    n_jobs : how many of the models that predict rows held out are trained at the same time, each on a thread; None
        trains one after the other.

    Attributes
    ----------
    model_ : the trained model.
    choice_ : if the better of two models was chosen, their errors on held-out training rows by name, as shares of
        the standard deviation of y.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(400, 2))
    >>> y = X[:, 0] + rng.normal(size=400) * np.abs(X[:, 1])
    >>> reg = lvd.LVDRegressor(random_state=0).fit(X, y)
    >>> y_pred, intervals = reg.predict_interval(X[:5], confidence_level=[0.5, 0.9])
    >>> y_pred.shape, intervals.shape
    ((5,), (5, 2, 2))
    >>> skewed = lvd.LVDRegressor(conformity_score="signed", when_unknown="widen", random_state=0)
    >>> halves = np.where(X[:, 0] > 0, "right", "left")
    >>> _, intervals = skewed.fit(X, y, groups=halves).predict_interval(X[:5], groups=halves[:5])
    >>> bool(np.isfinite(intervals).all())
    True
    """

    guarantee: ClassVar[str] = "local"
    has_local_weights: ClassVar[bool] = True

    _: KW_ONLY
    preset: str = "default"
    conformity_score: str | ConformityScore | None = None
    kernel_target: str | None = None
    bandwidth: float | str | None = None
    when_unknown: str | None = None
    joint: str | None = None
    kernel: Kernel | None = None
    support: SupportRule | None = None
    calibration: str = "split"
    folds: Any = "auto"

    @property
    def promise(self) -> str:
        """What the intervals promise, in a sentence."""
        crossed = vars(self).get("crossed_", self.calibration == "cross")
        return PROMISES["cross" if crossed else "local"]

    @property
    def settings(self) -> Preset:
        """The preset, with the given parameters in place of its own."""
        check_choice(self.preset, "preset", tuple(PRESETS))
        names = ("conformity_score", "kernel_target", "bandwidth", "when_unknown")
        given = {name: vars(self)[name] for name in names if vars(self)[name] is not None}
        settings = replace(PRESETS[self.preset], **given)
        check_choice(settings.kernel_target, "kernel_target", ("errors", "y"))
        check_choice(settings.when_unknown, "when_unknown", ("infinite", "widen"))
        return settings

    def _new_model(self, seed: int) -> Model | Candidates:
        name = self.settings.estimator if self.estimator is None and not self.prefit else self.estimator
        named = {"auto": ("net", "trees"), "net": ("net",)}.get(name, ()) if isinstance(name, str) else ()
        if named and not self.prefit:
            return Candidates({one: as_model(one, device=self.device, random_state=seed) for one in named})
        given = "net" if named else name
        return as_model(given, prefit=self.prefit, device=self.device, random_state=seed)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        preset = PRESETS.get(self.preset, PRESETS["default"])
        model, _ = model_and_embedding(preset.estimator if self.estimator is None else self.estimator)
        missing = model != "paper" if isinstance(model, str) else takes(model, "allow_nan")
        tags.input_tags.allow_nan = missing
        return tags

    @property
    def _kernel_target(self) -> str:
        return self.settings.kernel_target

    @property
    def _infinite_when_unknown(self) -> bool:
        return self.settings.when_unknown == "infinite"

    def _check_parameters(self) -> None:
        check_bandwidth(self.settings.bandwidth)
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise InputError(
                f"kernel must be a kernel of lvd.kernels or None, got {type(self.kernel).__name__}; derive one "
                "of your own from lvd.kernels.Kernel"
            )
        if self.support is not None and not isinstance(self.support, SupportRule):
            raise InputError(
                f"support must be a rule of lvd.support or None, got {type(self.support).__name__}; derive a rule "
                "of your own from lvd.support.SupportRule"
            )
        self._conformity_score()

    def _crossed_folds(self, model: Any, cases: NDArray, groups: Labels, seed: int) -> Folds | None:
        check_choice(self.calibration, "calibration", ("split", "cross"))
        if self.calibration == "split":
            return None
        if model.prefit:
            raise InputError(
                "calibration='cross' trains the estimator again without each fold, which a trained one does not "
                "allow; leave prefit out, or use calibration='split' and conformalize with rows it has not seen"
            )
        if self.calib_size not in ("auto", None):
            raise InputError(
                Parameter("calib_size"),
                f" must be left out with calibration='cross', which sets no rows aside, got {self.calib_size!r}",
            )
        return folds_of_cases(cases, self.folds, seed, groups)

    def _held_out_folds(self, n_rows: int) -> Folds | None:
        return self.folds.split(range(n_rows)) if isinstance(self.folds, BlockFolds) else None

    def _new_kernel(self, training: TrainingRows) -> Kernel:
        if self.kernel is not None:
            return self.kernel
        if training.rows.evaluation.spread is not None and self._kernel_target == "errors":
            # The better way there; on tables, for errors of models without a spread, both are as good.
            return MahalanobisKernel(average=True, max_iter=300, device=self.device)
        return MahalanobisKernel(device=self.device)

    def _new_support(self) -> SupportRule:
        return TrainingSupport() if self.support is None else clone(self.support)

    def _calibrator(self, kernel: Kernel | None) -> LocalConformal:
        assert kernel is not None
        averaged = any(one.average for one in self.kernels_)
        typical = self.score_.typical
        # The levels at which the score's columns are asked: adaptive bandwidths are made for them.
        levels = [self.score_.plan(level).level for level in check_levels(self.confidence_level).tolist()]
        return LocalConformal(
            kernel,
            bandwidth=self.settings.bandwidth,
            mass=MASS_OF_AVERAGED if averaged else self.settings.mass,
            confidence_level=levels,
            prior=Prior() if typical is None else Prior(size=typical, most=MOST_COUNTED * typical),
        )

    def _conformity_score(self) -> ConformityScore:
        given = self.settings.conformity_score
        if self.joint is not None and self.conformity_score is None and given == "distributional":
            given = "scaled"  # errors of several targets together have no sides
        score = as_score(given) if self.joint is None else _joint_score(self.joint, given)
        if score.joint and self.settings.kernel_target != "errors":
            raise InputError(
                "joint regions need kernel_target 'errors', as one kernel learns the errors of all targets, got "
                "'y', which is also that of preset 'paper'; choose 'errors', or leave the joint region out"
            )
        return score

    def embed(self, X: ArrayLike) -> Any:
        """The embeddings (n, h) of the rows."""
        self._check_fitted()
        with load_errors_explained(self):
            return like(self.model_.evaluate(self._check_inputs(X)).embeddings, X)

    def predict_with_evidence(
        self,
        X: ArrayLike,
        confidence_level: Levels | None = None,
        *,
        guarantee: str | None = None,
        smoothed: bool = False,
        side: str | None = None,
        groups: Labels = None,
        weights: Labels = None,
        unknown: Labels = None,
        random_state: RandomState = 0,
    ) -> Prediction:
        """What :meth:`predict_interval` gives and the evidence for it, from one pass of the network.

        `unknown` marks rows (true) as unknown, whatever is near them.
        """
        if side is not None:
            check_choice(side, "side", SIDES)
        self._check_calibrated()
        levels, (rows, bound) = self._levels(confidence_level), self._bind(self._check_inputs(X), unknown)
        choices = local_choices(guarantee, smoothed, groups, weights, random_state)
        if side is None:
            radius = self._radii(rows, levels, **choices)
            intervals, regions = bound.intervals(radius, levels), self._regions(bound, radius)
        else:
            intervals, regions = self._one_sided(rows, bound, levels, side, **choices), ()
        sizes = [to_numpy(one.effective_sample_size(rows.placed, groups=groups)) for one in self.calibrators_]
        all_sizes = np.stack(sizes, axis=1) * np.ones_like(bound.y_pred)
        y_pred, ends, size = map(self._as_given, (bound.y_pred, self._clip(intervals), all_sizes))
        embeddings = like(rows.embeddings, X)
        known = self._check_support(rows).known
        return Prediction(like(y_pred, X), intervals_like(ends, X), like(size, X), embeddings, known, regions)

    def update(self, X: ArrayLike, y: ArrayLike, *, groups: Labels = None, weights: Labels = None) -> Any:
        """Add newly labelled rows to the calibration set; nothing is trained again."""
        self._check_calibrated()
        inputs, targets = self._check_rows(X, y, self.n_targets_, missing=True)
        rows, bound = self._bind(inputs)
        self._add_scores("update", rows, bound(targets), {"groups": groups, "weights": weights})
        self.residuals_calib_ = np.concatenate([self.residuals_calib_, targets - bound.y_pred])
        self.units_calib_ = np.concatenate([self.units_calib_, bound.unit])
        self.signed_calib_ = np.concatenate([self.signed_calib_, bound.signed(targets)])
        self.y_calib_ = np.concatenate([self.y_calib_, targets])
        self.digests_calib_ = np.concatenate([self.digests_calib_, row_digests(rows.inputs)])
        self.n_calib_ = len(self.y_calib_)
        return self

    def forget(self, n_newest: int) -> Any:
        """Keep only the newest rows of the calibration set, for data whose nature changes with time."""
        self._check_calibrated()
        check_positive(n_newest, "n_newest", integer=True)
        complete = self._complete(self.y_calib_[-n_newest:])
        for calibrator, n_kept in zip(self.calibrators_, complete.sum(axis=0).tolist(), strict=True):
            calibrator.forget(n_kept)
        for name in CALIBRATION_COLUMNS:
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
        """A monitor that takes labelled rows as they arrive and says when they stop looking like the calibration
        rows, and whether the inputs, the errors or both have moved.

        Inputs are watched by the prediction and the kernel's coordinates. For a single target, or for several with
        a joint region.
        """
        self._check_calibrated()
        if len(self.calibrators_) > 1:
            raise InputError(
                f"monitor watches one target, but this model has {self.n_targets_}; fit a model for each, or one "
                "with a joint region"
            )
        calibration = self.calibrators_[0].calibration_
        if calibration.rows.weights is not None:
            raise InputError(
                "monitor compares new rows with the calibration rows as they are, and these came with weights= "
                "for another population; calibrate on rows of that population first"
            )
        complete = self._complete(self.y_calib_)[:, 0]
        y_pred = (self.y_calib_ - self.residuals_calib_)[complete]
        watch = DriftMonitor(
            to_numpy(calibration.scores).max(axis=1),
            calib_places=self._places(y_pred, calibration.rows.points),
            confidence_level=float(self._levels(confidence_level)[0]),
            false_alarm_rate=false_alarm_rate,
            window=window,
            random_state=random_state,
        )
        return RowMonitor(self._judge, watch)

    def _judge(self, X: ArrayLike, y: ArrayLike, level: float, groups: Labels) -> Judged:
        """The scores of labelled rows, whether their intervals cover, and where they are among the inputs."""
        inputs, targets = self._check_rows(X, y, self.n_targets_)
        rows, bound = self._bind(inputs)
        levels = np.array([level])
        radius = self._radii(rows, levels, groups=groups)
        scores = bound(targets)[:, :, 0].max(1)
        places = self._places(bound.y_pred, self.calibrators_[0].placed(rows.placed, [], level)[0])
        for region in self._regions(bound, radius):
            return Judged(scores, region.contains(targets), places)
        hits = covered(targets[:, 0], bound.intervals(radius, levels)[..., 0])[:, 0]
        return Judged(scores, hits, places)

    def _places(self, y_pred: Float[NDArray, "n t"], points: Any) -> Float[NDArray, "n k"]:
        """Predictions, and the kernel's coordinates in which the calibration rows are furthest apart."""
        spread = to_numpy(self.calibrators_[0].calibration_.rows.points).std(axis=0)
        widest = np.sort(np.argsort(-spread, kind="stable")[:MOST_WATCHED])
        return np.column_stack([y_pred, to_numpy(points)[:, widest]])

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
        background: ArrayLike | None = None,
    ) -> list[Explanation]:
        """For each row its interval, the calibration rows that carry the weight, and one plain sentence.

        `guarantee` is that of the intervals; the evidence is that of the local one, which all of them start from.
        `unknown` marks rows (true) as unknown, whatever is near them. With `background`, ten or more ordinary rows,
        such as those of `fit`, each explanation also tells which columns make the interval wide against these.
        Several targets give one explanation per row and target, the targets of a row side by side.

        Examples
        --------
        >>> import numpy as np, lvd
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(600, 3))
        >>> y = X[:, 0] + np.where(X[:, 1] > 0, 1.0, 0.1) * rng.normal(size=600)
        >>> reg = lvd.LVDRegressor("trees", random_state=0).fit(X, y)
        >>> (one,) = reg.explain([[0.5, 0.9, 0.5]], background=X)
        >>> one.shares[0].column
        'x2'
        """
        self._check_calibrated()
        if background is not None:
            alone = self.explain(
                *(X, confidence_level),
                n_neighbors=n_neighbors,
                guarantee=guarantee,
                groups=groups,
                weights=weights,
                unknown=unknown,
            )
            rows, others = self._mixable(X), self._mixable(background)
            return with_shares(alone, rows, others, self._column_places(rows), self._log_widths)
        levels, (rows, bound) = self._levels(confidence_level)[:1], self._bind(self._check_inputs(X), unknown)
        choices = local_choices(guarantee, False, groups, weights, 0)
        intervals = self._clip(bound.intervals(self._radii(rows, levels, **choices), levels))
        plan = self.score_.plan(float(levels[0]))
        errors = np.abs(self.residuals_calib_)
        usual = self._usual_radii(levels).tolist() if (bound.unit != 1.0).any() else None
        evidence = []
        for target, (calibrator, indices) in enumerate(self._by_target()):
            found = calibrator.explain(
                rows.placed,
                float(levels[0]),
                n_neighbors=n_neighbors,
                targets=self.y_calib_[indices, target],
                column=plan.columns[-1],
                groups=groups,
                weights=weights,
                two_sided=len(plan.columns) > 1,
            )
            measure = self.score_.measure_of(target)
            shown = [in_units_of_y(one, indices, errors[:, target], measure) for one in found]
            if usual is not None:
                pairs = zip(shown, bound.unit[:, target].tolist(), strict=True)
                shown = [replace(one, expected_error=unit, usual_radius=usual[target]) for one, unit in pairs]
            if measure == "depth":
                halves = (np.diff(intervals[:, :, 0, target], axis=1)[:, 0] / 2.0).tolist()
                shown = [replace(one, half_width=half) for one, half in zip(shown, halves, strict=True)]
            evidence.append(shown)
        reasons, largest = self._check_support(rows).reasons, self._largest_targets(bound.unit)
        return [
            Explanation(
                row=row,
                target=target,
                y_pred=float(bound.y_pred[row, target]),
                lower=float(intervals[row, 0, 0, target]),
                upper=float(intervals[row, 1, 0, target]),
                evidence=evidence[target][row],
                known=row not in reasons,
                guarantee=guarantee or "local",
                when_unknown="infinite" if self._infinite_when_unknown else "widen",
                largest=largest[row],
                reason=reasons[row].text if row in reasons else None,
                column=reasons[row].column if row in reasons else None,
                remark=" ".join(
                    filter(None, [bound.remark(row, target), CROSSED if self.is_crossed else None])
                )
                or None,
            )
            for row, target in np.ndindex(bound.y_pred.shape)
        ]

    def _mixable(self, X: Any) -> Any:
        """Rows as a frame or a matrix, whose columns can be those of different rows."""
        columns = vars(self).get("columns_")
        return check_matrix(X, missing=True) if columns is None else columns.read(X)

    def _column_places(self, X: Any) -> ColumnPlaces:
        """The columns of the frame or table of `fit`, or x1, x2... of an array."""
        columns = vars(self).get("columns_")
        if columns is None:
            return [(f"x{number + 1}", [number]) for number in range(np.shape(X)[1])]
        places: ColumnPlaces = columns.column_places
        return places

    def _log_widths(self, X: Any, level: float) -> Float[NDArray, "n t"]:
        """How wide the score alone makes intervals at the usual radius, in logarithms."""
        plan, bound = self.score_.plan(level), self._bind(self._check_inputs(X))[1]
        usual = [
            [np.quantile(scores[:, column], plan.level, method="higher") for column in plan.columns]
            for scores in (to_numpy(one.calibration_.scores) for one in self.calibrators_)
        ]
        radius = np.repeat(np.array(usual).T[None, :, None], len(bound.y_pred), axis=0)
        ends = bound.intervals(radius, np.array([level]))[:, :, 0]
        return np.log(np.maximum(ends[:, 1] - ends[:, 0], np.finfo(np.float64).tiny))

    def _usual_radii(self, levels: Float[NDArray, "l"]) -> Float[NDArray, "t"]:
        """The radius of split conformal prediction for each target, or of its box of all: one for all rows."""
        errors = np.abs(self.residuals_calib_)
        if self.score_.joint:
            errors = errors[self._complete(errors)[:, 0]]
            means = errors.mean(axis=0)
            means = np.where(means > 0.0, means, 1.0)
            return means * conformal_quantile((errors / means).max(axis=1), levels)[0]
        return np.array([conformal_quantile(column[present_rows(column)], levels)[0] for column in errors.T])

    def _largest_targets(self, unit: Float[NDArray, "n t"]) -> list[Largest | None]:
        """For each row the target whose expected error is largest relative to that of the calibration rows."""
        if not self.score_.joint:
            return [None] * len(unit)
        times = unit / np.median(self.units_calib_, axis=0)
        return [Largest(int(row.argmax()), float(row.max())) for row in times]

    def predict_quantiles(
        self, X: ArrayLike, q: Levels, *, groups: Labels = None, weights: Labels = None
    ) -> Any:
        """Quantiles of y, (n,) for one `q` in (0, 1), (n, Q) for a list; for several targets (n, T), (n, Q, T).

        Examples
        --------
        >>> import numpy as np, lvd
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(400, 2))
        >>> y = X[:, 0] + rng.exponential(size=400)
        >>> reg = lvd.LVDRegressor(random_state=0).fit(X, y)
        >>> low, middle, high = np.median(reg.predict_quantiles(X, [0.1, 0.5, 0.9]), axis=0)
        >>> bool(high - middle > middle - low)
        True
        """
        return self.predict_distribution(X, groups=groups, weights=weights).quantile(q)

    def predict_distribution(
        self, X: ArrayLike, *, groups: Labels = None, weights: Labels = None, unknown: Labels = None
    ) -> PredictiveDistribution:
        """The whole distribution of y at each row: its quantiles, distribution function, mean and samples.

        It stays within `y_range`; `unknown` marks rows (true) as unknown, whatever is near them.

        Examples
        --------
        >>> import numpy as np, lvd
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(400, 2))
        >>> y = X[:, 0] + 0.1 * rng.normal(size=400)
        >>> reg = lvd.LVDRegressor(random_state=0).fit(X[:300], y[:300])
        >>> bool(np.nanmean(reg.predict_distribution(X[300:]).crps(y[300:])) < 0.1)
        True
        """
        self._check_calibrated()
        inputs = self._check_inputs(X)
        labels = self._check_labels(len(inputs), groups=groups, weights=weights, unknown=unknown)
        signed = [
            calibrator.rescored(column[indices])
            for (calibrator, indices), column in zip(self._by_target(), self.signed_calib_.T, strict=True)
        ]
        parts = parts_of(len(inputs))

        @lru_cache(maxsize=1)
        def part_at(number: int) -> PartDistribution:
            if len(parts) == 1:
                return self._part_distribution(inputs, signed, **labels)
            some = np.arange(len(inputs))[parts[number]]
            return self._part_distribution(
                _safe_indexing(inputs, some), signed, **rows_of_labels(labels, some)
            )

        part_at(0)  # what is wrong with the rows is said now
        return PredictiveDistribution(parts, part_at, self.single_target_, X)

    def _part_distribution(
        self, X: Any, signed: Sequence[LocalConformal], unknown: Labels = None, **labels: Any
    ) -> PartDistribution:
        """The distributions of checked rows, by calibrators of the signed scores."""
        rows, bound = self._bind(X, unknown)
        local = tuple(one.distribution(rows.placed, **labels) for one in signed)
        everyone = np.ones(len(bound.y_pred), bool)
        known = self._check_support(rows).known if self._infinite_when_unknown else everyone
        return PartDistribution(rows, bound, local, known, self._bounds)

    def exceeds(
        self,
        X: ArrayLike,
        threshold: ArrayLike,
        *,
        guarantee: str = "local",
        groups: Labels = None,
        weights: Labels = None,
        unknown: Labels = None,
    ) -> Exceedance:
        """For each row the probability that y is above `threshold`, and a p-value against y being at most it.

        To claim "above" where the p-value is at most a is wrong with probability at most a: with
        ``guarantee="local"`` near each row, as for intervals; with ``"marginal"``, which weighs all calibration
        rows alike, on average over new rows. For many rows at once, :func:`lvd.select` on marginal p-values bounds
        the share of wrong claims. Of an unknown row the p-value is 1 and the probability NaN.

        Examples
        --------
        >>> import numpy as np, lvd
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(400, 2))
        >>> reg = lvd.LVDRegressor(random_state=0).fit(X, X[:, 0] + 0.1 * rng.normal(size=400))
        >>> found = reg.exceeds([[0.8, 0.0], [-0.8, 0.0]], 0.0)
        >>> bool(found.p_value[0] < 0.1 < found.p_value[1])
        True
        """
        check_choice(guarantee, "guarantee", ("local", "marginal"))
        found = self.predict_distribution(X, groups=groups, weights=weights, unknown=unknown)
        answers = found.above(threshold, equal_weights=guarantee == "marginal")
        return Exceedance(*(like(self._as_given(one), X) for one in answers))

    def decide(
        self,
        X: ArrayLike,
        actions: ArrayLike,
        cost: Callable[[Any, Any], Any],
        *,
        groups: Labels = None,
        weights: Labels = None,
    ) -> Decision:
        """The action of least expected cost for each row, under the distribution of its y.

        ``cost(action, y)`` gives the cost of one action for an array of y. Of an unknown row the index is -1, the
        action NaN or None, and the costs are NaN.

        Examples
        --------
        Order for a demand y: what is left costs 1, what is missing 9, so that the 90% quantile is best.

        >>> import numpy as np, lvd
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(400, 2))
        >>> y = 10.0 + X[:, 0] + rng.exponential(size=400)
        >>> reg = lvd.LVDRegressor(random_state=0).fit(X, y)
        >>> cost = lambda order, demand: np.where(demand > order, 9.0 * (demand - order), order - demand)
        >>> orders = reg.decide(X[:5], np.linspace(8.0, 16.0, 81), cost).action
        >>> bool((orders > reg.predict(X[:5])).all())
        True
        """
        options = to_numpy(actions)
        if options.ndim != 1 or not len(options):
            raise InputError(f"actions must be a list of at least one action, got shape {options.shape}")
        found = self.predict_distribution(X, groups=groups, weights=weights)
        costs = found.expected(cost, options)
        unknown = np.isnan(costs).any(axis=1)
        index = np.where(unknown, -1, np.where(np.isnan(costs), np.inf, costs).argmin(axis=1))
        chosen = options[index].astype(options.dtype if options.dtype.kind not in "biu" else np.float64)
        if unknown.any():
            chosen = chosen if chosen.dtype.kind == "f" else chosen.astype(object)
            chosen[unknown] = np.nan if chosen.dtype.kind == "f" else None
        return Decision(chosen, index, costs)

    def _by_target(self) -> list[tuple[LocalConformal, Int[NDArray, "k"]]]:
        """For each target its calibrator, which all may share, and the indices of the rows it was calibrated on."""
        indices = map(np.flatnonzero, self._complete(self.y_calib_).T)
        found = list(zip(self.calibrators_, indices, strict=True))
        return found * self.n_targets_ if self.score_.joint else found


def _joint_score(shape: str, given: str | ConformityScore) -> ConformityScore:
    """The joint score of all targets with the scales of the given one."""
    check_choice(shape, "joint", SHAPES)
    scales = {"scaled": ScaledResidual(), "absolute": ScaledResidual(scales=())}
    chosen = scales.get(given) if isinstance(given, str) else given
    if not isinstance(chosen, ScaledResidual):
        raise InputError(
            Parameter("conformity_score"),
            f" must be 'scaled', 'absolute' or a ScaledResidual for joint regions, got {given!r}; leave ",
            *(Parameter("joint", named=True), " out for others"),
        )
    return JointResidual(shape, chosen.scales)
