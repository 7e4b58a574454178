"""All that a training is told beforehand: which rows, in which order, at which learning rate."""

from __future__ import annotations

import numpy as np

from lvd._typing import Float, Int, NDArray


def inner_split(
    n_rows: int, seed: int = 0, shares: tuple[float, float] = (0.8, 0.1)
) -> tuple[Int[NDArray, "a"], Int[NDArray, "b"], Int[NDArray, "c"]]:
    """Positions to learn from, to choose the epoch by, and to leave alone, as chemprop 1 splits at random."""
    order = np.random.RandomState(seed).permutation(n_rows)
    first, second = int(shares[0] * n_rows), int((shares[0] + shares[1]) * n_rows)
    return order[:first], order[first:second], order[second:]


def batch_orders(
    rows: Int[NDArray, "n"], n_epochs: int, batch_size: int, seed: int, *, filler: int
) -> Int[NDArray, "steps b"]:
    """The rows of every step: each epoch sees all of them once, its last batch filled up with `filler`."""
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
    """The atoms and bonds of the largest batch, and one dummy of each."""
    largest = sizes[orders].sum(axis=1).max(axis=0) + 1
    return int(largest[0]), int(largest[1])
