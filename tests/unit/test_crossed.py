"""Every row trains and calibrates: cross-validated errors are the calibration scores."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, KFold, TimeSeriesSplit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

import lvd
from lvd.models.averaged import AveragedModel
from lvd.models.candidates import folds_of_cases, number_of_folds
from lvd.models.quantile_model import QuantileModel
from lvd.scores.distributional import ErrorShape
from lvd.scores.scaled import BoostedScale, KernelScale
from lvd.scores.score import TrainingRows
from lvd.serve.columns import describe_columns
from lvd.tables.table_model import TableModel
from lvd.wrap import as_model

SCALES = ("boosted",)
KERNEL = lvd.MahalanobisKernel(2, max_iter=20, random_state=0)


def draw(seed, n_rows=300):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 3))
    return X, X[:, 0] + (0.2 + (X[:, 1] > 0)) * rng.normal(size=n_rows)


def crossed(estimator=None, score="scaled", **settings):
    chosen = {"scaled": lvd.scores.ScaledResidual(SCALES)}.get(score, score)
    given = {
        "kernel": KERNEL,
        "calibration": "cross",
        "folds": 5,
        "when_unknown": "widen",
        "random_state": 0,
        "conformity_score": chosen,
    }
    return lvd.LVDRegressor(estimator or Ridge(), **(given | settings))


def test_all_rows_train_and_calibrate():
    X, y = draw(0)
    reg = crossed().fit(X, y)
    assert reg.n_calib_ == len(reg.train_digests_) == len(y)
    np.testing.assert_array_equal(reg.predict(X), Ridge().fit(X, y).predict(X))
    errors = np.empty(len(y))
    for inside, outside in KFold(5, shuffle=True, random_state=0).split(X):
        errors[outside] = y[outside] - Ridge().fit(X[inside], y[inside]).predict(X[outside])
    np.testing.assert_allclose(reg.residuals_calib_[:, 0], errors, rtol=1e-12, atol=1e-12)


def test_quantiles_are_those_of_models_without_the_fold():
    X, y = draw(0, 100)
    net = lvd.NetRegressor(hidden_sizes=(8,), n_batches=30, random_state=0)
    reg = crossed(net, "quantile", folds=2).fit(X, y)
    inside, outside = next(iter(KFold(2, shuffle=True, random_state=0).split(X)))
    model = QuantileModel.of(as_model(net), np.array([0.9])).fit(X[inside], y[inside, None])
    lower, upper = model.evaluate(X[outside]).quantiles[:, :, 0, 0].T
    expected = np.maximum(lower - y[outside], y[outside] - upper)
    scores = reg.calibrators_[0].calibration_.scores[:, 0].numpy()
    np.testing.assert_allclose(scores[outside], expected, rtol=1e-6, atol=1e-9)


class Blind(TrainingRows):
    """A broken version: the model's own errors on its training rows."""

    held_out_predictions = property(lambda self: self.rows.y_pred)


@pytest.mark.parametrize("calibration", ["cross", "ensemble"])
@pytest.mark.parametrize(("rows_seen", "holds"), [(TrainingRows, True), (Blind, False)])
def test_coverage(monkeypatch, rows_seen, holds, calibration):
    """Of a tree that remembers much; beside it the version with errors on rows that the model has seen."""
    monkeypatch.setattr("lvd.methods.conformal.TrainingRows", rows_seen)
    found = []
    for seed in range(12):
        X, y = draw(seed)
        X_new, y_new = draw(1000 + seed, 400)
        tree = DecisionTreeRegressor(max_depth=6, random_state=0)
        reg = crossed(tree, "absolute", calibration=calibration).fit(X, y)
        found.append(lvd.metrics.marginal_coverage_rate(y_new, reg.predict_interval(X_new, 0.9)[1]))
    # 4,800 rows in 12 draws: three standard errors of the mean are less than 0.02.
    assert (np.mean(found) > 0.88) == holds


class Embedding(TrainingRows):
    """A broken version: embeddings hold what the model says of its own training rows."""

    def with_held_out_embeddings(self):
        return self


@pytest.mark.parametrize("calibration", ["cross", "ensemble"])
@pytest.mark.parametrize(("rows_seen", "holds"), [(TrainingRows, True), (Embedding, False)])
def test_coverage_of_a_model_that_interpolates(monkeypatch, rows_seen, holds, calibration):
    """Its predictions are embedded; beside it the version whose embeddings hold the targets of the rows."""
    monkeypatch.setattr("lvd.methods.conformal.TrainingRows", rows_seen)
    found = []
    for seed in range(4):
        (X, y), (X_new, y_new) = draw(seed), draw(1000 + seed, 400)
        reg = lvd.LVDRegressor(
            KNeighborsRegressor(5, weights="distance"),
            conformity_score="absolute",
            kernel=lvd.MahalanobisKernel(max_iter=100, random_state=0),
            calibration=calibration,
            folds=5,
            when_unknown="widen",
            random_state=0,
        ).fit(X, y)
        found.append(lvd.metrics.marginal_coverage_rate(y_new, reg.predict_interval(X_new, 0.9)[1]))
    # 1,600 rows in 4 draws: three standard errors of the mean are less than 0.03.
    assert (np.mean(found) > 0.88) == holds


def measured_with(monkeypatch, factor):
    """The units and the upper quantiles of errors that measure each row, of a model that predicts zero, where the
    errors of one fold are so many times as large; and that fold."""
    X, y = draw(1, 400)
    planted = next(iter(KFold(5, shuffle=True, random_state=0).split(X)))[1]
    y[planted] *= factor
    bound, fit_crossed = [], lvd.scores.DistributionalResidual.fit_crossed
    monkeypatch.setattr(
        lvd.scores.DistributionalResidual,
        "fit_crossed",
        lambda self, training: bound.append(fit_crossed(self, training)) or bound[-1],
    )
    model = (DummyRegressor(strategy="constant", constant=0.0), lambda rows: rows)
    crossed(model, lvd.scores.DistributionalResidual(SCALES)).fit(X, y)
    return bound[-1].unit[:, 0], bound[-1].quantiles[0][:, -3], planted


@pytest.fixture(scope="module")
def as_drawn():
    with pytest.MonkeyPatch.context() as patch:
        return measured_with(patch, 1.0)


def without_folds(learn):
    """A broken version: folds of its own, in which the row's errors take part."""

    def broken(*given, **options):
        return learn(
            *(None if isinstance(one, np.ndarray) and one.dtype == np.int64 else one for one in given)
        )

    return broken


class TestNoRowMeasuresItself:
    """Errors planted in a fold change nothing that measures its rows, and are found where they do."""

    @pytest.mark.parametrize("leaks", [False, True])
    def test_scale(self, monkeypatch, as_drawn, leaks):
        if leaks:
            monkeypatch.setattr(BoostedScale, "fit", without_folds(BoostedScale.fit))
        (before, _, planted), (after, _, _) = as_drawn, measured_with(monkeypatch, 3.0)
        others = np.setdiff1d(np.arange(len(before)), planted)
        assert (after[others] != before[others]).any()
        assert np.array_equal(after[planted], before[planted]) != leaks

    @pytest.mark.parametrize("leaks", [False, True])
    def test_shape(self, monkeypatch, as_drawn, leaks):
        if leaks:
            monkeypatch.setattr(ErrorShape, "learned", without_folds(ErrorShape.learned))
        (_, before, planted), (_, after, _) = as_drawn, measured_with(monkeypatch, 100.0)
        assert (np.median(after[planted] / before[planted]) > 3.0) == leaks

    @pytest.mark.parametrize("leaks", [False, True])
    def test_scale_of_the_kernel(self, leaks):
        rng = np.random.default_rng(0)
        points, errors, folds = rng.normal(size=(200, 2)), rng.exponential(size=200), np.arange(200) % 5
        scale, planted, given = KernelScale(), folds == 2, None if leaks else folds
        before = scale.fit(points, errors, 0, given)
        bandwidth, strength = scale.bandwidth_, scale.strength_
        after = scale.fit(points, np.where(planted, 1.01 * errors, errors), 0, given)
        assert (scale.bandwidth_, scale.strength_) == (bandwidth, strength)
        assert (after[~planted] > before[~planted]).all()
        assert np.allclose(after[planted], before[planted], rtol=1e-9) != leaks


class TestFolds:
    def test_rows_of_one_case_stay_together(self):
        cases = np.repeat(np.arange(30), 3)
        for inside, outside in folds_of_cases(cases, 5, 0):
            assert not set(cases[inside]) & set(cases[outside])

    def test_few_rows_have_more(self, full_training):
        folds = [folds_of_cases(np.arange(n), "auto", 0) for n in (999, 1000)]
        assert [len(one) for one in folds] == [10, 5]
        assert len(folds_of_cases(np.repeat(np.arange(7), 3), "auto", 0)) == 7

    def test_a_splitter(self):
        X, y = draw(0)
        reg = crossed(folds=KFold(4)).fit(X, y)
        first = Ridge().fit(X[75:], y[75:]).predict(X[:75])
        np.testing.assert_allclose(reg.residuals_calib_[:75, 0], y[:75] - first, rtol=1e-9, atol=1e-9)

    def test_a_splitter_is_given_the_groups(self):
        X, y = draw(0, 100)
        groups = np.arange(100) % 4
        reg = crossed(score="absolute", folds=GroupKFold(4)).fit(X, y, groups=groups)
        first = groups == 0
        expected = y[first] - Ridge().fit(X[~first], y[~first]).predict(X[first])
        np.testing.assert_allclose(reg.residuals_calib_[first, 0], expected, rtol=1e-9, atol=1e-9)
        with pytest.raises(lvd.InputError, match=r"GroupKFold cannot divide these 100 rows.*fit the groups="):
            crossed(folds=GroupKFold(4)).fit(X, y)

    @pytest.mark.parametrize(
        ("folds", "message"),
        [
            (1, "folds must be 'auto', a whole number from 2 to the number of rows.*got 1"),
            ("5", "folds must be 'auto', a whole number"),
            (TimeSeriesSplit(3), "must hold each row out once, which TimeSeriesSplit does not"),
        ],
    )
    def test_others_are_refused(self, folds, message):
        with pytest.raises(lvd.InputError, match=message):
            crossed(folds=folds).fit(*draw(0))

    def test_few_rows(self):
        with pytest.raises(lvd.InputError, match="at least 20 rows, got 19"):
            crossed().fit(*draw(0, 19))


class TestRefusals:
    def test_a_trained_model(self):
        X, y = draw(0)
        with pytest.raises(lvd.InputError, match="which a trained one does not allow; leave prefit out"):
            crossed(Ridge().fit(X, y), prefit=True).fit(X, y)

    def test_rows_set_aside(self):
        with pytest.raises(lvd.InputError, match="calib_size must be left out with calibration='cross'"):
            crossed(calib_size=0.3).fit(*draw(0))

    def test_other_guarantees(self):
        X, y = draw(0)
        reg = crossed().fit(X, y)
        with pytest.raises(lvd.InputError, match="guarantee 'calibrated' needs calibration rows"):
            reg.predict_interval(X, guarantee="calibrated")

    def test_scores_without_out_of_fold_values(self):
        with pytest.raises(lvd.InputError, match="SidedResidual has no out-of-fold scores"):
            crossed(score="sided").fit(*draw(0))

    def test_scales_that_have_seen_every_error(self):
        with pytest.raises(
            lvd.InputError, match=r"scales must hold 'boosted' or 'network'.*has seen its error"
        ):
            crossed(score=lvd.scores.ScaledResidual(("kernel",))).fit(*draw(0))

    def test_unknown_words(self):
        with pytest.raises(
            lvd.InputError,
            match="calibration must be one of 'auto', 'split', 'cross', 'ensemble', got 'both'",
        ):
            crossed(calibration="both").fit(*draw(0))


class TestTogether:
    def test_it_says_what_it_promises(self):
        X, y = draw(0)
        reg = crossed().fit(X, y)
        assert "cross-validated" in reg.promise
        assert "cross-validated" in reg.explain(X[:1])[0].sentence
        reg.conformalize(*draw(5))
        assert "cross-validated" not in reg.promise

    def test_is_saved_without_its_fold_models(self, tmp_path):
        X, y = draw(0)
        reg = crossed().fit(X, y)
        reg.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict_interval(X)[1], reg.predict_interval(X)[1])
        assert loaded.promise == reg.promise

    def test_several_targets_some_missing_groups_and_updates(self):
        X, y = draw(0)
        targets = np.stack([y, -2.0 * y], axis=1)
        model = lvd.NetRegressor(hidden_sizes=(8,), n_batches=50, random_state=0)
        targets[::7, 1] = np.nan
        groups = np.where(X[:, 2] > 0, "a", "b")
        reg = crossed(model, "absolute").fit(X, targets, groups=groups)
        counts = [len(one.calibration_.scores) for one in reg.calibrators_]
        assert counts == [300, 300 - 43]
        intervals = reg.predict_interval(X[:9], groups=groups[:9])[1]
        assert intervals.shape == (9, 2, 1, 2)
        reg.update(X[:10], targets[:10], groups=groups[:10]).forget(50)
        assert reg.n_calib_ == 50


class TestAuto:
    """Cross calibration where rows are few and its coverage was measured, else rows set aside."""

    @pytest.mark.parametrize(
        ("n_rows", "chosen"), [(59, "split"), (60, "cross"), (499, "cross"), (500, "split")]
    )
    def test_depends_on_the_number_of_rows(self, n_rows, chosen):
        assert lvd.LVDRegressor(Ridge()).chosen_calibration(n_rows) == chosen
        for given in ("split", "cross"):
            assert lvd.LVDRegressor(Ridge(), calibration=given).chosen_calibration(n_rows) == given

    @pytest.mark.parametrize(
        "settings",
        [
            {"preset": "paper"},
            {"conformity_score": "scaled"},
            {"kernel_target": "y"},
            {"bandwidth": 1.0},
            {"kernel": KERNEL},
            {"support": lvd.support.TrainingSupport()},
            {"joint": "box"},
            {"calib_size": 0.3},
            {"calib_size": None},
            {"prefit": True},
            {"folds": GroupKFold(3)},
            {"estimator": lambda X: X[:, 0]},
            {"estimator": lvd.ChempropEstimator()},
            {"estimator": lvd.ChempropEstimator(loss=lvd.models.losses.SquaredLoss())},
        ],
        ids=lambda settings: next(iter(settings)),
    )
    def test_is_split_for_what_was_not_measured(self, settings):
        given = {"estimator": Ridge().fit([[0.0]], [0.0])} | settings
        assert lvd.LVDRegressor(**given).chosen_calibration(200) == "split"

    @pytest.mark.parametrize("when_unknown", ["infinite", "widen"])
    def test_fit(self, when_unknown):
        X, y = draw(0, 80)
        reg = lvd.LVDRegressor(Ridge(), when_unknown=when_unknown, random_state=0).fit(X, y)
        asked = lvd.LVDRegressor(Ridge(), when_unknown=when_unknown, calibration="cross", random_state=0)
        assert reg.is_crossed
        assert reg.n_calib_ == len(y)
        assert reg.promise == asked.promise == lvd.methods.base.PROMISES["cross"]
        ends = [one.predict_interval(X, 0.9)[1] for one in (reg, asked.fit(X, y))]
        np.testing.assert_array_equal(*ends)

    @pytest.mark.parametrize("labels", ["groups", "weights"])
    def test_labels_keep_their_promise(self, labels):
        X, y = draw(0, 80)
        given = {labels: np.repeat([1.0, 2.0], 40)}
        reg = lvd.LVDRegressor(Ridge(), random_state=0)
        assert not reg.fit(X, y, **given).is_crossed
        assert reg.promise == lvd.methods.base.PROMISES["local"]

    def test_few_cases_are_not_few_rows(self):
        reg = lvd.LVDRegressor(Ridge())
        assert reg.chosen_calibration(10_000, 100) == reg.chosen_calibration(100, 50) == "split"
        assert reg.chosen_calibration(100, 80) == "cross"

    def test_a_network_that_is_trained_once(self):
        class Slow(lvd.NetRegressor):
            trained_once = True

        assert lvd.LVDRegressor(Slow()).chosen_calibration(200) == "split"
        assert lvd.LVDRegressor(Slow(), calibration="cross").chosen_calibration(200) == "cross"

    def test_rows_of_one_case_count_once(self):
        class Pairs(lvd.NetRegressor):
            def same_case(self, X):
                return np.arange(len(X)) // 2

        X, y = draw(0, 110)
        net = Pairs(hidden_sizes=(4,), n_batches=5, random_state=0)
        assert not lvd.LVDRegressor(net, random_state=0).fit(X, y).is_crossed

    def test_other_rows_calibrate_when_they_are_given(self):
        X, y = draw(0, 160)
        reg = lvd.LVDRegressor(Ridge(), random_state=0).fit(X[:80], y[:80]).conformalize(X[80:], y[80:])
        assert not reg.is_crossed
        assert reg.promise == lvd.methods.base.PROMISES["local"]
        reg.predict_interval(X[:2], guarantee="calibrated")

    def test_other_guarantees_say_what_to_do(self):
        X, y = draw(0, 80)
        reg = lvd.LVDRegressor(Ridge(), random_state=0).fit(X, y)
        for ask in (
            lambda: reg.predict_interval(X[:2], guarantee="calibrated"),
            lambda: reg.exceeds(X[:2], 0.0, guarantee="marginal"),
        ):
            with pytest.raises(lvd.InputError, match="or fit again with calibration='split'"):
                ask()
        assert np.isfinite(reg.exceeds(X[:2], 0.0).p_value).all()


@pytest.mark.usefixtures("full_training")
def test_few_rows_have_ten_folds():
    assert [number_of_folds(*sizes) for sizes in ((999, 999), (1000, 1000), (200, 4))] == [10, 5, 4]


class TestEnsemble:
    """The fold models are kept, and predictions are the mean of all models."""

    def test_predicts_the_mean(self):
        X, y = draw(0)
        reg, alone = crossed(calibration="ensemble").fit(X, y), crossed().fit(X, y)
        folds = KFold(5, shuffle=True, random_state=0).split(X)
        every = [Ridge().fit(X, y), *(Ridge().fit(X[inside], y[inside]) for inside, _ in folds)]
        expected = np.mean([one.predict(X) for one in every], axis=0)
        np.testing.assert_allclose(reg.predict(X), expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(reg.residuals_calib_, alone.residuals_calib_)
        assert reg.is_crossed
        assert reg.n_calib_ == len(y)

    def test_keeps_the_models_of_the_choice(self):
        X, y = draw(0, 60)
        reg = lvd.LVDRegressor(calibration="ensemble", folds=3, random_state=0).fit(X, y)
        assert set(reg.choice_) == {"net", "trees"}
        own, *others = (model.evaluate(X).y_pred for model in (reg.model_.model, *reg.model_.fold_models))
        assert len(others) == 3
        np.testing.assert_array_equal(reg.predict(X), np.mean([own, *others], axis=0)[:, 0])
        # Each fold model predicts its fold as the calibration errors say.
        folds = folds_of_cases(np.arange(len(X)), 3, 0)
        for (_, outside), y_pred in zip(folds, others, strict=True):
            errors = y[outside] - y_pred[outside, 0]
            np.testing.assert_allclose(reg.residuals_calib_[outside, 0], errors, rtol=1e-9, atol=1e-12)

    def test_narrows_by_the_spread_of_the_models_that_have_seen_a_row(self):
        X, y = draw(0)
        tree = DecisionTreeRegressor(max_depth=4, random_state=0)
        reg = crossed(tree, calibration="ensemble").fit(X, y)
        every = [one.evaluate(X).y_pred[:, 0] for one in (reg.model_.model, *reg.model_.fold_models)]
        gained = np.empty(len(y))
        for number, (_, outside) in enumerate(folds_of_cases(np.arange(len(X)), 5, 0), start=1):
            seen = np.stack([one[outside] for place, one in enumerate(every) if place != number])
            # Which is how much smaller the squared error of their mean is, whatever the target.
            gained[outside] = np.mean((seen - 7.0) ** 2, axis=0) - (seen.mean(axis=0) - 7.0) ** 2
        (share,) = reg.error_share_
        assert share == pytest.approx(
            np.sqrt(1.0 - gained.mean() / np.mean(reg.residuals_calib_**2)), rel=1e-9
        )
        assert 0.8 < share < 0.99
        assert "measured, not proved" in reg.promise
        (one,) = reg.explain(X[:1])
        assert f"{1.0 - share:.1%} narrower than these errors say" in one.remark
        y_pred, narrow = reg.predict_interval(X, [0.5, 0.9])
        middle = reg.predict_quantiles(X, 0.5)
        del reg.error_share_
        wide = reg.predict_interval(X, [0.5, 0.9])[1]
        np.testing.assert_allclose(
            narrow - y_pred[:, None, None], share * (wide - y_pred[:, None, None]), rtol=1e-9
        )
        np.testing.assert_allclose(
            middle - y_pred, share * (reg.predict_quantiles(X, 0.5) - y_pred), rtol=1e-9
        )

    def test_gains_a_fifth_at_most(self):
        X, y = draw(0)
        constants = [as_model(DummyRegressor(strategy="constant", constant=c)) for c in (-5.0, 0.0, 5.0)]
        own, *others = (one.fit(X, y[:, None]) for one in constants)
        y_pred = own.evaluate(X).y_pred
        folds = folds_of_cases(np.arange(len(X)), 2, 0)
        assert AveragedModel(own, others).error_share(X, y_pred, 0.1 * y[:, None], folds) == [0.8]
        assert AveragedModel(own, []).error_share(X, y_pred, 0.1 * y[:, None], ()) == [1.0]

    @pytest.mark.parametrize("score", ["quantile", "signed", "absolute"])
    def test_other_scores_are_narrowed_too(self, score):
        X, y = draw(0, 120)
        net = lvd.NetRegressor(hidden_sizes=(8,), n_batches=30, random_state=0)
        reg = crossed(net, score, calibration="ensemble", folds=2).fit(X, y)
        y_pred, narrow = reg.predict_interval(X)
        (share,) = vars(reg).pop("error_share_")
        assert share < 1.0
        wide = reg.predict_interval(X)[1]
        np.testing.assert_allclose(
            narrow - y_pred[:, None, None], share * (wide - y_pred[:, None, None]), rtol=1e-9
        )

    def test_other_rows_calibrate_by_errors_of_the_mean(self):
        X, y = draw(0)
        reg = crossed(DecisionTreeRegressor(max_depth=4), calibration="ensemble").fit(X[:200], y[:200])
        reg.conformalize(X[200:], y[200:])
        assert "error_share_" not in vars(reg)
        np.testing.assert_allclose(reg.residuals_calib_[:, 0], y[200:] - reg.predict(X[200:]), rtol=1e-9)

    def test_another_fit_forgets_it(self):
        X, y = draw(0)
        reg = crossed(calibration="ensemble").fit(X, y).set_params(calibration="cross")
        assert "narrowed" in reg.promise  # until it is fitted again
        reg.fit(X, y).set_params(calibration="ensemble")
        assert "narrowed" not in reg.promise
        assert "error_share_" not in vars(reg)

    def test_new_rows_join_with_errors_of_the_mean(self):
        X, y = draw(0)
        reg = crossed(calibration="ensemble").fit(X[:200], y[:200])
        reg.update(X[200:], y[200:])
        np.testing.assert_allclose(reg.residuals_calib_[200:, 0], y[200:] - reg.predict(X[200:]), rtol=1e-9)

    def test_several_targets_some_missing(self, tmp_path):
        X, y = draw(0)
        both = np.column_stack([y, 3.0 * y])
        both[::7, 1] = np.nan
        reg = lvd.LVDRegressor("net", calibration="ensemble", folds=2, random_state=0).fit(X, both)
        assert reg.error_share_.shape == (2,)
        intervals = reg.predict_interval(X[:20])[1]
        assert np.isfinite(intervals).all()
        reg.save(tmp_path / "model")
        np.testing.assert_array_equal(lvd.load(tmp_path / "model").predict_interval(X[:20])[1], intervals)

    def test_is_saved_with_its_fold_models(self, tmp_path):
        X, y = draw(0, 100)
        reg = crossed("trees", calibration="ensemble").fit(X, y)
        reg.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model")
        assert len(loaded.model_.fold_models) == 5
        np.testing.assert_array_equal(loaded.predict_interval(X)[1], reg.predict_interval(X)[1])

    def test_its_columns_are_described_as_those_of_one_model(self):
        X, y = draw(0, 120)
        frame = pd.DataFrame(
            {"size": np.where(X[:, 0] > 0.9, np.nan, X[:, 0]), "town": np.where(X[:, 1] > 0, "a", "b")}
        )
        reg = crossed("trees", "absolute", calibration="ensemble", folds=2).fit(frame, y)
        encoder = TableModel.of(reg, "model").encoder
        described = describe_columns(encoder, reg)
        reg.model_ = reg.model_.model
        assert described == describe_columns(encoder, reg)
        assert described[0].usual is not None

    def test_a_trained_model_has_none(self):
        X, y = draw(0)
        reg = crossed(Ridge().fit(X, y), prefit=True, calibration="ensemble")
        with pytest.raises(lvd.InputError, match="calibration='ensemble' trains the estimator again"):
            reg.fit(X, y)
