"""LVD: locally valid and discriminative prediction intervals (Algorithm 1 of the paper)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from lvd._typing import ArrayLike, Float, Levels, NDArray, RandomState
from lvd._validation import (
    InputError,
    check_choice,
    check_levels,
    check_positive,
    intervals_like,
    like,
    to_numpy,
)
from lvd.conformal import LocalConformal, SidedResidual
from lvd.conformal.bandwidth import check_bandwidth
from lvd.conformal.distribution import LocalDistribution
from lvd.conformal.floor import check_floor
from lvd.conformal.leaves import check_search
from lvd.conformal.scores import error_unit
from lvd.conformal.sides import side_scales
from lvd.intervals import clip, covered
from lvd.kernels import MahalanobisKernel
from lvd.kernels.rows import place
from lvd.methods.base import ConformalRegressor, rows_needed
from lvd.methods.errors import ErrorModel, fit_error_model
from lvd.methods.monitor import DriftMonitor, RowMonitor
from lvd.methods.predictive import PredictiveDistribution
from lvd.methods.seen_rows import Explanation, Prediction, SeenRows, explanations
from lvd.methods.shared_names import SharedName
from lvd.nets import Evaluation
from lvd.nets.adapters import Embed
from lvd.nets.wrap import seeded_clone


class LVDRegressor(ConformalRegressor, PredictiveDistribution):
    """Prediction intervals that are wide where similar cases went wrong, and infinite where none are known.

    The promise is local by default; ``predict_interval(X, guarantee="randomized")`` or ``"calibrated"`` take one
    that holds on average too, from the same calibration; with ``"randomized"`` also ``smoothed=True``, which meets
    the level exactly (see :meth:`LocalConformal.radius`).

    A network is trained (or taken as it is), a kernel is learned on its last hidden layer, and the calibration
    errors, weighted by their similarity to the row in question, give the radius of its interval.

    `fit` and `conformalize` take ``groups=``, for a promise within each group, and ``weights=``, likelihood ratios
    for new rows of another population (:func:`lvd.shift.estimate_weights`); whatever predicts intervals then takes
    those of its rows, as in ``predict_interval(X, groups=..., weights=...)``.

    Parameters
    ----------
    estimator : the model. None builds an MLP (:class:`NetRegressor`); a torch module, a NetRegressor, a
        scikit-learn regressor or Pipeline, or a pair of functions ``(predict, embed)`` of a trained model.
    predictor : centre the intervals at the ``"net"``'s prediction or at the ``"kernel"`` regression.
    score : ``"absolute"`` errors, or ``"normalized"`` by a second model's prediction of the error.
    sides : ``"same"`` puts both ends of an interval at one distance from the prediction. For errors that are not
        symmetric ``"each"`` takes for each end its own quantile of the signed errors, at (1 - level) / 2, and
        ``"joint"`` one quantile of errors that are measured by what is usual on their side among the training
        rows like this one. ``"each"`` bounds the misses on either side and needs twice the rows, ``"joint"`` bounds
        their sum.
    smoothness, n_components : of the kernel; `kernel` replaces it by a MahalanobisKernel of your settings.
    bandwidth, max_infinite : widen the kernel by this factor, or ``"auto"``: just so far that at most
        `max_infinite` of the training rows would have infinite intervals at `confidence_level`.
    kernel_floor : raises the kernel to ``(1 - e) K + e``; ``"auto"``: just so far that all intervals at
        `confidence_level` are finite (see :func:`lvd.conformal.smallest_floor`).
    max_weight : the largest of the likelihood ratios ``weights=`` that a new row can have, which the local promise
        needs; None takes the largest one seen (see :class:`LocalConformal`).
    search : ``"all"`` weighs all calibration rows for each query, ``"index"`` leaves out those too far to matter,
        ``"auto"`` decides by their number (see :class:`LocalConformal`).
    confidence_level : the level of :meth:`predict_interval` when it is given none.
    calib_size : share of the rows of :meth:`fit` set aside for calibration. None: use all of them for training;
        :meth:`conformalize` is then required.
    prefit : the estimator is trained already and left untouched. Rows it was trained on must not calibrate:
        use ``calib_size=None`` and conformalize on rows it has not seen.
    embedding_layer : name of the layer of a torch module whose input is the embedding.
    embed : a function from rows to embeddings, for scikit-learn estimators.
    error_estimator : the second model of ``score="normalized"``; by default one like the first, or, on a prefit
        estimator, the built-in MLP on the embeddings.
    y_min, y_max : known bounds of y, which clip the intervals.
    device, random_state : where to compute, and the seed of everything random.

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
    >>> skewed = lvd.LVDRegressor(sides="each", kernel_floor="auto", random_state=0)
    >>> halves = np.where(X[:, 0] > 0, "right", "left")
    >>> _, intervals = skewed.fit(X, y, groups=halves).predict_interval(X[:5], groups=halves[:5])
    >>> bool(np.isfinite(intervals).all())
    True
    """

    guarantee: ClassVar[str] = "local"
    post_hoc: ClassVar[bool] = True
    max_weight: float | None = None  # of models saved before there was one
    y_calib_: Float[NDArray, "m t"]
    errors_calib_: Float[NDArray, "m t"]

    def __init__(
        self,
        estimator: Any = None,
        *,
        predictor: str = "net",
        score: str = "absolute",
        sides: str = "same",
        smoothness: bool = True,
        n_components: int = 10,
        kernel: MahalanobisKernel | None = None,
        bandwidth: float | str = 1.0,
        max_infinite: float = 0.1,
        kernel_floor: float | str = 0.0,
        max_weight: float | None = None,
        search: str = "auto",
        confidence_level: float = 0.9,
        calib_size: float | None = 0.25,
        prefit: bool = False,
        embedding_layer: str | None = None,
        embed: Embed | None = None,
        error_estimator: Any = None,
        y_min: float | None = None,
        y_max: float | None = None,
        device: str = "auto",
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.predictor = predictor
        self.score = score
        self.sides = sides
        self.smoothness = smoothness
        self.n_components = n_components
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.max_infinite = max_infinite
        self.kernel_floor = kernel_floor
        self.max_weight = max_weight
        self.search = search
        self.confidence_level = confidence_level
        self.calib_size = calib_size
        self.prefit = prefit
        self.embedding_layer = embedding_layer
        self.embed = embed
        self.error_estimator = error_estimator
        self.y_min = y_min
        self.y_max = y_max
        self.device = device
        self.random_state = random_state

    @SharedName
    def embed(self, X: ArrayLike) -> Any:
        """The embeddings (n, h) of the rows."""
        check_is_fitted(self, "model_")
        return like(self.model_.evaluate(self._check_inputs(X)).embeddings, X)

    @SharedName
    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R^2 of the point predictions."""
        return float(super().score(X, y, sample_weight))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's parameters."""
        return super().get_params(deep) | {name: vars(self)[name] for name in ("embed", "score")}

    def predict_with_evidence(
        self, X: ArrayLike, confidence_level: Levels | None = None, **choices: Any
    ) -> Prediction:
        """What :meth:`predict_interval` gives and how much stands behind it, from one pass of the network."""
        self._check_calibrated()
        self._check_choices("predict_with_evidence", choices)
        levels, seen = self._levels(confidence_level), self._see(self._check_inputs(X))
        intervals = clip(self._intervals(seen, levels, **choices), self.y_min, self.y_max)
        sizes = [
            to_numpy(conformal.effective_sample_size(seen.placed, groups=choices.get("groups")))
            for conformal in self.conformals_
        ]
        y_pred, intervals, size = map(self._as_given, (seen.y_pred, intervals, np.stack(sizes, axis=1)))
        ends = intervals_like(intervals, X)
        return Prediction(like(y_pred, X), ends, like(size, X), like(seen.embeddings, X))

    def update(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> LVDRegressor:
        """Add newly labelled rows to the calibration set; nothing is trained again."""
        self._check_calibrated()
        inputs, targets = self._check_rows(X, y, self.n_targets_)
        seen, known = self._see(inputs), self._known_errors()
        for conformal, column in zip(self.conformals_, self._scores(seen, targets).T, strict=True):
            conformal.update(seen.placed, column, groups=groups, weights=weights)
        self.errors_calib_ = np.concatenate([known, seen.errors(targets)])
        self.y_calib_ = np.concatenate([self.y_calib_, targets])
        self.n_calib_ = len(self.y_calib_)
        return self

    def forget(self, n_newest: int) -> LVDRegressor:
        """Keep only the newest rows of the calibration set, for data whose nature changes with time."""
        self._check_calibrated()
        known = self._known_errors()
        for conformal in self.conformals_:
            conformal.forget(n_newest)
        self.errors_calib_, self.y_calib_ = known[-n_newest:], self.y_calib_[-n_newest:]
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
                f"monitor watches one target, this model has {self.n_targets_}; fit one for each"
            )
        calibration = self.conformals_[0].calibration_
        if calibration.rows.weights is not None:
            raise InputError(
                "monitor compares new rows with the calibration rows as they are, and these came with weights= "
                "for another population; calibrate on rows of that population first"
            )
        watch = DriftMonitor(
            np.abs(calibration.scores.cpu().numpy()),
            confidence_level=float(self._levels(confidence_level)[0]),
            false_alarm_rate=false_alarm_rate,
            window=window,
            random_state=random_state,
        )
        return RowMonitor(self._judge, watch)

    def _judge(
        self, X: ArrayLike, y: ArrayLike, level: float, groups: ArrayLike | None
    ) -> tuple[NDArray, NDArray]:
        """Sizes of the scores of labelled rows, and whether their intervals cover."""
        inputs, targets = self._check_rows(X, y, self.n_targets_)
        seen = self._see(inputs)
        intervals = self._intervals(seen, np.array([level]), groups=groups)
        return np.abs(self._scores(seen, targets)[:, 0]), covered(targets[:, 0], intervals[..., 0])[:, 0]

    def explain(
        self,
        X: ArrayLike,
        confidence_level: float | None = None,
        *,
        n_neighbors: int = 10,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> list[Explanation]:
        """For each row its interval, the calibration rows that carry the weight, and one plain sentence.

        Several targets give one explanation per row and target, the targets of a row side by side.
        """
        self._check_calibrated()
        levels, seen = self._levels(confidence_level)[:1], self._see(self._check_inputs(X))
        labels = {"groups": groups, "weights": weights}
        intervals = clip(self._intervals(seen, levels, **labels), self.y_min, self.y_max)
        evidence = [
            conformal.explain(
                seen.placed,
                float(levels[0]),
                n_neighbors=n_neighbors,
                targets=column,
                two_sided=self.sides == "each",
                **labels,
            )
            for conformal, column in zip(self.conformals_, self.y_calib_.T, strict=True)
        ]
        return explanations(seen, intervals, evidence)

    def _check_parameters(self) -> None:
        check_choice(self.predictor, "predictor", ("net", "kernel"))
        check_choice(vars(self)["score"], "score", ("absolute", "normalized"))
        check_choice(self.sides, "sides", ("same", "each", "joint"))
        check_bandwidth(self.bandwidth, self.max_infinite)
        check_floor(self.kernel_floor, weighted=False)
        check_search(self.search, self.kernel_floor)
        if self.max_weight is not None:
            check_positive(self.max_weight, "max_weight")
        if self.kernel is not None and not isinstance(self.kernel, MahalanobisKernel):
            raise InputError(f"kernel must be a MahalanobisKernel or None, got {type(self.kernel).__name__}")

    def _rows_needed(self, level: float) -> int:
        return rows_needed(self._side_level(level))

    def _train(self, X: Any, y: Float[NDArray, "n t"], seed: int) -> None:
        self.model_.fit(X, y)
        template = self.kernel or MahalanobisKernel(
            self.n_components, smoothness=self.smoothness, device=self.device, random_state=seed
        )
        embeddings = place(self.model_.evaluate(X).embeddings, template.device)
        self.kernels_ = [seeded_clone(template, seed).fit(embeddings, column) for column in y.T]
        self.error_model_: ErrorModel | None = None
        if vars(self)["score"] == "normalized":
            self.error_model_ = fit_error_model(
                self.error_estimator, self.model_, X, y, device=self.device, seed=seed
            )
        if self.sides == "joint":
            self.train_errors_ = self._see(X).errors(y)

    def _calibrate(
        self,
        X: Any,
        y: Float[NDArray, "m t"],
        *,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        seen = self._see(X)
        level = self._side_level(float(check_levels(self.confidence_level).max()))
        self.conformals_ = [
            LocalConformal(
                kernel,
                bandwidth=self.bandwidth,
                max_infinite=self.max_infinite,
                kernel_floor=self.kernel_floor,
                max_weight=self.max_weight,
                search=self.search,
                confidence_level=level,
            ).conformalize(seen.placed, column, groups=groups, weights=weights)
            for kernel, column in zip(self.kernels_, self._scores(seen, y).T, strict=True)
        ]
        self.errors_calib_, self.y_calib_ = seen.errors(y), y

    def _see(self, X: Any) -> SeenRows:
        """One pass of the network over the rows, and what their scores are made of."""
        evaluation = self.model_.evaluate(X)
        y_pred = self._centres(evaluation)
        units = np.ones_like(y_pred)
        if self.error_model_ is not None:
            units = error_unit(self.error_model_.predict(X, evaluation))
        return SeenRows(X, evaluation.embeddings, y_pred, units, self.kernels_[0].device)

    def _predict(self, X: Any) -> Float[NDArray, "n t"]:
        return self._centres(self.model_.evaluate(X))

    def _predict_interval(
        self,
        X: Any,
        levels: Float[NDArray, "l"],
        *,
        guarantee: str = "local",
        smoothed: bool = False,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        random_state: RandomState = 0,
    ) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 l t"]]:
        self._check_calibrated()
        seen = self._see(X)
        intervals = self._intervals(
            seen,
            levels,
            guarantee=guarantee,
            smoothed=smoothed,
            groups=groups,
            weights=weights,
            random_state=random_state,
        )
        return seen.y_pred, intervals

    def _intervals(
        self, seen: SeenRows, levels: Float[NDArray, "l"], **choices: Any
    ) -> Float[NDArray, "n 2 l t"]:
        """Intervals of all targets; the choices are those of :meth:`LocalConformal.radius`."""
        if choices.get("guarantee") == "randomized":
            choices["row_keys"] = seen.keys
        columns = []
        for target, conformal in enumerate(self.conformals_):
            if self.sides == "each":
                ends = conformal.interval(seen.placed, levels, **choices)
                columns.append(seen.residual(target).intervals(to_numpy(ends)))
            else:
                radius = conformal.radius(seen.placed, levels, **choices)
                columns.append(self._sided(seen, target).intervals(to_numpy(radius)))
        return np.stack(columns, axis=-1)

    def _scores(self, seen: SeenRows, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        """What is calibrated: signed errors, or errors against what is usual on their side."""
        if self.sides == "each":
            return seen.errors(y)
        return np.stack([self._sided(seen, target)(column) for target, column in enumerate(y.T)], axis=1)

    def _sided(self, seen: SeenRows, target: int) -> SidedResidual:
        y_pred, unit = seen.y_pred[:, target], seen.units[:, target]
        if self.sides == "same":
            return SidedResidual(y_pred, unit, unit)
        kernel = self.kernels_[target]
        queries = kernel.scaled(seen.placed)
        points, errors = (
            queries.new_tensor(a) for a in (kernel.train_points_, self.train_errors_[:, target])
        )
        below, above = side_scales(queries, points, errors)
        return SidedResidual(y_pred, unit * below, unit * above)

    def _side_level(self, level: float) -> float:
        """The level at which each end is calibrated."""
        return (1.0 + level) / 2.0 if self.sides == "each" else level

    def _centres(self, evaluation: Evaluation) -> Float[NDArray, "n t"]:
        if self.predictor == "net":
            return evaluation.y_pred
        return np.stack([kernel.predict(evaluation.embeddings) for kernel in self.kernels_], axis=1)

    def _locate(self, X: ArrayLike, **labels: ArrayLike | None) -> tuple[SeenRows, list[LocalDistribution]]:
        self._check_calibrated()
        seen = self._see(self._check_inputs(X))
        signed = map(LocalConformal.rescored, self.conformals_, self._known_errors().T)
        return seen, [conformal.distribution(seen.placed, **labels) for conformal in signed]

    def _known_errors(self) -> Float[NDArray, "m t"]:
        """The signed errors of the calibration rows."""
        if not hasattr(self, "errors_calib_"):
            raise InputError(
                "this model was saved by an lvd that kept no signed errors: conformalize it again for this"
            )
        return self.errors_calib_

    def _target_columns(self, X: ArrayLike, y: ArrayLike) -> Float[NDArray, "n t"]:
        return self._check_rows(X, y, self.n_targets_)[1]
