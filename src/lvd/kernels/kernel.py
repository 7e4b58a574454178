"""The contract of kernels: learned coordinates in which similarity is Gaussian."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any

from sklearn.base import BaseEstimator

from lvd._typing import ArrayLike, Float, NDArray


class Kernel(BaseEstimator, ABC):
    """``K(a, b) = exp(-||u(a) - u(b)||^2)``, with coordinates u learned from the training rows.

    The constructor stores settings and `fit` learns, as in scikit-learn. :func:`lvd.testing.check_kernel` tests a
    kernel of your own.

    Attributes
    ----------
    train_points_ : the coordinates (r, k) of the training rows, or of a sample of them; adaptive bandwidths and
        the kernel's own scale of the errors are learned from them.
    """

    train_points_: Float[NDArray, "r k"]
    device: str = "cpu"
    """Where coordinates are computed."""
    average: bool = False
    """Whether it is the mean of several learned kernels, in which fewer rows are near each other."""

    @property
    def is_fitted(self) -> bool:
        """Whether anything has been learned."""
        return any(name.endswith("_") for name in vars(self))

    @property
    def knows_training_rows(self) -> bool:
        """Whether it has the coordinates of training rows."""
        return "train_points_" in vars(self)

    @abstractmethod
    def fit(self, embeddings: ArrayLike, y: ArrayLike) -> Any:
        """Learn which rows are similar: those with similar `y`, which may be the sizes of errors."""

    @abstractmethod
    def coordinates(self, embeddings: ArrayLike) -> Any:
        """The rows' coordinates (n, k), float64; a row's coordinates must not depend on the rows beside it."""

    def frozen(self) -> Any:
        """The kernel as it is now, whatever becomes of this one: what a calibration keeps."""
        return copy.deepcopy(self)
