"""``lvd fit --model``: boosted trees from the table to the page, and the choice between the built-in models."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lvd
from homes import write_homes

QUICK = ("--target", "price", "--drop", "id", "--preset", "paper")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "homes.csv"
    write_homes(path, 300, seed=0)
    return path


@pytest.fixture(autouse=True)
def short_training(monkeypatch):
    monkeypatch.setattr("lvd.models.validated.STAGES", ((1.0, 2),))


def test_trees_from_the_table_to_the_page(lvd_here, table, tmp_path):
    model, rows, page = tmp_path / "model", tmp_path / "test.csv", tmp_path / "page.html"
    fitted = lvd_here("fit", table, *QUICK, "--model", "trees", "--test-out", rows, "--out", model)
    assert fitted.code == 0, fitted.err
    assert f"model written to {model}; it uses boosted trees\n" in fitted.out
    loaded = lvd.load(model)
    assert isinstance(loaded.model_, lvd.TreesRegressor)
    for words in (
        ("predict", model, rows, "--out", tmp_path / "intervals.csv"),
        ("evaluate", model, rows),
        ("explain", model, rows, "--row", 3),
        ("report", model, rows, "--out", page),
    ):
        outcome = lvd_here(*words)
        assert outcome.code == 0, outcome.err
    again = tmp_path / "again"
    assert lvd_here("fit", table, *QUICK, "--model", "trees", "--out", again).code == 0
    X = np.random.default_rng(0).normal(size=(20, loaded.n_features_in_))
    np.testing.assert_array_equal(loaded.predict_interval(X)[1], lvd.load(again).predict_interval(X)[1])


def test_auto_says_what_it_took(lvd_here, table, tmp_path):
    model = tmp_path / "model"
    outcome = lvd_here("fit", table, *QUICK, "--model", "auto", "--out", model)
    assert outcome.code == 0, outcome.err
    errors = lvd.load(model).choice_
    names = {"net": "the network", "trees": "boosted trees"}
    best, other = sorted(errors, key=errors.__getitem__)
    assert (
        f"; it uses {names[best]}, chosen by cross-validation: error {errors[best]:.3g} of the target's standard "
        f"deviation, {names[other]} {errors[other]:.3g}\n"
    ) in outcome.out
    assert names[best] in (model / "card.md").read_text()


def test_json_names_it(lvd_here, table, tmp_path):
    outcome = lvd_here("fit", table, *QUICK, "--epochs", 1, "--out", tmp_path / "model", "--json")
    assert json.loads(outcome.out)["estimator"] == {"class": "NetRegressor", "held_out_errors": None}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "trees", "--epochs", 3), "--epochs applies to the network only, but --model is trees"),
        (("--model", "net", "--smiles", "district"), "--model applies to tables without molecules only"),
    ],
)
def test_what_does_not_go_together_is_refused(lvd_here, table, tmp_path, words, message):
    outcome = lvd_here("fit", table, *QUICK, *words, "--out", tmp_path / "model")
    assert outcome.code == 2
    assert message in outcome.err
    assert not (tmp_path / "model").exists()
