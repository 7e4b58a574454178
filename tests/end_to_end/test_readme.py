"""The README's code, word for word."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


def blocks(language):
    return re.findall(
        rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )


def test_the_python_lines_run_as_written(capsys):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(300, 3))
    y = X[:, 0] + rng.normal(size=300) * np.abs(X[:, 1])
    torch_rng = torch.random.get_rng_state()
    model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    torch.random.set_rng_state(torch_rng)
    names = {
        "model": model,
        "X_train": X[:100],
        "y_train": y[:100],
        "X_calib": X[100:200],
        "y_calib": y[100:200],
    }
    names["X_test"] = X[200:]
    (code,) = blocks("python")
    exec(code, names)
    assert names["intervals"].shape == (100, 2, 2)
    assert np.isfinite(names["intervals"]).mean() > 0.9
    said = names["reg"].explain(names["X_test"][:1])[0].sentence
    assert capsys.readouterr().out == f"{said}\n"
    assert "similar calibration rows" in said


@pytest.mark.parametrize("process", ["here", pytest.param("outside", marks=pytest.mark.slow)])
def test_the_tour_runs_as_written_in_an_empty_folder(tmp_path, process, monkeypatch, lvd_here, lvd_outside):
    monkeypatch.chdir(tmp_path)
    tour = next(block for block in blocks("bash") if "lvd fit" in block)
    for line in tour.strip().splitlines():
        command, *words = line.split()
        outcome = (lvd_here if process == "here" else lvd_outside)(*words)
        assert command == "lvd"
        assert outcome.code == 0, f"{line}\n{outcome.err}"
        assert outcome.out
    assert (tmp_path / "intervals.csv").read_text().startswith("age,sex,")


def test_the_two_commands_are_those_that_ci_runs():
    commands = next(block for block in blocks("bash") if "pip install" in block).strip().splitlines()
    assert commands == [
        "pip install -c constraints.txt . && lvd demo",
        'pip install -c constraints.txt -e ".[test]" && pytest',
    ]
    assert commands[1] in (ROOT / ".ci" / "run").read_text()
