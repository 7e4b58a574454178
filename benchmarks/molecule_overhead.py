"""What LVD adds to a network of molecules: ``python -m benchmarks.molecule_overhead RESULTS --data-dir FOLDER``.

RESULTS is a folder that ``lvd bench run --datasets qm9`` wrote: the embeddings of one of its splits are used,
brought from the host to the GPU once for all targets, as LVDRegressor does. The network is measured on the same
test molecules. The paper reports 0.65 s of extra inference for 1,000 molecules, and less than 5% of the network's
training time for the kernels.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import lvd
from lvd._validation import resolve_device, to_numpy
from lvd.kernels.mahalanobis import place
from lvd.molecules import Recipe, inner_split, read_molecules, train_networks
from lvd.reproduction import networks
from lvd.reproduction.protocols import SOUND
from lvd.reproduction.task_split import TaskSplit

LEVELS = [0.5, 0.9]


def seconds(work: Callable[[], object]) -> float:
    """Of the second call: the first one compiles."""
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def absolute_errors(split: TaskSplit) -> np.ndarray:
    """Of the stored network on the calibration rows."""
    predict, _ = split.estimator
    return np.abs(split.y[split.calib] - predict(split.calib)[:, 0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--table", default="qm9")
    parser.add_argument("--seed", type=int, default=0, help="a split whose base network RESULTS holds")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    dataset = lvd.data.load(options.table, data_dir=options.data_dir)
    stored = networks.StoredNetworks(options.table, options.seed, SOUND, options.results)
    splits = [TaskSplit(dataset, name, stored, SOUND, options.seed) for name in dataset.target_names]
    first = splits[0]
    molecules = read_molecules(dataset.X)
    train, valid, _ = inner_split(len(first.train))
    job = networks.NetworkJob(dataset.y, first.train[train], first.train[valid])
    (network,) = train_networks(molecules, [job], Recipe(n_epochs=2, warmup_epochs=1))
    start = time.perf_counter()
    train_networks(molecules, [job], Recipe(n_epochs=3, warmup_epochs=1))
    training = 10.0 * (time.perf_counter() - start)
    test = molecules[first.test]
    per_thousand = 1000.0 / len(first.test)
    kernels, conformals = [], []
    embedded = stored.read("base").embeddings
    on_host = {name: embedded[getattr(first, name)] for name in ("train", "calib", "test")}

    def fit() -> None:
        embeddings = place(on_host["train"], "auto")
        kernels[:] = [
            SOUND.kernel(options.seed, smoothness=True, device="auto").fit(embeddings, split.y[split.train])
            for split in splits
        ]

    def calibrate() -> None:
        embeddings = place(on_host["calib"], "auto")
        conformals[:] = [
            lvd.LocalConformal(kernel).conformalize(embeddings, absolute_errors(split))
            for kernel, split in zip(kernels, splits, strict=True)
        ]

    def predict() -> None:
        embeddings = place(on_host["test"], "auto")
        for conformal in conformals:
            to_numpy(conformal.radius(embeddings, LEVELS))

    figures = {
        "test molecules": len(first.test),
        "tasks": len(splits),
        "network: seconds of training (30 epochs, from 3)": training,
        "kernels of all tasks: seconds of training": seconds(fit),
        "calibration of all tasks: seconds": seconds(calibrate),
        "network: seconds per 1,000 molecules": per_thousand * seconds(lambda: network.outputs(test)),
        "LVD, all tasks, two levels: extra seconds per 1,000 molecules": per_thousand * seconds(predict),
    }
    device = resolve_device("auto")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    rows = [("device", name), *((key, f"{value:.4g}") for key, value in figures.items())]
    share = figures["kernels of all tasks: seconds of training"] / training
    rows.append(("kernels as a share of the network's training", f"{100 * share:.2f}%"))
    for key, value in rows:
        print(f"{key}: {value}")
    if options.out:
        with options.out.open("w", newline="") as file:
            csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main()
