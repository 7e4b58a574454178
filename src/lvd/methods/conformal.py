"""Shared by the conformal methods: a model, a score and, with a kernel, local weights."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from lvd._parallel import few_threads
from lvd._progress import announce
from lvd._typing import ArrayLike, Bool, Float, Int, Labels, Levels, NDArray, RandomState
from lvd._validation import (
    InputError,
    Parameter,
    check_choice,
    check_levels,
    check_positive,
    check_same_length,
    check_vector,
    load_errors_explained,
    present_rows,
    row_digests,
    to_numpy,
)
from lvd.calibration import CalibrationWarning, GlobalConformal, LocalConformal
from lvd.calibration.calibration_rows import MOST_SET_ASIDE, drawn_rows
from lvd.calibration.own_coverage import own_coverage
from lvd.engine.quantiles import QUANTILES, rows_missing
from lvd.intervals import Region
from lvd.kernels import Kernel
from lvd.methods.base import IntervalRegressor, local_choices, refuse_choices, without_new_levels
from lvd.models import Model
from lvd.models.averaged import AveragedModel
from lvd.models.candidates import Candidates, Folds
from lvd.models.scaling import refuse_unknown
from lvd.onnx import MOST_ROWS, ExportedGraph
from lvd.scores import (
    AbsoluteResidual,
    BoundScore,
    ConformityScore,
    DistributionalResidual,
    EvaluatedRows,
    JointResidual,
    NormalizedResidual,
    QuantileResidual,
    ScaledResidual,
    SidedResidual,
    SignedResidual,
    TrainingRows,
)
from lvd.scores.joint import SHAPES, BoundJoint
from lvd.scores.score import NarrowedScore, interpolates, weights_for
from lvd.support import Support, SupportRule
from lvd.wrap import as_model, seeded_clone

SCORES: dict[str, Callable[[], ConformityScore]] = {
    "absolute": AbsoluteResidual,
    "distributional": DistributionalResidual,
    "normalized": NormalizedResidual,
    "scaled": ScaledResidual,
    "signed": SignedResidual,
    "sided": SidedResidual,
    "quantile": QuantileResidual,
    **{shape: partial(JointResidual, shape) for shape in SHAPES},
}
"""The scores that can be selected by name."""

WHEN_UNKNOWN = ("infinite", "widen")
"""The interval of an unknown row: an infinite one, or as wide as the calibration rows suggest."""
CALIB_SIZE = 0.25
"""The default share of rows set aside to calibrate a model trained here, at most `MOST_SET_ASIDE` rows."""
ASKED_AGAIN, SMALL_CHANGE = 16, 1e-2
"""How many rows are predicted twice, and how far the answers may differ, relative to their range."""
SET_ASIDE = 1 / 3
"""The share of calibration rows used for learning if a trained model interpolates its training rows."""


class InterpolationWarning(CalibrationWarning):
    """A trained model interpolates its training rows, so learning takes some calibration rows instead."""


class SharedRowsWarning(CalibrationWarning):
    """Calibration rows equal training rows: the same cases used twice, or distinct cases that look alike."""


@dataclass(eq=False, repr=False)
class ConformalMethod(IntervalRegressor):
    """A method that calibrates on rows unseen in training.

    How an interval is computed: the model predicts and embeds, the score is bound to the rows, each target's
    calibrator gives a radius for each score column, and the score turns radii into intervals. A method only
    chooses its score, kernel and calibrator. `n_jobs` is how many models are trained in parallel, on threads,
    when several are needed for out-of-fold predictions; None trains them one by one.
    """

    guarantee: ClassVar[str] = "marginal"
    post_hoc: ClassVar[bool] = True
    quantile = "finite_sample"
    """Which quantile of equally weighted scores is the radius; a parameter in some methods."""

    estimator: Any = None
    _: KW_ONLY
    calib_size: float | str | None = "auto"
    prefit: bool = False
    device: str = "auto"
    n_jobs: int | None = None

    @abstractmethod
    def _conformity_score(self) -> ConformityScore:
        """The conformity score to calibrate."""

    def _check_parameters(self) -> None:
        check_choice(self.quantile, "quantile", QUANTILES)
        self._conformity_score()

    def _new_kernel(self, training: TrainingRows) -> Kernel | None:
        """The unfitted kernel for each target; None weights all calibration rows equally."""
        return None

    def _new_support(self) -> SupportRule | None:
        """The rule that decides which rows are known; None if every row is."""
        return None

    @property
    def _kernel_target(self) -> str:
        """What the kernel is trained to distinguish: ``"y"`` or ``"errors"``."""
        return "y"

    def _new_model(self, seed: int) -> Model | Candidates:
        """The estimator's model, or several candidates to choose from."""
        return as_model(self.estimator, prefit=self.prefit, device=self.device, random_state=seed)

    @property
    def _when_unknown(self) -> str:
        """What unknown rows get where no parameter says it: one of `WHEN_UNKNOWN`."""
        return "widen"

    @property
    def _infinite_when_unknown(self) -> bool:
        """Whether unknown rows get infinite intervals: as the parameter says, also one set after `fit`, and without
        it as `fit` settled; models saved by versions that did not settle it are asked again."""
        given = vars(self).get("when_unknown")
        settled = vars(self).get("when_unknown_") if given is None else given
        chosen = self._when_unknown if settled is None else settled
        check_choice(chosen, "when_unknown", WHEN_UNKNOWN)
        return chosen == "infinite"

    @property
    def _most_calibrating(self) -> int | None:
        """How many rows calibrate at most; None for all."""
        return None

    def _calibrator(self, kernel: Kernel | None) -> GlobalConformal | LocalConformal:
        """The calibrator that turns a target's calibration scores into radii."""
        return GlobalConformal(self.quantile)

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        groups: Labels = None,
        weights: Labels = None,
        max_weight: float | None = None,
        sample_weight: Labels = None,
    ) -> Any:
        """Train on part of the rows and calibrate on the `calib_size` share set aside.

        With ``calib_size=None`` or an already trained estimator no rows are set aside, and :meth:`conformalize`
        must follow. `groups` and `weights` hold one value per row, of which only those of the calibration rows
        are used; for `max_weight` see :meth:`conformalize`. Rows that the model treats as one case are set
        aside together or not at all. With several targets, unknown values may be NaN: each target is learned
        and calibrated from the rows that have it. `sample_weight` weights the rows in training, for estimators
        that accept it; calibration weights all rows equally.
        """
        levels, seed = self._check_settings()
        if self.n_jobs is not None:
            check_positive(self.n_jobs, "n_jobs", integer=True)
        score = self._conformity_score()
        self.when_unknown_ = self._when_unknown
        self.__dict__.pop("choice_", None)
        model: Any = self._new_model(seed)
        first = model.first if isinstance(model, Candidates) else model
        prepared: Any = score.prepare(first, levels)
        # A score that builds its own model leaves no candidates to choose from.
        self.model_ = model if prepared is first else prepared
        inputs, targets = self._check_rows(X, y, missing=model.takes_missing_targets)
        self._check_joint(score)
        calib_size = self._share_set_aside(first, len(targets))
        labels = self._check_labels(len(targets), groups=groups, weights=weights, max_weight=max_weight)
        row_weights = self._check_sample_weight(sample_weight, len(targets))
        folds = self._crossed_folds(first, self.model_.same_case(inputs), labels, seed)
        if folds is not None:
            calib_size = None
        if labels and calib_size is None and folds is None:
            raise InputError(
                f"fit sets no calibration rows aside ({'prefit' if first.prefit else 'calib_size=None'}), "
                f"so {min(labels)}= would go unused; give it to conformalize"
            )
        train, calib = split_cases(self.model_.same_case(inputs), calib_size, seed)
        self.__dict__.pop("n_calib_", None)
        train_inputs = _safe_indexing(inputs, train) if len(calib) else inputs
        with few_threads(train_inputs):
            some = None if row_weights is None else row_weights[train]
            crossed = self._train(train_inputs, targets[train], score, seed, folds, sample_weight=some)
            self.train_digests_ = np.sort(row_digests(train_inputs))
            self.crossed_ = crossed is not None
            if crossed is not None:
                self._calibrate_crossed(*crossed, targets, labels)
            elif len(calib):
                chosen = rows_of_labels(labels, calib)
                self._calibrate(_safe_indexing(inputs, calib), targets[calib], chosen)
        return self

    def conformalize(
        self,
        X_calib: ArrayLike,
        y_calib: ArrayLike,
        *,
        groups: Labels = None,
        weights: Labels = None,
        max_weight: float | None = None,
    ) -> Any:
        """Calibrate on rows unseen in training, replacing any earlier calibration.

        `groups` and `weights` hold one value per row, and `max_weight` is the largest weight that a new row can
        have, which the local guarantee needs (see :meth:`LocalConformal.conformalize`). With several targets,
        unknown values may be NaN: each target is calibrated on the rows that have it.
        """
        check_is_fitted(self, "train_digests_")
        inputs, targets = self._check_rows(X_calib, y_calib, self.n_targets_, missing=True)
        labels = self._check_labels(len(targets), groups=groups, weights=weights, max_weight=max_weight)
        self._warn_of_shared_rows(inputs)
        self.crossed_ = False
        self.__dict__.pop("error_share_", None)
        with few_threads(inputs):  # some of the rows may be trained on
            self._calibrate(inputs, targets, labels)
        return self

    @property
    def is_crossed(self) -> bool:
        """Whether calibration uses cross-validated errors; False for models saved before the option existed."""
        return bool(vars(self).get("crossed_", False))

    def _share_set_aside(self, model: Any, n_rows: int) -> float | None:
        """The share of `fit`'s rows to calibrate on; None for a trained model, which may have seen them."""
        default = isinstance(self.calib_size, str) and self.calib_size == "auto"
        if not model.prefit:
            return min(CALIB_SIZE, MOST_SET_ASIDE / n_rows) if default else self.calib_size  # type: ignore
        if default or self.calib_size is None:
            return None
        raise InputError(
            "calib_size must be left out for an estimator that is trained already (prefit), got "
            f"{self.calib_size!r}: rows that it was trained on must not calibrate; call fit, then conformalize "
            "with rows it has not seen"
        )

    def _crossed_folds(
        self, model: Model, cases: NDArray, labels: Mapping[str, Any], seed: int
    ) -> Folds | None:
        """The folds of cross-validated calibration; None if it uses rows set aside."""
        return None

    @property
    def _averages_folds(self) -> bool:
        """Whether predictions are the mean over the model and the fold models of cross calibration."""
        return False

    def _check_sample_weight(self, sample_weight: Labels, n_rows: int) -> Float[NDArray, "n"] | None:
        """Check the sample weights: one per row, none negative, and only for models that accept them."""
        if sample_weight is None:
            return None
        if isinstance(self.model_, Candidates) or not self.model_.takes_sample_weight or self.model_.prefit:
            raise InputError(
                "sample_weight is for estimators that are trained here and take it, such as 'trees' or most of "
                "scikit-learn's; name such an estimator, or train it with its weights and give prefit=True"
            )
        found = check_vector(sample_weight, "sample_weight")
        check_same_length(X=range(n_rows), sample_weight=found)
        if found.min() < 0.0 or not found.any():
            raise InputError("sample_weight must not be negative, nor 0 in every row")
        return found

    def _held_out_folds(self, n_rows: int) -> Folds | None:
        """The folds for out-of-fold errors when other rows calibrate; None for random folds."""
        return None

    def _train(
        self,
        X: Any,
        y: Float[NDArray, "n t"],
        score: ConformityScore,
        seed: int,
        folds: Folds | None,
        *,
        sample_weight: Float[NDArray, "n"] | None = None,
    ) -> tuple[EvaluatedRows, BoundScore] | None:
        """Fit the model, a kernel per target, and the score; with folds, return the rows and their out-of-fold
        scores."""
        crossed, held_out = None, None if folds else self._held_out_folds(len(y))
        keeps_models, fold_models = folds is not None and self._averages_folds, dict[int, Model]()
        if isinstance(self.model_, Candidates):
            self.model_, crossed, self.choice_, fold_models = self.model_.choose(
                *(X, y, seed, folds or held_out, self.n_jobs), keep_models=keeps_models
            )
        announce("training the model")
        self.model_.fit(X, y, **weights_for(sample_weight))
        self.seed_, self.score_ = seed, score
        self.kernels_: list[Kernel] = []
        rows = EvaluatedRows(X, self.model_.evaluate(X))
        self._warn_if_answers_change(rows)
        training = TrainingRows(
            *(rows, y, self.model_, self.device, seed, crossed, folds, sample_weight, self.n_jobs, held_out),
            fold_models=fold_models if keeps_models else None,
        )
        support = self._new_support()
        self.support_ = None if support is None else support.fit(rows, seed)
        learns_errors = self._kernel_target == "errors" or score.learns_errors
        self.postponed_ = learns_errors and self.model_.prefit and interpolates(training)
        return None if self.postponed_ else self._learn(training)

    def _learn(self, training: TrainingRows) -> tuple[EvaluatedRows, BoundScore] | None:
        """Learn the kernels and the score, from rows that will not calibrate unless there are folds."""
        folds = training.folds
        if folds is not None:
            training = training.with_held_out_embeddings()
        elif self._kernel_target == "errors":
            training = training.part_to_learn_from()
        template = self._new_kernel(training)
        self.kernels_ = fit_kernels(template, training, self._kernel_target, self.score_)
        self.__dict__.pop("error_share_", None)
        located = training.located(self.kernels_)
        if folds is None:
            self.score_.fit(located)
            return None
        scores = self.score_.fit_crossed(located)
        if training.fold_models is not None:
            rows, errors = located.rows, located.held_out_errors
            self.model_ = AveragedModel(self.model_, located.fold_models_in_order())
            self.error_share_ = self.model_.error_share(rows.inputs, rows.y_pred, errors, folds)
        return located.rows, scores

    def _learn_from_calibration_rows(
        self, X: Any, y: Float[NDArray, "m t"], labels: dict[str, Any]
    ) -> tuple[Any, Float[NDArray, "r t"], dict[str, Any]]:
        """Learn from part of the calibration rows; return the rest for calibration."""
        calib, aside = split_cases(self.model_.same_case(X), SET_ASIDE, self.seed_)
        warnings.warn(
            "the estimator nearly interpolates its training rows, so its errors there are too small to learn from: "
            f"{len(aside)} of {len(y)} calibration rows are used for learning instead and do not calibrate",
            InterpolationWarning,
            stacklevel=4,
        )
        some = _safe_indexing(X, aside)
        rows = EvaluatedRows(some, self.model_.evaluate(some))
        self._learn(TrainingRows(rows, y[aside], self.model_, self.device, self.seed_))
        return _safe_indexing(X, calib), y[calib], rows_of_labels(labels, calib)

    def _calibrate(self, X: Any, y: Float[NDArray, "m t"], labels: dict[str, Any]) -> None:
        """Calibrate, replacing any earlier calibration."""
        announce("calibrating the intervals")
        if self.postponed_:
            X, y, labels = self._learn_from_calibration_rows(X, y, labels)
        some = self._drawn(len(y), labels.get("groups"))
        if some is not None:
            X, y, labels = _safe_indexing(X, some), y[some], rows_of_labels(labels, some)
        self._take_calibration(*self._bind(X), y, labels)

    def _calibrate_crossed(
        self, rows: EvaluatedRows, bound: BoundScore, y: Float[NDArray, "m t"], labels: dict[str, Any]
    ) -> None:
        """Calibrate by cross-validated errors of the training rows."""
        some = self._drawn(len(y), labels.get("groups"))
        if some is not None:
            rows, bound, y, labels = rows[some], bound[some], y[some], rows_of_labels(labels, some)
        self._take_calibration(rows, bound, y, labels)

    def _drawn(self, n_rows: int, groups: Labels = None) -> Int[NDArray, "k"] | None:
        """The indices of the rows that calibrate, None for all."""
        return drawn_rows(n_rows, self._most_calibrating, self.seed_, groups)

    def _take_calibration(
        self, rows: EvaluatedRows, bound: BoundScore, y: Float[NDArray, "m t"], labels: dict[str, Any]
    ) -> None:
        """Calibrate on the scores of these rows."""
        scores = bound(y)
        check_known(scores[:, 0], joint=self.score_.joint)
        kernels: Sequence[Kernel | None] = self.kernels_ or [None] * scores.shape[2]
        self.calibrators_: list[Any] = [self._calibrator(kernel) for kernel in kernels]
        self._add_scores("conformalize", rows, scores, labels)
        self.residuals_calib_, self.units_calib_, self.y_calib_ = y - bound.y_pred, bound.unit, y
        self.signed_calib_ = bound.signed(y)
        # A stream keeps no inputs, so none of its rows can be recognised later.
        self.digests_calib_ = np.zeros(len(y), np.uint64) if rows.inputs is None else row_digests(rows.inputs)
        self.n_calib_ = len(y)
        self._warn_if_too_few()

    def _add_scores(
        self, how: str, rows: EvaluatedRows, scores: Float[NDArray, "m c r"], labels: dict[str, Any]
    ) -> None:
        """Call ``conformalize`` or ``update`` on each calibrator with the rows that have its target."""
        for calibrator, columns in zip(self.calibrators_, np.moveaxis(scores, 2, 0), strict=True):
            some = present_rows(columns[:, 0])
            getattr(calibrator, how)(rows.placed[some], columns[some], **rows_of_labels(labels, some))
        n_missing = int(np.isnan(scores).any(axis=(1, 2)).sum())
        if self.score_.joint and n_missing:
            warnings.warn(
                f"{n_missing} of {len(scores)} rows lack a target, so they do not calibrate the joint region",
                CalibrationWarning,
                stacklevel=4,
            )

    def _bind(self, X: Any, unknown: Labels = None) -> tuple[EvaluatedRows, BoundScore]:
        """Evaluate the model once on the rows and bind the score to them."""
        if unknown is not None:
            unknown = to_numpy(unknown).astype(bool)
            check_same_length(X=X, unknown=unknown)
        X, new_levels = without_new_levels(X, vars(self).get("level_places_"))
        if new_levels is not None:
            unknown = new_levels if unknown is None else unknown | new_levels
        with load_errors_explained(self):
            rows = EvaluatedRows(X, self.model_.evaluate(X), self.kernels_, unknown)
            return rows, self._bound(rows)

    def _bound(self, rows: EvaluatedRows) -> BoundScore:
        """The score bound to new rows: that of an ensemble is narrowed, as its mean errs less than each model."""
        bound, share = self.score_.bind(rows), vars(self).get("error_share_")
        return bound if share is None else NarrowedScore.of(bound, share)

    def calibration_coverage(self, confidence_level: Levels | None = None) -> Any:
        """The leave-one-out coverage of the calibration rows: each is judged by an interval made without it.

        Uses up to 500 rows; returns a number for one level, an array for a list, with a last dimension for
        several targets. A quick estimate of the coverage of new rows; :func:`lvd.metrics` measures it on rows
        of your own.

        Examples
        --------
        >>> import numpy as np, lvd
        >>> X = np.random.default_rng(0).normal(size=(400, 2))
        >>> reg = lvd.SplitConformalRegressor("trees", random_state=0).fit(X, X[:, 0])
        >>> 0.85 < float(reg.calibration_coverage(0.9)) < 0.95
        True
        """
        self._check_calibrated()
        given = self.confidence_level if confidence_level is None else confidence_level
        plans = [self.score_.plan(level) for level in self._levels(given).tolist()]
        found = np.array([[own_coverage(one, plan) for one in self.calibrators_] for plan in plans])
        answer = found[:, 0] if len(self.calibrators_) == 1 else found
        return answer if np.ndim(given) else answer[0]

    def to_onnx(
        self,
        path: str | os.PathLike[str],
        confidence_level: Levels | None = None,
        *,
        max_rows: int | None = MOST_ROWS,
    ) -> ExportedGraph:
        """Write one ONNX graph that maps numeric rows to what ``predict_interval(X, as_frame=True)`` returns.

        It needs only onnxruntime to run. The input ``X`` is a float64 matrix with the columns of `fit`; the
        outputs are ``y_pred``, ``lower_90`` and ``upper_90`` for each level, and for local methods
        ``n_effective`` and ``known``. Beyond `max_rows` calibration rows those with the smallest errors are
        dropped: intervals become wider, never narrower, and a warning says by how much. None keeps all rows.

        Examples
        --------
        >>> import numpy as np, lvd, tempfile, pathlib, onnxruntime
        >>> X = np.random.default_rng(0).uniform(-1, 1, size=(200, 2))
        >>> reg = lvd.SplitConformalRegressor("trees", random_state=0).fit(X, X[:, 0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "model.onnx"
        ...     written = reg.to_onnx(path, confidence_level=[0.5, 0.9])
        ...     session = onnxruntime.InferenceSession(path)
        >>> written.outputs
        ('y_pred', 'lower_50', 'upper_50', 'lower_90', 'upper_90')
        >>> lower, upper = session.run(["lower_90", "upper_90"], {"X": X[:3]})
        >>> bool(np.allclose(upper, reg.predict_interval(X[:3], 0.9)[1][:, 1, 0]))
        True
        """
        from lvd.onnx.exporting import write_graph  # onnx is an extra

        self._check_calibrated()
        return write_graph(self, path, self._levels(confidence_level), max_rows=max_rows)

    def _sizes(self) -> dict[str, str]:
        sizes = {"trained on": f"{len(self.train_digests_):,} rows"}
        if not hasattr(self, "n_calib_"):
            return sizes | {"calibrated by": "no rows yet: call conformalize"}
        plans = {level: self.score_.plan(level) for level in self._levels(None).tolist()}
        shares = [min(own_coverage(one, plan) for one in self.calibrators_) for plan in plans.values()]
        told = [f"{share:.1%} at level {level:g}" for level, share in zip(plans, shares, strict=True)]
        judged = f"{', '.join(told)} (leave-one-out, on calibration rows)"
        return sizes | {"calibrated by": f"{self.n_calib_:,} rows", "coverage": judged}

    def predict_region(
        self,
        X: ArrayLike,
        confidence_level: Levels | None = None,
        *,
        guarantee: str | None = None,
        smoothed: bool = False,
        groups: Labels = None,
        weights: Labels = None,
        random_state: RandomState = 0,
    ) -> Region:
        """For each row, a joint region of all targets at one level; see :class:`lvd.Region`.

        Needs a joint score, such as ``LVDRegressor(joint="ellipsoid")``. Its projections are the intervals of
        :meth:`predict_interval`, and it takes the same choices.
        """
        self._check_calibrated()
        levels = self._levels(confidence_level)
        if not self.score_.joint:
            raise InputError(
                f"{type(self).__name__} gives each target its own interval; fit it with joint='box' or "
                "'ellipsoid' for a region of all targets together"
            )
        if len(levels) > 1:
            raise InputError(
                f"predict_region takes one confidence_level, got {len(levels)}; call it for each"
            )
        choices = local_choices(guarantee, smoothed, groups, weights, random_state)
        rows, bound = self._bind(self._check_inputs(X))
        (region,) = self._regions(bound, self._radii(rows, levels, **choices))
        return region

    def _regions(self, bound: BoundScore, radius: Float[NDArray, "n s l r"]) -> tuple[Region, ...]:
        """A joint region at each level; empty if targets are calibrated separately."""
        if not isinstance(bound, BoundJoint):
            return ()
        return tuple(bound.region(radii, self._bounds) for radii in radius[:, 0, :, 0].T)

    def _predict_interval(
        self, X: Any, levels: Float[NDArray, "l"], **choices: Any
    ) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 l t"]]:
        self._check_calibrated()
        side = choices.pop("side", None)
        rows, bound = self._bind(X)
        if side is not None:
            return bound.y_pred, self._one_sided(rows, bound, levels, side, **choices)
        return bound.y_pred, bound.intervals(self._radii(rows, levels, **choices), levels)

    def _one_sided(
        self, rows: EvaluatedRows, bound: BoundScore, levels: Float[NDArray, "l"], side: str, **choices: Any
    ) -> Float[NDArray, "n 2 l t"]:
        """One-sided intervals from a quantile of the signed scores; they contain the prediction."""
        if self.score_.joint:
            raise InputError(
                Parameter("side", named=True),
                " is for targets that are calibrated one by one, and here one region holds them all; leave it out",
            )
        if choices.get("guarantee") == "transductive":
            raise InputError(
                *(
                    Parameter("guarantee"),
                    " 'transductive' has no one-sided intervals; choose another, or leave ",
                ),
                *(Parameter("side", named=True), " out"),
            )
        sign = 1.0 if side == "upper" else -1.0
        columns = [column[present_rows(column)] for column in sign * self.signed_calib_.T]
        mirrored = [one.rescored(column) for one, column in zip(self.calibrators_, columns, strict=True)]
        radius = self._radii(rows, levels, signed=mirrored, **choices)[:, 0]
        found, y_pred = bound.targets_at(sign * radius), bound.y_pred[:, None]
        end = np.maximum(found, y_pred) if side == "upper" else np.minimum(found, y_pred)
        beyond = np.full_like(end, -sign * np.inf)
        return np.stack([beyond, end] if side == "upper" else [end, beyond], axis=1)

    def _check_guarantee(self, guarantee: str) -> None:
        """Raise if cross-validated errors calibrate and the guarantee needs rows set aside."""
        if self.is_crossed and guarantee != "local":
            raise InputError(
                *(
                    Parameter("guarantee"),
                    f" {guarantee!r} needs calibration rows that training has not seen, and ",
                ),
                *("here cross-validated errors calibrate; use 'local', or fit again with "),
                Parameter("calibration", "split"),
            )

    def _radii(
        self,
        rows: EvaluatedRows,
        levels: Float[NDArray, "l"],
        signed: Sequence[Any] | None = None,
        **choices: Any,
    ) -> Float[NDArray, "n s l r"]:
        """The radii of each target or of the joint score; `choices` as in :meth:`LocalConformal.radius`."""
        if not self.kernels_:
            refuse_choices(self, choices)
        guarantee = choices.get("guarantee", "local")
        self._check_guarantee(guarantee)
        if guarantee == "randomized":
            choices["row_keys"] = rows.keys
        plans = [self.score_.plan(level) for level in levels.tolist()]
        asked = [(plan.columns, plan.level) for plan in plans]
        if signed is not None:
            asked = [((0,), level) for level in levels.tolist()]
        calibrators = self.calibrators_ if signed is None else signed
        found = [one.radii(rows.placed, asked, **choices) for one in calibrators]
        radius = np.stack(found, axis=-1)
        if self._infinite_when_unknown:
            radius[~self._check_support(rows).known] = np.inf
        return radius

    def _check_support(self, rows: EvaluatedRows) -> Support:
        """Which rows are known, decided once and reused for the intervals and the evidence of the same rows."""
        if "support" not in vars(rows):
            marked = np.zeros(len(rows.y_pred), bool) if rows.unknown is None else rows.unknown
            found = [Support.of(~marked, "it was marked as unknown")]
            if self.support_ is not None:
                found.append(self.support_.check(rows))
            vars(rows)["support"] = Support.all_of(found)
        support: Support = vars(rows)["support"]
        return support

    def _known(self, X: Any) -> Bool[NDArray, "n"] | None:
        if self.support_ is None:
            return None
        return self._check_support(EvaluatedRows(X, self.model_.evaluate(X))).known

    def _check_calibrated(self) -> None:
        if hasattr(self, "n_calib_"):
            return
        self._check_fitted()
        check_is_fitted(
            self, "n_calib_", msg="%(name)s has no calibration set yet: call conformalize(X_calib, y_calib)"
        )

    def _check_labels(self, n_rows: int, **labels: ArrayLike | float | None) -> dict[str, Any]:
        """The labels that were given; raises for methods without local weights."""
        given = {name: values for name, values in labels.items() if values is not None}
        for name, values in given.items():
            if not self.has_local_weights:
                raise InputError(
                    f"{type(self).__name__} gives all calibration rows the same weight and takes no {name}=; leave "
                    "it out, or use LVDRegressor"
                )
            if name != "max_weight":
                check_same_length(**{"X": range(n_rows), name: values})
        return given

    def _check_joint(self, score: ConformityScore) -> None:
        """Raise if a joint region is requested for a single target."""
        if score.joint and self.n_targets_ == 1:
            raise InputError(
                "a joint region holds several targets together, and y has one; give y of shape (rows, targets), or "
                "choose a conformity_score for one target"
            )

    def _complete(self, y: Float[NDArray, "m t"]) -> Bool[NDArray, "m r"]:
        """Which rows calibrate each radius: those that have the target, or all targets for a joint score."""
        known: NDArray = ~np.isnan(y)
        return np.all(known, axis=1, keepdims=True) if self.score_.joint else known

    def _warn_of_shared_rows(self, inputs: Any) -> None:
        shared = int(np.isin(row_digests(inputs), self.train_digests_).sum())
        if shared:
            warnings.warn(
                f"{shared} of {len(inputs)} calibration rows equal a training row. If they are the same cases, "
                "their errors are too small and the guarantee is lost: calibrate on cases that were not used for "
                "training. If they are different cases that look alike, the guarantee holds",
                SharedRowsWarning,
                stacklevel=3,
            )

    def _warn_if_answers_change(self, rows: EvaluatedRows) -> None:
        """Predict a few rows again and warn if the answers differ: intervals need a deterministic model."""
        some = np.arange(len(rows.y_pred))[:ASKED_AGAIN]
        again = self.model_.evaluate(_safe_indexing(rows.inputs, some)).y_pred
        moved = np.abs(again - rows.y_pred[some])
        if (moved > 1e-6 * np.abs(again) + SMALL_CHANGE * np.ptp(rows.y_pred, axis=0)).any():
            warnings.warn(
                f"the estimator predicts the same rows differently from call to call, by up to {moved.max():.2g}, "
                "so calibration errors do not belong to later predictions: fix its random numbers (dropout in "
                "training mode, for instance), or let predict change neither the estimator nor its input",
                CalibrationWarning,
                stacklevel=4,
            )

    def _warn_if_too_few(self) -> None:
        level = float(check_levels(self.confidence_level).max())
        needed = rows_needed(self.score_.plan(level).level) if self.quantile == "finite_sample" else 1
        n_known = int(self._complete(self.y_calib_).sum(0).min())
        if n_known < needed:
            warnings.warn(
                f"every interval at confidence_level={level:g} is infinite: a finite one needs at least "
                f"{needed} calibration rows, and there are {n_known}; give more rows or a lower level",
                CalibrationWarning,
                stacklevel=4,
            )


def as_score(conformity_score: Any) -> ConformityScore:
    """A new score of that name, or a clone of the one given."""
    if isinstance(conformity_score, ConformityScore):
        return clone(conformity_score)
    if not isinstance(conformity_score, str) or conformity_score not in SCORES:
        raise InputError(
            Parameter("conformity_score"),
            f" must be one of {', '.join(map(repr, SCORES))} or a score of lvd.scores, "
            f"got {conformity_score!r}",
        )
    return SCORES[conformity_score]()


def fit_kernels(
    template: Kernel | None, training: TrainingRows, kernel_target: str, score: ConformityScore
) -> list[Kernel]:
    """A fitted kernel per target, or one for all; a fitted template is reused for a single target.

    Rows are similar if their targets are, or their errors; square roots of errors have fewer outliers.
    """
    if template is None:
        return []
    if template.is_fitted and (training.y.shape[1] == 1 or score.joint):
        return [template.frozen()]
    of_y = kernel_target == "y" and not score.joint
    learned = (
        training.y if of_y else np.sqrt(score.error_sizes(training.out_of_fold_errors(joint=score.joint)))
    )
    announce("learning the kernel")
    placed = training.located([template]).rows.placed
    check_known(learned, joint=score.joint)
    known = [(column, present_rows(column)) for column in learned.T]
    return [seeded_clone(template, training.seed).fit(placed[some], column[some]) for column, some in known]


def check_known(columns: Float[NDArray, "n r"], *, joint: bool) -> None:
    """Raise if a target is unknown in every row or, for a joint score, if no row has all targets."""
    if joint and np.isnan(columns).all():
        raise InputError(
            f"a joint region needs rows in which all targets are known, but none of {len(columns)} rows has them "
            "all; give such rows, or fit each target on its own"
        )
    refuse_unknown(columns)


def rows_of_labels(labels: dict[str, Any], rows: Any) -> dict[str, Any]:
    """The labels of the selected rows; scalars and None are passed through."""
    return {
        name: values if values is None or np.ndim(values) == 0 else _safe_indexing(values, rows)
        for name, values in labels.items()
    }


def rows_needed(confidence_level: float) -> int:
    """The smallest number of calibration rows m that allows a finite interval: ``level (m + 1) <= m``."""
    return rows_missing(0.0, confidence_level)


def split_cases(
    cases: NDArray, calib_size: float | None, seed: int
) -> tuple[Int[NDArray, "a"], Int[NDArray, "b"]]:
    """Split the rows into training and calibration indices, keeping all rows of a case together."""
    n_rows = len(cases)
    order = np.random.default_rng(seed).permutation(n_rows)
    if calib_size is None:
        return np.arange(n_rows), order[:0]
    if not (isinstance(calib_size, int | float) and 0.0 < calib_size < 1.0):
        raise InputError(
            f"calib_size must be None or lie in (0, 1), got {calib_size!r}; by default, 'auto', a quarter is set "
            "aside"
        )
    order, starts = _cases_together(order, cases)
    n_calib = int(starts[np.abs(starts - max(1, round(calib_size * n_rows))).argmin()])
    if n_rows - n_calib < 2:
        raise InputError(
            f"fit needs at least 2 training rows besides the calibration rows, got {n_rows} sample(s) in all; "
            "give more rows, or calib_size=None and conformalize on rows of their own"
        )
    return np.sort(order[n_calib:]), np.sort(order[:n_calib])


def _cases_together(order: Int[NDArray, "n"], cases: NDArray) -> tuple[Int[NDArray, "n"], Int[NDArray, "c"]]:
    """Reorder so that the rows of each case are adjacent; return the order and where each case ends."""
    _, first, case = np.unique(cases[order], return_index=True, return_inverse=True)
    ranks = first[case]
    moved = np.argsort(ranks, kind="stable")
    return order[moved], np.append(np.flatnonzero(np.diff(ranks[moved])) + 1, len(order))
