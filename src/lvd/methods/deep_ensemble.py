"""Deep ensembles (Lakshminarayanan, Pritzel & Blundell 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from lvd._typing import Float, NDArray
from lvd._validation import InputError, check_positive, resolve_device
from lvd.methods.mixture import (
    NormalRegressor,
    check_training,
    mixture_log_densities,
    mixture_mean_and_deviation,
)
from lvd.models.heads import adversarial_loss, gaussian_log_density, mean_and_variance, mixture_moments
from lvd.models.scaling import mean_and_scale
from lvd.models.stack import NetStack


@runtime_checkable
class TrainsEnsembles(Protocol):
    """An estimator whose networks can be trained as a deep ensemble."""

    def ensemble(self, n_members: int) -> Any:
        """Return the untrained ensemble."""
        ...


@dataclass(eq=False, repr=False)
class DeepEnsembleRegressor(NormalRegressor):
    """Networks that predict mean and variance, each trained on all rows from its own initial weights.

    The loss is the normal log-likelihood of the rows and of their adversarial examples. Together they are a
    mixture of normals; the intervals are those of the normal with its mean and variance. Coverage is not
    guaranteed. All networks are trained in one batch.

    Parameters
    ----------
    estimator : None builds perceptrons. An estimator with a method ``ensemble(n_members)`` builds and trains
        the networks itself: its settings replace those below, there are no adversarial examples, and each
        network picks its epoch on its own held-out rows.
    n_members : number of networks.
    hidden_sizes : widths of the ReLU layers.
    epochs : passes over the rows. Below a few hundred rows, far more than the paper's 40 epochs overfits.
    batch_size, learning_rate : of Adam.
    adversarial_step : distance of an adversarial example from its row, as a share of each input's range.
    confidence_level, y_range, device, random_state : as in :class:`LVDRegressor`.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(200, 2))
    >>> reg = lvd.DeepEnsembleRegressor(epochs=10, random_state=0).fit(X, X[:, 0])
    >>> reg.predict_interval(X[:5], [0.5, 0.9])[1].shape
    (5, 2, 2)
    """

    estimator: Any = None
    _: KW_ONLY
    n_members: int = 5
    hidden_sizes: Sequence[int] = (100,)
    epochs: int = 40
    batch_size: int = 100
    learning_rate: float = 1e-2
    adversarial_step: float = 0.01
    device: str = "auto"

    def _check_parameters(self) -> None:
        check_training(self.hidden_sizes, self.epochs, self.batch_size, self.learning_rate)
        check_positive(self.n_members, "n_members", integer=True)
        if self.estimator is not None and not isinstance(self.estimator, TrainsEnsembles):
            raise InputError(
                "estimator must be None, for perceptrons, or have a method ensemble(n_members), as lvd's graph "
                f"networks have, got {type(self.estimator).__name__}; other models cannot learn a variance"
            )
        if not (isinstance(self.adversarial_step, int | float) and self.adversarial_step >= 0.0):
            raise InputError(
                "adversarial_step must be a share of each input's range, 0 or more, "
                f"got {self.adversarial_step!r}; 0.01 is usual"
            )

    def _new_model(self, seed: int) -> Any:
        if self.estimator is not None:
            return clone(self.estimator).ensemble(self.n_members)
        return NetStack(self.n_members, self.hidden_sizes, outputs_per_target=2, device=self.device)

    def _train(self, X: Any, y: Float[NDArray, "n t"], seed: int) -> None:
        if self.estimator is not None:
            self.model_.fit(X, y, seed=seed)
            return
        step = torch.as_tensor(
            self.adversarial_step * np.ptp(X, axis=0) / mean_and_scale(X)[1],
            dtype=torch.float32,
            device=resolve_device(self.device),
        )
        self.model_.fit(
            X,
            y,
            partial(adversarial_loss, step=step),
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=seed,
        )

    def _mean_and_deviation(self, X: Any) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n t"]]:
        return mixture_mean_and_deviation(self.model_, self.model_.map_outputs, X, ensemble_moments)

    def _log_densities(self, X: Any, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        def log_density(y: Float[Tensor, "n t"], outputs: Float[Tensor, "m n o"]) -> Float[Tensor, "n t"]:
            return gaussian_log_density(y, *ensemble_moments(outputs))

        return mixture_log_densities(self.model_, self.model_.map_outputs, X, y, log_density)


def ensemble_moments(
    outputs: Float[Tensor, "m n o"],
) -> tuple[Float[Tensor, "n t"], Float[Tensor, "n t"]]:
    """Mean and variance of the mixture of the members' normal distributions (section 2.4 of the paper)."""
    return mixture_moments(*mean_and_variance(outputs))
