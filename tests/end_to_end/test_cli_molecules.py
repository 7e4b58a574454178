"""Molecule tables on the command line: from SMILES to intervals, explained and drawn."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

if importlib.util.find_spec("chemprop") is None:
    pytest.skip("needs chemprop", allow_module_level=True)

import lvd.molecules
from lvd.molecules.domain import scaffolds
from lvd.molecules.smiles import canonical_smiles

ENDS = ("", "O", "N", "Cl", "S", "C#N", "C=O", "OC", "C(C)C", "c1ccccc1")
CHAINS = ["C" * n + end for n in range(2, 17) for end in ENDS]
COPIES = {"CCO": "OCC", "CCCN": "NCCC", "CCCCCl": "ClCCCC"}
"""The same molecule, written otherwise."""
INVALID = ("C1CC", "", "not a molecule")
TINY = ("--hidden-size", 12, "--epochs", 3, "--device", "cpu", "--preset", "paper")
TARGETS = ("--target", "mu", "--target", "homo")


class Files(NamedTuple):
    model: Path
    table: Path
    test: Path
    report: str


def write_table(path: Path, smiles: list[str], seed: int = 0) -> None:
    """Size and polarity by a formula, with a little noise, beside a column that is no input."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "smiles", "mu", "homo"])
        for number, string in enumerate(smiles, 1):
            polar = sum(string.count(letter) for letter in "ONS")
            noise = rng.normal(scale=0.1, size=2)
            writer.writerow(
                [f"m{number}", string, f"{2 * polar + noise[0]:.3f}", f"{len(string) / 5 + noise[1]:.3f}"]
            )


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def files(lvd_here, tmp_path_factory) -> Files:
    """A model of two targets, fitted on a table with copies and with rows that are no molecules."""
    folder = tmp_path_factory.mktemp("molecules")
    found = Files(folder / "model", folder / "table.csv", folder / "test.csv", "")
    write_table(found.table, [*CHAINS[:50], *INVALID, *CHAINS[50:], *COPIES.values()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lvd.methods.lvd.MahalanobisKernel", partial(lvd.MahalanobisKernel, max_iter=20))
        outcome = lvd_here(
            *("fit", found.table, "--smiles", "smiles", *TARGETS, *TINY, "--skip-invalid"),
            *("--out", found.model, "--test-out", found.test),
        )
    assert (outcome.code, outcome.err) == (0, "")
    return found._replace(report=outcome.out)


@pytest.fixture(scope="module")
def new(tmp_path_factory) -> Path:
    """Molecules that the model has not seen; the second row is none."""
    path = tmp_path_factory.mktemp("new") / "new.csv"
    smiles = [f"C{'C' * n}OC{'C' * k}" for n in range(1, 7) for k in range(1, n)]
    write_table(path, [smiles[0], INVALID[0], *smiles[1:]], seed=1)
    return path


def test_fit_counts_what_it_leaves_out_and_keeps_copies_together(files):
    lines = files.report.splitlines()
    n_rows = len(CHAINS) + len(COPIES)
    assert lines[0] == f"{files.table}: {n_rows + 3} rows, molecules of column smiles"
    assert lines[2] == "left out: 3 rows that the model cannot read, the column name"
    counts = [int(text) for text in re.findall(r"(\d+) (?:training|calibration|test)\b", lines[1])]
    assert sum(counts) == n_rows
    assert counts[2] == len(read(files.test))
    assert "note: 3 rows repeat the molecule of an earlier row; all rows of a molecule" in files.report
    assert [line for line in lines if " test rows, which no step" in line] == [
        f"{target}, on the {counts[2]} test rows, which no step has seen" for target in ("mu", "homo")
    ]


def test_no_molecule_is_on_two_sides_of_the_split(lvd_here, files):
    rows = read(files.table)
    kept = json.loads((files.model / "manifest.json").read_text())["columns"]["molecules"]
    assert [rows[number - 1]["smiles"] for number in kept["calibration"]] == kept["smiles"]
    assert [rows[number - 1]["name"] for number in kept["test"]] == [row["name"] for row in read(files.test)]
    others = [
        row["smiles"]
        for number, row in enumerate(rows, 1)
        if number not in kept["calibration"] + kept["test"] and row["smiles"] not in INVALID
    ]
    parts = [set(canonical_smiles(part)) for part in (kept["smiles"], map_smiles(files.test), others)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(CHAINS)
    outcome = lvd_here("evaluate", files.model, files.test)  # so nothing is to be warned of
    assert (outcome.code, outcome.err) == (0, "")


def map_smiles(path: Path) -> list[str]:
    return [row["smiles"] for row in read(path)]


def test_predict_needs_molecules_and_leaves_nothing_without(lvd_here, files, new, tmp_path):
    outcome = lvd_here("predict", files.model, new, "--out", tmp_path / "out.csv")
    assert outcome.code == 2
    assert "column 'smiles': RDKit cannot read 1 molecule (row 2): 'C1CC'; correct" in outcome.err
    assert "--skip-invalid" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_predict_keeps_rows_that_it_skips(lvd_here, files, new, tmp_path):
    levels = ("--level", 0.5, "--level", 0.8)
    outcome = lvd_here("predict", files.model, new, "--skip-invalid", *levels, "--out", tmp_path / "out.csv")
    assert (outcome.code, outcome.err) == (0, "")
    given, found = read(new), read(tmp_path / "out.csv")
    assert outcome.out.splitlines()[:2] == [
        f"{len(given)} rows written to {tmp_path / 'out.csv'}",
        "1 of them without a prediction: the model cannot read them",
    ]
    added = [
        f"{column}_{target}"
        for target in ("mu", "homo")
        for column in ("y_pred", "lower_50", "upper_50", "lower_80", "upper_80", "n_effective")
    ] + ["known", "nearest", "tanimoto"]
    assert list(found[0]) == [*given[0], *added]
    assert [row["smiles"] for row in found] == map_smiles(new)
    assert {found[1][name] for name in added} == {""}
    assert all(row[name] for row in [found[0], *found[2:]] for name in added)
    lvd_here("predict", files.model, new, "--skip-invalid", *levels, "--out", tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert [table[name].null_count for name in added] == [1] * len(added)


def test_predict_names_the_nearest_calibration_molecule(lvd_here, files, tmp_path):
    kept = json.loads((files.model / "manifest.json").read_text())["columns"]["molecules"]["smiles"]
    write_table(tmp_path / "table.csv", [kept[3], "CCCCCBr"])
    lvd_here("predict", files.model, tmp_path / "table.csv", "--out", tmp_path / "out.csv")
    same, other = read(tmp_path / "out.csv")
    assert (same["nearest"], float(same["tanimoto"])) == (kept[3], 1.0)
    assert other["nearest"] in kept
    assert 0.0 < float(other["tanimoto"]) < 1.0


@pytest.fixture(scope="module")
def holes(lvd_here, tmp_path_factory) -> Files:
    """A model split by scaffolds, of targets that are not known everywhere, one of them rarely."""
    folder = tmp_path_factory.mktemp("holes")
    found = Files(folder / "model", folder / "table.csv", folder / "test.csv", "")
    rings = ("c1ccccc1", "C1CCCCC1", "C1CCNCC1", "c1ccncc1", "C1CCOC1", "c1ccsc1", "C1CC1", "c1ccc2ccccc2c1")
    smiles = ["C" * n + ring for n in range(12) for ring in rings] + ["CC(=O)[O-].[Na+]", "CCO.Cl"]
    write_table(found.table, smiles)
    rows = read(found.table)
    for number, row in enumerate(rows):
        row["mu"] = "" if number % 3 == 0 or number == 4 else row["mu"]
        row["homo"] = "" if number == 4 else row["homo"]
    write_rows(found.table, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lvd.methods.lvd.MahalanobisKernel", partial(lvd.MahalanobisKernel, max_iter=20))
        outcome = lvd_here(
            *("fit", found.table, "--smiles", "smiles", *TARGETS, *TINY, "--split", "scaffold"),
            *("--level", 0.5, "--out", found.model, "--test-out", found.test),
        )
    assert (outcome.code, outcome.err) == (0, "")
    return found._replace(report=outcome.out)


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_each_target_uses_the_rows_that_have_it(lvd_here, holes):
    assert "left out: 1 row without a target" in holes.report
    test = read(holes.test)
    found = json.loads(lvd_here("evaluate", holes.model, holes.test, "--json").out)
    counts = [sum(row[name] != "" for row in test) for name in ("mu", "homo")]
    assert counts[0] < counts[1] == found["n_rows"] == len(test)
    assert [target["n_rows"] for target in found["targets"]] == counts
    assert f"test rows, which no step has seen; {counts[0]} of {counts[1]} have a value" in holes.report
    with_mu = [row for row in test if row["mu"]]
    write_rows(holes.test.with_name("mu.csv"), with_mu)
    alone = json.loads(lvd_here("evaluate", holes.model, holes.test.with_name("mu.csv"), "--json").out)
    assert alone["targets"][0]["summary"] == found["targets"][0]["summary"]
    outcome = lvd_here("explain", holes.model, holes.test, "--row", 1, "--json")
    table = read(holes.table)
    for explanation in json.loads(outcome.out):
        for neighbor in explanation["evidence"]["neighbors"]:
            assert float(table[neighbor["index"] - 1][explanation["target"]]) == neighbor["target"]


def test_no_scaffold_is_on_two_sides_of_the_split(holes):
    rows = read(holes.table)
    kept = json.loads((holes.model / "manifest.json").read_text())["columns"]["molecules"]
    parts = [set(scaffolds(kept["smiles"])), set(scaffolds(map_smiles(holes.test)))]
    apart = {*kept["calibration"], *kept["test"], 5}
    parts.append(set(scaffolds(row["smiles"] for n, row in enumerate(rows, 1) if n not in apart)))
    assert sum(map(len, parts)) == len(set.union(*parts)) == 9
    assert "split (scaffold, seed 0)" in holes.report


def test_salts_and_mixtures_are_named(holes):
    assert "note: 2 rows hold salts or mixtures (rows 97, 98): all of their parts are read" in holes.report


def test_the_report_draws_the_scaffolds_with_the_lowest_coverage(lvd_here, holes, tmp_path):
    arguments = ("report", holes.model, holes.table, "--target", "homo", "--out", tmp_path / "r.html")
    assert lvd_here(*arguments).code == 0
    page = (tmp_path / "r.html").read_text()
    section = page[page.index("By Bemis-Murcko scaffold") :].split("</table>")[0]
    assert "scaffolds of fewer than 10 rows" in section
    assert section.count("<br><svg") == 8


def test_predict_of_rows_that_are_all_skipped(lvd_here, files, tmp_path):
    write_table(tmp_path / "none.csv", list(INVALID))
    arguments = ("predict", files.model, tmp_path / "none.csv", "--skip-invalid", "--out", tmp_path / "o.csv")
    report = json.loads(lvd_here(*arguments, "--json").out)
    assert (report["n_rows"], report["n_skipped"]) == (3, 3)
    assert set(report["finite_fraction"].values()) == {None}
    assert [row["y_pred_mu"] for row in read(tmp_path / "o.csv")] == [""] * 3
    refused = lvd_here("evaluate", files.model, tmp_path / "none.csv", "--skip-invalid")
    assert (refused.code, "all 3 rows are left out" in refused.err) == (2, True)


def test_evaluate_by_target_and_with_a_count(lvd_here, files, new):
    refused = lvd_here("evaluate", files.model, new)
    assert (refused.code, "RDKit cannot read 1 molecule (row 2)" in refused.err) == (2, True)
    outcome = lvd_here("evaluate", files.model, new, "--skip-invalid", "--level", 0.8)
    assert outcome.out.startswith("left out: 1 row that the model cannot read\n")
    assert [f"{target}, on the rows of {new}" in outcome.out for target in ("mu", "homo")] == [True, True]
    found = json.loads(
        lvd_here("evaluate", files.model, new, "--skip-invalid", "--target", "homo", "--json").out
    )
    assert (found["n_rows"], found["n_skipped"]) == (len(read(new)) - 1, 1)
    assert [report["target"] for report in found["targets"]] == ["homo"]


def test_evaluate_warns_of_known_molecules_however_they_are_written(lvd_here, files, tmp_path):
    write_table(tmp_path / "known.csv", [f"{string[1:]}C" for string in CHAINS if string.strip("C") == ""])
    outcome = lvd_here("evaluate", files.model, tmp_path / "known.csv")
    assert re.search(r"^warning: \d+ of 15 rows hold a molecule of the training rows: ", outcome.err)


def test_explain_names_the_neighbours(lvd_here, files, new):
    arguments = ("explain", files.model, new, "--row", 3, "--neighbors", 4, "--level", 0.5)
    found = json.loads(lvd_here(*arguments, "--json").out)
    assert [explanation["target"] for explanation in found] == ["mu", "homo"]
    rows = read(files.table)
    for explanation in found:
        assert explanation["label"] == map_smiles(new)[2]
        for neighbor in explanation["evidence"]["neighbors"]:
            row = rows[neighbor["index"] - 1]
            assert neighbor["label"] == row["smiles"]
            assert neighbor["target"] == float(row[explanation["target"]])
    lines = lvd_here(*arguments).out.splitlines()
    assert lines[0].startswith(f"row 3 ({map_smiles(new)[2]}), mu: prediction ")
    start = next(at for at, line in enumerate(lines) if line.startswith("smiles"))
    assert [line.split()[0] for line in lines[start + 1 : start + 5]] == [
        neighbor["label"] for neighbor in found[0]["evidence"]["neighbors"]
    ]
    refused = lvd_here("explain", files.model, new, "--row", 2)
    assert (refused.code, "RDKit cannot read 1 molecule (row 2)" in refused.err) == (2, True)


def test_the_report_draws_rows_and_neighbours_by_itself(lvd_here, files, new, tmp_path):
    arguments = ("report", files.model, new, "--target", "mu", "--level", 0.5, "--out", tmp_path / "r.html")
    assert lvd_here(*arguments).code == 2
    outcome = lvd_here(*arguments, "--skip-invalid", "--compare", "split")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("left out: 1 row that the model cannot read")
    page = (tmp_path / "r.html").read_text()
    assert "Left out: 1 row that the model cannot read" in page
    assert "Across features" not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    smiles, table = map_smiles(new), read(files.table)
    assert sorted(row[0] for row in data["rows"]) == [n for n in range(1, len(smiles) + 1) if n != 2]
    at = data["columns"].index("smiles")
    for row in data["rows"]:
        assert row[11][at] == smiles[row[0] - 1]
        assert data["pictures"][row[12]].startswith("<svg")
    assert data["neighborColumns"] == ["smiles"]
    for number, (cells, picture) in data["neighbors"].items():
        assert cells == [table[int(number) - 1]["smiles"]]
        assert data["pictures"][picture].startswith("<svg")


def test_progress_on_a_terminal_a_short_training_and_parquet(lvd_on_terminal, files, tmp_path):
    pq.write_table(pa_csv.read_csv(files.test), tmp_path / "table.parquet")
    outcome = lvd_on_terminal(
        *("fit", tmp_path / "table.parquet", "--smiles", "smiles", "--target", "mu", *TINY),
        *("--epochs", 1, "--out", tmp_path / "model"),
    )
    assert outcome.code == 0, outcome.err
    n_rows = len(read(files.test))
    stages = [outcome.err.index(text) for text in (f"reading {n_rows} molecules", "training the model")]
    stages += [outcome.err.index(text) for text in ("training the graph network", "learning the kernel")]
    assert stages == sorted(stages)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--smiles", "smile"), "the table has no column 'smile'; did you mean 'smiles'?"),
        (("--smiles", "smiles", "--drop", "name"), "leave --drop, --keep and --impute out"),
        (("--smiles", "mu"), "column 'mu' holds the molecules and cannot be a target"),
        (
            ("--smiles", "name", "--skip-invalid"),
            "column 'name': RDKit cannot read any row; is it a column of",
        ),
        (
            ("--smiles", "smiles"),
            "column 'smiles': RDKit cannot read 3 molecules (rows 51, 52, 53): 'C1CC', mis",
        ),
        (("--skip-invalid",), "apply to molecules only; give --smiles COLUMN"),
        (
            ("--smiles", "smiles", "--split", "group:name"),
            "--split must be random or scaffold where a column",
        ),
        (
            ("--split", "scaffold"),
            "--split must be random, time:COLUMN or group:COLUMN where no column holds",
        ),
        (("--hidden-size", 10), "apply to molecules only; give --smiles COLUMN"),
    ],
)
def test_fit_refuses(lvd_here, files, tmp_path, options, message):
    outcome = lvd_here("fit", files.table, *options, "--target", "mu", "--out", tmp_path / "model")
    assert outcome.code == 2
    assert message in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_classes_are_refused(lvd_here, files, tmp_path):
    rows = [{**row, "active": str(n % 2)} for n, row in enumerate(read(files.test))]
    write_rows(tmp_path / "table.csv", rows)
    columns = ("--smiles", "smiles", "--target", "mu", "--target", "active")
    outcome = lvd_here("fit", tmp_path / "table.csv", *columns, "--out", tmp_path / "model")
    assert outcome.code == 2
    assert (
        "target 'active' has only the values 0 and 1: that is a class, and lvd gives intervals" in outcome.err
    )
    assert not (tmp_path / "model").exists()


def test_other_models_have_no_molecules_to_skip(lvd_here, homes, tmp_path):
    outcome = lvd_here("predict", homes.model, homes.new, "--skip-invalid", "--out", tmp_path / "out.csv")
    assert outcome.code == 2
    assert "--skip-invalid is for models fitted with --smiles; leave it out" in outcome.err


def test_without_chemprop_the_error_says_what_to_install(lvd_here, files, new, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "lvd.molecules.adapter", None)
    monkeypatch.delattr(lvd.molecules, "adapter")
    out = tmp_path / "out.csv"
    for command in (
        ("fit", files.table, "--smiles", "smiles", "--target", "mu", "--out", out),
        ("predict", files.model, new, "--out", out),
        ("evaluate", files.model, new),
        ("explain", files.model, new, "--row", 1),
        ("report", files.model, new, "--target", "mu", "--out", tmp_path / "r.html"),
    ):
        outcome = lvd_here(*command)
        assert outcome.code == 2
        assert outcome.err.startswith("error: graph networks of molecules need chemprop ")
        assert outcome.err.endswith("install it with pip install 'lvd[molecules]'\n")
    assert list(tmp_path.iterdir()) == []


def test_help_says_how_molecules_are_split_and_skipped(lvd_here):
    def words(*command):
        return " ".join(lvd_here(*command, "--help").out.split())

    assert "Rows with the same molecule, however it is written" in words("fit")
    assert "kept in the same part of the split" in words("fit")
    assert "with empty cells for prediction and intervals" in words("predict")
    assert "the page draws the molecules and their neighbours" in words("report")
