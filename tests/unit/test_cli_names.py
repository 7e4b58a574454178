"""The library speaks of parameters, the command line of options, and translates."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import lvd
from lvd.cli.app import name_options


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("to leave out: drop=['id', 'my \\'own\\' name']", "to leave out: --drop id --drop 'my own name'"),
        ("or fit with impute='median'", "or fit with --impute median"),
        ("leave them out with skip_invalid=True", "leave them out with --skip-invalid"),
        ("confidence_level must lie in (0, 1), got 90", "--level must lie in (0, 1), got 90"),
        ("y_range must hold finite numbers", "--y-min, --y-max must hold finite numbers"),
        ("skip_invalid= is for models fitted with column=; leave it out",
         "--skip-invalid is for models fitted with --smiles; leave it out"),
        ("column 'drop=1': has no values\nto leave out: drop=['drop=1']",
         "column 'drop=1': has no values\nto leave out: --drop drop=1"),
        ("column 'row': a row must be there", "column 'row': a row must be there"),
    ],
)  # fmt: skip
def test_parameters_are_told_as_options(message, shown):
    assert name_options(message) == shown.replace("'my own name'", "'my '\"'\"'own'\"'\"' name'")


def texts(path: Path) -> list[str]:
    """The strings of a module, without docstrings."""
    tree = ast.parse(path.read_text())
    documents = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents
    ]


@pytest.mark.parametrize(
    "folder", ["tables", "page", "methods", "models", "molecules", "conformal", "scores"]
)
def test_no_option_is_named_outside_of_the_command_line(folder):
    found = [
        text
        for path in sorted(Path(lvd.__file__).parent.joinpath(folder).glob("*.py"))
        if path.name
        != "chemprop_plugin.py"  # it is a part of chemprop's command, and names chemprop's options
        for text in texts(path)
        if re.search(r"(?<![\w-])--[a-z]", text) and "ray start --head" not in text
    ]
    assert found == []
