"""``lvd fit --joint``: several targets that hold together, from the table to the page."""

from __future__ import annotations

import csv
import json
from typing import get_args

import numpy as np
import pytest

import lvd
from lvd.cli.fit import JointShape
from lvd.scores.joint import SHAPES

TARGETS = ("price", "rent")


def write_table(path, n_rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 2))
    noise = rng.multivariate_normal([0, 0], [[1.0, 0.9], [0.9, 1.0]], size=n_rows) * (0.2 + np.abs(X[:, :1]))
    y = X + noise * [0.3, 30.0]
    lines = [",".join(("a", "b", *TARGETS)), *(",".join(f"{v:.6f}" for v in row) for row in np.c_[X, y])]
    path.write_text("\n".join(lines) + "\n")
    return path


def fit_words(table, out, *options):
    both = (word for name in TARGETS for word in ("--target", name))
    return ("fit", table, *both, "--epochs", 3, "--score", "absolute", *options, "--out", out)


@pytest.fixture(scope="module")
def folder(lvd_here, tmp_path_factory):
    folder = tmp_path_factory.mktemp("joint")
    write_table(folder / "homes.csv", 500, 0)
    write_table(folder / "new.csv", 300, 1)
    for shape in SHAPES:
        found = lvd_here(*fit_words(folder / "homes.csv", folder / shape, "--joint", shape))
        assert found.code == 0, found.err
        (folder / f"{shape}.txt").write_text(found.out)
    return folder


def test_the_choices_are_the_librarys():
    assert get_args(JointShape) == SHAPES


@pytest.mark.parametrize("shape", SHAPES)
def test_fit_says_how_often_all_targets_are_covered_and_so_does_the_card(folder, shape):
    (line,) = [
        x for x in (folder / f"{shape}.txt").read_text().splitlines() if x.startswith("all targets together")
    ]
    assert "of 100 rows have every true value inside at level 0.9" in line
    assert f"made to hold together (joint {shape})" in line
    card = (folder / shape / "card.md").read_text()
    assert f"- {line}" in card
    assert f"- joint: {shape}" in card


@pytest.mark.parametrize("shape", SHAPES)
def test_predictions_hold_together_and_evaluate_says_so(lvd_here, folder, shape, tmp_path):
    out = tmp_path / "out.csv"
    said = lvd_here("predict", folder / shape, folder / "new.csv", "--out", out)
    assert (
        f"the intervals of all targets hold together: they are the projections of one {shape} per row"
        in said.out
    )
    with out.open() as file:
        rows = [
            {name: float(cell) for name, cell in row.items() if name != "known"}
            for row in csv.DictReader(file)
        ]
    inside = [all(row[f"lower_90_{t}"] <= row[t] <= row[f"upper_90_{t}"] for t in TARGETS) for row in rows]
    (together,) = json.loads(lvd_here("evaluate", folder / shape, folder / "new.csv", "--json").out)[
        "together"
    ]
    assert together["n_rows"] == 300
    assert together["lower"] < together["coverage"] < together["upper"]
    if shape == "box":
        assert together["coverage"] == pytest.approx(np.mean(inside))
    else:  # the ellipsoid is inside the box of its projections
        assert together["coverage"] <= np.mean(inside)
    assert 0.8 < together["coverage"] < 1.0


@pytest.mark.parametrize("shape", SHAPES)
def test_explain_names_the_target_and_the_page_draws_the_pair(lvd_here, folder, shape, tmp_path):
    explained = json.loads(lvd_here("explain", folder / shape, folder / "new.csv", "--row", 3, "--json").out)
    assert explained[0]["largest"]["name"] in TARGETS
    assert f"largest in {explained[0]['largest']['name']}" in explained[0]["sentence"]
    page, table = tmp_path / "page.html", tmp_path / "new.csv"
    rent_unknown = (folder / "new.csv").read_text().rpartition(",")[0]
    table.write_text(f"{rent_unknown},\n")
    found = lvd_here("report", folder / shape, table, "--target", "price", "--out", page)
    assert found.code == 0, found.err
    text = page.read_text()
    assert "of 299 rows have every true value inside" in text
    assert "The regions of this model hold price, rent together" in text
    assert "The regions of 12 rows for price and rent" in text


def test_models_without_joint_say_how_often_all_are_covered_and_what_to_do(lvd_here, folder, tmp_path):
    found = lvd_here(*fit_words(folder / "homes.csv", tmp_path / "model"))
    assert (
        "each interval is made for its target alone; lvd fit --joint box makes them hold together"
        in found.out
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--joint", "box", "--preset", "paper"), "joint regions need kernel_target 'errors'"),
        (("--joint", "ball"), "ball"),
    ],
)
def test_what_cannot_be_joint_is_refused(lvd_here, folder, tmp_path, options, message):
    found = lvd_here(*fit_words(folder / "homes.csv", tmp_path / "model", *options))
    assert found.code == 2
    assert message in found.err
    assert not (tmp_path / "model").exists()


def test_one_target_and_other_scores_are_refused(lvd_here, folder, tmp_path):
    table, out = folder / "homes.csv", tmp_path / "model"
    one = lvd_here("fit", table, "--target", "price", "--joint", "box", "--out", out)
    signed = lvd_here(
        "fit",
        table,
        "--target",
        "price",
        "--target",
        "rent",
        "--joint",
        "box",
        "--score",
        "signed",
        "--out",
        out,
    )
    assert (one.code, signed.code) == (2, 2)
    assert "give --target more than once, or leave --joint out" in one.err
    assert "--score must be 'scaled', 'absolute' or a ScaledResidual for joint regions" in signed.err
    assert not out.exists()


def test_a_saved_model_is_a_joint_regressor(folder):
    assert lvd.load(folder / "box").joint == "box"
