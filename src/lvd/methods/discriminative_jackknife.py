"""The Discriminative Jackknife (Alaa & van der Schaar 2020)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from lvd._parallel import few_threads, map_queries
from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import InputError, check_positive
from lvd.engine import jackknife_plus_intervals
from lvd.methods.base import IntervalRegressor, refuse_choices
from lvd.models import Model, NetRegressor
from lvd.models.influence import (
    flatten_module,
    leave_one_out_parameters,
    memory_needed,
    outputs_of_all_rows,
    outputs_of_own_row,
)
from lvd.models.model import Fitted
from lvd.wrap import as_model

PREDICTIONS_AT_ONCE = 2**20


@dataclass(eq=False, repr=False)
class DiscriminativeJackknifeRegressor(IntervalRegressor):
    """Jackknife+ intervals from a network trained once: influence functions approximate leaving each row out.

    The leave-one-out parameters follow from the row's gradient and Hessian and the inverse of the mean loss's
    Hessian, all computed exactly. The guarantee of Jackknife+ is lost: it holds for models truly retrained
    without the row, and these are expansions around a point that is rarely a minimum. Memory grows with
    parameters x (parameters + rows), so use small networks.

    Parameters
    ----------
    estimator : the network. None builds a small MLP, trained as in the paper; a torch module or a NetRegressor.
    order : terms of the expansion, 1 or 2. The second approximates leave-one-out better if training has reached
        a minimum; otherwise it can diverge in directions of low curvature.
    damping : added to the Hessian's diagonal. If too small, flat directions of the loss dominate; if too large,
        leaving a row out has almost no effect. A network's weight decay belongs here too.
    max_memory_gb : raise an error before training if more memory than this would be needed.
    prefit : the estimator is already trained, with the mean squared error or its NetRegressor's loss, on the
        rows passed to :meth:`fit`; it is not modified.
    confidence_level, y_range, device, random_state : as in :class:`LVDRegressor`.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(100, 2))
    >>> net = lvd.NetRegressor(hidden_sizes=(10,), n_batches=200)
    >>> reg = lvd.DiscriminativeJackknifeRegressor(net, random_state=0).fit(X, X[:, 0] ** 2)
    >>> reg.predict_interval(X[:5], [0.5, 0.9])[1].shape
    (5, 2, 2)
    """

    guarantee: ClassVar[str] = "none"
    post_hoc: ClassVar[bool] = True

    estimator: Any = None
    _: KW_ONLY
    order: int = 1
    damping: float = 1e-4
    max_memory_gb: float = 8.0
    prefit: bool = False
    device: str = "auto"

    def fit(self, X: ArrayLike, y: ArrayLike) -> DiscriminativeJackknifeRegressor:
        """Train on all rows, then compute the leave-one-out parameters."""
        inputs, targets, _ = self._begin(X, y)
        network = self._network()
        self._check_memory(
            _count_parameters(network, len(inputs), inputs.shape[1], targets.shape[1]), len(targets)
        )
        with few_threads(inputs):
            self.model_.fit(inputs, targets)
        run, parameters = flatten_module(network.module_, targets.shape[1])
        rows = self._scaled(inputs, parameters)
        scaled = torch.as_tensor((targets - network.y_mean_) / network.y_scale_, device=parameters.device)
        self.leave_one_out_parameters_ = leave_one_out_parameters(
            run,
            parameters,
            rows,
            scaled,
            loss=network.loss or mse_loss,
            order=self.order,
            damping=self.damping,
        )
        errors = scaled - outputs_of_own_row(run, self.leave_one_out_parameters_, rows)
        self.residuals_ = errors.abs().cpu().numpy() * network.y_scale_
        return self

    def _new_model(self, seed: int) -> Model:
        estimator = "paper" if self.estimator is None and not self.prefit else self.estimator
        return as_model(estimator, prefit=self.prefit, device=self.device, random_state=seed)

    def _check_parameters(self) -> None:
        if self.order not in (1, 2):
            raise InputError(f"order must be 1 or 2, got {self.order!r}")
        if not self.damping >= 0.0:
            raise InputError(f"damping must be 0 or more, got {self.damping!r}; 1e-4 is usual")
        check_positive(self.max_memory_gb, "max_memory_gb")

    def _check_memory(self, n_parameters: int, n_rows: int) -> None:
        needed = memory_needed(n_parameters, n_rows) / 1e9
        if needed > self.max_memory_gb:
            raise InputError(
                f"{n_parameters:,} parameters and {n_rows:,} rows need about {needed:.3g} GB of memory, but "
                f"max_memory_gb={self.max_memory_gb:g}; use a smaller network, fewer rows, a higher limit, or "
                "JackknifePlusRegressor(cv=10)"
            )

    def _network(self) -> NetRegressor:
        network = self.model_.model if isinstance(self.model_, Fitted) else self.model_
        if not isinstance(network, NetRegressor):
            raise InputError(
                "estimator must be None, a torch module or a NetRegressor, as its gradients are needed, got "
                f"{type(self.estimator).__name__}; use JackknifePlusRegressor instead"
            )
        return network

    def _predict_interval(
        self, X: Any, levels: Float[NDArray, "l"], **choices: Any
    ) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 l t"]]:
        refuse_choices(self, choices)

        def intervals(rows: slice) -> Float[NDArray, "n 2 l t"]:
            network = self._network()
            run, parameters = flatten_module(network.module_, self.residuals_.shape[1])
            scaled = self._scaled(X[rows], parameters)
            outputs = outputs_of_all_rows(run, self.leave_one_out_parameters_, scaled)
            predictions = outputs.cpu().numpy() * network.y_scale_ + network.y_mean_
            return jackknife_plus_intervals(predictions, self.residuals_, levels)

        chunks = map_queries(intervals, len(X), len(self.residuals_), PREDICTIONS_AT_ONCE)
        return self._predict(X), np.concatenate(chunks)

    def _scaled(self, X: NDArray, like: Tensor) -> Tensor:
        network = self._network()
        return torch.as_tensor(network.standardised(X), dtype=like.dtype, device=like.device)


def _count_parameters(network: NetRegressor, n_rows: int, n_inputs: int, n_targets: int) -> int:
    """Count the trainable parameters before training."""
    if network.module is not None:
        return sum(p.numel() for p in network.module.parameters() if p.requires_grad)
    sizes = [n_inputs, *network.sizes(n_targets, n_rows), n_targets]
    return sum((n_in + 1) * n_out for n_in, n_out in pairwise(sizes))
