"""The paper's printed figures."""

from __future__ import annotations

import csv
import tomllib
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

import lvd
from experiments.paper.printed import PrintedCell, printed_cells

PACKAGE = Path(lvd.__file__).parent


def test_all_cells_are_there() -> None:
    cells = printed_cells()
    assert len(cells) == 2776
    assert len({(c.table, c.metric, c.confidence_level, c.dataset, c.method) for c in cells}) == 2776
    assert Counter(c.table for c in cells)["width_variants"] == 256
    assert {c.confidence_level for c in cells} == {0.5, 0.9}
    assert {c.metric for c in cells} == {"MCR", "TCR", "AUROC", "MAD", "width", "finite_count"}


@pytest.mark.parametrize(
    "cell",
    [
        PrintedCell("coverage", "MCR", 0.9, "Yacht", "LVD-NN-smooth-base", 96.8, 2.2, True, 1, 1),
        PrintedCell("coverage", "MCR", 0.9, "Yacht", "MADSplit", 82.4, 7.1, False, 1, 1),
        PrintedCell("discrimination", "MAD", 0.9, "Yacht", "DJ", 10.15, 0.84, False, 2, 2),
        PrintedCell(
            "qm_width", "width", 0.5, "QM8(E1-CC2)", "LVD-KR-smooth-base", 0.0098, 0.0005, False, 4, 5
        ),
    ],
)
def test_single_cells(cell: PrintedCell) -> None:
    assert cell in printed_cells()


def test_cells_are_those_of_the_source(shared_dir: Path) -> None:
    with (shared_dir / "paper" / "tables.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for cell, row in zip(printed_cells(), rows, strict=True):
        assert [cell.table, cell.metric, cell.dataset, cell.method] == [
            row[name] for name in ("table", "metric", "dataset", "method")
        ]
        assert (cell.mean, cell.std) == (float(row["mean"]), float(row["std"]))
        assert Decimal(row["mean"]) == Decimal(f"{cell.mean:.{max(cell.decimals, 0)}f}")
        assert (str(cell.confidence_level), str(int(cell.bold))) == (row["confidence_level"], row["bold"])


def test_the_wheel_is_the_package_alone_and_holds_no_results_or_pages() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/lvd"]}
    files = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.*")]
    assert "data/datasets.toml" in files
    assert [name for name in files if name.endswith((".csv", ".md.jinja", ".parquet"))] == []
