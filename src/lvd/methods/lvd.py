"""LVD: locally valid and discriminative prediction intervals (Algorithm 1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from lvd._typing import ArrayLike, Float, NDArray, RandomState
from lvd._validation import InputError, check_choice, check_levels, like
from lvd.conformal import AbsoluteResidual, LocalConformal, NormalizedResidual
from lvd.conformal.explanation import Evidence
from lvd.intervals import clip, covered
from lvd.kernels import MahalanobisKernel
from lvd.methods.base import ConformalRegressor, rows_needed
from lvd.methods.errors import ErrorModel, fit_error_model
from lvd.methods.monitor import DriftMonitor, RowMonitor
from lvd.methods.shared_names import SharedName
from lvd.nets import Evaluation
from lvd.nets.adapters import Embed
from lvd.nets.wrap import seeded_clone


@dataclass(frozen=True)
class Explanation:
    """One row's interval and what stands behind it."""

    row: int
    target: int
    y_pred: float
    lower: float
    upper: float
    evidence: Evidence

    @property
    def sentence(self) -> str:
        """Why the interval is as wide as it is, or infinite."""
        return self.evidence.sentence


class LVDRegressor(ConformalRegressor):
    """Prediction intervals that are wide where similar cases went wrong, and infinite where none are known.

    The promise is local by default; ``predict_interval(X, guarantee="randomized")`` or ``"calibrated"`` take one
    that holds on average too, from the same calibration (see :meth:`LocalConformal.radius`).

    A network is trained (or taken as it is), a kernel is learned on its last hidden layer, and the calibration
    errors, weighted by their similarity to the row in question, give the radius of its interval.

    Parameters
    ----------
    estimator : the model. None builds an MLP (:class:`NetRegressor`); a torch module, a NetRegressor, a
        scikit-learn regressor or Pipeline, or a pair of functions ``(predict, embed)`` of a trained model.
    predictor : centre the intervals at the ``"net"``'s prediction or at the ``"kernel"`` regression.
    score : ``"absolute"`` errors, or ``"normalized"`` by a second model's prediction of the error.
    smoothness, n_components : of the kernel; `kernel` replaces it by a MahalanobisKernel of your settings.
    bandwidth, max_infinite : widen the kernel by this factor, or ``"auto"``: just so far that at most
        `max_infinite` of the training rows would have infinite intervals at `confidence_level`.
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
    """

    guarantee: ClassVar[str] = "local"
    post_hoc: ClassVar[bool] = True
    y_calib_: Float[NDArray, "m t"]

    def __init__(
        self,
        estimator: Any = None,
        *,
        predictor: str = "net",
        score: str = "absolute",
        smoothness: bool = True,
        n_components: int = 10,
        kernel: MahalanobisKernel | None = None,
        bandwidth: float | str = 1.0,
        max_infinite: float = 0.1,
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
        self.smoothness = smoothness
        self.n_components = n_components
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.max_infinite = max_infinite
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

    def update(self, X: ArrayLike, y: ArrayLike) -> LVDRegressor:
        """Add newly labelled rows to the calibration set; nothing is trained again."""
        self._check_calibrated()
        inputs, targets = self._check_rows(X, y, self.n_targets_)
        embeddings, scores = self._score(inputs, targets)
        for conformal, column in zip(self.conformals_, scores, strict=True):
            conformal.update(embeddings, column)
        self.y_calib_ = np.concatenate([self.y_calib_, targets])
        self.n_calib_ = len(self.y_calib_)
        return self

    def forget(self, n_newest: int) -> LVDRegressor:
        """Keep only the newest rows of the calibration set, for data whose nature changes with time."""
        self._check_calibrated()
        for conformal in self.conformals_:
            conformal.forget(n_newest)
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
                f"monitor watches one target, this model has {self.n_targets_}; fit one for each"
            )
        watch = DriftMonitor(
            self.conformals_[0].calibration_.scores.cpu().numpy(),
            confidence_level=self._one_level(confidence_level),
            false_alarm_rate=false_alarm_rate,
            window=window,
            random_state=random_state,
        )
        return RowMonitor(self._judge, watch)

    def _judge(self, X: ArrayLike, y: ArrayLike, level: float) -> tuple[NDArray, NDArray]:
        """Scores of labelled rows, and whether their intervals cover."""
        inputs, targets = self._check_rows(X, y, self.n_targets_)
        _, intervals = self._predict_interval(inputs, np.array([level]))
        return self._score(inputs, targets)[1][0], covered(targets[:, 0], intervals[..., 0])[:, 0]

    def _one_level(self, confidence_level: float | None) -> float:
        """The level asked for, or the first of the constructor's."""
        return float(check_levels(self.confidence_level if confidence_level is None else confidence_level)[0])

    def explain(
        self, X: ArrayLike, confidence_level: float | None = None, *, n_neighbors: int = 10
    ) -> list[Explanation]:
        """For each row its interval, the calibration rows that carry the weight, and one plain sentence.

        Several targets give one explanation per row and target, the targets of a row side by side.
        """
        self._check_calibrated()
        level = np.array([self._one_level(confidence_level)])
        inputs = self._check_inputs(X)
        y_pred, intervals = self._predict_interval(inputs, level)
        intervals = clip(intervals, self.y_min, self.y_max)
        embeddings = self.model_.evaluate(inputs).embeddings
        evidence = [
            conformal.explain(embeddings, float(level[0]), n_neighbors=n_neighbors, targets=column)
            for conformal, column in zip(self.conformals_, self.y_calib_.T, strict=True)
        ]
        return [
            Explanation(
                row=row,
                target=target,
                y_pred=float(y_pred[row, target]),
                lower=float(intervals[row, 0, 0, target]),
                upper=float(intervals[row, 1, 0, target]),
                evidence=evidence[target][row],
            )
            for row in range(len(y_pred))
            for target in range(self.n_targets_)
        ]

    def _check_parameters(self) -> None:
        check_choice(self.predictor, "predictor", ("net", "kernel"))
        check_choice(vars(self)["score"], "score", ("absolute", "normalized"))
        if self.kernel is not None and not isinstance(self.kernel, MahalanobisKernel):
            raise InputError(f"kernel must be a MahalanobisKernel or None, got {type(self.kernel).__name__}")

    def _rows_needed(self, level: float) -> int:
        return rows_needed(level)

    def _train(self, X: Any, y: Float[NDArray, "n t"], seed: int) -> None:
        self.model_.fit(X, y)
        embeddings = self.model_.evaluate(X).embeddings
        template = self.kernel or MahalanobisKernel(
            self.n_components, smoothness=self.smoothness, device=self.device, random_state=seed
        )
        self.kernels_ = [seeded_clone(template, seed).fit(embeddings, column) for column in y.T]
        self.error_model_: ErrorModel | None = None
        if vars(self)["score"] == "normalized":
            self.error_model_ = fit_error_model(
                self.error_estimator, self.model_, X, y, device=self.device, seed=seed
            )

    def _calibrate(self, X: Any, y: Float[NDArray, "m t"]) -> None:
        embeddings, scores = self._score(X, y)
        self.conformals_ = [
            LocalConformal(
                kernel,
                bandwidth=self.bandwidth,
                max_infinite=self.max_infinite,
                confidence_level=self._one_level(None),
            ).conformalize(embeddings, column)
            for kernel, column in zip(self.kernels_, scores, strict=True)
        ]
        self.y_calib_ = y

    def _score(self, X: Any, y: Float[NDArray, "m t"]) -> tuple[Float[NDArray, "m h"], list[NDArray]]:
        """Embeddings of the rows, and their scores for each target."""
        evaluation = self.model_.evaluate(X)
        scores = self._scores(X, evaluation, self._centres(evaluation))
        return evaluation.embeddings, [score(column) for score, column in zip(scores, y.T, strict=True)]

    def _predict(self, X: Any) -> Float[NDArray, "n t"]:
        return self._centres(self.model_.evaluate(X))

    def _predict_interval(
        self,
        X: Any,
        levels: Float[NDArray, "l"],
        *,
        guarantee: str = "local",
        random_state: RandomState = 0,
    ) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 l t"]]:
        self._check_calibrated()
        evaluation = self.model_.evaluate(X)
        y_pred = self._centres(evaluation)
        radius = partial(LocalConformal.radius, guarantee=guarantee, random_state=random_state)
        intervals = [
            score.intervals(radius(conformal, evaluation.embeddings, levels))
            for conformal, score in zip(self.conformals_, self._scores(X, evaluation, y_pred), strict=True)
        ]
        return y_pred, np.stack(intervals, axis=-1)

    def _centres(self, evaluation: Evaluation) -> Float[NDArray, "n t"]:
        if self.predictor == "net":
            return evaluation.y_pred
        return np.stack([kernel.predict(evaluation.embeddings) for kernel in self.kernels_], axis=1)

    def _scores(
        self, X: Any, evaluation: Evaluation, y_pred: Float[NDArray, "n t"]
    ) -> list[AbsoluteResidual | NormalizedResidual]:
        """One score per target, bound to these rows."""
        if self.error_model_ is None:
            return [AbsoluteResidual(column) for column in y_pred.T]
        error_pred = self.error_model_.predict(X, evaluation)
        return [NormalizedResidual(*columns) for columns in zip(y_pred.T, error_pred.T, strict=True)]
