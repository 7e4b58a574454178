"""The figures printed in the paper's result tables."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files


@dataclass(frozen=True)
class PrintedCell:
    """Mean and standard deviation over ten seeds, rounded to `decimals` and `std_decimals` digits.

    A negative number of digits is one before the point: 160 printed as 1.6e+02 is rounded to tens.
    """

    table: str
    metric: str
    confidence_level: float
    dataset: str
    method: str
    mean: float
    std: float
    bold: bool
    decimals: int
    std_decimals: int


def printed_cells() -> list[PrintedCell]:
    """All cells of the paper's result tables, in the paper's order."""
    with (files("lvd.reproduction") / "printed_cells.csv").open(encoding="utf-8") as file:
        return [
            PrintedCell(
                table=row["table"],
                metric=row["metric"],
                confidence_level=float(row["confidence_level"]),
                dataset=row["dataset"],
                method=row["method"],
                mean=float(row["mean"]),
                std=float(row["std"]),
                bold=row["bold"] == "1",
                decimals=-int(Decimal(row["mean"]).as_tuple().exponent),
                std_decimals=-int(Decimal(row["std"]).as_tuple().exponent),
            )
            for row in csv.DictReader(file)
        ]
