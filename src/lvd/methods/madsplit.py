"""MADSplit: split conformal prediction on errors divided by a second model's prediction of them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lvd._typing import Float, Levels, NDArray, RandomState
from lvd._validation import check_choice
from lvd.conformal import NormalizedResidual, conformal_quantile
from lvd.conformal.quantiles import QUANTILES
from lvd.methods.base import ConformalRegressor, rows_needed
from lvd.methods.errors import fit_error_model


class MADSplitRegressor(ConformalRegressor):
    """Intervals in proportion to the error that a second model expects (locally weighted, Lei et al. 2018).

    The score is ``|y - y_pred| / (1e-5 + |error_pred|)``, the width that of the score's quantile times
    ``1e-5 + |error_pred|``.

    Parameters
    ----------
    estimator : the model. None builds an MLP (:class:`NetRegressor`); a torch module, a NetRegressor, a
        scikit-learn regressor or Pipeline, or a pair of functions ``(predict, embed)`` of a trained model.
    error_estimator : the second model, fitted to the first one's absolute errors on its training rows; by
        default one like the first, or, on a prefit estimator, the built-in MLP on the embeddings.
    quantile : ``"finite_sample"``: the ``ceil((m + 1) level)``-th smallest of m scores, +inf beyond the m-th.
        ``"percentile"``: numpy's plain percentile, without the guarantee, as the paper's figures were made.
    confidence_level : the level of :meth:`predict_interval` when it is given none.
    calib_size : share of the rows of :meth:`fit` set aside for calibration. None: all of them train, and
        :meth:`conformalize` is then required.
    prefit : the estimator is trained already and left untouched; :meth:`fit` trains the second model only.
        Rows the estimator was trained on must not calibrate: use ``calib_size=None`` and conformalize on rows
        it has not seen.
    y_min, y_max : known bounds of y, which clip the intervals.
    device, random_state : where to compute, and the seed of everything random.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(400, 2))
    >>> y = X[:, 0] + rng.normal(size=400) * np.abs(X[:, 1])
    >>> reg = lvd.MADSplitRegressor(random_state=0).fit(X, y)
    >>> y_pred, intervals = reg.predict_interval(X[:5], confidence_level=[0.5, 0.9])
    >>> y_pred.shape, intervals.shape
    ((5,), (5, 2, 2))
    """

    guarantee: ClassVar[str] = "marginal"
    post_hoc: ClassVar[bool] = True

    def __init__(
        self,
        estimator: Any = None,
        *,
        error_estimator: Any = None,
        quantile: str = "finite_sample",
        confidence_level: Levels = 0.9,
        calib_size: float | None = 0.25,
        prefit: bool = False,
        y_min: float | None = None,
        y_max: float | None = None,
        device: str = "auto",
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.error_estimator = error_estimator
        self.quantile = quantile
        self.confidence_level = confidence_level
        self.calib_size = calib_size
        self.prefit = prefit
        self.y_min = y_min
        self.y_max = y_max
        self.device = device
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_choice(self.quantile, "quantile", QUANTILES)

    def _rows_needed(self, level: float) -> int:
        return rows_needed(level) if self.quantile == "finite_sample" else 1

    def _train(self, X: Any, y: Float[NDArray, "n t"], seed: int) -> None:
        self.model_.fit(X, y)
        self.error_model_ = fit_error_model(
            self.error_estimator, self.model_, X, y, device=self.device, seed=seed
        )

    def _calibrate(self, X: Any, y: Float[NDArray, "m t"]) -> None:
        self.scores_ = self._score(X)(y)

    def _predict(self, X: Any) -> Float[NDArray, "n t"]:
        return self.model_.evaluate(X).y_pred

    def _predict_interval(
        self, X: Any, levels: Float[NDArray, "l"]
    ) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 l t"]]:
        self._check_calibrated()
        score = self._score(X)
        radius = conformal_quantile(self.scores_, levels, quantile=self.quantile)
        everywhere = np.broadcast_to(radius, (len(score.y_pred), *radius.shape))
        return score.y_pred, score.intervals(everywhere)

    def _score(self, X: Any) -> NormalizedResidual:
        """The score bound to these rows."""
        evaluation = self.model_.evaluate(X)
        return NormalizedResidual(evaluation.y_pred, self.error_model_.predict(X, evaluation))
