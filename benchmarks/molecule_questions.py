"""Possible origins of printed figures on QM8 and QM9: ``python -m benchmarks.molecule_questions OUT``.

Two questions, with a few networks each. *isomers*: the paper's QM9 has 3,054 molecules that our copy lacks,
whose geometry became that of another molecule than their SMILES names. If equally many molecules of our copy
get the SMILES of another one with the same formula, does the mean error rise to the printed one?
(*isomers-differences* trains no network: by how much do two molecules with the same formula differ?) *short*:
CQR and DE with unscaled targets, trained for a few hundred batches, as the paper's baselines on small tables
were: do the errors come near the printed ones? Each answer is stored in its own file and not recomputed.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from torch import Tensor

from experiments.paper import runner
from lvd._files import atomic_path
from lvd._validation import InputError
from lvd.data import Dataset
from lvd.models.heads import gaussian_log_density
from lvd.models.losses import ElementLoss, NormalLoss, PinballLoss, SquaredLoss
from lvd.molecules import NetworkJob, Recipe, inner_split, read_molecules, train_networks
from lvd.molecules.smiles import parse_smiles
from lvd.tables.splits import split_indices

N_SWAPPED = 3054 / 130831
"""The share of the molecules that our copy of QM9 lacks."""
SEEDS = (0, 1, 2)
DIFFERENCES = "isomers-differences"
FULL = Recipe()


@dataclass(frozen=True)
class AbsoluteVariance(NormalLoss):
    """The variance is the absolute value of the network's output instead of a smooth positive function."""

    def elements(self, outputs: Tensor, targets: Tensor) -> Tensor:
        means, raw = outputs.chunk(2, dim=-1)
        return -gaussian_log_density(targets, means, raw.abs() + 1e-6)


@dataclass(frozen=True)
class Question:
    """Networks of one recipe and loss on one table, for some seeds; `steps` ends training early."""

    name: str
    table: str
    recipe: Recipe
    loss: ElementLoss
    swapped: float = 0.0
    steps: int | None = None

    def file(self, folder: Path) -> Path:
        return folder / f"{self.name}.csv"


def short(table: str, method: str, steps: int, rate: float) -> Question:
    """This many batches at one learning rate, on unscaled targets."""
    recipe = replace(FULL, warmup_epochs=0.0, initial_rate=rate, peak_rate=rate, final_rate=rate)
    name = f"short-{table}-{method}-{steps}-{rate:g}"
    return Question(name, table, recipe, LOSSES[method], steps=steps)


LOSSES: dict[str, ElementLoss] = {
    "CQR": PinballLoss(0.9),
    "DE": NormalLoss(),
    "DE-absolute": AbsoluteVariance(),
}


def questions() -> Iterator[Question]:
    yield Question(DIFFERENCES, "qm9", FULL, SquaredLoss())
    for name, swapped in (("as-they-are", 0.0), ("swapped", N_SWAPPED)):
        yield Question(f"isomers-qm9-{name}", "qm9", FULL, SquaredLoss(), swapped=swapped)
    for table, steps, rate in product(("qm8", "qm9"), (200, 500, 1000), (1e-4, 1e-3)):
        for method in LOSSES:
            yield short(table, method, steps, rate)


def swap_isomers(smiles: np.ndarray, share: float, seed: int) -> np.ndarray:
    """`smiles`, with a share of the molecules under the SMILES of another one with the same formula."""
    chosen, others = isomer_pairs(smiles, share, seed)
    swapped = smiles.copy()
    swapped[chosen] = smiles[others]
    return swapped


def isomer_pairs(smiles: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A share of all rows, and for each of them one with the same formula, possibly itself."""
    from rdkit.Chem.rdMolDescriptors import CalcMolFormula

    rng = np.random.default_rng(seed)
    formulas = np.array([CalcMolFormula(molecule) for molecule in parse_smiles(smiles)])
    chosen = rng.permutation(len(smiles))[: round(share * len(smiles))]
    by_formula = {name: np.flatnonzero(formulas == name) for name in np.unique(formulas[chosen])}
    return chosen, np.array([rng.choice(by_formula[formulas[row]]) for row in chosen])


def differences(dataset: Dataset) -> list[dict[str, object]]:
    """By how much each target differs between two molecules with the same formula."""
    chosen, others = isomer_pairs(dataset.X, N_SWAPPED, 0)
    apart = np.abs(dataset.y[chosen] - dataset.y[others]).mean(0)
    return [
        {"question": DIFFERENCES, "table": "qm9", "task": task, "seed": 0, "steps": 0, "MAD": f"{value:.5g}"}
        | {"MAD of a constant": ""}
        for task, value in zip(dataset.target_names, apart, strict=True)
    ]


def ask(question: Question, dataset: Dataset) -> list[dict[str, object]]:
    """The mean absolute error of each task, by seed."""
    smiles = swap_isomers(dataset.X, question.swapped, 0) if question.swapped else dataset.X
    molecules, y = read_molecules(smiles), dataset.y
    doubled, recipe = isinstance(question.loss, PinballLoss), question.recipe
    splits = [split_indices(len(y), seed) for seed in SEEDS]
    targets = np.concatenate([y, y], axis=1) if doubled else y
    jobs = []
    for train, _, _ in splits:
        inside, valid, _ = inner_split(len(train))
        if question.steps is not None:
            n_rows = question.steps * recipe.batch_size
            recipe = replace(recipe, n_epochs=-(-n_rows // len(inside)))
            inside = inside[: n_rows // recipe.n_epochs]
        whole = question.steps is None
        jobs.append(NetworkJob(targets, train[inside], train[valid], question.loss, scale_target=whole))
    rows: list[dict[str, object]] = []
    for seed, (_, _, test), network in zip(
        SEEDS, splits, train_networks(molecules, jobs, recipe), strict=True
    ):
        outputs = network.evaluate(molecules[test]).y_pred
        n_tasks = y.shape[1]
        centre = (outputs[:, :n_tasks] + outputs[:, n_tasks:]) / 2 if doubled else outputs[:, :n_tasks]
        errors, constant = np.abs(y[test] - centre), np.abs(y[test] - np.median(y[test], axis=0))
        for task, error, other in zip(dataset.target_names, errors.mean(0), constant.mean(0), strict=True):
            rows.append(
                {"question": question.name, "table": question.table, "task": task, "seed": seed}
                | {"steps": recipe.n_epochs * -(-len(jobs[0].train) // recipe.batch_size)}
                | {"MAD": f"{error:.5g}", "MAD of a constant": f"{other:.5g}"}
            )
    return rows


def answer(folder: Path, data_dir: Path | None, only: str = "") -> None:
    """Answer the questions without a stored answer."""
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Dataset] = {}
    for question in questions():
        if question.file(folder).exists() or not question.name.startswith(only):
            continue
        if question.table not in tables:
            tables[question.table] = runner.load(question.table, data_dir=data_dir)
        table = tables[question.table]
        try:
            rows = differences(table) if question.name == DIFFERENCES else ask(question, table)
        except InputError as error:  # a training may diverge, which is also an answer
            rows = [{"question": question.name, "table": question.table, "MAD": str(error)}]
        with atomic_path(question.file(folder)) as part, part.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        print(question.name, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--only", default="", help="questions whose names begin so")
    options = parser.parse_args()
    answer(options.out, options.data_dir, options.only)


if __name__ == "__main__":
    main()
