"""Local CQR: LVD's weights on CQR's score."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from lvd.methods.local import LocalRegressor
from lvd.scores import ConformityScore, QuantileResidual


@dataclass(eq=False, repr=False)
class LocalCQRRegressor(LocalRegressor):
    """Two quantiles of y, learned by a network, and moved by what similar calibration rows ask for.

    `confidence_level` and `estimator` are as in :class:`ConformalizedQuantileRegressor`; `kernel`, `bandwidth`,
    `calib_size`, `prefit`, `y_range`, `device` and `random_state` as in :class:`LVDRegressor`.

    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    >>> reg = lvd.LocalCQRRegressor(random_state=0).fit(X, X[:, 0])
    """

    guarantee: ClassVar[str] = "local"
    post_hoc: ClassVar[bool] = False
    nested: ClassVar[bool] = False

    _: KW_ONLY
    bandwidth: float | str = 1.0

    def _conformity_score(self) -> ConformityScore:
        return QuantileResidual()

    def _reach(self) -> tuple[float | str, float]:
        return self.bandwidth, 2.0
