"""One split of one dataset, with the networks and kernels that its methods share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from lvd._typing import Float, Int, NDArray
from lvd.kernels import MahalanobisKernel
from lvd.kernels.regression import KernelRegressor
from lvd.models import NetRegressor
from lvd.reproduction.datasets import Dataset
from lvd.reproduction.protocols import Protocol
from lvd.reproduction.stages import Stages
from lvd.tables.splits import Parts, split_indices


class Split(ABC):
    """Training, calibration and test rows of one seed; what several methods need is made once.

    `X` holds the rows as the methods take them.
    """

    device = "auto"
    X: Any

    def __init__(self, y: Float[NDArray, "n"], protocol: Protocol, seed: int, parts: Parts) -> None:
        self.y, self.protocol, self.seed, self.stages = y, protocol, seed, Stages()
        self.train, self.calib, self.test = parts

    @property
    @abstractmethod
    def estimator(self) -> Any:
        """The base network, trained."""

    @property
    @abstractmethod
    def error_estimator(self) -> Any:
        """Two functions of a second network, which predicts the base network's absolute error."""

    @abstractmethod
    def quantile_estimator(self, level: float) -> tuple[Any, bool]:
        """CQR's network for one level, and whether it is trained already."""

    def kernel(self, *, smoothness: bool) -> MahalanobisKernel:
        """The kernel trained with the smoothness term, or without it."""
        template = self.protocol.kernel(self.seed, smoothness=smoothness, device=self.device)
        return self.stages.once(f"kernel {smoothness=}", lambda: self.kernel_regressor(template).kernels_[0])

    def kernel_regressor(self, kernel: MahalanobisKernel) -> KernelRegressor:
        """The kernel regression in the base network's embedding; a kernel that is not fitted yet is fitted."""
        regressor = KernelRegressor(
            self.estimator, kernel=kernel, prefit=True, device=self.device, random_state=self.seed
        )
        return regressor.fit(self.X[self.train], self.y[self.train, None])


class TableSplit(Split):
    """A split of a table of numbers, whose networks are trained here and now."""

    device = "cpu"

    def __init__(self, dataset: Dataset, protocol: Protocol, seed: int) -> None:
        parts = split_indices(len(dataset.y), seed, sizes=protocol.sizes)
        super().__init__(dataset.y, protocol, seed, parts)
        self.X = dataset.X

    @property
    def estimator(self) -> NetRegressor:
        """The base network."""
        return self.stages.once("base", lambda: self._fit_network(self.train, self.y[self.train]))

    @property
    def error_estimator(self) -> Any:
        """The second network, trained on the first one's errors on their common training rows."""
        network = self.stages.once("errors", lambda: self._fit_network(self.train, self._errors()))
        return network.predict, network.embed

    def quantile_estimator(self, level: float) -> tuple[NetRegressor, bool]:
        """A network that CQR trains."""
        return self.protocol.network(self.seed), False

    def _errors(self) -> Float[NDArray, "n"]:
        return np.abs(self.y[self.train] - self.estimator.evaluate(self.X[self.train]).y_pred[:, 0])

    def _fit_network(self, rows: Int[NDArray, "r"], target: Float[NDArray, "r"]) -> NetRegressor:
        return self.protocol.network(self.seed).fit(self.X[rows], target)
