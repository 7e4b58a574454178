from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone

from experiments.arena import contest, contestants
from experiments.arena.contestants import CONTESTANTS, Contestant, error_scale
from experiments.arena.crossed import plus_ends
from experiments.arena.distributional import Quantiles
from experiments.arena.measures import ArenaResult, lowest_pooled_group, measure, measure_outside
from experiments.arena.split import ArenaSplit
from experiments.arena.tables import (
    ARENA_TABLES,
    OUTSIDE,
    SYNTHETIC,
    UNSEEN_TABLES,
    ArenaTable,
    PackagedTable,
    load_arena_table,
    packaged_file,
)
from experiments.paper.result_store import read_calls, write_dataclasses
from lvd import InputError

FAST = ("split", "ten-lines")


@pytest.fixture(scope="module")
def corner():
    return load_arena_table("corner", None)


@pytest.fixture(scope="module")
def split(corner):
    return ArenaSplit(corner, "trees", 0)


def measured(split, intervals, level=0.9, **kwargs):
    given = {"known": math.nan, "predicted_error": np.ones(len(split.y_test)), "seconds": (0.0, 0.0)}
    return measure(split, level, "any", intervals, **(given | kwargs))


def test_the_truth_covers_what_it_says(corner):
    """The exact coverage of an interval is the share of fresh targets in it."""
    truth = corner.truth.rows(np.array([0, 1]))
    intervals = np.column_stack([truth.mean - truth.scale, truth.mean + 2 * truth.scale])
    noise = np.random.default_rng(0).standard_t(4, size=200_000)
    assert truth.coverage(intervals) == pytest.approx(np.mean((noise >= -1) & (noise <= 2)), abs=0.005)


def test_the_floor_covers_exactly_and_nothing_symmetric_is_better(corner, rng):
    truth = corner.truth
    y_pred = truth.mean + 0.3 * rng.normal(size=len(truth.mean))
    best = truth.best_around(y_pred, 0.9)
    assert truth.coverage(best) == pytest.approx(0.9, abs=1e-9)
    assert best.mean(axis=1) == pytest.approx(y_pred)
    y = np.tile(truth.mean, 50) + np.tile(truth.scale, 50) * rng.standard_t(4, size=50 * len(y_pred))

    def score(intervals):
        lower, upper = np.tile(intervals, (50, 1)).T
        return np.mean(upper - lower + 20 * (np.maximum(lower - y, 0) + np.maximum(y - upper, 0)))

    middle, half = best.mean(1), (best[:, 1] - best[:, 0]) / 2
    for factor in (0.8, 1.25):
        assert score(best) < score(np.column_stack([middle - factor * half, middle + factor * half]))


@pytest.mark.parametrize("name", SYNTHETIC)
def test_made_up_tables_are_the_same_every_time(name):
    one, other = load_arena_table(name, None), load_arena_table(name, None)
    np.testing.assert_array_equal(one.y, other.y)
    residuals = (one.y - one.truth.mean) / one.truth.scale
    assert one.truth.cdf(residuals).mean() == pytest.approx(0.5, abs=0.02)


def test_a_model_is_trained_once_for_all_its_copies(corner):
    split = ArenaSplit(corner, "trees", 1)
    first = split.estimator.fit(split.X_train, split.y_train[:, None])
    second = clone(split.estimator).fit(split.X_train, split.y_train[:, None])
    other = clone(split.estimator).fit(split.X_train[1:], split.y_train[1:, None])
    assert second.fitted_ is first.fitted_
    assert other.fitted_ is not first.fitted_


def test_shared_training_counts_for_everyone(corner):
    split = ArenaSplit(corner, "trees", 2)
    _, alone = split.stages.as_if_alone(lambda: split.held_out)
    _, again = split.stages.as_if_alone(lambda: split.held_out)
    assert again > 0.5 * alone


def test_infinite_intervals_count_as_the_range_of_y(split):
    everything = np.tile([-np.inf, np.inf], (len(split.y_test), 1))
    result = measured(split, everything)
    assert result.width == pytest.approx(1.2 * np.ptp(split.y_train))
    assert (result.coverage, result.finite, result.conditional_gap) == pytest.approx((1.0, 0.0, 0.1))
    assert math.isinf(result.median_width)
    assert math.isfinite(result.winkler)
    assert lowest_pooled_group([result]) == 1.0


def test_the_best_intervals_reach_the_floor(split):
    best = split.table.truth.rows(split.test).best_around(split.predict(split.X_test), 0.9)
    result = measured(split, best)
    assert result.winkler == pytest.approx(result.floor)
    assert result.conditional_gap == pytest.approx(0.0, abs=1e-9)
    assert abs(result.ert) < 0.03


def test_groups_are_pooled_before_the_lowest_is_taken(split):
    half = dataclasses.replace(measured(split, np.zeros((len(split.y_test), 2))), groups="5/10 9/10")
    other = dataclasses.replace(half, groups="10/10 0/90")
    assert lowest_pooled_group([half, other]) == pytest.approx(9 / 100)


def test_ten_lines_beats_split_where_noise_has_a_place(split):
    results = {name: contest.run_contestant(split, name, 0.9) for name in FAST}
    assert not any(result.error for result in results.values())
    assert results["ten-lines"].winkler < 0.8 * results["split"].winkler
    assert results["ten-lines"].ert < results["split"].ert
    assert all(0.85 < result.coverage < 0.95 for result in results.values())


@pytest.mark.parametrize(
    "name",
    [name for name in CONTESTANTS if name.startswith(("cqr-boosted", "crepes", "mapie", "cv", "forest"))],
)
def test_rivals_cover(split, name):
    if name.startswith(("crepes", "mapie")):
        pytest.importorskip(name.partition("-")[0])
    if name == "mapie-conditional":
        pytest.importorskip("cvxpy")
    if name == "forest-cqr":
        pytest.importorskip("quantile_forest")
    result = contest.run_contestant(split, name, 0.9)
    assert result.error == ""
    assert 0.82 < result.coverage < 0.97
    assert result.rows == (CONTESTANTS[name].most_rows or len(split.y_test))


def test_mapie_split_is_split(split):
    pytest.importorskip("mapie")
    ours, theirs = (CONTESTANTS[name].learn(split, 0.9)(split.X_test) for name in ("split", "mapie-split"))
    np.testing.assert_allclose(ours, theirs)


def test_the_scale_stays_off_zero(split):
    errors = np.abs(split.y_train - split.held_out)
    assert error_scale(split)(split.X_test).min() >= 0.1 * np.median(errors)


@pytest.fixture(scope="module")
def inner(corner):
    """A split from which the corner's noisy fifth is kept away."""
    X = corner.features(np.arange(len(corner.y)))
    return ArenaSplit(dataclasses.replace(corner, outside=np.flatnonzero(X[:, 0] > 0.6)), "trees", 0)


class TestRowsFromOutside:
    def test_they_neither_train_nor_calibrate_nor_test(self, inner):
        for X in (inner.X_train, inner.X_calib, inner.X_test):
            assert (X[:, 0] <= 0.6).all()
        assert (inner.X_outside[:, 0] > 0.6).all()
        assert len(inner.y_outside) == len(inner.table.outside)

    def test_a_method_that_flags_nothing_covers_too_few(self, inner):
        result = contest.run_contestant(inner, "split", 0.9)
        assert (result.outside_flagged, result.outside_rows) == (0.0, len(inner.y_outside))
        assert result.coverage > 0.87
        assert result.outside_coverage < 0.5

    def test_what_is_unknown_or_infinite_is_flagged_and_does_not_count(self, inner):
        inside = measured(inner, np.zeros((len(inner.y_test), 2)))
        intervals = np.array([[-np.inf, np.inf], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
        known = np.array([True, False, True, True])
        result = measure_outside(inside, np.array([0.5, 0.5, 0.5, 5.0]), intervals, known)
        assert (result.outside_rows, result.outside_flagged, result.outside_coverage) == (4, 0.5, 0.5)

    @pytest.mark.parametrize("name", OUTSIDE)
    def test_each_table_has_some(self, shared_dir, name):
        table = load_arena_table(name, shared_dir / "data")
        assert 0.03 < len(table.outside) / len(table.y) < 0.3


def test_a_run_goes_on_from_a_compact_table(tmp_path):
    jobs = contest.plan_arena(
        tables="corner", models="trees", methods="split,ten-lines", seeds="0", levels="0.9"
    )
    assert contest.run_arena(jobs, tmp_path / "first") == 2
    contest.ARENA_RESULTS.write(contest.ARENA_RESULTS.read(tmp_path / "first"), tmp_path / "arena.csv")
    contest.unpack_arena(tmp_path / "arena.csv", tmp_path / "second")
    assert contest.run_arena(jobs, tmp_path / "second") == 0
    np.testing.assert_equal(
        *(
            list(map(dataclasses.asdict, contest.ARENA_RESULTS.read(tmp_path / name)))
            for name in ("first", "second")
        )
    )


def test_a_compact_table_adds_what_a_folder_lacks_and_replaces_nothing(tmp_path, split):
    old = [
        dataclasses.replace(measured(split, np.zeros((len(split.y_test), 2))), method=name, width=1.0)
        for name in FAST
    ]
    contest.ARENA_RESULTS.write(old, tmp_path / "arena.csv")
    (tmp_path / "runs").mkdir()
    newer = dataclasses.replace(old[0], width=2.0)
    contest.ARENA_RESULTS.write([newer], tmp_path / "runs" / "corner-trees-0.csv")
    contest.unpack_arena(tmp_path / "arena.csv", tmp_path)
    assert {one.method: one.width for one in contest.ARENA_RESULTS.read(tmp_path)} == {
        "split": 2.0,
        "ten-lines": 1.0,
    }


def test_our_forms_need_no_more_than_the_numerical_packages(tmp_path):
    """Tables and results are read, and contestants learned, where neither Arrow nor the command line is there."""
    absent = ("pyarrow", "pandas", "typer", "rich", "jinja2", "matplotlib", "mapie", "crepes", "lightgbm")
    program = (
        "import runpy, sys\n"
        f"for name in {absent}: sys.modules[name] = None\n"
        "runpy.run_module('experiments.arena', run_name='__main__')\n"
    )
    words = (
        "--tables",
        "corner",
        "--models",
        "trees",
        "--seeds",
        "0",
        "--levels",
        "0.9",
        "--methods",
        "split",
    )
    command = [sys.executable, "-c", program, *words, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "1 results\n"), done.stderr
    (result,) = contest.ARENA_RESULTS.read(tmp_path)
    assert result.method == "split"
    (call,) = read_calls(tmp_path)
    assert "python -m experiments.arena --tables corner --models trees --methods split" in call.command


def test_the_ends_of_cv_plus_by_hand():
    """Nine rows at level 0.9: the lowest of y_pred - r and the highest of y_pred + r, in units of each fold."""
    means, fold_of = np.array([[0.0], [10.0]]), np.array([0] * 5 + [1] * 4)
    scores = np.arange(1.0, 10.0)
    plain = plus_ends(means, np.ones((2, 1)), scores, fold_of, 0.9)
    np.testing.assert_array_equal(plain, [[-5.0, 19.0]])
    wider = plus_ends(means, np.array([[4.0], [1.0]]), scores, fold_of, 0.9)
    np.testing.assert_array_equal(wider, [[-20.0, 20.0]])
    np.testing.assert_array_equal(
        plus_ends(means, np.ones((2, 1)), scores, fold_of, 0.95), [[-np.inf, np.inf]]
    )


def test_a_distribution_answers_both_ways():
    found = Quantiles(np.array([0.0, 0.25, 1.0]), np.array([[0.0, 1.0, 4.0], [-2.0, 0.0, 3.0]]))
    np.testing.assert_allclose(found.cdf(np.array([0.5, 1.5])), [0.125, 0.625])
    np.testing.assert_allclose(found.at(np.array([[0.125, 0.625], [0.25, 0.625]])), [[0.5, 2.5], [0.0, 1.5]])
    np.testing.assert_array_equal(found.at(np.array([[0.0, 1.0], [-0.1, 1.1]])), [[-np.inf, np.inf]] * 2)


def test_tables_inside_packages_are_found_without_importing_them(tmp_path, monkeypatch):
    (tmp_path / "someones").mkdir()
    (tmp_path / "someones" / "__init__.py").write_text("raise RuntimeError")
    (tmp_path / "someones" / "t.csv").write_text("a,letter,y\n" + "1,u,2\n3,v,4\n" * 5)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(UNSEEN_TABLES, "mine", PackagedTable("someones", "t.csv", "y", ("a",)))
    table = load_arena_table("mine", None)
    np.testing.assert_array_equal(table.y, [2.0, 4.0] * 5)
    np.testing.assert_array_equal(table.features(np.arange(4)), [[1.0, 0.0], [0.0, 1.0]] * 5)
    with pytest.raises(InputError, match=r"t\.csv of the package nobodys was not found; pip install nobodys"):
        packaged_file(PackagedTable("nobodys", "t.csv", "y"))


def test_no_unseen_table_is_one_of_the_others():
    assert len(UNSEEN_TABLES) == 10
    assert not set(UNSEEN_TABLES) & {*ARENA_TABLES, *OUTSIDE}


def broken(split, level):
    raise ValueError("it is\nbroken")


def test_what_is_finished_is_not_done_again_and_what_failed_is(tmp_path, monkeypatch):
    jobs = contest.plan_arena(
        tables="corner", models="trees", methods="split,ten-lines", seeds="0", levels="0.9"
    )
    monkeypatch.setitem(CONTESTANTS, "ten-lines", Contestant("ten lines", broken, ""))
    assert contest.run_arena(jobs, tmp_path) == 2
    first, second = contest.ARENA_RESULTS.read(tmp_path)
    assert (first.error, second.error) == ("", "ValueError: it is broken")
    assert first.processor == second.processor != ""
    assert math.isnan(second.coverage)
    monkeypatch.setitem(CONTESTANTS, "ten-lines", Contestant("ten lines", contestants.ten_lines, ""))
    assert contest.run_arena(jobs, tmp_path) == 1
    assert [one.error for one in contest.ARENA_RESULTS.read(tmp_path)] == ["", ""]
    assert contest.run_arena(jobs, tmp_path) == 0
    assert [file.name for file in (tmp_path / "runs").iterdir()] == ["corner-trees-0.csv"]


def test_results_survive_the_file(tmp_path, split):
    result = dataclasses.replace(
        measured(split, np.zeros((len(split.y_test), 2))),
        error='a "quoted", comma',
        known=0.5,
        width_error=-0.25,
    )
    write_dataclasses([result], tmp_path / "one.csv", ArenaResult, digits=17)
    (read,) = contest.ARENA_RESULTS.read(tmp_path / "one.csv")
    np.testing.assert_equal(dataclasses.asdict(read), dataclasses.asdict(result))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tables": "moon"}, "unknown name 'moon' in tables"),
        ({"models": "oracle"}, "unknown name 'oracle' in models"),
        ({"methods": "magic"}, "unknown name 'magic' in methods"),
    ],
)
def test_unknown_names_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        contest.plan_arena(**given)


def test_a_missing_table_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setenv("LVD_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="table 'airfoil' was not found"):
        contest.plan_arena(tables="airfoil", data_dir=tmp_path)


def test_other_files_are_no_results(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="is not a table of the arena"):
        contest.ARENA_RESULTS.read(tmp_path / "x.csv")
    with pytest.raises(InputError, match=r"no results in .* make some with: python -m experiments arena"):
        contest.ARENA_RESULTS.read(tmp_path)


def test_text_and_missing_cells_are_coded_as_fit_does(tmp_path, monkeypatch):
    import gzip

    rows = "".join(f"{i % 7},{'' if i % 5 == 0 else i % 3},{'ab'[i % 2]},same\n" for i in range(40))
    (tmp_path / "arena").mkdir()
    with gzip.open(tmp_path / "arena" / "wine.csv.gz", "wt") as file:
        file.write("y,number,letter,constant\n" + rows)
    table = load_arena_table("wine", tmp_path)
    train = np.arange(20)
    X = table.features(train)
    assert X.shape == (40, 3)  # a number and two letters; the constant column goes
    known = np.array([i % 3 for i in train if i % 5])
    assert X[0, 0] == np.median(known)
    assert isinstance(table, ArenaTable)
    assert len(ARENA_TABLES) == 20


def test_predicting_is_not_counted_the_training(corner):
    result = contest.run_contestant(ArenaSplit(corner, "trees", 3), "ten-lines", 0.9)
    assert result.predict_seconds < 0.1 * result.fit_seconds


@pytest.mark.parametrize("name", [name for name in CONTESTANTS if CONTESTANTS[name].ours])
def test_lvd_runs_in_all_its_forms(split, name):
    result = contest.run_contestant(split, name, 0.9)
    assert result.error == ""
    assert 0.84 < result.coverage < 0.99
    assert math.isnan(result.known) if name == "lvd-paper" else result.known > 0.97


def test_the_crossed_form_trains_on_the_calibration_rows_too(split):
    regressor = contestants.lvd_crossed(split, 0.9)
    assert regressor.n_calib_ == len(split.y_train) + len(split.y_calib)
    assert regressor.crossed_
