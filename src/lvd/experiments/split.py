"""One split of one dataset, with the networks and kernels that its methods share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lvd._typing import Float, NDArray
from lvd.conformal import AbsoluteResidual, LocalConformal, NormalizedResidual
from lvd.data import Dataset, split_indices
from lvd.experiments.protocols import Protocol
from lvd.kernels import MahalanobisKernel
from lvd.nets import Evaluation, NetRegressor


@dataclass(frozen=True)
class Parts:
    """Something for each of the three parts of a split."""

    train: Evaluation
    calib: Evaluation
    test: Evaluation


class Split:
    """Training, calibration and test rows of one seed; what several methods need is computed once."""

    def __init__(self, dataset: Dataset, protocol: Protocol, seed: int) -> None:
        self.protocol, self.seed = protocol, seed
        self.X, self.y = dataset.X, dataset.y
        self.train, self.calib, self.test = split_indices(len(self.y), seed, sizes=protocol.sizes)

    @cached_property
    def network(self) -> NetRegressor:
        """The base network, trained."""
        return self.protocol.network(self.seed).fit(self.X[self.train], self.y[self.train])

    @cached_property
    def base(self) -> Parts:
        """The base network's predictions and embeddings."""
        return self._evaluate(self.network)

    @cached_property
    def errors(self) -> Parts:
        """The second network's predictions of the base network's absolute error."""
        error = np.abs(self.y[self.train] - self.base.train.y_pred[:, 0])
        return self._evaluate(self.protocol.network(self.seed).fit(self.X[self.train], error))

    @cached_property
    def smooth_kernel(self) -> MahalanobisKernel:
        """The kernel trained with the smoothness term."""
        return self._kernel(smoothness=True)

    @cached_property
    def plain_kernel(self) -> MahalanobisKernel:
        """The kernel trained without it."""
        return self._kernel(smoothness=False)

    def absolute(
        self, predictor: str, kernel: MahalanobisKernel
    ) -> tuple[AbsoluteResidual, AbsoluteResidual]:
        """The absolute score on calibration and test rows, around the network or the kernel regression."""
        if predictor == "NN":
            return AbsoluteResidual(self.base.calib.y_pred[:, 0]), AbsoluteResidual(
                self.base.test.y_pred[:, 0]
            )
        return (
            AbsoluteResidual(kernel.predict(self.base.calib.embeddings)),
            AbsoluteResidual(kernel.predict(self.base.test.embeddings)),
        )

    def normalized(
        self, calib: AbsoluteResidual, test: AbsoluteResidual
    ) -> tuple[NormalizedResidual, NormalizedResidual]:
        """The same scores divided by the second network's prediction."""
        return (
            NormalizedResidual(calib.y_pred, self.errors.calib.y_pred[:, 0]),
            NormalizedResidual(test.y_pred, self.errors.test.y_pred[:, 0]),
        )

    def local_radius(
        self, kernel: MahalanobisKernel, scores: Float[NDArray, "m"], levels: Float[NDArray, "l"]
    ) -> Float[NDArray, "n l"]:
        """Local radii of the test rows from the scores of the calibration rows."""
        conformal = LocalConformal(kernel).conformalize(self.base.calib.embeddings, scores)
        return conformal.radius(self.base.test.embeddings, levels)

    def _kernel(self, *, smoothness: bool) -> MahalanobisKernel:
        kernel = self.protocol.kernel(self.seed, smoothness=smoothness)
        return kernel.fit(self.base.train.embeddings, self.y[self.train])

    def _evaluate(self, network: NetRegressor) -> Parts:
        return Parts(*(network.evaluate(self.X[rows]) for rows in (self.train, self.calib, self.test)))
