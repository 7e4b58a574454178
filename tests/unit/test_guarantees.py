"""What is chosen at predict time from one calibration: the guarantee."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lvd
from lvd._validation import row_digests
from lvd.calibration.calibration_rows import draw_shares, row_uniforms
from lvd.calibration.guarantees import draw_centres


@pytest.fixture(scope="module")
def regressor():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = X[:, 0] + rng.normal(size=400) * np.abs(X[:, 1])
    net = lvd.NetRegressor(hidden_sizes=(20,), n_batches=100, random_state=0)
    return lvd.LVDRegressor(net, preset="paper", random_state=0).fit(X, y), X


class TestDraws:
    def test_belong_to_the_row_and_the_seed(self, rng):
        rows = torch.tensor(rng.normal(size=(50, 4)))
        whole = draw_centres(rows, 3)
        torch.testing.assert_close(draw_centres(rows[20:30], 3), whole[20:30], rtol=0, atol=0)
        assert not torch.equal(draw_centres(rows, 4), whole)

    def test_belong_to_the_key_where_one_is_given(self, rng):
        rows = torch.tensor(rng.normal(size=(6, 4)))
        keys = np.arange(6, dtype=np.uint64)
        moved = draw_centres(rows + 1e-9, 3, keys) - draw_centres(rows, 3, keys)
        assert moved.numpy() == pytest.approx(1e-9, abs=1e-12)
        assert not torch.equal(draw_centres(rows, 3, keys), draw_centres(rows, 3))
        shares = draw_shares(rows, 3, keys)
        torch.testing.assert_close(draw_shares(rows[2:], 3, keys[2:]), shares[2:], rtol=0, atol=0)

    def test_have_the_kernel_as_density(self, rng):
        rows = torch.tensor(rng.normal(size=(20_000, 2)))
        offsets = (draw_centres(rows, 0) - rows).numpy()
        assert np.abs(offsets.mean(0)).max() < 4 * np.sqrt(0.5 / 20_000)
        assert np.cov(offsets.T) == pytest.approx(0.5 * np.eye(2), abs=0.03)

    def test_uniforms_are_uniform(self, rng):
        uniforms = row_uniforms(torch.tensor(rng.normal(size=(5000, 2))), 1, 3)
        counts = np.histogram(uniforms, bins=10, range=(0, 1))[0]
        assert np.abs(counts - 1500).max() < 5 * np.sqrt(1500)


class TestChoice:
    @pytest.mark.parametrize("guarantee", ["local", "randomized", "calibrated"])
    def test_intervals_contain_the_prediction_and_grow_with_the_level(self, regressor, guarantee):
        reg, X = regressor
        y_pred, intervals = reg.predict_interval(X[:50], [0.5, 0.8], guarantee=guarantee)
        assert (intervals[:, 0] <= y_pred[:, None]).all()
        assert (intervals[:, 1, 1] >= intervals[:, 1, 0]).all()

    def test_local_is_the_default(self, regressor):
        reg, X = regressor
        local = reg.predict_interval(X[:50], guarantee="local")[1]
        np.testing.assert_array_equal(reg.predict_interval(X[:50])[1], local)

    def test_randomized_draws_are_repeatable_and_seedable(self, regressor):
        reg, X = regressor
        first = reg.predict_interval(X[:50], 0.5, guarantee="randomized")[1]
        np.testing.assert_array_equal(first, reg.predict_interval(X[:50], 0.5, guarantee="randomized")[1])
        other = reg.predict_interval(X[:50], 0.5, guarantee="randomized", random_state=1)[1]
        assert (first != other).any()

    def test_smoothed_draws_belong_to_the_row_and_the_seed(self, regressor):
        reg, X = regressor
        choices = {"guarantee": "randomized", "smoothed": True}
        whole = reg.predict_interval(X[:50], [0.5, 0.8], **choices)[1]
        for rows in (slice(20, 30), slice(7, 8)):
            alone = reg.predict_interval(X[rows], [0.5, 0.8], **choices)[1]
            np.testing.assert_allclose(alone, whole[rows], rtol=1e-5)
        assert (reg.predict_interval(X[:50], [0.5, 0.8], random_state=1, **choices)[1] != whole).any()
        unsmoothed = reg.predict_interval(X[:50], [0.5, 0.8], guarantee="randomized")[1]
        assert (whole[:, 1] <= unsmoothed[:, 1]).all()
        assert (whole[:, 1] < unsmoothed[:, 1]).any()

    def test_an_empty_smoothed_set_shrinks_to_the_prediction(self, regressor):
        reg, X = regressor
        far = 1e3 * X[:200]
        y_pred, intervals = reg.predict_interval(far, 0.5, guarantee="randomized", smoothed=True)
        empty = intervals[:, 0, 0] == intervals[:, 1, 0]
        assert 0.3 < empty.mean() < 0.7
        np.testing.assert_array_equal(intervals[empty, 0, 0], y_pred[empty])
        assert np.isinf(intervals[~empty]).all()
        radius = reg.calibrators_[0].radius(
            reg.embed(far), 0.5, guarantee="randomized", smoothed=True, row_keys=row_digests(far)
        )
        np.testing.assert_array_equal(radius, np.where(empty, -np.inf, np.inf))

    @pytest.mark.parametrize("guarantee", ["local", "calibrated"])
    def test_smoothed_goes_with_randomized_alone(self, regressor, guarantee):
        reg, X = regressor
        with pytest.raises(lvd.InputError, match=f'guarantee="randomized", got {guarantee!r}; leave it out'):
            reg.predict_interval(X[:5], guarantee=guarantee, smoothed=True)

    def test_refused_keys(self, regressor):
        reg, X = regressor
        radius = reg.calibrators_[0].radius
        with pytest.raises(
            lvd.InputError, match=r"row_keys must be whole numbers, one for each row, got float64"
        ):
            radius(reg.embed(X[:5]), guarantee="randomized", row_keys=np.ones(5))
        with pytest.raises(lvd.InputError, match="rows has 5, row_keys has 4"):
            radius(reg.embed(X[:5]), guarantee="randomized", row_keys=[1, 2, 3, 4])

    def test_an_unknown_guarantee_is_refused(self, regressor):
        reg, X = regressor
        with pytest.raises(
            lvd.InputError, match="guarantee must be one of 'local', 'randomized', 'calibrated'"
        ):
            reg.predict_interval(X[:5], guarantee="global")


def test_the_regressor_can_be_watched(regressor):
    reg, _ = regressor
    rng = np.random.default_rng(1)
    watch = reg.monitor(random_state=0)
    X = rng.normal(size=(200, 3))
    assert not watch.take(X, X[:, 0] + rng.normal(size=200) * np.abs(X[:, 1])).alarm
    report = watch.take(X, X[:, 0] + 5.0)
    assert report.alarm
    assert report.alarm_at > 200
    assert report.n_seen == 400
    assert watch.report() == report
