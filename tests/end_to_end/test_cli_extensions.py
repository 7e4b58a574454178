"""A kernel, a score and a support rule of one's own on the command line, from fit to report."""

from __future__ import annotations

import pytest

from lvd.cli.app import main  # noqa: F401  (before the stranger's modules)

PARTS = {
    "--kernel": "tests.extensions.leaf_kernel:LeafKernel",
    "--score": "tests.extensions.relative_score:RelativeResidual",
    "--support": "tests.extensions.forest_support:ForestSupport",
}
TRUST = [word for name in PARTS.values() for word in ("--trust", name)]


@pytest.fixture(scope="module")
def model(lvd_here, homes, tmp_path_factory):
    out = tmp_path_factory.mktemp("own") / "model"
    options = [word for pair in PARTS.items() for word in pair]
    words = ("fit", homes.table, "--target", "price", "--drop", "id", "--epochs", 10, *options, "--out", out)
    outcome = lvd_here(*words)
    assert outcome.code == 0, outcome.err
    return out


def test_it_predicts_once_it_is_trusted(lvd_here, model, homes, tmp_path):
    out = tmp_path / "out.csv"
    outcome = lvd_here("predict", model, homes.new, *TRUST, "--out", out)
    assert outcome.code == 0, outcome.err
    assert "of the intervals are finite" in outcome.out
    assert len(out.read_text().splitlines()) == 121


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate",),
        ("explain", "--row", 1),
        ("monitor",),
        ("report", "--out", "page.html"),
        ("update", "--out", "updated"),
    ],
    ids=lambda words: words[0],
)
def test_the_other_commands_do_too(lvd_here, model, homes, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    command = (words[0], model, homes.new, *words[1:])
    refused = lvd_here(*command)
    assert (refused.code, refused.out) == (2, "")
    assert "whose code would run; if you trust it, give --trust tests.extensions." in refused.err
    outcome = lvd_here(*command, *TRUST)
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kernel", "LeafKernel"), "is named as MODULE:CLASS, got 'LeafKernel'"),
        (
            ("--kernel", "nowhere:LeafKernel"),
            "nowhere:LeafKernel cannot be imported (No module named 'nowhere')",
        ),
        (("--kernel", "json:dumps"), "json:dumps must be a class, got function"),
        (
            ("--support", "fractions:Fraction"),
            "fractions:Fraction must derive from lvd.support.rule.SupportRule",
        ),
        (("--kernel", "functools:partial"), "functools:partial needs settings"),
    ],
)
def test_what_is_none(lvd_here, homes, tmp_path, options, message):
    words = ("fit", homes.table, "--target", "price", "--drop", "id", "--epochs", 1, *options)
    outcome = lvd_here(*words, "--out", tmp_path / "model")
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert not (tmp_path / "model").exists()


def test_a_class_in_the_current_folder(lvd_here, homes, tmp_path, monkeypatch):
    (tmp_path / "my_rule.py").write_text(
        "from lvd.support import TrainingSupport\nclass Mine(TrainingSupport):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ("fit", homes.table, "--target", "price", "--drop", "id", "--epochs", 1)
    fitted = lvd_here(*words, "--support", "my_rule:Mine", "--out", "model")
    assert fitted.code == 0, fitted.err
    assert lvd_here("predict", "model", homes.new, "--trust", "my_rule:Mine", "--out", "o.csv").code == 0
