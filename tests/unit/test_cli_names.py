"""The library speaks of parameters, the command line of options, and translates."""

from __future__ import annotations

import ast
import pickle
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer

import lvd
from lvd._validation import InputError, Parameter, RowError
from lvd.cli.app import app, name_options, option_names
from lvd.tables.column_values import for_each_column
from lvd.tables.reading import counting_in_table


@pytest.mark.parametrize(
    ("pieces", "told", "shown"),
    [
        (("to leave out: ", Parameter("drop", ["id", "my 'own' name"])),
         """to leave out: drop=['id', "my 'own' name"]""",
         """to leave out: --drop id --drop 'my '"'"'own'"'"' name'"""),
        (("fit with ", Parameter("impute", "median")), "fit with impute='median'", "fit with --impute median"),
        (("with ", Parameter("skip_invalid", True)), "with skip_invalid=True", "with --skip-invalid"),
        ((Parameter("confidence_level"), " must lie in (0, 1)"),
         "confidence_level must lie in (0, 1)", "--level must lie in (0, 1)"),
        ((Parameter("column", named=True), " is new"), "column= is new", "--smiles is new"),
        ((Parameter("n_folds"), " must be positive"), "n_folds must be positive", "n_folds must be positive"),
    ],
)  # fmt: skip
def test_parameters_are_told_as_options(pieces, told, shown):
    error = InputError(*pieces)
    assert str(error) == told
    assert name_options(error) == shown


OWN_WORDS = (
    "x drop=[oops]",
    "drop=['a']",
    "row must be split='x'",
    "{rows}",
    "skip_invalid=True",
    "drop=[" * 3000,
)


@pytest.mark.parametrize("text", OWN_WORDS)
def test_the_words_of_a_user_stay_as_they_are(text):
    def refuse(name):
        raise InputError("holds ", Parameter("impute", "median"))

    with pytest.raises(InputError) as refused:
        for_each_column([text], refuse, may_drop=True)
    assert name_options(refused.value) == (
        f"column {text!r}: holds --impute median\nto leave out: --drop {shlex.quote(text)}"
    )


@pytest.mark.parametrize("text", OWN_WORDS)
def test_a_refused_row_in_a_column_of_any_name(text):
    with pytest.raises(RowError) as refused, counting_in_table(np.array([7, 9])):
        raise RowError("NaN in row ", (1,), f", column {text}")
    assert str(refused.value) == f"NaN in row 9, column {text}"
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_the_options_are_there():
    commands = list(typer.main.get_command(app).commands.values())
    commands += [one for group in commands for one in getattr(group, "commands", {}).values()]
    assert set(option_names().values()) <= {
        name for one in commands for option in one.params for name in option.opts
    }


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
    "folder", ["tables", "page", "methods", "models", "molecules", "calibration", "scores"]
)
def test_no_option_is_named_outside_of_the_command_line(folder):
    found = [
        text
        for path in sorted(Path(lvd.__file__).parent.joinpath(folder).glob("*.py"))
        for text in texts(path)
        if re.search(r"(?<![\w-])--[a-z]", text) and "ray start --head" not in text
    ]
    assert found == []
