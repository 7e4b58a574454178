"""Several graph networks that each predict mean and variance, in place of a stack of perceptrons."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import chunk_slices
from lvd._typing import ArrayLike, Float, NDArray
from lvd.models.losses import NormalLoss
from lvd.molecules.estimator import ChempropEstimator, epoch_bar
from lvd.molecules.network import EVALUATION_ROWS, run_all
from lvd.molecules.column import Molecules
from lvd.molecules.epochs import NetworkJob, train_networks
from lvd.models.scaling import mean_and_scale

Result = TypeVar("Result")


class MoleculeStack:
    """Networks with the settings of `estimator`, trained side by side, each from weights of its own.

    Each chooses its epoch by other rows that it does not learn from. All share one scale of the targets.
    """

    def __init__(self, estimator: ChempropEstimator, n_members: int) -> None:
        self.estimator = estimator
        self.n_members = n_members

    def check(self, X: ArrayLike) -> Molecules:
        """SMILES as graphs."""
        return self.estimator.check(X)

    def fit(self, X: Molecules, y: Float[NDArray, "n t"], *, seed: int) -> MoleculeStack:
        """Train new networks by the normal log-likelihood."""
        self.estimator.check_parameters()
        scaled = self.estimator.scale_target
        self.y_mean_, self.y_scale_ = (
            mean_and_scale(y) if scaled else (np.zeros(y.shape[1]), np.ones(y.shape[1]))
        )
        targets = self.scale_targets(y).numpy()
        seeds = np.random.SeedSequence(seed).generate_state(self.n_members).tolist()
        splits = [self.estimator.split(len(X), member) for member in seeds]
        jobs = [
            NetworkJob(targets, train, valid, NormalLoss(), scale_target=False, seed=member)
            for member, (train, valid) in zip(seeds, splits, strict=True)
        ]
        recipe = self.estimator.recipe(len(splits[0][0]))
        with epoch_bar(recipe.n_epochs, shown=self.estimator.progress) as on_epoch:
            self.networks_ = train_networks(X, jobs, recipe, device=self.estimator.device, on_epoch=on_epoch)
        return self

    def scale_targets(self, y: Float[NDArray, "n t"]) -> Float[Tensor, "n t"]:
        """Standardised targets, in float64 as the networks' outputs are."""
        return torch.as_tensor((y - self.y_mean_) / self.y_scale_)

    def map_outputs(self, function: Callable[[slice, Tensor], Result], X: Molecules) -> list[Result]:
        """``function(rows, outputs)`` for chunks of rows, with every member's outputs (m, rows, o) in float64."""
        modules = [network.module for network in self.networks_]
        return [
            function(rows, torch.stack([run_all(module, X[rows])[0].double().cpu() for module in modules]))
            for rows in chunk_slices(len(X), EVALUATION_ROWS)
        ]
