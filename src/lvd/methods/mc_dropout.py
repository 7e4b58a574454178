"""MC dropout (Gal & Ghahramani 2016)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lvd._typing import Float, NDArray
from lvd._validation import InputError, check_fraction, check_positive, resolve_device
from lvd.methods.mixture import (
    NormalRegressor,
    check_training,
    mixture_log_densities,
    mixture_mean_and_deviation,
)
from lvd.models.dropout import dropout_loss, pass_log_density, pass_log_likelihood, thin, weight_decay
from lvd.models.stack import NetStack, map_outputs
from lvd.models.torch_modules import Parameters

VALIDATION_PASSES = 100
LEAST_EPOCHS = 40
LEAST_BATCHES = 1000


@dataclass(eq=False, repr=False)
class MCDropoutRegressor(NormalRegressor):
    """A network with dropout before every layer, also at prediction time: its passes form a mixture.

    The dropout rate and the model precision tau are chosen by held-out log-likelihood, training all pairs as
    one stack of networks; one network with the best pair is then trained on all rows. The variance of a
    prediction is that of the passes plus ``1 / tau``. Coverage is not guaranteed.

    Parameters
    ----------
    hidden_sizes : widths of the ReLU layers.
    dropout_rates, precisions : candidate rates, and candidate precisions tau of the standardised target; one of
        each skips the choice.
    validation_size : share of rows held out for the choice.
    length_scale : the prior length scale l in the weight decay ``l^2 (1 - p) / (2 N tau)``.
    n_passes : number of passes per prediction.
    epochs : length of training; by default 40, but at least 1000 batches.
    batch_size, learning_rate : of Adam.
    confidence_level, y_range, device, random_state : as in :class:`LVDRegressor`.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(200, 2))
    >>> reg = lvd.MCDropoutRegressor(epochs=10, random_state=0).fit(X, X[:, 0])
    >>> reg.predict_interval(X[:5], [0.5, 0.9])[1].shape
    (5, 2, 2)
    """

    _: KW_ONLY
    hidden_sizes: Sequence[int] = (100,)
    dropout_rates: float | Sequence[float] = (0.005, 0.01, 0.05, 0.1)
    precisions: float | Sequence[float] = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
    validation_size: float = 0.2
    length_scale: float = 1e-2
    n_passes: int = 1000
    epochs: int | None = None
    batch_size: int = 128
    learning_rate: float = 3e-3
    device: str = "auto"

    def _check_parameters(self) -> None:
        check_training(self.hidden_sizes, self.epochs, self.batch_size, self.learning_rate)
        rates, precisions = np.atleast_1d(self.dropout_rates), np.atleast_1d(self.precisions)
        if rates.size == 0 or not ((rates >= 0.0) & (rates < 1.0)).all():
            raise InputError(
                f"dropout_rates must be one or more numbers in [0, 1), got {self.dropout_rates!r}; "
                "0.05 and 0.1 are usual"
            )
        if precisions.size == 0 or not (precisions > 0.0).all():
            raise InputError(
                f"precisions must be one or more positive numbers, got {self.precisions!r}; "
                "1 means no better than the mean of y"
            )
        check_fraction(self.validation_size, "validation_size")
        check_positive(self.length_scale, "length_scale")
        check_positive(self.n_passes, "n_passes", integer=True)

    def _new_model(self, seed: int) -> NetStack:
        return NetStack(1, self.hidden_sizes, device=self.device)

    def _train(self, X: Float[NDArray, "n p"], y: Float[NDArray, "n t"], seed: int) -> None:
        choosing, training, self.mask_seed_ = map(int, np.random.SeedSequence(seed).generate_state(3))
        pairs = list(
            product(np.atleast_1d(self.dropout_rates).tolist(), np.atleast_1d(self.precisions).tolist())
        )
        best = self._validate(X, y, pairs, choosing).argmax() if len(pairs) > 1 else 0
        self.dropout_, self.tau_ = pairs[best]
        self._fit_stack(self.model_, X, y, [pairs[best]], training)

    def _validate(
        self, X: Float[NDArray, "n p"], y: Float[NDArray, "n t"], pairs: list[tuple[float, float]], seed: int
    ) -> Float[NDArray, "g"]:
        """The held-out mean log-likelihood of each pair, trained together as one stack."""
        order = np.random.default_rng(seed).permutation(len(X))
        n_held = min(max(1, round(self.validation_size * len(X))), len(X) - 1)
        held, kept = order[:n_held], order[n_held:]
        stack = NetStack(len(pairs), self.hidden_sizes, device=self.device)
        self._fit_stack(stack, X[kept], y[kept], pairs, seed)
        inputs, targets = stack.scale_inputs(X[held]), stack.scale_targets(y[held])
        likelihoods = []
        for member, (dropout, tau) in enumerate(pairs):
            generator = torch.Generator().manual_seed(seed)
            passes = thin(stack.member(member), dropout, VALIDATION_PASSES, generator)
            likelihoods.append(float(pass_log_likelihood(passes, inputs, targets, tau).mean()))
        return np.array(likelihoods)

    def _fit_stack(
        self,
        stack: NetStack,
        X: Float[NDArray, "n p"],
        y: Float[NDArray, "n t"],
        pairs: list[tuple[float, float]],
        seed: int,
    ) -> None:
        stack_seed, mask_seed = map(int, np.random.SeedSequence(seed).generate_state(2))
        dropout, tau = torch.tensor(pairs, device=resolve_device(self.device)).T
        objective = partial(
            dropout_loss,
            dropout=dropout,
            decay=weight_decay(dropout, tau, length_scale=self.length_scale, n_rows=len(X)),
            generator=torch.Generator().manual_seed(mask_seed),
        )
        enough = max(LEAST_EPOCHS, math.ceil(LEAST_BATCHES / math.ceil(len(X) / self.batch_size)))
        stack.fit(
            X,
            y,
            objective,
            epochs=enough if self.epochs is None else self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=stack_seed,
        )

    def _mean_and_deviation(self, X: Any) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n t"]]:
        def moments(passes: Float[Tensor, "k n t"]) -> tuple[Float[Tensor, "n t"], Float[Tensor, "n t"]]:
            return passes.mean(0), passes.var(0, correction=0) + 1.0 / self.tau_

        return mixture_mean_and_deviation(self.model_, self._map_passes, X, moments)

    def _log_densities(self, X: Any, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        def log_density(y: Float[Tensor, "n t"], passes: Float[Tensor, "k n t"]) -> Float[Tensor, "n t"]:
            return pass_log_density(y, passes, self.tau_)

        return mixture_log_densities(self.model_, self._map_passes, X, y, log_density)

    def _map_passes(self, function: Callable[[slice, Tensor], Any], X: Float[NDArray, "n p"]) -> list[Any]:
        """Return ``function(rows, outputs)`` for each chunk of rows, with the outputs of all passes."""
        return map_outputs(function, self._passes(), self.model_.scale_inputs(X))

    def _passes(self) -> Parameters:
        """The network with the dropout masks of each pass."""
        generator = torch.Generator().manual_seed(self.mask_seed_)
        return thin(self.model_.parameters_, self.dropout_, self.n_passes, generator)
