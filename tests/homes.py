"""A table of homes, and a model of their prices that the command line has fitted."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from command_line import run_here


def write_homes(path: Path, n_rows: int, seed: int) -> None:
    """A table with numbers, text, true/false values and an identifier."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "area", "rooms", "district", "garden", "price"])
        for number in range(n_rows):
            area, rooms = rng.uniform(30, 200), rng.integers(1, 7)
            district, garden = rng.choice(["north", "south", "old, town"]), rng.random() < 0.5
            noise = 30.0 if district == "north" else 5.0
            price = 2.0 * area + 10.0 * rooms + 40.0 * garden + noise * rng.normal()
            writer.writerow(
                [f"home-{number}", f"{area:.2f}", rooms, district, str(bool(garden)).lower(), f"{price:.3f}"]
            )


class Homes(NamedTuple):
    model: Path
    table: Path
    new: Path
    report: str


def fit_homes(folder: Path) -> Homes:
    """A fitted model, its table, and a table of rows it has not seen."""
    found = Homes(folder / "model", folder / "homes.csv", folder / "new.csv", "")
    write_homes(found.table, 500, seed=0)
    write_homes(found.new, 120, seed=1)
    outcome = run_here(
        *(
            "fit",
            found.table,
            "--target",
            "price",
            "--drop",
            "id",
            "--epochs",
            20,
            "--preset",
            "paper",
            "--out",
            found.model,
        )
    )
    assert outcome.code == 0, outcome.err
    return found._replace(report=outcome.out)
