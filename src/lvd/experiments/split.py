"""One split of one dataset, with the networks and kernels that its methods share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from lvd._typing import Float, NDArray
from lvd._validation import to_numpy
from lvd.conformal import AbsoluteResidual, LocalConformal, NormalizedResidual
from lvd.data import Dataset, split_indices
from lvd.experiments.protocols import Protocol
from lvd.experiments.stages import Stages
from lvd.kernels import MahalanobisKernel
from lvd.nets import Evaluation


@dataclass(frozen=True)
class Parts:
    """Something for each of the three parts of a split."""

    train: Evaluation
    calib: Evaluation
    test: Evaluation


class Split(ABC):
    """Training, calibration and test rows of one seed; what several methods need is computed once."""

    device = "auto"

    def __init__(self, y: Float[NDArray, "n"], protocol: Protocol, seed: int) -> None:
        self.y, self.protocol, self.seed, self.stages = y, protocol, seed, Stages()
        self.train, self.calib, self.test = split_indices(len(y), seed, sizes=protocol.sizes)

    @property
    @abstractmethod
    def base(self) -> Parts:
        """The base network's predictions and embeddings."""

    @property
    @abstractmethod
    def errors(self) -> Parts:
        """The second network's predictions of the base network's absolute error."""

    def kernel(self, *, smoothness: bool) -> MahalanobisKernel:
        """The kernel trained with the smoothness term, or without it."""
        return self.stages.once(
            f"kernel {smoothness=}",
            lambda: self.protocol.kernel(self.seed, smoothness=smoothness, device=self.device).fit(
                self.base.train.embeddings, self.y[self.train]
            ),
        )

    def absolute(self, kernel: MahalanobisKernel | None = None) -> tuple[AbsoluteResidual, AbsoluteResidual]:
        """The absolute score on calibration and test rows, around the network or the kernel regression."""
        if kernel is None:
            return (
                AbsoluteResidual(self.base.calib.y_pred[:, 0]),
                AbsoluteResidual(self.base.test.y_pred[:, 0]),
            )
        return (
            AbsoluteResidual(to_numpy(kernel.predict(self.base.calib.embeddings))),
            AbsoluteResidual(to_numpy(kernel.predict(self.base.test.embeddings))),
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
        return to_numpy(conformal.radius(self.base.test.embeddings, levels))


class TableSplit(Split):
    """A split of a table of numbers, whose networks are trained here and now."""

    device = "cpu"

    def __init__(self, dataset: Dataset, protocol: Protocol, seed: int) -> None:
        super().__init__(dataset.y, protocol, seed)
        self.X = dataset.X

    @property
    def base(self) -> Parts:
        """The base network's predictions and embeddings."""
        return self.stages.once("base", lambda: self._train_and_evaluate(self.y[self.train]))

    @property
    def errors(self) -> Parts:
        """The second network's predictions of the base network's absolute error."""
        return self.stages.once(
            "errors",
            lambda: self._train_and_evaluate(np.abs(self.y[self.train] - self.base.train.y_pred[:, 0])),
        )

    def _train_and_evaluate(self, target: Float[NDArray, "n"]) -> Parts:
        network = self.protocol.network(self.seed).fit(self.X[self.train], target)
        return Parts(*(network.evaluate(self.X[rows]) for rows in (self.train, self.calib, self.test)))
