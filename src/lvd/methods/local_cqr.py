"""Local CQR: LVD's weights on CQR's score."""

from __future__ import annotations

from typing import Any, ClassVar

from lvd._typing import Levels, RandomState
from lvd.conformal import LocalConformal
from lvd.kernels import MahalanobisKernel
from lvd.methods.base import keep
from lvd.methods.local import LocalRegressor
from lvd.scores import ConformityScore, QuantileResidual


class LocalCQRRegressor(LocalRegressor):
    """Predicted quantiles, moved by what the calibration rows like each row ask for; parameters as of LVDRegressor."""

    guarantee: ClassVar[str] = "local"
    post_hoc: ClassVar[bool] = False
    nested: ClassVar[bool] = False

    def __init__(self, estimator: Any = None, *, kernel: MahalanobisKernel | None = None,
                 bandwidth: float | str = 1.0, confidence_level: Levels = 0.9, calib_size: float | None = 0.25,
                 prefit: bool = False, y_range: tuple[float | None, float | None] | None = None,
                 device: str = "auto", random_state: RandomState = None) -> None:  # fmt: skip
        keep(self, locals())

    def _check_parameters(self) -> None:
        self._calibrator(self._kernel_template())._check_parameters()

    def _conformity_score(self) -> ConformityScore:
        return QuantileResidual()

    def _kernel_template(self) -> MahalanobisKernel:
        return self.kernel or MahalanobisKernel(device=self.device)

    def _calibrator(self, kernel: MahalanobisKernel) -> LocalConformal:
        return LocalConformal(kernel, bandwidth=self.bandwidth, confidence_level=self.confidence_level)
