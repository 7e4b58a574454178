"""Networks trained by chemprop's own command: in lvd's commands, and lvd in chemprop's."""

from __future__ import annotations

import csv
import importlib.util
import logging
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

if importlib.util.find_spec("chemprop") is None:
    pytest.skip("needs chemprop", allow_module_level=True)

import lvd
from lvd.cli import run_chemprop

ENDS = ("", "O", "N", "Cl", "S", "C#N", "C=O", "OC", "C(C)C", "c1ccccc1", "C1CCNC1", "c1ccncc1")
CHAINS = ["C" * n + end for n in range(1, 15) for end in ENDS]
TARGETS = ("--target", "size", "--target", "polar")
COLUMNS = ("--smiles-columns", "smiles")
ON_CPU = ("--accelerator", "cpu", "--num-workers", "0", "-qq")


class Trained(NamedTuple):
    checkpoint: Path
    unseen: Path
    new: Path


def run(name: str, *arguments: object) -> subprocess.CompletedProcess:
    """A command that was installed with chemprop or lvd, or, before it is installed again, its module."""
    script = Path(sys.executable).with_name(name)
    module = {"chemprop": "chemprop.cli.main", "lvd-chemprop": "lvd.cli.chemprop_plugin"}[name]
    command = [script] if script.exists() else [sys.executable, "-m", module]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False
    )


def write(path: Path, smiles: list[str], *, holes: bool = False) -> Path:
    rng = np.random.default_rng(len(smiles))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "size", "polar"])
        for row, string in enumerate(smiles):
            polar = sum(map(string.count, "ONS")) + 0.1 * rng.normal()
            polar = "" if holes and row % 4 == 0 else f"{polar:.3f}"
            writer.writerow([string, f"{len(string) + rng.normal():.3f}", polar])
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


pytestmark = pytest.mark.slow  # trains by the real command


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Trained:
    """A network of chemprop's command with an activation that its checkpoint holds as an object."""
    folder = tmp_path_factory.mktemp("chemprop")
    order = np.random.default_rng(0).permutation(len(CHAINS))
    parts = [[CHAINS[row] for row in rows] for rows in np.split(order, [60, 160])]
    small = ("--message-hidden-dim", 12, "--ffn-hidden-dim", 8, "--epochs", 2, "--warmup-epochs", 1)
    done = run(
        *("chemprop", "train", "-i", write(folder / "train.csv", parts[0], holes=True), *COLUMNS, *ON_CPU),
        *("--target-columns", "size", "polar", "--output-dir", folder / "run", "--task-type", "regression"),
        *(
            *small,
            "--activation",
            "LEAKYRELU",
            "--activation-args",
            "0.2",
            "--max-lr",
            0.05,
            "--final-lr",
            0.01,
        ),
    )
    assert done.returncode == 0, done.stderr
    return Trained(
        folder / "run" / "model_0" / "best.pt",
        write(folder / "unseen.csv", parts[1]),
        write(folder / "new.csv", [*parts[2], "CCCCBr"]),
    )


@pytest.fixture(scope="module")
def by_chemprop(trained, tmp_path_factory) -> list[dict[str, str]]:
    """What chemprop's command predicts for the new rows with ``--uncertainty-method lvd``."""
    out = tmp_path_factory.mktemp("predicted") / "out.csv"
    done = run(
        *("lvd-chemprop", "predict", "-i", trained.new, *COLUMNS, *ON_CPU, "--output", out),
        *("--model-paths", trained.checkpoint, "--uncertainty-method", "lvd", "--cal-path", trained.unseen),
        *("--conformal-alpha", 0.2),
    )
    assert done.returncode == 0, done.stderr
    return read(out)


@pytest.fixture(scope="module")
def model(lvd_here, trained, tmp_path_factory) -> Path:
    """What ``lvd fit`` makes of the checkpoint and of molecules that it has not seen."""
    out = tmp_path_factory.mktemp("lvd") / "model"
    outcome = lvd_here(
        *("fit", trained.unseen, "--smiles", "smiles", *TARGETS, "--checkpoint", trained.checkpoint),
        *("--trust", "--preset", "paper", "--level", 0.5, "--device", "cpu", "--out", out),
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert "100 rows, molecules of column smiles" in outcome.out
    return out


def test_predictions_of_a_saved_model_are_chemprops(lvd_here, trained, model, by_chemprop, tmp_path):
    assert lvd_here("predict", model, trained.new, "--out", tmp_path / "out.csv").code == 0
    rows = read(tmp_path / "out.csv")
    for target in ("size", "polar"):
        ours, own = (
            [float(row[name]) for row in table]
            for table, name in ((rows, f"y_pred_{target}"), (by_chemprop, target))
        )
        np.testing.assert_allclose(ours, own, rtol=0, atol=1e-5)
        assert np.ptp(own) > 0.001  # far more than the difference
    assert (model / "manifest.json").exists()
    assert not list(model.glob("*.pt"))


def test_it_is_explained_and_reported(lvd_here, trained, model, tmp_path):
    outcome = lvd_here("explain", model, trained.new, "--row", 2)
    assert outcome.out.startswith(f"row 2 ({read(trained.new)[1]['smiles']}), size: prediction ")
    page = tmp_path / "report.html"
    assert lvd_here("report", model, trained.new, "--target", "size", "--out", page).code == 0
    assert "<svg" in page.read_text()


def test_chemprops_command_gives_intervals_domain_and_the_nearest_molecule(trained, by_chemprop):
    calibration = {row["smiles"] for row in read(trained.unseen)}
    added = [f"{target}_{what}" for target in ("size", "polar") for what in ("lower", "upper", "support")]
    assert list(by_chemprop[0])[-9:] == [*added, "known", "nearest", "tanimoto"]
    assert len(by_chemprop) == len(read(trained.new))
    finite = 0
    for row in by_chemprop:
        lower, upper = float(row["size_lower"]), float(row["size_upper"])
        assert lower <= upper
        assert float(row["size_unc"]) == pytest.approx((upper - lower) / 2, abs=1e-5)
        finite += np.isfinite(upper)
        assert row["known"] in ("True", "False")
        assert float(row["size_support"]) >= 0
        assert lvd.molecules.smiles.canonical_smiles([row["nearest"]])[0] in set(
            lvd.molecules.smiles.canonical_smiles(calibration)
        )
        assert 0.0 < float(row["tanimoto"]) <= 1.0
    assert finite > len(by_chemprop) / 2
    bromide = by_chemprop[-1]  # no molecule of the calibration file has bromine
    assert (bromide["known"], bromide["size_upper"]) == ("False", "inf")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--output", "out.csv", "--cal-path", "unseen.csv", "--no-header-row"),
            "error: --uncertainty-method lvd needs files with a header row, as chemprop finds",
        ),
        (
            ("--output", "out.csv"),
            "error: --uncertainty-method lvd needs --cal-path FILE: molecules with known",
        ),
        (
            ("--output", "out.pkl"),
            "error: --output must end in .csv with --uncertainty-method lvd, got out.pkl",
        ),
    ],
)
def test_what_chemprops_command_refuses(trained, tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    arguments = ("predict", "-i", trained.new, *COLUMNS, *ON_CPU, "--model-paths", trained.checkpoint)
    given = map(str, ("lvd-chemprop", *arguments, "--uncertainty-method", "lvd", *options))
    monkeypatch.setattr(sys, "argv", list(given))
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    with pytest.raises(SystemExit) as end:
        run_chemprop()
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith(message)
    assert not list(tmp_path.iterdir())


def test_the_command_is_installed():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["lvd-chemprop"].partition(":")
    assert getattr(importlib.import_module(module), name) is run_chemprop


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--checkpoint", "best.pt"),
            "can run any code inside it; if you trust it as you would a program",
        ),
        (("--trust",), "--trust applies to a --checkpoint only; leave it out"),
        (("--checkpoint", "best.pt", "--trust"), "'best.pt' cannot be read as a checkpoint of chemprop 2"),
        (
            ("--checkpoint", "best.pt", "--trust", "--epochs", 3),
            "uses the network unchanged; leave out --epochs",
        ),
        (
            ("--checkpoint", "best.pt", "--trust", "--calibration", "cross"),
            "but --checkpoint is already trained; leave one of them out",
        ),
    ],
)
def test_fit_refuses(lvd_here, trained, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    outcome = lvd_here("fit", trained.unseen, "--smiles", "smiles", *TARGETS, *options, "--out", "model")
    assert (outcome.code, message in outcome.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_targets_must_be_those_of_the_network(lvd_here, trained, tmp_path):
    trust = ("--checkpoint", trained.checkpoint, "--trust", "--out", tmp_path / "model")
    outcome = lvd_here("fit", trained.unseen, "--smiles", "smiles", "--target", "polar", *trust)
    assert outcome.code == 2
    assert "predicts size, polar, in this order; give --target size --target polar" in outcome.err
    without = lvd_here("fit", trained.unseen, "--target", "polar", *trust)
    assert (without.code, "give --smiles COLUMN with them" in without.err) == (2, True)
