"""Training data and schedule: rows, batches, learning rates."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError, check_positive
from lvd.models.losses import ElementLoss, SquaredLoss
from lvd.models.scaling import refuse_unknown


def inner_split(
    n_rows: int, seed: int = 0, shares: tuple[float, float] = (0.8, 0.1)
) -> tuple[Int[NDArray, "a"], Int[NDArray, "b"], Int[NDArray, "c"]]:
    """Indices to train on, to choose the epoch by, and to leave out, as chemprop 1 splits at random."""
    order = np.random.RandomState(seed).permutation(n_rows)
    first, second = int(shares[0] * n_rows), int((shares[0] + shares[1]) * n_rows)
    return order[:first], order[first:second], order[second:]


def batch_orders(
    rows: Int[NDArray, "n"], n_epochs: int, batch_size: int, seed: int, *, filler: int
) -> Int[NDArray, "steps b"]:
    """The rows of every step: each epoch sees all rows once, with its last batch padded by `filler`."""
    rng = np.random.RandomState(seed)
    n_filled = -len(rows) % batch_size
    epochs = [np.append(rng.permutation(rows), np.full(n_filled, filler)) for _ in range(n_epochs)]
    return np.concatenate(epochs).reshape(-1, batch_size)


def learning_rates(
    n_steps: int, n_warmup: int, *, initial: float, peak: float, final: float
) -> Float[NDArray, "steps"]:
    """Linear from `initial` to `peak` in `n_warmup` steps, then exponential to `final` (chemprop 1's NoamLR)."""
    step = np.arange(1, n_steps + 1)
    rising = initial + (peak - initial) * step / max(n_warmup, 1)
    falling = peak * (final / peak) ** ((step - n_warmup) / max(n_steps - n_warmup, 1))
    return np.where(step <= n_warmup, rising, falling)


def batch_capacity(sizes: Int[NDArray, "n 2"], orders: Int[NDArray, "steps b"]) -> tuple[int, int]:
    """The number of atoms and bonds in the largest batch, plus one dummy of each."""
    largest = sizes[orders].sum(axis=1).max(axis=0) + 1
    return int(largest[0]), int(largest[1])


@dataclass(frozen=True)
class Recipe:
    """Architecture and training of a network; defaults follow chemprop 1 and the paper."""

    hidden_size: int = 300
    depth: int = 3
    n_epochs: int = 30
    batch_size: int = 50
    warmup_epochs: float = 2.0
    initial_rate: float = 1e-4
    peak_rate: float = 1e-3
    final_rate: float = 1e-4

    def check(self) -> None:
        """Raise for settings that cannot work."""
        for name in ("hidden_size", "depth", "n_epochs", "batch_size"):
            check_positive(getattr(self, name), name, integer=True)
        for name in ("initial_rate", "peak_rate", "final_rate"):
            check_positive(getattr(self, name), name)
        if not 0 <= self.warmup_epochs < self.n_epochs:
            raise InputError(
                f"warmup_epochs must be at least 0 and below n_epochs={self.n_epochs}, got {self.warmup_epochs!r}"
            )


@dataclass(frozen=True)
class NetworkJob:
    """One network to train.

    Parameters
    ----------
    targets : of all molecules; NaN for unknown ones.
    train, valid : indices of the molecules to train on, and of those that choose the best epoch.
    loss : the training loss, which also defines how the outputs are read.
    scale_target : standardise with the mean and standard deviation of the known training targets.
    seed : for the initial weights and the order of the rows.
    """

    targets: Float[NDArray, "n t"]
    train: Int[NDArray, "a"]
    valid: Int[NDArray, "b"]
    loss: ElementLoss = field(default_factory=SquaredLoss)
    scale_target: bool = True
    seed: int = 0

    def check(self, n_molecules: int) -> None:
        """Raise for data that cannot be trained on."""
        if len(self.targets) != n_molecules:
            raise InputError(
                f"targets must have a row for each of {n_molecules} molecules, got {len(self.targets)}"
            )
        for name, positions in (("train", self.train), ("valid", self.valid)):
            if not len(positions):
                raise InputError(f"{name} must name at least one molecule")
        refuse_unknown(self.targets[self.train])
