"""Training steps of a graph network on QM9: ``python -m benchmarks.molecules --data-dir FOLDER``.

With ``--rehearse``, on a few hundred molecules, for machines without a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import synchronise, timed
from lvd._validation import resolve_device
from lvd.data.cells import numbers, read_file
from lvd.models.losses import NormalLoss, PinballLoss
from lvd.molecules import NetworkJob, Recipe, inner_split, read_molecules
from lvd.molecules import run as stepping
from lvd.molecules.network import run_all
from lvd.molecules.packed import Molecules, gather
from lvd.molecules.run import TrainingRun
from lvd.molecules.smiles import valid_smiles

TARGETS = ("mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "u0", "u298", "h298", "g298", "cv")


def seconds(work: Callable[[], object], device: torch.device) -> float:
    return timed(work, device.type)[0]


def repeat(step: Callable[[], object], times: int) -> None:
    for _ in range(times):
        step()


def chemprop_steps(molecules: Molecules, run: TrainingRun, times: int) -> Callable[[], None]:
    """A straightforward loop: exact batches, chemprop's own forward pass, Adam."""
    optimizer = torch.optim.Adam(run.module.parameters(), lr=1e-4)
    sizes, orders = molecules.packed.sizes(), run.orders.cpu().numpy()

    def work() -> None:
        for order in orders[:times]:
            rows = order[order < len(molecules)]
            graphs = gather(
                run.packed,
                torch.as_tensor(rows, device=run.rows.device),
                *sizes[rows].sum(0).tolist(),
            )
            optimizer.zero_grad()
            (run.module(graphs) - run.targets[rows]).square().mean().backward()
            optimizer.step()

    return work


def different_jobs(y: np.ndarray, train: np.ndarray, valid: np.ndarray, count: int) -> list[NetworkJob]:
    """The networks of a split that the experiments need: base, two levels of CQR, error, ensemble."""
    twice = np.concatenate([y, y], axis=1)
    kinds = [
        NetworkJob(y, train, valid),
        NetworkJob(twice, train, valid, PinballLoss(0.9)),
        NetworkJob(twice, train, valid, PinballLoss(0.5)),
        NetworkJob(y, train, valid, NormalLoss()),
    ]
    return (kinds + [NetworkJob(y, train, valid, NormalLoss(), seed=seed) for seed in range(1, 6)])[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder with qm9.csv or qm9.csv.gz")
    parser.add_argument("--rehearse", action="store_true", help="300 molecules, few steps")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device, steps = resolve_device(options.device), 5 if options.rehearse else options.steps
    cells = read_file(next(path for path in sorted(options.data_dir.glob("qm9.csv*"))))
    smiles, y = np.array(cells["smiles"], dtype=object), np.column_stack([numbers(cells, t) for t in TARGETS])
    if options.rehearse:
        torch.set_num_threads(1)
        smiles, y = smiles[::400][:300], y[::400][:300]
        valid = valid_smiles(smiles)
        smiles, y = smiles[valid], y[valid]
    table = Table("what", "ms", "30 epochs, s", title=f"QM9, {len(smiles):,} molecules, {device}")
    for name in ("features", "features, from disk"):
        table.add_row(name, f"{1e3 * seconds(lambda: read_molecules(smiles), torch.device('cpu')):.0f}", "")
    molecules = read_molecules(smiles)
    train, valid, _ = inner_split(round(0.6 * len(molecules)))

    def started(count: int, recipe: Recipe = Recipe()) -> list[TrainingRun]:  # noqa: B008
        return [TrainingRun(molecules, job, recipe, device) for job in different_jobs(y, train, valid, count)]

    (first,) = started(1)
    n_steps = len(first.orders)
    steps = min(steps, n_steps - 10)

    def report(name: str, total: float) -> None:
        per_step = total / steps
        table.add_row(name, f"{1e3 * per_step:.3f}", f"{per_step * n_steps:.1f}")

    repeat(first._take_step, 3)
    report("chemprop's forward, exact batches", seconds(chemprop_steps(molecules, first, steps), device))
    (first,) = started(1)
    repeat(first._take_step, 3)
    report("steps of fixed shape, not captured", seconds(lambda: repeat(first._take_step, steps), device))
    for count in (1, 4, 9):
        runs = started(count)
        repeat(lambda runs=runs: [run.advance() for run in runs], stepping.EAGER_STEPS + 1)
        synchronise(device.type)
        name = f"{count} network(s) side by side, captured where there is a GPU"
        report(
            name, seconds(lambda runs=runs: repeat(lambda: [run.advance() for run in runs], steps), device)
        )
    part = molecules[: min(20_000, len(molecules))]
    run_all(first.module, part)
    total = seconds(lambda: run_all(first.module, part), device)
    table.add_row(f"predict and embed {len(part):,} molecules", f"{1e3 * total:.1f}", "")
    Console().print(table)
    print(f"atoms and bonds of a batch: {first.capacity}, steps: {n_steps}")
    if device.type == "cuda":
        print(f"GPU memory at most: {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
