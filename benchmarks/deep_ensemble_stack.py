"""Five networks as one stack, against one network in a plain loop: ``python -m benchmarks.deep_ensemble_stack``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from lvd.models.heads import adversarial_loss, gaussian_log_density, mean_and_variance
from lvd.models.stack import Objective, train_stack
from lvd.models.torch_modules import build_mlp, new_stack

MEMBERS, ROWS, COLUMNS, HIDDEN, EPOCHS, BATCH, RATE = 5, 2000, 10, 50, 5, 100, 1e-2
STEP = torch.full((COLUMNS,), 0.05)


def plain_loss(net: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    mean, variance = mean_and_variance(net(inputs)[None])
    return -gaussian_log_density(targets, mean[0], variance[0]).mean()


def train_one(inputs: Tensor, targets: Tensor) -> None:
    """One network in a straightforward loop: Adam, the rows and their adversarial examples."""
    generator = torch.Generator().manual_seed(0)
    net = build_mlp(COLUMNS, (HIDDEN,), 2, generator=generator)
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE, fused=True)
    for _ in range(EPOCHS):
        for rows in torch.randperm(ROWS, generator=generator).split(BATCH):
            x, y = inputs[rows].requires_grad_(), targets[rows]
            optimizer.zero_grad()
            loss = plain_loss(net, x, y)
            (slope,) = torch.autograd.grad(loss, x, retain_graph=True)
            (loss + plain_loss(net, x.detach() + STEP * slope.sign(), y)).backward()
            optimizer.step()


def vmapped(net: nn.Module) -> Objective:
    """One network's loss by functional calls, mapped over the members with torch.func."""

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return plain_loss(lambda rows: functional_call(net, parameters, (rows,)), x, y)

    def total(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        attacked = x + STEP * grad(loss, argnums=1)(parameters, x, y).sign()
        return loss(parameters, x, y) + loss(parameters, attacked, y)

    return vmap(total)


def train_five(inputs: Tensor, targets: Tensor, objective: Objective) -> None:
    generator = torch.Generator().manual_seed(0)
    train_stack(
        new_stack(MEMBERS, [COLUMNS, HIDDEN, 2], generator),
        inputs,
        targets,
        objective,
        epochs=EPOCHS,
        batch_size=BATCH,
        learning_rate=RATE,
        generator=generator,
    )


def cpu_seconds(functions: dict[str, Callable[[], object]], rounds: int = 7) -> dict[str, float]:
    """Median CPU time of each, alternating: everything is single-threaded, and other jobs do not count."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.process_time()
            function()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(ROWS, COLUMNS, generator=generator)
    targets = inputs[:, :1].sin()
    net = build_mlp(COLUMNS, (HIDDEN,), 2, generator=generator)
    stacked = partial(adversarial_loss, step=STEP)
    times = cpu_seconds(
        {
            "one network, plain loop": lambda: train_one(inputs, targets),
            "five networks, lvd's stack": lambda: train_five(inputs, targets, stacked),
            "five networks, torch.func.vmap": lambda: train_five(inputs, targets, vmapped(net)),
            "five networks, one after the other": lambda: [
                train_one(inputs, targets) for _ in range(MEMBERS)
            ],
        }
    )
    one, batches = times["one network, plain loop"], EPOCHS * ROWS // BATCH
    table = Table("training", "ms per batch", "ratio to one")
    for name, seconds in times.items():
        table.add_row(name, f"{1e3 * seconds / batches:.2f}", f"{seconds / one:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
