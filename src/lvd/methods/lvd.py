"""LVD: locally valid and discriminative prediction intervals (Algorithm 1 of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from lvd.methods.base import CALIBRATION_COLUMNS, PROMISES, SIDES, local_choices
from lvd.methods.conformal import WHEN_UNKNOWN, ConformalMethod, as_score, rows_of_labels
from lvd.methods.evidence import Explanation, Largest, Prediction, in_units_of_y, with_shares
from lvd.methods.predictive import Decision, Exceedance, PartDistribution, PredictiveDistribution, parts_of
from lvd.models import Model
from lvd.models.candidates import BlockFolds, Candidates, Folds, folds_of_cases
from lvd.models.model import takes
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
"""How many of the kernel's coordinates a monitor watches."""
MOST_COUNTED = 3.0
"""Neighbours' scores are capped at this multiple of the typical score (``guarantee="transductive"``)."""
CROSSED = (
    "The errors are cross-validated: these are training rows, predicted by models that have not seen them."
)
CROSSING = ("cross", "ensemble")
"""The calibrations by cross-validated errors; the second one keeps the fold models and predicts their mean."""
SMALL_TABLE = (60, 500)
"""``calibration="auto"`` is cross calibration from the first to below the second number of rows: there split
calibration loses 3 to 15% of the interval score, and cross calibration was measured to reach the level."""
MASS_OF_AVERAGED = 4.0
"""The `mass` for averaged kernels, where fewer rows are close to each other."""


@dataclass(eq=False, repr=False)
class LVDRegressor(ConformalMethod):
    """Prediction intervals that are wide where similar cases had large errors, infinite where none are known.

    A network is trained (or used as given) and a kernel is learned on its last hidden layer. The calibration
    errors, weighted by similarity to the row being predicted, give the radius of its interval.

    The guarantee is local by default; ``predict_interval(X, guarantee="randomized")`` or ``"calibrated"`` uses
    one that also holds on average, from the same calibration if that is ``"split"``. With ``"randomized"``,
    ``smoothed=True`` meets the level exactly (see :meth:`LocalConformal.radius`).

    `fit` and `conformalize` accept ``groups=``, for a guarantee within each group, and ``weights=``, likelihood
    ratios for new rows from another population (:func:`lvd.shift.estimate_weights`); every method that predicts
    intervals then needs those of its rows, as in ``predict_interval(X, groups=..., weights=...)``.

    Parameters
    ----------
    estimator : the model. None or ``"auto"`` chooses between ``"net"`` (:class:`NetRegressor`) and ``"trees"``
        (:class:`TreesRegressor`) by cross-validation on the training rows; in the preset ``"paper"`` None is
        the paper's network. The named models accept missing numbers (NaN): trees handle them natively, the
        network gets the column mean and a flag. It may also be a torch module, one of lvd's regressors, a
        scikit-learn regressor or Pipeline, LightGBM, XGBoost, CatBoost, anything else with `fit` and `predict`,
        or the `predict` function of a trained model. Or pass a pair of a model and its embedding: for a torch
        module the name of the layer whose input it is, otherwise a function from rows to embeddings.
    preset : the values of the next four parameters where they are None. ``"default"``: scores are an error's
        depth in the distribution learned for its row, with a kernel of the errors, a bandwidth per row, and
        infinite intervals for unknown rows. ``"paper"``: the paper's method, absolute errors and a kernel of y
        with bandwidth 1.
    conformity_score : what is calibrated: ``"distributional"``, an error's depth in the distribution learned
        for its row, so that both ends are right for asymmetric errors
        (:class:`lvd.scores.DistributionalResidual`); ``"scaled"`` errors, symmetric
        (:class:`lvd.scores.ScaledResidual`); ``"absolute"`` errors; ``"normalized"``, errors divided by a
        second model's prediction of them; ``"signed"``, with a quantile for each end; ``"sided"``, errors
        relative to the usual size on their side; ``"quantile"``, learned quantiles shifted according to similar
        calibration rows; or a score of :mod:`lvd.scores`.
    kernel_target : what makes rows similar: ``"errors"`` or ``"y"``. A kernel of y cannot see noise that leaves
        the mean unchanged.
    bandwidth : widens the kernel by this factor; ``"adaptive"`` widens it per row, just enough to expect
        sufficient calibration rows (see :class:`LocalConformal`).
    when_unknown : the interval of a row unlike all training rows, in the embedding or the inputs:
        ``"infinite"``, or ``"widen"``: as wide as the calibration rows suggest, with ``known`` False in
        :meth:`predict_with_evidence`.
    joint : for several targets, one joint region instead of an interval each (see :meth:`predict_region`): a
        ``"box"``, intervals that hold together, or an ``"ellipsoid"``, which is smaller for correlated errors.
        One kernel of the errors serves all targets, and `conformity_score` is ``"scaled"``, the default here,
        or ``"absolute"`` for the same units at every row.
    kernel : a :class:`MahalanobisKernel` with your settings, or another :class:`lvd.kernels.Kernel`; a fitted
        one is used as it is.
    support : the rule that decides which rows are known, a :class:`lvd.support.SupportRule`; None uses
        :class:`lvd.support.TrainingSupport`.
    confidence_level : the default level of :meth:`predict_interval`.
    calib_size : share of the rows of :meth:`fit` set aside for calibration, by default a quarter, and 50,000
        rows at most; none with cross calibration. None trains on all of them; call :meth:`conformalize`
        afterwards.
    prefit : the estimator is already trained and left untouched; functions always are. Rows it was trained on
        must not calibrate, so no row of :meth:`fit` does: call :meth:`conformalize` with rows it has not seen.
    calibration : ``"split"`` calibrates on rows unseen in training, and the guarantees hold as stated.
        ``"cross"`` trains on all rows and calibrates on the cross-validated errors of all rows, which is
        sharper, especially on small tables; `promise` says what is then proved and what is measured. For
        estimators that lvd trains. ``"ensemble"`` does too, and predicts the mean of the model and its fold
        models, which ``"cross"`` discards; intervals are narrowed by as much as the mean is estimated to err less.
        `fit` takes hardly longer, but every prediction runs all models, and all are saved. ``"auto"`` is
        ``"cross"`` for 60 to 499 rows, where a quarter of the rows is a lot to lose, and ``"split"`` otherwise. It
        is also ``"split"`` for a model that is trained already or predicts its own errors, with `calib_size`,
        `joint`, ``groups=`` or ``weights=``, with a splitter as `folds`, and with another preset, score, kernel,
        bandwidth or support than the default.
        :attr:`is_crossed` tells which it was.
    folds : number of folds for cross-validated errors: by default 5, or 10 below 1,000 rows, which takes about
        twice as long and is sharper. Or a scikit-learn
        splitter that holds each row out once, such as ``KFold(5)`` for time-ordered rows or
        ``PredefinedSplit(numbers)`` for whole patients; it receives the ``groups=`` of :meth:`fit`. Rows of one
        case share a fold.
    max_calibration_rows : the most rows that calibrate, which bounds the time of a prediction and the size of the
        saved model. A larger calibration set is thinned by a uniform draw, within each group if there are any, so
        that every guarantee holds; the other rows are not used. Rows added by :meth:`update` all count. None: all
        rows calibrate.
    y_range : known bounds of y, ``(lowest, highest)``, to which intervals are clipped; None for no bound.
    device, random_state : where to compute, and the seed for all randomness.
    n_jobs : how many models for out-of-fold predictions to train in parallel, on threads; None trains them one
        by one.

    Attributes
    ----------
    model_ : the trained model; with ``calibration="ensemble"`` the mean of `model` and its `fold_models`.
    when_unknown_ : what unknown rows get where `when_unknown` is None: what the preset said in `fit`.
    error_share_ : with ``calibration="ensemble"``, how large the errors of the mean are estimated to be, as a share
        of the cross-validated ones, for each target; intervals have this share of their width.
    choice_ : if one of two models was chosen, their errors on held-out training rows by name, as shares of the
        standard deviation of y.

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
    calibration: str = "auto"
    folds: Any = "auto"
    max_calibration_rows: int | None = None

    @property
    def promise(self) -> str:
        """The guarantee of the intervals, in one sentence."""
        return PROMISES["local" if self.calibrated_by == "split" else self.calibrated_by]

    @property
    def calibrated_by(self) -> str:
        """The calibration that the last fit used, ``"split"``, ``"cross"`` or ``"ensemble"``; before one, what is
        asked for."""
        found = vars(self)
        if "crossed_" not in found:
            return self.calibration if self.calibration in CROSSING else "split"
        return "split" if not self.is_crossed else "ensemble" if "error_share_" in found else "cross"

    @property
    def settings(self) -> Preset:
        """The preset, overridden by the parameters that were given."""
        check_choice(self.preset, "preset", tuple(PRESETS))
        names = ("conformity_score", "kernel_target", "bandwidth", "when_unknown")
        given = {name: vars(self)[name] for name in names if vars(self)[name] is not None}
        settings = replace(PRESETS[self.preset], **given)
        check_choice(settings.kernel_target, "kernel_target", ("errors", "y"))
        check_choice(settings.when_unknown, "when_unknown", WHEN_UNKNOWN)
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
    def _when_unknown(self) -> str:
        return PRESETS[self.preset].when_unknown

    @property
    def _most_calibrating(self) -> int | None:
        return self.max_calibration_rows

    def _check_parameters(self) -> None:
        check_bandwidth(self.settings.bandwidth)
        if self.max_calibration_rows is not None:
            check_positive(self.max_calibration_rows, "max_calibration_rows", integer=True)
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

    def chosen_calibration(
        self, n_rows: int, n_cases: int | None = None, *, plain: bool = True, model: Model | None = None
    ) -> str:
        """Which calibration `fit` chooses for so many rows and different cases.

        `plain` is whether the rows are like those it was measured on: drawn at random, without groups or weights.
        `model` is the untrained model, made from the estimator if it is not given.
        """
        check_choice(self.calibration, "calibration", ("auto", "split", *CROSSING))
        if self.calibration != "auto":
            return self.calibration
        default = PRESETS["default"]
        as_measured = plain and replace(self.settings, when_unknown=default.when_unknown) == default
        as_measured &= self.joint is None and self.kernel is None and self.support is None
        as_measured &= self.calib_size == "auto" and isinstance(self.folds, str | int)
        fewest, too_many = SMALL_TABLE
        if not as_measured or n_rows >= too_many or (n_rows if n_cases is None else n_cases) < fewest:
            return "split"
        made = self._new_model(seed=0) if model is None else model
        first = made.first if isinstance(made, Candidates) else made
        return "split" if first.prefit or first.trained_once else "cross"

    def _crossed_folds(
        self, model: Model, cases: NDArray, labels: Mapping[str, Any], seed: int
    ) -> Folds | None:
        n_cases = len(np.unique(cases))
        if self.chosen_calibration(len(cases), n_cases, plain=not labels, model=model) == "split":
            return None
        self._conformity_score().check_crossed()
        if model.prefit:
            raise InputError(
                f"calibration={self.calibration!r} trains the estimator again without each fold, which a trained "
                "one does not allow; leave prefit out, or use calibration='split' and conformalize with rows it "
                "has not seen"
            )
        if self.calib_size not in ("auto", None):
            raise InputError(
                Parameter("calib_size"),
                f" must be left out with calibration={self.calibration!r}, which sets no rows aside, got "
                f"{self.calib_size!r}",
            )
        return folds_of_cases(cases, self.folds, seed, labels.get("groups"))

    @property
    def _averages_folds(self) -> bool:
        return self.calibration == "ensemble"

    def _held_out_folds(self, n_rows: int) -> Folds | None:
        return self.folds.split(range(n_rows)) if isinstance(self.folds, BlockFolds) else None

    def _new_kernel(self, training: TrainingRows) -> Kernel:
        if self.kernel is not None:
            return self.kernel
        if training.rows.evaluation.spread is not None and self._kernel_target == "errors":
            # Averaging is better for models with a spread; for errors of models without one, both are equally
            # good on tables.
            return MahalanobisKernel(average=True, max_iter=300, device=self.device)
        return MahalanobisKernel(device=self.device)

    def _new_support(self) -> SupportRule:
        return TrainingSupport() if self.support is None else clone(self.support)

    def _calibrator(self, kernel: Kernel | None) -> LocalConformal:
        assert kernel is not None
        averaged = any(one.average for one in self.kernels_)
        typical = self.score_.typical
        # Adaptive bandwidths are made for the levels at which the score's columns are evaluated.
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
            given = "scaled"  # joint errors of several targets have no sides
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
        """Return what :meth:`predict_interval` does plus the evidence for it, in one pass of the network.

        `unknown` (boolean) marks rows as unknown, whatever is near them.
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
        """Add newly labelled rows to the calibration set without retraining.

        All of them calibrate, whatever `max_calibration_rows` is; :meth:`forget` bounds their number.
        """
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
        """Keep only the newest calibration rows, for data that change over time."""
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
        """A monitor that takes labelled rows as they arrive and reports when they no longer resemble the
        calibration rows, and whether the inputs, the errors or both have moved.

        It watches the inputs through the prediction and the kernel's coordinates. Needs a single target, or
        several with a joint region.
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
        """The scores of labelled rows, whether their intervals cover, and their monitored coordinates."""
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
        """The predictions, next to the kernel coordinates along which the calibration rows vary most."""
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
        """For each row its interval, the calibration rows with the most weight, and one plain sentence.

        `guarantee` sets that of the intervals; the evidence is always the local one, from which all start.
        `unknown` (boolean) marks rows as unknown, whatever is near them. With `background`, ten or more
        ordinary rows such as those of `fit`, each explanation also says which columns make the interval wide
        compared with them. Several targets give one explanation per row and target, grouped by row.

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
                remark=" ".join(filter(None, [bound.remark(row, target), self._error_remark(target)]))
                or None,
            )
            for row, target in np.ndindex(bound.y_pred.shape)
        ]

    def _error_remark(self, target: int) -> str | None:
        """What to know about the errors of calibration rows."""
        share = vars(self).get("error_share_")
        if not self.is_crossed or share is None:
            return CROSSED if self.is_crossed else None
        return (
            f"{CROSSED} The mean of the models is more accurate than each of them, so the interval is "
            f"{1.0 - share[target]:.1%} narrower than these errors say."
        )

    def _mixable(self, X: Any) -> Any:
        """The rows as a frame or matrix, so that columns of different rows can be mixed."""
        columns = vars(self).get("columns_")
        return check_matrix(X, missing=True) if columns is None else columns.read(X)

    def _column_places(self, X: Any) -> ColumnPlaces:
        """The columns of the frame or table given to `fit`, or x1, x2... for an array."""
        columns = vars(self).get("columns_")
        if columns is None:
            return [(f"x{number + 1}", [number]) for number in range(np.shape(X)[1])]
        places: ColumnPlaces = columns.column_places
        return places

    def _log_widths(self, X: Any, level: float) -> Float[NDArray, "n t"]:
        """The log widths of intervals that use the score with one usual radius for all rows."""
        plan, bound = self.score_.plan(level), self._bind(self._check_inputs(X))[1]
        usual = [
            [np.quantile(scores[:, column], plan.level, method="higher") for column in plan.columns]
            for scores in (to_numpy(one.calibration_.scores) for one in self.calibrators_)
        ]
        radius = np.repeat(np.array(usual).T[None, :, None], len(bound.y_pred), axis=0)
        ends = bound.intervals(radius, np.array([level]))[:, :, 0]
        return np.log(np.maximum(ends[:, 1] - ends[:, 0], np.finfo(np.float64).tiny))

    def _usual_radii(self, levels: Float[NDArray, "l"]) -> Float[NDArray, "t"]:
        """The split conformal radius of each target, or of the joint box: one for all rows."""
        errors = np.abs(self.residuals_calib_)
        if self.score_.joint:
            errors = errors[self._complete(errors)[:, 0]]
            means = errors.mean(axis=0)
            means = np.where(means > 0.0, means, 1.0)
            return means * conformal_quantile((errors / means).max(axis=1), levels)[0]
        return np.array([conformal_quantile(column[present_rows(column)], levels)[0] for column in errors.T])

    def _largest_targets(self, unit: Float[NDArray, "n t"]) -> list[Largest | None]:
        """For each row, the target whose expected error is largest relative to the calibration rows."""
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
        """The full predictive distribution of each row: quantiles, distribution function, mean and samples.

        It stays within `y_range`; `unknown` (boolean) marks rows as unknown, whatever is near them.

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

        part_at(0)  # report invalid rows now, not at the first query
        return PredictiveDistribution(parts, part_at, self.single_target_, X)

    def _part_distribution(
        self, X: Any, signed: Sequence[LocalConformal], unknown: Labels = None, **labels: Any
    ) -> PartDistribution:
        """The distributions of checked rows, from calibrators of the signed scores."""
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
        """For each row, the probability that y exceeds `threshold`, and a p-value for y being at most it.

        Claiming "above" where the p-value is at most a is wrong with probability at most a: near each row for
        ``guarantee="local"``, as with intervals, and on average over new rows for ``"marginal"``, which weights
        all calibration rows equally, and needs rows set aside. For many rows at once, :func:`lvd.select` on
        marginal p-values bounds the share of wrong claims. Unknown rows have p-value 1 and probability NaN.

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
        self._check_guarantee(guarantee)
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
        """The action of least expected cost for each row, under the row's predictive distribution.

        ``cost(action, y)`` returns the cost of one action for an array of y. For unknown rows the index is -1,
        the action NaN or None, and the costs NaN.

        Examples
        --------
        Order for a demand y: each unsold unit costs 1 and each missing one 9, so the 90% quantile is best.

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
        """Each target's calibrator, possibly shared, with the indices of the rows it was calibrated on."""
        indices = map(np.flatnonzero, self._complete(self.y_calib_).T)
        found = list(zip(self.calibrators_, indices, strict=True))
        return found * self.n_targets_ if self.score_.joint else found


def _joint_score(shape: str, given: str | ConformityScore) -> ConformityScore:
    """The joint score of all targets, using the scales of the given score."""
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
