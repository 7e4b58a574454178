"""The scripts in ``examples/``, run whole with small settings."""

from __future__ import annotations

import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))


@pytest.fixture
def quick(monkeypatch, tmp_path):
    monkeypatch.setenv("LVD_QUICK", "1")
    monkeypatch.delenv("LVD_FIGURE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_and_leaves_nothing_behind(name, quick, capsys):
    if name == "molecules.py" and find_spec("chemprop") is None:
        pytest.skip("needs chemprop")
    runpy.run_path(str(FOLDER / name))
    assert len(capsys.readouterr().out.splitlines()) >= 3
    assert not list(quick.iterdir())


def test_a_figure_is_drawn_when_asked(quick, monkeypatch):
    for name in ("synthetic.py", "drift.py"):
        monkeypatch.setenv("LVD_FIGURE", f"{name}.png")
        runpy.run_path(str(FOLDER / name))
    assert sorted(path.name for path in quick.iterdir()) == ["drift.py.png", "synthetic.py.png"]


def test_the_molecules_say_what_they_need(quick, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"needs chemprop: pip install 'lvd\[molecules\]'"):
        runpy.run_path(str(FOLDER / "molecules.py"))
