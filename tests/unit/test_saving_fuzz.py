"""Folders of every kind of model, changed by somebody who can sign them: refused, or a model that answers.

Run as a program, this file is the child that may be killed: it has limits on memory and on the time of each case.
"""

from __future__ import annotations

import copy
import json
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from test_saving_damage import VALUES, places, seal

import lvd
from lvd import LVDRegressor
from lvd.store.folder import _summary

SECONDS_EACH, BYTES_MORE = 30, 2 << 30
RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = X[:, 0] + RNG.normal(size=80) * np.abs(X[:, 1])
BOTH = np.column_stack([Y, X[:, 2] + RNG.normal(size=80)])
FRAME = pd.DataFrame({"a": X[:, 0], "b": np.array(["x", "y", "z"])[np.arange(80) % 3], "c": X[:, 2]})
NET = lvd.NetRegressor(hidden_sizes=(4,), n_batches=5)
TREES = lvd.TreesRegressor(max_iter=3, min_samples_leaf=5)
KERNEL = lvd.MahalanobisKernel(2, max_iter=5)


def local(**parameters):
    return lvd.LVDRegressor(random_state=0, **{"estimator": NET, "kernel": KERNEL} | parameters)


def calibrated():
    kernel = lvd.MahalanobisKernel(2, max_iter=5, random_state=0).fit(X[:50], Y[:50])
    conformal = lvd.LocalConformal(kernel, bandwidth="adaptive")
    return conformal.conformalize(X[50:], np.abs(Y[50:]), groups=np.arange(30) % 2)


def online():
    """Between a prediction and its labels, of which some are missing."""
    model = lvd.OnlineIntervals(local(estimator=TREES).fit(X[:40], Y[:40]))
    model.observe(model.predict_interval(X[40:70]).keys, Y[40:70])
    model.predict_interval(X[70:], keys=[f"late {i}" for i in range(10)])
    return model


KINDS = {
    "default": lambda: local(estimator=TREES).fit(X, Y),
    "levels": lambda: local(estimator=TREES).fit(FRAME, Y),
    "paper": lambda: local(preset="paper").fit(X, Y),
    "averaged": lambda: local(estimator=TREES, calibration="ensemble", folds=2).fit(X, Y),
    "online": online,
    "normalized": lambda: local(conformity_score="normalized").fit(X, Y),
    "signed": lambda: local(conformity_score="signed").fit(X, Y),
    "sided": lambda: local(conformity_score="sided").fit(X, BOTH),
    "box": lambda: local(joint="box").fit(X, BOTH),
    "ellipsoid": lambda: local(joint="ellipsoid").fit(X, BOTH),
    "pair": lambda: local(estimator=lvd.KernelRegressor(NET, kernel=KERNEL)).fit(X, Y),
    "sklearn": lambda: local(estimator=Ridge()).fit(X, Y),
    "conformal": calibrated,
    "split": lambda: lvd.SplitConformalRegressor(TREES, random_state=0).fit(X, Y),
    "mad": lambda: lvd.MADSplitRegressor(NET, random_state=0).fit(X, Y),
    "cqr": lambda: lvd.ConformalizedQuantileRegressor(NET, random_state=0).fit(X, Y),
    "local cqr": lambda: lvd.LVDRegressor(
        NET, conformity_score="quantile", kernel=KERNEL, random_state=0
    ).fit(X, Y),
    "jackknife+": lambda: lvd.JackknifePlusRegressor(TREES, cv=3, random_state=0).fit(X, Y),
    "jackknife": lambda: lvd.DiscriminativeJackknifeRegressor(NET, random_state=0).fit(X, Y),
    "ensemble": lambda: lvd.DeepEnsembleRegressor(
        hidden_sizes=(4,), epochs=2, n_members=2, random_state=0
    ).fit(X, Y),
    "dropout": lambda: lvd.MCDropoutRegressor(hidden_sizes=(4,), epochs=2, n_passes=5, random_state=0).fit(
        X, Y
    ),
    "pbp": lambda: lvd.PBPRegressor(hidden_sizes=(4,), epochs=2, random_state=0).fit(X, Y),
}
GUARANTEES = ("local", "randomized", "calibrated", "transductive")
NUMBERS = (0.0, -1.0, 1.0, 1e-300, 1e300, 3e38, -3e38, 1e18, float("inf"))
INTEGERS = (-1, 0, 1, 7, 1000, 2**31, 2**62, -(2**63))


def answer(model, kind, guarantee):
    """What a model says of a few rows."""
    rows = FRAME[:12] if kind == "levels" else X[:12]
    if isinstance(model, lvd.LocalConformal):
        return model.radius(rows, [0.5, 0.9], guarantee=guarantee, groups=np.arange(12) % 2)
    if isinstance(model, lvd.OnlineIntervals):
        first = model.predict_interval(rows)
        model.observe(first.keys, Y[:12])
        return np.stack([first.intervals, model.predict_interval(rows).intervals])
    choices = {"guarantee": guarantee} if isinstance(model, LVDRegressor) else {}
    return np.concatenate([np.ravel(part) for part in model.predict_interval(rows, **choices)])


def other_numbers(tensor, rng):
    """One number, or all of them, are others."""
    values, kind = (
        (INTEGERS, torch.int64) if tensor.dtype in (torch.int32, torch.int64) else (NUMBERS, torch.float64)
    )
    value = torch.tensor(values[rng.integers(len(values))], dtype=kind).to(tensor.dtype)
    if rng.integers(4) == 0:
        return torch.full_like(tensor, value.item())
    changed = tensor.clone()
    changed.view(-1)[rng.integers(tensor.numel())] = value
    return changed


def other_shape(tensor, rng):
    """A row or column too many or too few, another number of dimensions, none at all."""
    dim = rng.integers(tensor.ndim)
    n = tensor.shape[dim]
    return (
        lambda: tensor.narrow(dim, 0, n - 1),
        lambda: torch.cat([tensor, tensor.narrow(dim, 0, 1)], dim),
        lambda: tensor.repeat_interleave(40, dim),
        lambda: tensor[None],
        lambda: tensor.reshape(-1),
        lambda: tensor.T if tensor.ndim == 2 else torch.cat([tensor, tensor]),
        lambda: tensor[:0],
    )[rng.integers(7)]()


def other_type(tensor, rng):
    """The same numbers in another type."""
    types = (torch.float16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool)
    return tensor.to(types[rng.integers(len(types))])


def damage(manifest, tensors, rng):
    """Change something, and say what."""
    names = [name for name, tensor in tensors.items() if tensor.numel() and tensor.ndim]
    if rng.integers(3) == 0 or not names:
        found = places(manifest["objects"], [])
        container, key = found[rng.integers(len(found))]
        container[key] = VALUES[rng.integers(len(VALUES))]
        return f"{key} is {container[key]!r}"
    name = names[rng.integers(len(names))]
    how = (other_numbers, other_numbers, other_shape, other_shape, other_type)[rng.integers(5)]
    if rng.integers(10) == 0:
        tensors[name] = tensors[names[rng.integers(len(names))]].clone()
        return f"{name} is another tensor"
    tensors[name] = how(tensors[name], rng).contiguous()
    return f"{how.__name__} of {name}"


def write(folder, manifest, tensors):
    """A folder whose digests and summaries are right."""
    save_file(tensors, folder / "tensors.safetensors")
    manifest["tensors"] = {name: _summary(name, tensor) for name, tensor in tensors.items()}
    seal(folder, manifest)


def one_case(folder, number, rng):
    """What becomes of one damaged folder: ``"refused"``, ``"equal"``, ``"other"`` or what is wrong.

    Other numbers are answered by other intervals, but by the same whenever they are loaded: what loops read from
    elsewhere would differ.
    """
    manifest, tensors = json.loads(folder.manifest), dict(folder.tensors)
    guarantee = GUARANTEES[rng.integers(len(GUARANTEES))]
    done = [damage(manifest, tensors, rng) for _ in range(rng.integers(1, 3))]
    print(number, folder.kind, guarantee, *done, sep=" | ", flush=True)
    write(folder.path, manifest, tensors)
    try:
        first, second = (answer(lvd.load(folder.path), folder.kind, guarantee) for _ in range(2))
    except (lvd.InputError, NotFittedError) as error:
        return "no memory" if "MemoryError" in str(error) else "refused"
    if not np.array_equal(first, second, equal_nan=True):
        return "two answers"
    try:
        same = np.array_equal(first, answer(copy.deepcopy(folder.model), folder.kind, guarantee))
    except lvd.InputError:
        same = False
    if first.shape != folder.expected.shape or np.isnan(first).any():
        return "no numbers"
    return "equal" if same else "other"


class Saved:
    """A model, and what is in its folder."""

    def __init__(self, kind, root):
        self.kind, self.path, self.model = kind, root / kind, KINDS[kind]()
        self.model.save(self.path)
        self.manifest = (self.path / "manifest.json").read_text()
        self.expected = answer(copy.deepcopy(self.model), kind, "local")
        self.tensors = load_file(self.path / "tensors.safetensors")


def main(root, seed, n_cases):
    """Damage folders in turn; a case that takes long or much memory ends the process, after it was named."""
    warnings.simplefilter("ignore")
    folders = [Saved(kind, root) for kind in KINDS]
    for folder in folders:
        for guarantee in GUARANTEES:
            try:
                answer(lvd.load(folder.path), folder.kind, guarantee)  # compiles
            except lvd.InputError:
                continue
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + BYTES_MORE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    counts = Counter()
    for number in range(n_cases):
        signal.alarm(SECONDS_EACH)  # nobody handles it, so compiled loops end too
        outcome = one_case(folders[number % len(folders)], number, np.random.default_rng([seed, number]))
        counts[outcome] += 1
        if outcome in {"no memory", "no numbers", "two answers"}:
            sys.exit(f"case {number}: {outcome}")
    signal.alarm(0)
    print(json.dumps(counts))


def run_child(root, seed, n_cases):
    done = subprocess.run(
        [sys.executable, __file__, str(root), str(seed), str(n_cases)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"seed {seed}")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (
        f"seed {seed}, exit {done.returncode}, at {lines[-1:]}:\n{done.stderr[-3000:]}"
    )
    counts = json.loads(lines[-1])
    assert sum(counts.values()) == n_cases
    assert counts["refused"] > n_cases // 4
    assert counts["equal"] > 0


def test_changed_and_signed_again(tmp_path):
    run_child(tmp_path, 0, 150)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_changed_and_signed_again_in_many_ways(tmp_path):
    """Another seed each time; a failure names it."""
    run_child(tmp_path, time.time_ns() % 2**32, 5000)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
