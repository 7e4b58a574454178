"""Split conformal prediction: intervals of constant width, or scaled by a score, such as CQR's."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from lvd.methods.conformal import ConformalMethod, as_score
from lvd.scores import ConformityScore, NormalizedResidual, QuantileResidual


@dataclass(eq=False, repr=False)
class SplitConformalRegressor(ConformalMethod):
    """Intervals of the same width everywhere: the finite-sample quantile of the calibration errors.

    The simplest conformal method (Papadopoulos et al. 2002; Lei et al. 2018), and what LVD becomes with a
    constant kernel, where all calibration rows have equal weight everywhere.

    Parameters
    ----------
    estimator : the model. None builds an MLP (:class:`NetRegressor`); a torch module, a NetRegressor, a
        scikit-learn regressor or Pipeline, or a pair of functions ``(predict, embed)`` of a trained model.
    conformity_score : what is calibrated: ``"absolute"`` errors, or any score of :class:`LVDRegressor`, with
        equally weighted calibration rows.
    quantile : ``"finite_sample"``: the ``ceil((m + 1) level)``-th smallest of m scores, +inf beyond the m-th.
        ``"percentile"``: numpy's plain percentile, without the guarantee.
    confidence_level, calib_size, prefit, y_range, device, n_jobs, random_state : as in :class:`LVDRegressor`.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(400, 2))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=400)
    >>> reg = lvd.SplitConformalRegressor(random_state=0).fit(X, y)
    >>> y_pred, intervals = reg.predict_interval(X[:5], confidence_level=[0.5, 0.9])
    >>> y_pred.shape, intervals.shape
    ((5,), (5, 2, 2))
    """

    _: KW_ONLY
    conformity_score: str | ConformityScore = "absolute"
    quantile: str = "finite_sample"

    def _conformity_score(self) -> ConformityScore:
        return as_score(self.conformity_score)


@dataclass(eq=False, repr=False)
class MADSplitRegressor(ConformalMethod):
    """Intervals in proportion to the error that a second model predicts (locally weighted, Lei et al. 2018).

    The score is ``|y - y_pred| / (1e-5 + |error_pred|)``; the radius is the score's quantile times ``1e-5 +
    |error_pred|``.

    Parameters
    ----------
    error_estimator : the second model, fitted to the absolute errors of the first; by default a model like the
        first or, with a prefit estimator, the built-in MLP on the embeddings.
    errors : the errors it is fitted to: ``"held_out"`` or ``"in_sample"``, as in
        :class:`lvd.scores.NormalizedResidual`.
    estimator, quantile, confidence_level, calib_size, prefit, y_range, device, n_jobs, random_state : as in
        :class:`SplitConformalRegressor`; with `prefit`, :meth:`fit` only trains the second model.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(400, 2))
    >>> y = X[:, 0] + rng.normal(size=400) * np.abs(X[:, 1])
    >>> reg = lvd.MADSplitRegressor(random_state=0).fit(X, y)
    >>> reg.predict_interval(X[:5], [0.5, 0.9])[1].shape
    (5, 2, 2)
    """

    _: KW_ONLY
    error_estimator: Any = None
    errors: str = "held_out"
    quantile: str = "finite_sample"

    def _conformity_score(self) -> ConformityScore:
        return NormalizedResidual(self.error_estimator, self.errors)


@dataclass(eq=False, repr=False)
class ConformalizedQuantileRegressor(ConformalMethod):
    """Two quantiles of y learned by a network and shifted to the coverage of the calibration rows.

    This is CQR (Romano, Patterson and Candès 2019). Each confidence level has its own network for both of its
    quantiles: a list of levels trains one each, and :meth:`predict_interval` only accepts these levels. The
    networks are independent, so an interval at a higher level need not contain the one at a lower level. The
    point prediction is the midpoint of the first level's quantiles.

    Parameters
    ----------
    estimator : None builds an MLP; a :class:`NetRegressor` or another of lvd's networks provides its settings;
        a torch module returns two values per target (all lower quantiles, then all upper ones). All are trained
        with the pinball loss. With `prefit`, any trained model that predicts these columns.
    symmetric : shift both ends by the same amount, or each separately at half the miscoverage.
    confidence_level : the level or levels to train for; with `prefit`, the one the estimator was trained for.
    quantile, calib_size, prefit, y_range, device, n_jobs, random_state : as in :class:`SplitConformalRegressor`.

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

    post_hoc: ClassVar[bool] = False
    nested: ClassVar[bool] = False

    _: KW_ONLY
    symmetric: bool = True
    quantile: str = "finite_sample"

    def _conformity_score(self) -> ConformityScore:
        return QuantileResidual(self.symmetric)
