"""Graph networks on molecules as a regressor, trained as chemprop trains them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lvd._parallel import chunk_slices
from lvd._progress import progress_bar
from lvd._typing import ArrayLike, Float, Int, NDArray, RandomState
from lvd._validation import (
    InputError,
    check_choice,
    check_fraction,
    check_positive,
    check_same_length,
    check_targets,
    row_digests,
    seed_from,
    to_numpy,
)
from lvd.models.losses import ElementLoss, NormalLoss, QuantilesLoss
from lvd.models.model import EvaluatingRegressor, Evaluation
from lvd.models.scaling import mean_and_scale
from lvd.molecules.epochs import NetworkJob, Recipe
from lvd.molecules.features import ATOM_FEATURIZERS, read_molecules
from lvd.molecules.network import EVALUATION_ROWS, MoleculeNetwork, run_all
from lvd.molecules.packed import Molecules
from lvd.molecules.run import train_networks

LEAST_EPOCHS, LEAST_BATCHES = 30, 1000


@dataclass(eq=False, repr=False, kw_only=True)
class ChempropEstimator(EvaluatingRegressor, BaseEstimator):
    """chemprop's message passing networks on SMILES, for one or many targets, with their last hidden layer.

    The prediction is the mean of a few networks with different initial weights, which learn quantiles of the
    targets: the median predicts, the outer ones give the size of errors below and above it. Networks, features
    and training follow chemprop 1 by default, as in the paper: directed bond messages of `depth` steps, mean
    aggregation, one hidden layer after it, all of `hidden_size` ReLU units; Adam, with a learning rate that
    rises over `warmup_epochs` and then decays exponentially; the epoch with the lowest validation error is
    kept. The paper's own network is ``ChempropEstimator(n_members=1, loss=SquaredLoss())``. Unknown targets are
    NaN and are ignored. On a GPU the order of summation over atoms is not fixed: two trainings, and the last
    digits of two predictions, may differ.

    Parameters
    ----------
    n_members : the number of networks; the first one provides the embedding, and is the same as if trained alone.
    hidden_size, depth : width of all layers, and steps of message passing.
    n_epochs : length of training; by default 30, and more for small tables, to reach 1000 batches.
    batch_size : the last batch of an epoch may be smaller.
    warmup_epochs, initial_rate, peak_rate, final_rate : the learning rate schedule.
    validation_size : share of rows that no network trains on; they choose the epoch, and if at least 1,000 of
        them have the target LVD's kernel learns from their errors.
    scale_target : standardise every target with the training rows' mean and standard deviation.
    loss : an object from ``lvd.models.losses``; :class:`lvd.models.losses.QuantilesLoss` by default.
    atom_featurizer : chemprop's atom features, ``"v1"`` (133 wide, chemprop 1), ``"v2"`` (72 wide, chemprop 2),
        ``"organic"`` or ``"rigr"``.
    cache_features, n_jobs : cache the features of large tables in lvd's cache folder; the number of processes
        that compute them, -1 for one per core.
    progress : show a progress bar while training, in a terminal only.
    device, random_state : where to train, and the seed for weights, batches and validation rows.

    Attributes
    ----------
    held_out_rows_ : indices of the rows whose molecules no network was trained on.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> smiles = ["C" * n + end for n in range(1, 16) for end in ("", "O", "N", "Cl")]
    >>> y = np.array([len(s) for s in smiles], dtype=float)
    >>> net = lvd.ChempropEstimator(hidden_size=16, n_epochs=3, device="cpu", random_state=0).fit(smiles, y)
    >>> net.predict(smiles[:5]).shape, net.embed(smiles[:5]).shape
    ((5,), (5, 16))
    """

    takes_missing_targets: ClassVar[bool] = True
    trained_once: ClassVar[bool] = True

    n_members: int = 5
    hidden_size: int = 300
    depth: int = 3
    n_epochs: int | None = None
    batch_size: int = 50
    warmup_epochs: float = 2.0
    initial_rate: float = 1e-4
    peak_rate: float = 1e-3
    final_rate: float = 1e-4
    validation_size: float = 0.1
    scale_target: bool = True
    loss: ElementLoss | None = None
    atom_featurizer: str = "v1"
    cache_features: bool = True
    n_jobs: int = -1
    progress: bool = True
    device: str = "auto"
    random_state: RandomState = None

    def check(self, X: ArrayLike) -> Molecules:
        """Convert SMILES, from a list, array or column, to graphs; an error names rows that RDKit cannot read."""
        return read_molecules(
            X, atom_featurizer=self.atom_featurizer, n_jobs=self.n_jobs, cache=self.cache_features
        )

    def same_case(self, X: Any) -> NDArray:
        """Labels by molecule: rows with the same molecule, however it is written, are one case."""
        return row_digests(X)

    def fit(self, X: ArrayLike, y: ArrayLike) -> ChempropEstimator:
        """Train new networks."""
        self.check_parameters()
        molecules, targets = self.check(X), check_targets(y, missing=True)
        check_same_length(X=molecules, y=targets)
        if len(molecules) < 2:
            raise InputError(
                f"fit needs at least 2 molecules, got {len(molecules)} sample(s): one to learn from, and one to "
                "choose the epoch by"
            )
        self.n_targets_, self._flat = targets.shape[1], to_numpy(y).ndim == 1
        seed = seed_from(self.random_state)
        seeds = [seed, *np.random.SeedSequence(seed).generate_state(self.n_members - 1).tolist()]
        loss = QuantilesLoss() if self.loss is None else self.loss
        train, valid = self.split(targets, seed)
        jobs = [NetworkJob(targets, train, valid, loss, self.scale_target, one) for one in seeds]
        self.networks_ = self.train(molecules, jobs)
        cases = self.same_case(molecules)
        self.held_out_rows_ = valid[~np.isin(cases[valid], cases[train])]
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """Predictions (n, t), embeddings and, with the default loss, the expected errors.

        For losses with other outputs, such as quantiles of one level, the outputs (n, o) unchanged.
        """
        check_is_fitted(self, "networks_")
        molecules = self.check(X)
        answers = [network.evaluate(molecules) for network in self.networks_]
        outputs = np.mean([answer.y_pred for answer in answers], axis=0)
        y_pred, spread = self.networks_[0].loss.read(outputs)
        return answers[0]._replace(y_pred=y_pred, spread=spread)

    @property
    def rows_held_out(self) -> Int[NDArray, "v"]:
        """Indices of rows whose molecules no network was trained on."""
        return self.held_out_rows_

    def lighter(self) -> ChempropEstimator:
        """An untrained estimator with a single network."""
        return clone(self).set_params(n_members=1)

    def with_loss(self, loss: ElementLoss) -> ChempropEstimator:
        """An untrained estimator with another loss."""
        return clone(self).set_params(loss=loss)

    def ensemble(self, n_members: int) -> MoleculeStack:
        """Untrained networks with these settings, for deep ensembles."""
        return MoleculeStack(self, n_members)

    def train(self, molecules: Molecules, jobs: list[NetworkJob]) -> list[MoleculeNetwork]:
        """Train the networks of several jobs, with a progress bar over epochs."""
        recipe = self.recipe(len(jobs[0].train))
        with progress_bar("training the graph networks", recipe.n_epochs, shown=self.progress) as advance:
            return train_networks(molecules, jobs, recipe, device=self.device, on_epoch=lambda *_: advance())

    def split(self, targets: Float[NDArray, "n t"], seed: int) -> tuple[Int[NDArray, "a"], Int[NDArray, "b"]]:
        """Row indices to train on, and to choose the epoch by.

        If only validation rows have a target, one of them is also trained on.
        """
        n_valid = max(1, round(self.validation_size * len(targets)))
        order, known = np.random.RandomState(seed).permutation(len(targets)), ~np.isnan(targets)
        train, valid = order[n_valid:], order[:n_valid]
        lacking = known[valid].any(axis=0) & ~known[train].any(axis=0)
        also = [valid[known[valid, target].argmax()] for target in np.flatnonzero(lacking)]
        return np.append(train, np.unique(also).astype(train.dtype)), valid

    def recipe(self, n_rows: int) -> Recipe:
        """The network and training settings for `n_rows` rows."""
        settings = {f.name: getattr(self, f.name) for f in fields(Recipe)}
        if self.n_epochs is None:
            settings["n_epochs"] = max(LEAST_EPOCHS, math.ceil(LEAST_BATCHES * self.batch_size / n_rows))
        return Recipe(**settings)

    def check_parameters(self) -> None:
        """Raise for parameters that cannot work."""
        self.recipe(n_rows=1).check()
        check_positive(self.n_members, "n_members", integer=True)
        check_choice(self.atom_featurizer, "atom_featurizer", ATOM_FEATURIZERS)
        if self.loss is not None and not isinstance(self.loss, ElementLoss):
            raise InputError(f"loss must be None or a loss of lvd.models.losses, got {self.loss!r}")
        check_fraction(self.validation_size, "validation_size")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        return tags


Result = TypeVar("Result")


class MoleculeStack:
    """Networks with the settings of `estimator`, trained together from different initial weights.

    Each chooses its epoch on its own held-out rows. All share one scale of the targets.
    """

    def __init__(self, estimator: ChempropEstimator, n_members: int) -> None:
        self.estimator = estimator
        self.n_members = n_members

    def check(self, X: ArrayLike) -> Molecules:
        """Convert SMILES to graphs."""
        return self.estimator.check(X)

    def fit(self, X: Molecules, y: Float[NDArray, "n t"], *, seed: int) -> MoleculeStack:
        """Train new networks with the normal log-likelihood."""
        self.estimator.check_parameters()
        self.y_mean_, self.y_scale_ = mean_and_scale(y, self.estimator.scale_target)
        targets = self.scale_targets(y).numpy()
        seeds = np.random.SeedSequence(seed).generate_state(self.n_members).tolist()
        splits = [self.estimator.split(targets, member) for member in seeds]
        jobs = [
            NetworkJob(targets, train, valid, NormalLoss(), scale_target=False, seed=member)
            for member, (train, valid) in zip(seeds, splits, strict=True)
        ]
        self.networks_ = self.estimator.train(X, jobs)
        return self

    def scale_targets(self, y: Float[NDArray, "n t"]) -> Float[Tensor, "n t"]:
        """Standardised targets, in float64 like the networks' outputs."""
        return torch.as_tensor((y - self.y_mean_) / self.y_scale_)

    def map_outputs(self, function: Callable[[slice, Tensor], Result], X: Molecules) -> list[Result]:
        """``function(rows, outputs)`` for each chunk of rows, with every member's outputs (m, rows, o) in
        float64."""
        modules = [network.module for network in self.networks_]
        return [
            function(rows, torch.stack([run_all(module, X[rows])[0].double().cpu() for module in modules]))
            for rows in chunk_slices(len(X), EVALUATION_ROWS)
        ]
