"""``python -m experiments small-samples``: draw, go on where it stopped, and write the page."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor

from command_line import experiments_here
from experiments.arena.measures import lowest_pooled_group
from experiments.arena.split import SharedModel
from experiments.paper.stages import Stages
from experiments.small.page import SmallBoard
from experiments.small.samples import GROUPS, SAMPLES
from experiments.small.study import SMALL_METHODS, SmallResult, count_small, plan_small, run_draw, run_small
from lvd import JackknifePlusRegressor
from lvd.wrap import as_model

RUN = ("small-samples", "--samples", "noise-levels", "--models", "trees", "--sizes", "60", "--draws", "0:2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "results"
    outcome = experiments_here(*RUN, "--methods", "split,cv-plus", "--out", folder)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "8 results, 8 of them done now; 0 failed\n"
    return folder


def test_what_is_finished_is_not_done_again(folder):
    outcome = experiments_here(*RUN, "--methods", "split,cv-plus", "--out", folder)
    assert outcome.out == "8 results, 0 of them done now; 0 failed\n"


def test_the_page_and_the_compact_table(folder, tmp_path):
    pages = tmp_path / "first.md", tmp_path / "second.md"
    table = tmp_path / "small.csv"
    assert experiments_here("small-samples-page", folder, "--csv", table, "--out", pages[0]).code == 0
    assert experiments_here("small-samples-page", table, "--out", pages[1]).code == 0
    text = pages[0].read_text()
    assert pages[1].read_text() == text
    assert "| score | split conformal | 1.000 |" in text
    assert "| draws of each sample |  | 2 |" in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--samples", "moon"), "unknown name 'moon' in samples"),
        (("--sizes", "61"), "unknown name '61' in sizes"),
        (("--methods", "magic"), "unknown name 'magic' in methods"),
        (("--jobs", "0"), "jobs must be"),
    ],
)
def test_refusals(tmp_path, words, message):
    outcome = experiments_here("small-samples", *words, "--out", tmp_path / "results")
    assert outcome.code == 2
    assert message in " ".join(outcome.err.split())


@pytest.mark.parametrize("name", SAMPLES)
def test_five_groups_are_about_as_large(name):
    counts = np.bincount(SAMPLES[name](np.random.default_rng(0), 10_000).group)
    assert len(counts) == GROUPS
    assert counts.min() > 1800


def test_after_the_minutes_no_draw_is_begun(tmp_path):
    jobs = plan_small(sizes="60", draws="0:3", methods="split", models="trees")
    run_small(jobs, tmp_path, minutes=1e-9)
    assert count_small(tmp_path) == 0


def test_cv_plus_is_that_of_the_library():
    """Of a model that predicts the mean, whichever rows are in a fold: the folds differ, and hardly matter."""
    given = SAMPLES["friedman"](np.random.default_rng(0), 400)
    shared = SharedModel(as_model(DummyRegressor()), Stages())
    own = SMALL_METHODS["cv-plus"](shared, given, 0)(given.X[:3])
    theirs = JackknifePlusRegressor(DummyRegressor(), cv=5, random_state=0).fit(given.X, given.y)
    np.testing.assert_allclose(own, theirs.predict_interval(given.X[:3], [0.5, 0.9])[1], atol=0.5)


def test_both_forms_of_lvd_run():
    methods = ("split", "lvd-split", "lvd-cross")
    found = run_draw("noise-levels", "trees", 60, 0, methods)
    assert not any(one.error for one in found)
    assert [one.method for one in found[::2]] == list(methods)


def test_groups_are_pooled_and_draws_that_lack_a_method_left_out():
    one = SmallResult("friedman", "trees", 60, 0, 0.9, "split", 0.8, "1/2 4/4 4/4 4/4 4/4", 1.0, 2.0)
    other = SmallResult("friedman", "trees", 60, 1, 0.9, "split", 0.8, "2/2 3/4 4/4 4/4 4/4", 1.0, 2.0)
    assert lowest_pooled_group([one, other]) == 0.75
    assert SmallBoard([one, other], "trees").sizes == []
