"""Split conformal prediction: intervals of one width, or of the widths that a score of your choice gives."""

from __future__ import annotations

from typing import Any, ClassVar

from lvd._typing import Levels, RandomState
from lvd._validation import check_choice, keep
from lvd.conformal import GlobalConformal, LocalConformal
from lvd.kernels import MahalanobisKernel
from lvd.methods.conformal import ConformalBase, as_score
from lvd.quantiles.finite_sample import QUANTILES
from lvd.scores import AbsoluteResidual, ConformityScore


class EqualWeights(ConformalBase):
    """A conformal method for which all calibration rows count alike, wherever a row is."""

    quantile: str

    def _check_parameters(self) -> None:
        check_choice(self.quantile, "quantile", QUANTILES)

    def _kernel_template(self) -> None:
        return None

    def _calibrator(self, kernel: Any) -> GlobalConformal:
        return GlobalConformal(self.quantile)


class SplitConformalRegressor(EqualWeights):
    """Intervals of the same width everywhere: the finite-sample quantile of the calibration errors.

    The simplest conformal method (Papadopoulos et al. 2002; Lei et al. 2018), and what LVD becomes when its
    kernel is constant, so that every calibration row counts alike everywhere.

    Parameters
    ----------
    estimator : the model. None builds an MLP (:class:`NetRegressor`); a torch module, a NetRegressor, a
        scikit-learn regressor or Pipeline, or a pair of functions ``(predict, embed)`` of a trained model.
    quantile : ``"finite_sample"``: the ``ceil((m + 1) level)``-th smallest of m scores, +inf beyond the m-th.
        ``"percentile"``: numpy's plain percentile, without the guarantee.
    confidence_level : the level of :meth:`predict_interval` when it is given none.
    calib_size : share of the rows of :meth:`fit` set aside for calibration. None: all of them train, and
        :meth:`conformalize` is then required.
    prefit : the estimator is trained already and left untouched. Rows it was trained on must not calibrate:
        use ``calib_size=None`` and conformalize on rows it has not seen.
    y_range : known bounds of y, ``(lowest, highest)``, which clip the intervals; None for no bound.
    device, random_state : where to compute, and the seed of everything random.

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

    guarantee: ClassVar[str] = "marginal"
    post_hoc: ClassVar[bool] = True

    def __init__(
        self,
        estimator: Any = None,
        *,
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
        return AbsoluteResidual()


class ConformalRegressor(ConformalBase):
    """Split conformal prediction with a score of your choice.

    With ``"absolute"`` it is :class:`SplitConformalRegressor`, with ``"normalized"`` :class:`MADSplitRegressor`,
    and with :class:`lvd.scores.QuantileResidual` :class:`ConformalizedQuantileRegressor`; with a kernel the
    calibration rows are weighted by similarity, as in :class:`LVDRegressor`.

    Parameters
    ----------
    estimator, confidence_level, calib_size, prefit, y_range, device, random_state : as of :class:`LVDRegressor`.
    conformity_score : the name of a score, or a score of :mod:`lvd.scores`.
    kernel : a :class:`MahalanobisKernel` to fit, or None to give all rows the same weight.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    >>> reg = lvd.ConformalRegressor(conformity_score="signed", random_state=0).fit(X, X[:, 0] ** 2)
    >>> reg.predict_interval(X[:5])[1].shape
    (5, 2, 1)
    """

    guarantee: ClassVar[str] = "marginal"
    post_hoc: ClassVar[bool] = True

    def __init__(
        self,
        estimator: Any = None,
        conformity_score: str | ConformityScore = "absolute",
        kernel: MahalanobisKernel | None = None,
        *,
        confidence_level: Levels = 0.9,
        calib_size: float | None = 0.25,
        prefit: bool = False,
        y_range: tuple[float | None, float | None] | None = None,
        device: str = "auto",
        random_state: RandomState = None,
    ) -> None:
        keep(self, locals())

    def _check_parameters(self) -> None:
        as_score(self.conformity_score)

    def _conformity_score(self) -> ConformityScore:
        return as_score(self.conformity_score)

    def _kernel_template(self) -> MahalanobisKernel | None:
        return self.kernel

    def _calibrator(self, kernel: MahalanobisKernel | None) -> GlobalConformal | LocalConformal:
        return (
            GlobalConformal()
            if kernel is None
            else LocalConformal(kernel, confidence_level=self.confidence_level)
        )
