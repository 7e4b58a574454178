"""Intervals over time: keys, late labels, memory, unknown rows, half-lives, saving."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import lvd
from lvd.calibration.fading import FadingRows, ranked_quantiles
from lvd.methods.online_intervals import interval_score


def world(n, seed=0, drift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    noise = 0.1 + 0.3 * (X[:, 1] > 0) + drift * np.linspace(0, 1, n)
    return X, X[:, 0] + noise * rng.normal(size=n)


def fitted(X, y):
    score = lvd.scores.ScaledResidual(scales=("kernel", "boosted"))
    return lvd.LVDRegressor(Ridge(), conformity_score=score, random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def reg():
    return fitted(*world(700))


@pytest.fixture(scope="module")
def two_horizons():
    X, y = world(500)
    score = lvd.scores.AbsoluteResidual()
    return lvd.LVDRegressor(Ridge(), conformity_score=score, random_state=0).fit(
        X, np.column_stack([y, 3 * y])
    )


def stream(online, X, y, *, batch=1, delay=0):
    """The intervals of rows whose labels come so many batches late."""
    keys, ends = [], []
    for start in range(0, len(X), batch):
        found = online.predict_interval(X[start : start + batch])
        keys.append((found.keys, y[start : start + batch]))
        ends.append(found.intervals[..., 0])
        if len(keys) > delay:
            online.observe(*keys.pop(0))
    for key, label in keys:
        online.observe(key, label)
    return np.concatenate(ends)


def coverage(ends, y):
    return ((ends[:, 0] <= y) & (y <= ends[:, 1])).mean()


@pytest.mark.parametrize("level", ["dtaci", "aci", "pid"])
def test_drift_is_followed(reg, level):
    X, y = world(900, seed=1, drift=2.0)
    y += np.where(np.arange(900) > 400, 1.0, 0.0)
    static = reg.predict_interval(X)[1][..., 0]
    online = lvd.OnlineIntervals(reg, level=level)
    ends = stream(online, X, y, batch=25)
    assert coverage(static, y) < 0.6
    assert 0.86 < coverage(ends, y) < 0.94
    assert coverage(ends[-300:], y[-300:]) > 0.83


def test_an_interval_at_first_is_that_of_the_regressor_where_weights_do_not_fade(reg):
    X, _ = world(50, seed=2)
    online = lvd.OnlineIntervals(reg, half_life=np.inf, max_infinite=1.0)
    found = online.predict_interval(X)
    y_pred, intervals = reg.predict_interval(X)
    np.testing.assert_array_equal(found.y_pred, y_pred)
    np.testing.assert_allclose(found.intervals, intervals)


def test_labels_late_out_of_order_and_never(reg):
    X, y = world(200, seed=3)
    online = lvd.OnlineIntervals(reg)
    rng = np.random.default_rng(0)
    kept = {}
    for start in range(0, 200, 20):
        found = online.predict_interval(
            X[start : start + 20], keys=[f"row {i}" for i in range(start, start + 20)]
        )
        kept |= dict(zip(found.keys.tolist(), y[start : start + 20].tolist(), strict=True))
        names = [name for name in rng.permutation(list(kept)).tolist() if rng.uniform() < 0.3]
        assert online.observe(names, [kept.pop(name) for name in names]).n_ignored == 0
    (status,) = online.status()
    assert status.n_observed == 200 - len(kept)
    assert status.n_waiting == len(kept) > 0
    assert "labelled rows were covered" in status.sentence


def test_a_label_counts_once(reg):
    X, y = world(30, seed=4)
    online = lvd.OnlineIntervals(reg)
    found = online.predict_interval(X)
    again = online.predict_interval(X, keys=found.keys)
    np.testing.assert_array_equal(found.intervals, again.intervals)
    assert online.status()[0].n_predicted == 30
    assert online.observe(found.keys, y) == (30, 0)
    before = online.levels_[0].excess
    assert online.observe(found.keys, y) == (0, 30)
    assert online.observe([999], [0.0]) == (0, 1)
    assert online.levels_[0].excess == before
    with pytest.raises(lvd.InputError, match="the label of 0 was observed already"):
        online.predict_interval(X[:1], keys=[0])


def test_memory_is_bounded(reg):
    X, y = world(600, seed=5)
    online = lvd.OnlineIntervals(reg, max_rows=200, max_waiting=50, half_life=100)
    for start in range(0, 600, 100):
        found = online.predict_interval(X[start : start + 100])
        assert len(online.waiting_) == 50
        assert online.observe(found.keys, y[start : start + 100]) == (50, 50)
    assert len(online.rows_[0]) == 200
    assert len(online.done_) <= 50


def test_faded_rows_are_forgotten():
    rows = FadingRows(np.zeros((3, 1)), np.arange(3.0)[:, None], np.arange(3.0), most=100)
    rows.add(np.zeros((2, 1)), np.array([[9.0], [8.0]]), np.array([130.0, 131.0]), longest=10.0)
    assert rows.scores.tolist() == [[9.0], [8.0]]


def test_rows_stay_in_the_order_of_each_kind_of_score():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 9, size=(60, 2)) + 0.0
    rows = FadingRows(np.zeros((20, 1)), scores[:20], np.arange(20.0), most=30)
    for start in range(20, 60, 4):
        times = np.arange(start, start + 4.0)
        rows.add(np.zeros((4, 1)), scores[start : start + 4], times, longest=np.inf)
        np.testing.assert_array_equal(rows.order, np.argsort(rows.scores, axis=0, kind="stable").T)
    np.testing.assert_array_equal(rows.scores, scores[30:])


def test_quantiles_by_hand():
    weights = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    ranks = ranked_quantiles(weights, np.ones(2), np.array([[0.2, 0.5, 0.81], [0.2, 0.5, 0.81]]))
    assert ranks.tolist() == [[0, 2, 4], [0, 1, 4]]


def test_interval_scores_by_hand():
    ends = np.array([[0.0, 1.0], [2.0, 4.0], [-np.inf, np.inf]])
    assert interval_score(ends, 1.5, 0.1, 7.0).tolist() == [1.0 + 20 * 0.5, 2.0 + 20 * 0.5, 7.0]


def test_what_has_been_observed_is_known(reg):
    """A trend that leaves the range of the training rows."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.linspace(0, 5, 1000), rng.uniform(-1, 1, size=1000)])
    y = X[:, 0] + 0.1 * rng.normal(size=1000)
    assert np.isinf(reg.predict_interval(X[-500:])[1]).all()
    online = lvd.OnlineIntervals(reg, max_infinite=1.0)
    ends = stream(online, X, y, batch=10)
    assert np.isfinite(ends[-500:]).mean() > 0.8
    assert 0.85 < coverage(ends[-500:], y[-500:]) < 0.96


def test_infinite_intervals_are_counted_and_bounded(reg):
    X, y = world(200, seed=6)
    for most in (0.0, 0.1, 1.0):
        online = lvd.OnlineIntervals(reg, max_infinite=most)
        ends = stream(online, X + 50.0, y + 50.0, batch=20)
        n_infinite = int(np.isinf(ends).any(axis=1).sum())
        assert n_infinite == online.status()[0].n_infinite
        assert n_infinite <= most * 200 + 1
        assert (n_infinite == 0) == (most == 0.0)


def test_without_infinite_intervals_the_widest_doubles(reg):
    """A sequence that always leaves the interval by a little, up to a bound of the scores."""
    X, _ = world(80, seed=7)
    online = lvd.OnlineIntervals(reg, max_infinite=0.0, level="aci")
    missed = 0
    for row in range(80):
        found = online.predict_interval(X[row : row + 1])
        upper = float(found.intervals[0, 1, 0])
        label = min(upper + 0.01, 30.0)
        missed += label > upper
        online.observe(found.keys, [label])
    assert missed <= 0.1 * 80 + online.long_run_bound() + 12


def test_half_lives_are_chosen_by_what_serves(reg):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1000, 2))
    y = X[:, 0] + np.geomspace(3.0, 0.1, 1000) * rng.normal(size=1000)
    online = lvd.OnlineIntervals(reg)
    stream(online, X, y, batch=50)
    assert online.status()[0].half_life == 300.0
    assert lvd.OnlineIntervals(reg, half_life=77).status()[0].half_life == 77.0


def test_of_several_half_lives_the_one_that_serves_is_used(reg):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 2))
    y = X[:, 0] + np.geomspace(3.0, 0.1, 400) * rng.normal(size=400)
    online = lvd.OnlineIntervals(reg, half_life=[40, 4000])
    stream(online, X, y, batch=20)
    assert online.status()[0].half_life == 40.0


def test_rows_fade_by_days(reg):
    """A month without rows: all that came before has faded, and is forgotten."""
    X, y = world(220, seed=21)
    online = lvd.OnlineIntervals(reg, half_life="2d")
    days = np.concatenate([np.arange(200) / 24.0, 100.0 + np.arange(20) / 24.0])
    moments = np.datetime64("2024-03-01T00:00:00") + (days * 86_400).astype("timedelta64[s]")
    for start, end in ((0, 100), (100, 200), (200, 220)):
        found = online.predict_interval(X[start:end], times=moments[start:end])
        if start == 0:
            assert online.rows_[0].times.max() == online.rows_[0].times.min() == 19783.0
        online.observe(found.keys, y[start:end])
    status = online.status()[0]
    assert (status.n_rows_kept, status.half_life, status.in_days) == (20, 2.0, True)
    assert "Rows count half after 2 days." in status.sentence


def test_a_late_label_is_as_old_as_its_row(reg):
    X, y = world(30, seed=22)
    online = lvd.OnlineIntervals(reg, half_life="1d")
    early = online.predict_interval(X[:10], times=np.arange(10.0))
    online.predict_interval(X[10:], times=np.arange(10.0, 30.0))
    online.observe(early.keys, y[:10])
    assert online.rows_[0].times[-10:].tolist() == list(range(10))


def test_intervals_follow_days_and_not_rows(reg):
    """Noise that falls while few rows come: a day of half-life has forgotten the noise, rows have not."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(600, 2))
    days = np.concatenate([np.linspace(0, 1, 500), np.linspace(20, 40, 100)])
    y = X[:, 0] + np.where(days > 10, 0.05, 2.0) * rng.normal(size=600)
    widths = {}
    for half_life in ("1d", 500):
        online = lvd.OnlineIntervals(reg, half_life=half_life)
        ends = []
        for start in range(0, 600, 5):
            rows = slice(start, start + 5)
            found = online.predict_interval(X[rows], times=days[rows])
            ends.append(found.intervals[..., 0])
            online.observe(found.keys, y[rows])
        ends = np.concatenate(ends)[-50:]
        widths[half_life] = np.median(ends[:, 1] - ends[:, 0])
    assert widths["1d"] < 0.5 * widths[500]


def test_rows_with_times_are_saved(reg, tmp_path):
    X, y = world(40, seed=23)
    online = lvd.OnlineIntervals(reg, half_life=["1d", "7d"])
    found = online.predict_interval(X[:20], times=np.arange(20.0))
    online.observe(found.keys[:10], y[:10])
    online.save(tmp_path / "state")
    loaded = lvd.load(tmp_path / "state")
    for one in (online, loaded):
        one.observe(found.keys[10:], y[10:20])
    a, b = (one.predict_interval(X[20:], times=np.arange(20.0, 40.0)) for one in (online, loaded))
    np.testing.assert_array_equal(a.intervals, b.intervals)
    np.testing.assert_array_equal(loaded.history_[0].sums, online.history_[0].sums)
    assert loaded.history_[0].sums[:, 0].tolist() == list(range(20))


def test_times_that_do_not_fit(reg, unchecked_types):
    X, _ = world(4)
    online = lvd.OnlineIntervals(reg, half_life="1d")
    with pytest.raises(lvd.InputError, match="each row needs its time"):
        online.predict_interval(X)
    with pytest.raises(lvd.InputError, match="none may be missing"):
        online.predict_interval(X, times=np.array(["2024-01-01", "NaT", "2024-01-02", "2024-01-03"], "M8[D]"))
    with pytest.raises(lvd.InputError, match="times must be dates and times"):
        online.predict_interval(X, times=["soon"] * 4)
    with pytest.raises(lvd.InputError, match="same"):
        online.predict_interval(X, times=np.arange(3.0))
    plain = lvd.OnlineIntervals(reg)
    plain.predict_interval(X)
    with pytest.raises(lvd.InputError, match="the rows before these came without times"):
        plain.predict_interval(X, times=np.arange(4.0))


def test_horizons_have_levels_of_their_own(two_horizons):
    X, y = world(300, seed=8)
    labels = np.column_stack([y, 3 * y])
    online = lvd.OnlineIntervals(two_horizons)
    found = online.predict_interval(X)
    assert found.y_pred.shape == (300, 2)
    assert found.intervals.shape == (300, 2, 1, 2)
    later = labels.copy()
    later[:, 1] = np.nan
    online.observe(found.keys, later)
    near, far = online.status()
    assert (near.n_observed, far.n_observed, near.n_waiting, far.n_waiting) == (300, 0, 0, 300)
    online.observe(found.keys, labels)
    near, far = online.status()
    assert (near.n_observed, far.n_observed, far.n_waiting) == (300, 300, 0)


def test_kernels_and_scores_are_learned_anew(reg):
    X, y = world(800, seed=9)
    y = np.where(X[:, 1] > 0, y, X[:, 0] + 4 * (y - X[:, 0]))  # another region is noisy now
    online = lvd.OnlineIntervals(reg, refit_every=500)
    ends = stream(online, X, y, batch=50)
    assert online.regressor_ is not reg is online.regressor
    assert 0.85 < coverage(ends[-300:], y[-300:]) < 0.95
    waiting = online.predict_interval(X[:5])
    assert np.isfinite(waiting.intervals).all()


def test_a_hook_brings_another_model(reg):
    X, y = world(600, seed=10)
    y = y + 2 * X[:, 1]
    seen = []

    def retrain(online):
        seen.append(online.status()[0].n_observed)
        return fitted(X[:300], y[:300]) if len(seen) == 1 else None

    online = lvd.OnlineIntervals(reg, refit_every=250, retrain=retrain)
    ends = stream(online, X, y, batch=50, delay=2)
    assert seen == [250, 500]
    widths = ends[:, 1] - ends[:, 0]
    assert np.median(widths[-100:]) < np.median(widths[100:250])


def same(one, other):
    a, b = (online.predict_interval(world(40, seed=11)[0]) for online in (one, other))
    np.testing.assert_array_equal(a.intervals, b.intervals)
    assert a.keys.tolist() == b.keys.tolist()


@pytest.mark.parametrize("refit_every", [None, 500])
def test_saved_and_loaded_it_goes_on_as_before(reg, tmp_path, refit_every):
    X, y = world(550, seed=12)
    online = lvd.OnlineIntervals(reg, refit_every=refit_every)
    stream(online, X, y, batch=50)
    found = online.predict_interval(X[:30], keys=[f"late {i}" for i in range(30)])
    online.save(tmp_path / "state")
    loaded = lvd.load(tmp_path / "state")
    assert loaded.status() == online.status()
    for one in (online, loaded):
        assert one.observe(found.keys, y[:30]) == (30, 0)
    assert loaded.status() == online.status()
    same(online, loaded)


def test_a_state_of_horizons_is_saved(two_horizons, tmp_path):
    X, y = world(20, seed=13)
    online = lvd.OnlineIntervals(two_horizons)
    found = online.predict_interval(X)
    online.observe(found.keys, np.column_stack([y, np.full(20, np.nan)]))
    online.save(tmp_path / "state")
    loaded = lvd.load(tmp_path / "state")
    for one in (online, loaded):
        one.observe(found.keys, np.column_stack([y, 3 * y]))
    assert loaded.status() == online.status()
    same(online, loaded)


def work(folder, n_batches):
    """Go on with the state in the folder, saved after each step, until all batches are observed."""
    online = lvd.load(folder)
    X, y = world(5 * n_batches, seed=14)
    for batch in range(online.status()[0].n_observed // 5, n_batches):
        rows = np.arange(5 * batch, 5 * batch + 5)
        found = online.predict_interval(X[rows], keys=rows)
        online.save(folder)
        online.observe(found.keys, y[rows])
        online.save(folder)


def work_until_killed(folder, n_batches, seconds):
    """The same in a process of its own, which is killed after some time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads, which wait for nothing
        child = os.fork()
    if child == 0:
        try:
            work(folder, n_batches)
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def killed_and_whole(reg, tmp_path, n_kills, n_batches):
    """The state after a stream whose process was killed so many times, and after one that was not."""
    rng = np.random.default_rng(0)
    for name in ("killed", "whole"):
        lvd.OnlineIntervals(reg).save(tmp_path / name)
    for _ in range(n_kills):
        work_until_killed(tmp_path / "killed", n_batches, float(rng.uniform(0.05, 0.3)))
    for name in ("killed", "whole"):
        work(tmp_path / name, n_batches)
    return lvd.load(tmp_path / "killed"), lvd.load(tmp_path / "whole")


def check_same_state(killed, whole):
    assert killed.status() == whole.status()
    np.testing.assert_array_equal(killed.rows_[0].scores, whole.rows_[0].scores)
    assert killed.levels_[0].excess == whole.levels_[0].excess


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")


@needs_fork
def test_after_kills_nothing_is_counted_twice(reg, tmp_path):
    check_same_state(*killed_and_whole(reg, tmp_path, n_kills=3, n_batches=10))


@needs_fork
@pytest.mark.slow
def test_after_fifty_kills_nothing_is_counted_twice(reg, tmp_path):
    check_same_state(*killed_and_whole(reg, tmp_path, n_kills=50, n_batches=200))


def test_a_damaged_state_is_refused(reg, tmp_path):
    lvd.OnlineIntervals(reg).save(tmp_path / "state")
    manifest = Path(tmp_path / "state" / "manifest.json")
    content = json.loads(manifest.read_text())
    content["objects"][-1]["learned"]["state_"]["dict"].pop()
    manifest.write_text(json.dumps(content))
    with pytest.raises(lvd.InputError, match=r"manifest\.json"):
        lvd.load(tmp_path / "state")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"level": "none"}, "level must be one of"),
        ({"half_life": "long"}, "half_life must be a number of rows, a span such as"),
        ({"half_life": ["1d", 300]}, r"a list of either, or \"auto\", got \['1d', 300\]"),
        ({"half_life": []}, "half_life must be a number of rows"),
        ({"half_life": -3}, "half_life must be a positive number, got -3"),
        ({"max_infinite": 2.0}, r"max_infinite must lie in \[0, 1\], got 2.0"),
        ({"max_rows": 0}, "max_rows must be"),
        ({"refit_every": 0.5}, "refit_every must be"),
        ({"confidence_level": 90}, r"confidence_level must lie in \(0, 1\)"),
    ],
)
def test_parameters_that_cannot_work(reg, given, message, unchecked_types):
    with pytest.raises(lvd.InputError, match=message):
        lvd.OnlineIntervals(reg, **given)


def test_regressors_that_cannot_serve(unchecked_types):
    X, y = world(200)
    with pytest.raises(lvd.InputError, match="needs a calibrated LVDRegressor, got Ridge"):
        lvd.OnlineIntervals(Ridge())
    signed = lvd.LVDRegressor(Ridge(), conformity_score="signed", random_state=0).fit(X, y)
    with pytest.raises(lvd.InputError, match="SignedResidual has no single radius at every level"):
        lvd.OnlineIntervals(signed)
    groups = lvd.LVDRegressor(Ridge(), conformity_score="absolute", random_state=0).fit(
        X, y, groups=np.repeat(["a", "b"], 100)
    )
    with pytest.raises(lvd.InputError, match="one OnlineIntervals for each group"):
        lvd.OnlineIntervals(groups)


def test_rows_and_labels_that_do_not_fit(reg, two_horizons, unchecked_types):
    X, _ = world(10)
    online = lvd.OnlineIntervals(reg)
    with pytest.raises(lvd.InputError, match="keys must differ"):
        online.predict_interval(X, keys=[1] * 10)
    with pytest.raises(lvd.InputError, match="keys must be a list of texts or whole numbers"):
        online.predict_interval(X, keys=[0.5] * 10)
    with pytest.raises(lvd.InputError, match="y has 1 target column"):
        lvd.OnlineIntervals(two_horizons).observe([1], [2.0])
    assert online.status()[0].sentence == "No label has been observed yet; 0 rows wait for theirs."
