"""Training of torch modules by Adam on batches drawn with replacement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np
import torch
from torch import Tensor, nn

from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError

Loss = Callable[[Tensor, Tensor], Tensor]

_PROCESS_GENERATORS = Lock()


def draw_batches(n_rows: int, n_batches: int, batch_size: int, seed: int) -> Iterator[Int[NDArray, "b"]]:
    """`n_batches` batches of row numbers, with replacement."""
    rng = np.random.RandomState(seed)  # the paper's numbers were drawn from this generator
    for _ in range(n_batches):
        yield rng.choice(n_rows, batch_size)


@contextmanager
def own_random_numbers(seed: int) -> Iterator[None]:
    """Torch's generators of the process start from `seed`, and are put back afterwards; one block at a time."""
    with _PROCESS_GENERATORS, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def train(
    module: nn.Module,
    inputs: Tensor,
    targets: Float[Tensor, "n t"],
    batches: Iterable[Int[NDArray, "b"]],
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
    loss: Loss | None = None,
    on_batch: Callable[[], None] | None = None,
) -> None:
    """Train `module` in place, one Adam step per batch; the loss is the mean squared error by default."""
    loss = nn.functional.mse_loss if loss is None else loss
    optimizer = torch.optim.Adam(module.parameters(), lr=learning_rate, weight_decay=weight_decay)
    module.train()
    value = targets.new_zeros(())
    for batch in batches:
        rows = torch.as_tensor(batch, device=inputs.device)
        optimizer.zero_grad(set_to_none=True)
        value = loss(module(inputs[rows]), targets[rows])
        value.backward()
        optimizer.step()
        if on_batch is not None:
            on_batch()
    module.eval()
    if not torch.isfinite(value):
        raise InputError(
            f"training diverged: the last batch's loss is {value.item():g}; "
            "lower learning_rate, or scale the inputs and the target"
        )
