"""Conformalized quantile regression (Romano, Patterson and Candès 2019)."""

from __future__ import annotations

from typing import Any, ClassVar

from lvd._typing import Levels, RandomState
from lvd._validation import keep
from lvd.methods.split import EqualWeights
from lvd.scores import ConformityScore, QuantileResidual


class ConformalizedQuantileRegressor(EqualWeights):
    """Two quantiles of y, learned by a network, and moved by what the calibration rows ask for.

    Each confidence level has a network of its own, which gives both of its quantiles: a list of levels
    trains them all, and :meth:`predict_interval` knows these levels only. As the networks know nothing of
    each other, an interval at a higher level need not contain the one at a lower level. The point prediction
    is the middle of the quantiles of the first level.

    Parameters
    ----------
    estimator : None builds an MLP, a :class:`NetRegressor` or another of lvd's networks gives its settings, a torch
        module returns two values per target (all lower quantiles, then all upper ones); these are trained with
        the pinball loss. With `prefit` any trained model that predicts these columns.
    symmetric : move both ends by the same amount, or each by its own, at half of the miscoverage each.
    confidence_level : the level or levels to train for; with `prefit` the one that the estimator was trained for.
    quantile, calib_size, prefit, y_range, device, random_state : as of :class:`SplitConformalRegressor`.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(400, 2))
    >>> y = X[:, 0] + rng.normal(size=400) * np.abs(X[:, 1])
    >>> reg = lvd.ConformalizedQuantileRegressor(confidence_level=[0.5, 0.9], random_state=0).fit(X, y)
    >>> reg.predict_interval(X[:5])[1].shape
    (5, 2, 2)
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
        y_range: tuple[float | None, float | None] | None = None,
        device: str = "auto",
        random_state: RandomState = None,
    ) -> None:
        keep(self, locals())

    def _conformity_score(self) -> ConformityScore:
        return QuantileResidual(self.symmetric)
