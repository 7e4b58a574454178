"""Conformalized quantile regression (Romano, Patterson and Candès 2019)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from torch import nn

from lvd._typing import Float, Levels, NDArray, RandomState
from lvd._validation import InputError, check_choice, check_levels
from lvd.conformal import QuantileResidual, conformal_quantile
from lvd.conformal.quantiles import QUANTILES
from lvd.methods.base import ConformalRegressor, rows_needed
from lvd.nets import Model, NetRegressor
from lvd.nets.losses import PinballLoss
from lvd.nets.molecules import ChempropEstimator

TRAINABLE = (NetRegressor, ChempropEstimator, nn.Module, type(None))


class ConformalizedQuantileRegressor(ConformalRegressor):
    """Two quantiles of y, learned by a network, and moved by what the calibration rows ask for.

    Each confidence level has a network of its own, which gives both of its quantiles: a list of levels
    trains them all, and :meth:`predict_interval` knows these levels only. As the networks know nothing of
    each other, an interval at a higher level need not contain the one at a lower level. The point prediction
    is the middle of the quantiles of the first level.

    Parameters
    ----------
    estimator : None builds an MLP, a NetRegressor or a ChempropEstimator gives its settings, a torch module
        returns two values per target (all lower quantiles, then all upper ones); these are trained with the
        pinball loss. With `prefit` any trained model that predicts these columns.
    symmetric : move both ends by the same amount, or each by its own, at half of the miscoverage each.
    quantile : ``"finite_sample"``: the ``ceil((m + 1) level)``-th smallest of m scores, +inf beyond the m-th.
        ``"percentile"``: numpy's plain percentile, without the guarantee, as the paper's figures were made.
    confidence_level : the level or levels to train for.
    calib_size : share of the rows of :meth:`fit` set aside for calibration. None: all of them train, and
        :meth:`conformalize` is then required.
    prefit : the estimator is trained already, for the one level given, and left untouched. Rows it was
        trained on must not calibrate: use ``calib_size=None`` and conformalize on rows it has not seen.
    y_min, y_max : known bounds of y, which clip the intervals.
    device, random_state : where to compute, and the seed of everything random.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(400, 2))
    >>> y = X[:, 0] + rng.normal(size=400) * np.abs(X[:, 1])
    >>> reg = lvd.ConformalizedQuantileRegressor(confidence_level=[0.5, 0.9], random_state=0).fit(X, y)
    >>> y_pred, intervals = reg.predict_interval(X[:5])
    >>> y_pred.shape, intervals.shape
    ((5,), (5, 2, 2))
    """

    guarantee: ClassVar[str] = "marginal"
    post_hoc: ClassVar[bool] = False
    nested: ClassVar[bool] = False

    def __init__(
        self,
        estimator: Any = None,
        *,
        symmetric: bool = True,
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
        self.symmetric = symmetric
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
        if self.prefit and check_levels(self.confidence_level).size > 1:
            raise InputError(
                "a prefit estimator gives the quantiles of one level, got "
                f"confidence_level={self.confidence_level!r}; give that level alone"
            )
        if not self.prefit and not isinstance(self.estimator, TRAINABLE):
            raise InputError(
                "estimator must be None, a NetRegressor, a ChempropEstimator or a torch module, to be trained "
                f"with the pinball loss, got {type(self.estimator).__name__}; train a quantile model of another "
                "kind first and pass it with prefit=True, predicting the lower and upper quantile as two columns"
            )

    def _rows_needed(self, level: float) -> int:
        return rows_needed(self._score_level(level)) if self.quantile == "finite_sample" else 1

    def _score_level(self, level: float) -> float:
        """The level of the scores' quantile; each end of its own may miss half of what both together may."""
        return level if self.symmetric else (1.0 + level) / 2.0

    def _train(self, X: Any, y: Float[NDArray, "n t"], seed: int) -> None:
        self.levels_ = check_levels(self.confidence_level)
        self.quantile_models_ = [self._new_quantile_model(level) for level in self.levels_.tolist()]
        for model in self.quantile_models_:
            model.fit(X, np.concatenate([y, y], axis=1))
        self.model_ = self.quantile_models_[0]

    def _new_quantile_model(self, level: float) -> Model:
        if self.prefit:
            return self.model_
        network: NetRegressor | ChempropEstimator = clone(self.model_)
        return network.set_params(loss=PinballLoss(level))

    def _calibrate(self, X: Any, y: Float[NDArray, "m t"]) -> None:
        self.radii_ = [
            self._radii(_quantiles(model, X), y, level)
            for model, level in zip(self.quantile_models_, self.levels_.tolist(), strict=True)
        ]

    def _radii(
        self, quantiles: QuantileResidual, y: Float[NDArray, "m t"], level: float
    ) -> Float[NDArray, "2 t"]:
        """By how much the lower end moves down and the upper end up, for each target."""
        if self.symmetric:
            scores = np.stack([quantiles(y)] * 2, axis=1)
        else:
            scores = np.stack([quantiles.lower - y, y - quantiles.upper], axis=1)
        return conformal_quantile(scores, np.array([self._score_level(level)]), quantile=self.quantile)[0]

    def _predict(self, X: Any) -> Float[NDArray, "n t"]:
        return _quantiles(self.model_, X).middle

    def _predict_interval(
        self, X: Any, levels: Float[NDArray, "l"]
    ) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 l t"]]:
        self._check_calibrated()
        known = [self._position(level) for level in levels.tolist()]
        quantiles = {i: _quantiles(self.quantile_models_[i], X) for i in {0, *known}}
        y_pred = quantiles[0].middle
        ends = (2, len(y_pred), 1, y_pred.shape[1])
        intervals = [
            quantiles[i].intervals(*np.broadcast_to(self.radii_[i][:, None, None], ends)) for i in known
        ]
        return y_pred, np.concatenate(intervals, axis=2)

    def _position(self, level: float) -> int:
        """Where among the trained levels this one stands."""
        found = np.flatnonzero(np.abs(self.levels_ - level) < 1e-9)
        if not found.size:
            trained = ", ".join(f"{known:g}" for known in self.levels_)
            raise InputError(
                f"there is no network for confidence_level={level:g}: the trained levels are {trained}; "
                "give all levels you need to the constructor, as a list"
            )
        return int(found[0])


def _quantiles(model: Model, X: Any) -> QuantileResidual:
    """The model's lower and upper quantiles of these rows, sorted where they cross."""
    lower, upper = np.sort(np.split(model.evaluate(X).y_pred, 2, axis=1), axis=0)
    return QuantileResidual(lower, upper)
