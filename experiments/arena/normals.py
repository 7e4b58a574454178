"""Deep ensembles and MC dropout with the arena's own network, which predicts a variance with each mean.

They share its widths, early stopping and ridge regression start; split conformal prediction on errors divided
by the predicted deviation follows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import count, pairwise
from typing import TypeAlias

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from experiments.arena.split import ArenaSplit
from lvd import NetRegressor
from lvd._typing import Float, NDArray

Moments: TypeAlias = Callable[[Float[NDArray, "n p"]], tuple[Float[NDArray, "n"], Float[NDArray, "n"]]]
"""From rows to means and standard deviations."""
N_MEMBERS = 5
"""As many members as in Lakshminarayanan et al. (2017)."""
N_PASSES = 100
RATES = (0.05, 0.1, 0.2)
WIDTHS, LEARNING_RATE, DECAY, BATCH, PATIENCE = (256, 64), 3e-3, 1e-2, 128, 15
LOG_SQUARE = -1.2704
"""The mean log of a squared standard normal variable."""
LEAST_SHARE = 1e-4


def normal_loss(outputs: Float[Tensor, "b 2"], y: Float[Tensor, "b"]) -> Float[Tensor, ""]:
    """The mean negative log-likelihood of normal distributions; the columns are means and log variances."""
    mean, log_variance = outputs.unbind(-1)
    return 0.5 * ((y - mean).square() * (-log_variance).exp() + log_variance).mean()


def ensemble_moments(split: ArenaSplit) -> Moments:
    """The mixture of five networks like the arena's, each predicting mean and variance.

    The variance starts from a ridge regression of the log squared out-of-fold errors, the mean from one of y.
    """
    y, squares = split.y_train, np.square(split.y_train - split.held_out)
    logs = np.log(squares + LEAST_SHARE * squares.mean()) - LOG_SQUARE
    spread, offset = logs.std(), logs.mean() - 2.0 * np.log(y.std())

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        mean, log_variance = outputs.unbind(-1)
        scaled = (log_variance * spread + offset).clamp(-20.0, 5.0)
        return normal_loss(torch.stack([mean, scaled], -1), targets[..., 0])

    members = [
        NetRegressor(loss=loss, device="cpu", random_state=N_MEMBERS * split.seed + member).fit(
            split.X_train, np.column_stack([y, logs])
        )
        for member in range(N_MEMBERS)
    ]

    def moments(X: Float[NDArray, "n p"]) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
        outputs = np.stack([member.predict(X) for member in members])
        means, log_variances = outputs[..., 0], outputs[..., 1]
        variances = np.exp(np.clip(log_variances, logs.min(), logs.max()))
        return means.mean(axis=0), np.sqrt(variances.mean(axis=0) + means.var(axis=0))

    return moments


def dropout_moments(split: ArenaSplit) -> Moments:
    """A network with the arena's widths and dropout after each layer: its passes form a mixture.

    It learns the residuals of a ridge regression and is stopped by the likelihood of an eighth of the rows,
    which also chooses the dropout rate.
    """
    scaler, y = StandardScaler().fit(split.X_train), split.y_train
    ridge = RidgeCV(np.logspace(-3, 4, 15)).fit(scaler.transform(split.X_train), y)
    unit = float(np.std(y - ridge.predict(scaler.transform(split.X_train))))

    def tensors(X: NDArray) -> Float[Tensor, "n p"]:
        return torch.as_tensor(scaler.transform(X).clip(-10.0, 10.0), dtype=torch.float32)

    left = torch.as_tensor((y - ridge.predict(scaler.transform(split.X_train))) / unit, dtype=torch.float32)
    tried = [_train(tensors(split.X_train), left, rate, split.seed) for rate in RATES]
    network = min(tried, key=lambda one: one[1])[0]

    def moments(X: Float[NDArray, "n p"]) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
        inputs = tensors(X)
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(split.seed)
            passes = torch.stack([network(inputs) for _ in range(N_PASSES)]).double().numpy()
        means, variances = passes[..., 0], np.exp(passes[..., 1].clip(-20.0, 5.0))
        deviation = unit * np.sqrt(variances.mean(axis=0) + means.var(axis=0))
        return ridge.predict(scaler.transform(X)) + unit * means.mean(axis=0), deviation

    return moments


def _train(
    inputs: Float[Tensor, "n p"], y: Float[Tensor, "n"], rate: float, seed: int
) -> tuple[nn.Module, float]:
    """The network in training mode, and its lowest held-out loss, with passes averaged as in prediction."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        order = torch.randperm(len(inputs))
        held, kept = order[: len(order) // 8], order[len(order) // 8 :]
        widths = [inputs.shape[1], *WIDTHS]
        hidden = [
            layer
            for before, after in pairwise(widths)
            for layer in (nn.Linear(before, after), nn.ReLU(), nn.Dropout(rate))
        ]
        last = nn.Linear(WIDTHS[-1], 2)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        network = nn.Sequential(*hidden, last)
        optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=DECAY)
        best, least, chosen = copy.deepcopy(network.state_dict()), torch.inf, 0
        for epoch in count():
            for rows in kept[torch.randperm(len(kept))].split(BATCH):
                optimizer.zero_grad()
                normal_loss(_limited(network(inputs[rows])), y[rows]).backward()
                optimizer.step()
            with torch.no_grad():
                passes = [normal_loss(_limited(network(inputs[held])), y[held]) for _ in range(5)]
                loss = float(torch.stack(passes).mean())
            if loss < least:
                best, least, chosen = copy.deepcopy(network.state_dict()), loss, epoch
            if epoch - chosen >= PATIENCE:
                network.load_state_dict(best)
                return network, least
    raise AssertionError("the loop ends by its return")


def _limited(outputs: Float[Tensor, "b 2"]) -> Float[Tensor, "b 2"]:
    return torch.stack([outputs[:, 0], outputs[:, 1].clamp(-20.0, 5.0)], -1)
