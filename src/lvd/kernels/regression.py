"""Kernel regression on a model's embeddings as a model: the paper's LVD-KR variants."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import keep, seed_from
from lvd.kernels.mahalanobis import MahalanobisKernel
from lvd.models import Evaluation, Model
from lvd.wrap import as_model, seeded_clone


class KernelRegressor(Model, BaseEstimator):
    """Predicts by kernel regression over the training rows, in the embedding of another model.

    Parameters
    ----------
    estimator : the model that embeds, as of :class:`LVDRegressor`.
    kernel : a :class:`MahalanobisKernel` with your settings; a fitted one is used as it is.
    prefit : the estimator is already trained and left untouched.
    device, random_state : where to compute, and the seed of everything random.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    >>> reg = lvd.LVDRegressor(lvd.KernelRegressor(), random_state=0).fit(X, X[:, 0])
    >>> reg.predict(X[:5]).shape
    (5,)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        kernel: MahalanobisKernel | None = None,
        prefit: bool = False,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        keep(self, locals())

    def check(self, X: ArrayLike) -> Any:
        """The rows as the embedding model's inputs."""
        if not hasattr(self, "model_"):
            self.model_ = self._new_model()
        return self.model_.check(X)

    def same_case(self, X: Any) -> NDArray:
        """The embedding model's labels of cases."""
        return self.model_.same_case(X)

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> KernelRegressor:
        """Train the embedding model and a kernel for each target."""
        self.model_ = self._new_model()
        self.model_.fit(self.model_.check(X), y)
        if self.kernel is not None and self.kernel.is_fitted and y.shape[1] == 1:
            self.kernels_ = [self.kernel.frozen()]
            return self
        template, embeddings = (
            self.kernel or MahalanobisKernel(device=self.device),
            self.model_.evaluate(X).embeddings,
        )
        seed = seed_from(self.random_state)
        self.kernels_ = [seeded_clone(template, seed).fit(embeddings, column) for column in y.T]
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """Kernel regressions, and the model's embeddings."""
        embeddings = self.model_.evaluate(X).embeddings
        columns = [kernel.predict(embeddings) for kernel in self.kernels_]
        return Evaluation(np.stack(columns, axis=1), embeddings)

    def _new_model(self) -> Any:
        return as_model(
            self.estimator, prefit=self.prefit, device=self.device, random_state=seed_from(self.random_state)
        )
