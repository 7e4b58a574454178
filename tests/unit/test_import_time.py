"""Importing lvd loads nothing heavy; its names load what they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lvd

HEAVY = ("torch", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib", "rich", "typer", "jinja2")


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
    code = f"import sys, lvd.tables.table_model; print([m for m in {late} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
