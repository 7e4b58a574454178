"""Importing lvd loads nothing heavy; its names load what they need."""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys

import pytest

import lvd
from lvd.cli import app

HEAVY = ("torch", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib", "rich", "typer", "jinja2", "fastapi")


def test_importing_lvd_loads_nothing_heavy():
    code = f"import sys, lvd; dir(lvd), lvd.__version__; print([m for m in {HEAVY} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_every_public_name_is_there():
    for name in lvd.__all__:
        assert getattr(lvd, name) is not None
    assert set(lvd.__all__) <= set(dir(lvd))


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="module 'lvd' has no attribute 'magic'"):
        _ = lvd.magic


def test_what_predicts_tables_loads_nothing_that_only_fitting_needs():
    late = (
        "sklearn.neighbors",
        "sklearn.ensemble",
        "sklearn.pipeline",
        "sklearn.model_selection",
        "sympy",
        "numba",
    )
    code = (
        "import sys; from lvd.cli import app; sys.meta_path.insert(0, app.ImportedLater());"
        f"import lvd.tables.table_model; print([m for m in {late} if m in sys.modules],"
        "type(sys.modules['scipy.stats']).__name__)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[] _LazyModule"


def test_a_module_that_is_put_off(monkeypatch, tmp_path):
    (tmp_path / "put_off_by_lvd.py").write_text("__version__ = '1'\nanswer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(app, "LOADED_LATE", {"put_off_by_lvd", "nowhere_to_be_found"})
    monkeypatch.setattr(sys, "meta_path", [app.ImportedLater(), *sys.meta_path])
    module = importlib.import_module("put_off_by_lvd")
    assert type(module) is not type(sys)
    assert (module.answer, module.__version__, type(module)) == (42, "1", type(sys))
    with pytest.raises(AttributeError, match="has no attribute 'question'"):
        _ = module.question
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("nowhere_to_be_found")
    del sys.modules["put_off_by_lvd"]


def test_the_first_garbage_is_collected_late_and_the_next_as_ever(monkeypatch):
    """Loading packages makes hardly any: what costs time is to look for it."""
    before = gc.get_threshold()
    monkeypatch.setattr(sys, "argv", ["lvd", "--version"])
    try:
        with pytest.raises(SystemExit):
            app.main()
        assert gc.get_threshold()[0] == app.FIRST_COLLECTED
        assert gc.callbacks.count(app.collect_more_often) == 1
        gc.collect()
        assert gc.get_threshold()[0] == app.COLLECTED
        assert app.collect_more_often not in gc.callbacks
    finally:
        gc.set_threshold(*before)
