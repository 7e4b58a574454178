"""Local CQR: LVD's weights on CQR's score."""

from __future__ import annotations

from typing import Any, ClassVar

from lvd._typing import Levels, RandomState
from lvd._validation import keep
from lvd.kernels import MahalanobisKernel
from lvd.methods.local import LocalRegressor
from lvd.scores import ConformityScore, QuantileResidual


class LocalCQRRegressor(LocalRegressor):
    """Two quantiles of y, learned by a network, and moved by what similar calibration rows ask for.

    `confidence_level` and `estimator` are as of :class:`ConformalizedQuantileRegressor`; `kernel`, `bandwidth`,
    `calib_size`, `prefit`, `y_range`, `device` and `random_state` as of :class:`LVDRegressor`.

    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    >>> reg = lvd.LocalCQRRegressor(random_state=0).fit(X, X[:, 0])
    """

    guarantee: ClassVar[str] = "local"
    post_hoc: ClassVar[bool] = False
    nested: ClassVar[bool] = False

    def __init__(self, estimator: Any = None, *, kernel: MahalanobisKernel | None = None,
                 bandwidth: float | str = 1.0, confidence_level: Levels = 0.9, calib_size: float | None = 0.25,
                 prefit: bool = False, y_range: tuple[float | None, float | None] | None = None,
                 device: str = "auto", random_state: RandomState = None) -> None:  # fmt: skip
        keep(self, locals())

    def _conformity_score(self) -> ConformityScore:
        return QuantileResidual()

    def _reach(self) -> tuple[float | str, float]:
        return self.bandwidth, 2.0
