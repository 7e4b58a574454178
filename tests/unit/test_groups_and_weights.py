"""Groups and likelihood ratios: rows of another group weigh nothing, ratios multiply the kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lvd
from lvd.engine.oracle import gaussian_weights, weighted_quantile

LEVELS = [0.5, 0.9]
GUARANTEES = ["local", "randomized", "calibrated"]


def plain_kernel():
    return lvd.MahalanobisKernel.from_components(
        np.eye(2), mean=np.zeros(2), scale=np.ones(2), distance="sum", device="cpu"
    )


@pytest.fixture
def rows(rng):
    return rng.normal(size=(120, 2)), rng.gamma(1.0, size=120)


@pytest.fixture
def queries(rng):
    return rng.normal(size=(30, 2))


class TestGroups:
    @pytest.mark.parametrize("guarantee", GUARANTEES)
    def test_a_group_sees_its_own_rows_alone(self, rows, queries, guarantee):
        X, scores = rows
        groups = np.where(np.arange(120) % 3 == 0, "a", "b")
        conformal = lvd.LocalConformal(plain_kernel()).conformalize(X, scores, groups=groups)
        asked = np.where(np.arange(30) % 2 == 0, "a", "b")
        ours = conformal.radius(queries, LEVELS, guarantee=guarantee, groups=asked)
        for group in ("a", "b"):
            alone = lvd.LocalConformal(plain_kernel()).conformalize(
                X[groups == group], scores[groups == group]
            )
            expected = alone.radius(queries[asked == group], LEVELS, guarantee=guarantee)
            np.testing.assert_array_equal(ours[asked == group], expected)

    def test_one_group_is_no_group(self, rows, queries):
        X, scores = rows
        plain = lvd.LocalConformal(plain_kernel()).conformalize(X, scores)
        one = lvd.LocalConformal(plain_kernel()).conformalize(X, scores, groups=np.zeros(120, int))
        for ask in ("radius", "interval", "effective_sample_size"):
            ours = getattr(one, ask)(queries, groups=np.zeros(30, int))
            np.testing.assert_array_equal(ours, getattr(plain, ask)(queries))

    def test_an_unseen_group_is_infinite_with_a_reason(self, rows):
        conformal = lvd.LocalConformal(plain_kernel()).conformalize(*rows, groups=["a"] * 120)
        query = [[0.0, 0.0]]
        assert conformal.radius(query, 0.1, groups=["c"])[0] == math.inf
        assert conformal.interval(query, 0.1, groups=["c"]).tolist() == [[-math.inf, math.inf]]
        assert conformal.effective_sample_size(query, groups=["c"])[0] == 0.0
        (evidence,) = conformal.explain(query, groups=["c"])
        assert evidence.radius == math.inf
        assert evidence.group == "c"
        assert "there is no calibration row of group 'c'" in evidence.sentence
        assert "9 more rows of group 'c' like it would make it finite" in evidence.sentence

    def test_neighbours_keep_their_place_in_the_calibration_set(self, rows):
        X, scores = rows
        groups = np.arange(120) % 4
        conformal = lvd.LocalConformal(plain_kernel()).conformalize(X, scores, groups=groups)
        (evidence,) = conformal.explain(X[[7]], groups=[3], targets=10.0 * scores)
        assert evidence.neighbors[0].index == 7
        assert evidence.neighbors[0].target == 10.0 * scores[7]
        assert all(neighbor.index % 4 == 3 for neighbor in evidence.neighbors)

    def test_update_and_forget(self, rows, queries):
        X, scores = rows
        groups = np.array(list("abc") * 40)
        at_once = lvd.LocalConformal(plain_kernel()).conformalize(X[20:], scores[20:], groups=groups[20:])
        grown = lvd.LocalConformal(plain_kernel()).conformalize(X[:50], scores[:50], groups=groups[:50])
        grown.update(X[50:], scores[50:], groups=groups[50:]).forget(100)
        for group in "abc":
            asked = [group] * 30
            np.testing.assert_array_equal(
                at_once.radius(queries, LEVELS, groups=asked), grown.radius(queries, LEVELS, groups=asked)
            )

    @pytest.mark.parametrize(
        ("groups", "message"),
        [
            (["a"] * 119, "rows has 120, groups has 119"),
            ([["a"]] * 120, r"groups must be 1-d, one label for each row, got shape \(120, 1\)"),
            ([None, *["a"] * 119], "groups must be all text or all numbers, without missing values"),
            ([math.nan, *[1.0] * 119], "groups must be all text or all numbers, without missing values"),
        ],
        ids=["length", "shape", "none", "nan"],
    )
    def test_refused_labels(self, rows, groups, message):
        with pytest.raises(lvd.InputError, match=message):
            lvd.LocalConformal(plain_kernel()).conformalize(*rows, groups=groups)

    def test_groups_come_with_all_rows_or_with_none(self, rows, queries):
        X, scores = rows
        with_groups = lvd.LocalConformal(plain_kernel()).conformalize(X, scores, groups=["a"] * 120)
        without = lvd.LocalConformal(plain_kernel()).conformalize(X, scores)
        with pytest.raises(
            lvd.InputError, match="came with groups: give groups=, one for each of these rows"
        ):
            with_groups.radius(queries)
        with pytest.raises(lvd.InputError, match="came with groups: give groups="):
            with_groups.update(X, scores)
        with pytest.raises(lvd.InputError, match="came without groups: leave groups= out"):
            without.radius(queries, groups=["a"] * 30)
        with pytest.raises(lvd.InputError, match="groups were text so far, got numbers"):
            with_groups.update(X, scores, groups=[1] * 120)


class TestWeights:
    def test_multiply_the_kernel(self, rows, queries, rng):
        X, scores = rows
        ratios, own = rng.gamma(1.0, size=120), rng.gamma(1.0, size=30)
        conformal = lvd.LocalConformal(plain_kernel()).conformalize(X, scores, weights=ratios)

        def expected(masses):
            return [
                [weighted_quantile(scores, ratios * gaussian_weights(query, X), w, level) for level in LEVELS]
                for query, w in zip(queries, masses, strict=True)
            ]

        largest = np.maximum(own, ratios.max())
        np.testing.assert_array_equal(conformal.radius(queries, LEVELS, weights=own), expected(largest))
        conformal.conformalize(X, scores, weights=ratios, max_weight=20.0)
        np.testing.assert_array_equal(conformal.radius(queries, LEVELS, weights=own), expected([20.0] * 30))
        weights = ratios * gaussian_weights(queries[0], X)
        size = conformal.effective_sample_size(queries[:1])[0]
        assert size == pytest.approx(weights.sum() ** 2 / np.square(weights).sum(), rel=1e-5)

    @pytest.mark.parametrize("guarantee", GUARANTEES)
    def test_their_scale_does_not_matter(self, rows, queries, rng, guarantee):
        ratios, own = rng.gamma(1.0, size=120), rng.gamma(1.0, size=30)
        radii = [
            lvd.LocalConformal(plain_kernel())
            .conformalize(*rows, weights=scale * ratios)
            .radius(queries, LEVELS, guarantee=guarantee, weights=scale * own)
            for scale in (1.0, 2.0**20, 2.0**-40)
        ]
        np.testing.assert_array_equal(radii[0], radii[1])
        np.testing.assert_array_equal(radii[0], radii[2])

    @pytest.mark.parametrize("guarantee", GUARANTEES)
    def test_equal_weights_are_none(self, rows, queries, guarantee):
        plain = lvd.LocalConformal(plain_kernel()).conformalize(*rows)
        equal = lvd.LocalConformal(plain_kernel()).conformalize(*rows, weights=np.ones(120))
        np.testing.assert_array_equal(
            equal.radius(queries, LEVELS, guarantee=guarantee, weights=np.ones(30)),
            plain.radius(queries, LEVELS, guarantee=guarantee),
        )

    def test_explain_agrees_with_the_radius(self, rows, queries, rng):
        own = rng.gamma(1.0, size=30)
        conformal = lvd.LocalConformal(plain_kernel()).conformalize(*rows, weights=rng.gamma(1.0, size=120))
        radius = conformal.radius(queries, 0.9, weights=own)
        for evidence, expected in zip(conformal.explain(queries, 0.9, weights=own), radius, strict=True):
            assert evidence.radius == expected
            assert (evidence.rows_missing > 0) == math.isinf(expected)

    def test_refusals(self, rows, queries):
        conformalize = lvd.LocalConformal(plain_kernel()).conformalize
        with pytest.raises(lvd.InputError, match=r"weights must be likelihood ratios above 0, got -1"):
            conformalize(*rows, weights=-np.ones(120))
        with pytest.raises(lvd.InputError, match="rows has 120, weights has 3"):
            conformalize(*rows, weights=np.ones(3))
        with pytest.raises(lvd.InputError, match="weights must be at most max_weight=2, got 3"):
            conformalize(*rows, weights=np.full(120, 3.0), max_weight=2.0)
        bounded = conformalize(*rows, weights=np.ones(120), max_weight=2.0)
        with pytest.raises(lvd.InputError, match="raise max_weight to the largest likelihood ratio"):
            bounded.radius(queries, weights=np.full(30, 3.0))
        with pytest.raises(lvd.InputError, match="max_weight must be a positive number"):
            conformalize(*rows, max_weight=0.0)
        with pytest.raises(lvd.InputError, match="came without weights: leave weights= out"):
            conformalize(*rows).radius(queries, weights=np.ones(30))
        with pytest.raises(lvd.InputError, match="came with weights: give weights="):
            conformalize(*rows, weights=np.ones(120)).radius(queries)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 2))
    noise = rng.normal(size=240)
    groups = np.where(X[:, 1] > 0, "loud", "quiet")
    return X, X[:, 0] + np.where(groups == "loud", 3.0, 0.1) * noise, groups


class TestRegressor:
    @staticmethod
    def regressor(**changes):
        net = lvd.NetRegressor(hidden_sizes=(8,), n_batches=30, device="cpu")
        kernel = lvd.MahalanobisKernel(2, max_iter=5, device="cpu")
        return lvd.LVDRegressor(net, kernel=kernel, device="cpu", random_state=0, **changes)

    def test_fit_uses_the_labels_of_the_rows_set_aside(self, table):
        X, y, groups = table
        reg = self.regressor(calib_size=0.5).fit(X, y, groups=groups.tolist())
        widths = np.diff(reg.predict_interval(X, 0.5, groups=groups)[1], axis=1).ravel()
        assert np.median(widths[groups == "loud"]) > 5 * np.median(widths[groups == "quiet"])
        assert np.isinf(reg.predict_interval(X[:3], groups=["other"] * 3)[1]).all()
        assert "of group 'other'" in reg.explain(X[:1], groups=["other"])[0].sentence

    def test_several_targets_with_groups_and_weights(self, table):
        X, y, groups = table
        reg = self.regressor(calib_size=None).fit(X[:100], np.stack([y, -y], 1)[:100])
        weights = np.exp(0.3 * X[:, 0])
        calib, new = slice(100, 200), slice(200, None)
        reg.conformalize(X[calib], np.stack([y, -y], 1)[calib], groups=groups[calib], weights=weights[calib])
        labels = {"groups": groups[new], "weights": weights[new]}
        for guarantee in GUARANTEES:
            assert reg.predict_interval(X[new], LEVELS, guarantee=guarantee, **labels)[1].shape == (
                40,
                2,
                2,
                2,
            )
        assert len(reg.explain(X[new], **labels)) == 80
        reg.update(X[new], np.stack([y, -y], 1)[new], **labels).forget(50)
        assert reg.n_calib_ == len(reg.residuals_calib_) == 50

    def test_labels_of_a_fit_that_sets_no_rows_aside(self, table):
        X, y, groups = table
        with pytest.raises(lvd.InputError, match=r"groups= would go unused; give it to conformalize"):
            self.regressor(calib_size=None).fit(X, y, groups=groups)
        with pytest.raises(lvd.InputError, match="X has 240, weights has 2"):
            self.regressor().fit(X, y, weights=[1.0, 2.0])

    def test_the_watch_takes_groups_and_refuses_weights(self, table):
        X, y, groups = table
        watch = self.regressor(calib_size=0.5).fit(X, y, groups=groups).monitor(random_state=0)
        assert watch.take(X[:50], y[:50], groups=groups[:50]).n_seen == 50
        weighted = self.regressor(calib_size=0.5).fit(X, y, weights=np.ones(240))
        with pytest.raises(lvd.InputError, match="came with weights= for another population"):
            weighted.monitor()

    def test_the_network_runs_once(self, table, monkeypatch):
        X, y, _ = table
        reg = self.regressor(calib_size=0.5, conformity_score="normalized").fit(X, y)
        calls = []
        evaluate = reg.model_.evaluate
        monkeypatch.setattr(reg.model_, "evaluate", lambda rows: calls.append(1) or evaluate(rows))
        watch = reg.monitor(random_state=0)
        for use in (
            lambda: reg.explain(X[:3]),
            lambda: watch.take(X[:3], y[:3]),
            lambda: reg.predict_distribution(X[:3]),
        ):
            calls.clear()
            use()
            assert calls == [1]
