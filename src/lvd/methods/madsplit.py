"""MADSplit: split conformal prediction on errors divided by a second model's prediction of them."""

from __future__ import annotations

from typing import Any, ClassVar

from lvd._typing import Levels, RandomState
from lvd._validation import keep
from lvd.methods.split import EqualWeights
from lvd.scores import ConformityScore, NormalizedResidual


class MADSplitRegressor(EqualWeights):
    """Intervals in proportion to the error that a second model expects (locally weighted, Lei et al. 2018).

    The score is ``|y - y_pred| / (1e-5 + |error_pred|)``, the width that of the score's quantile times
    ``1e-5 + |error_pred|``.

    Parameters
    ----------
    error_estimator : the second model, fitted to the first one's absolute errors; by default one like the
        first, or, on a prefit estimator, the built-in MLP on the embeddings.
    errors : which errors it learns: ``"held_out"`` or ``"in_sample"``, as of
        :class:`lvd.scores.NormalizedResidual`.
    estimator, quantile, confidence_level, calib_size, prefit, y_range, device, random_state : as of
        :class:`SplitConformalRegressor`; with `prefit`, :meth:`fit` trains the second model only.

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

    guarantee: ClassVar[str] = "marginal"
    post_hoc: ClassVar[bool] = True

    def __init__(
        self,
        estimator: Any = None,
        *,
        error_estimator: Any = None,
        errors: str = "held_out",
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
        return NormalizedResidual(self.error_estimator, self.errors)
