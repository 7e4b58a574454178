"""LVDRegressor(joint=...): regions by brute force, what belongs to every regressor, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import lvd
from lvd.engine import conformal_quantile

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(900, 3))
NOISE = RNG.multivariate_normal([0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]], size=900) * (0.2 + np.abs(X[:, :1]))
Y = X[:, :2] + NOISE * [0.1, 10.0]
TRAIN, CALIB, NEW = np.arange(400), np.arange(400, 800), np.arange(800, 900)
SHORT = lvd.MahalanobisKernel(max_iter=20)
CONSTANT = lvd.MahalanobisKernel.from_components(np.zeros((1, 3)), mean=np.zeros(3), scale=np.ones(3))
SHAPES = pytest.mark.parametrize("shape", ["box", "ellipsoid"])


def predict(rows):
    return rows[:, :2]


def embed(rows):
    return rows


def regressor(shape, **changes):
    settings = {"joint": shape, "conformity_score": "absolute", "kernel": SHORT, "calib_size": None}
    settings |= {"random_state": 0, "when_unknown": "widen"} | changes
    return lvd.LVDRegressor((predict, embed), prefit=True, **settings)


def fitted(shape, y=Y, **changes):
    return regressor(shape, **changes).fit(X[TRAIN], y[TRAIN]).conformalize(X[CALIB], y[CALIB])


def test_a_box_of_one_size_by_hand():
    reg = fitted("box", kernel=CONSTANT, bandwidth=1.0)
    unit = np.abs(Y - X[:, :2])[TRAIN].mean(axis=0)
    scores = (np.abs(Y - X[:, :2])[CALIB] / unit).max(axis=1)
    radius = conformal_quantile(scores, np.array([0.9]))[0]
    wanted = np.stack([X[NEW, :2] - radius * unit, X[NEW, :2] + radius * unit], axis=1)
    np.testing.assert_allclose(reg.predict_interval(X[NEW])[1][:, :, 0], wanted)
    np.testing.assert_allclose(reg.predict_region(X[NEW]).log_volume(), np.log(4.0 * radius**2 * unit.prod()))


def test_an_ellipsoid_of_one_size_by_hand():
    reg = fitted("ellipsoid", kernel=CONSTANT, bandwidth=1.0)
    errors, unit = Y - X[:, :2], np.abs(Y - X[:, :2])[TRAIN].mean(axis=0)
    shape = reg.score_.covariance_.predict(None, 1)[0] * np.outer(unit, unit)
    norms = np.sqrt(np.einsum("ni,ij,nj->n", errors, np.linalg.inv(shape), errors))
    radius = conformal_quantile(norms[CALIB], np.array([0.9]))[0]
    region = reg.predict_region(X[NEW])
    np.testing.assert_allclose(region.scale, radius)
    np.testing.assert_array_equal(region.contains(Y[NEW]), norms[NEW] <= radius)
    correlation = shape[0, 1] / np.sqrt(shape[0, 0] * shape[1, 1])
    assert 0.6 < correlation < 0.9


@SHAPES
@pytest.mark.parametrize("guarantee", ["local", "calibrated", "randomized", "transductive"])
def test_radii_are_those_of_one_conformal_for_all_targets(shape, guarantee):
    reg = fitted(shape)
    assert len(reg.kernels_) == len(reg.calibrators_) == 1
    rows, bound = reg._bind(X[NEW])
    keys = {"row_keys": rows.keys} if guarantee == "randomized" else {}
    radius = reg.calibrators_[0].radius(X[NEW], 0.8, guarantee=guarantee, **keys)
    region = reg.predict_region(X[NEW], 0.8, guarantee=guarantee)
    np.testing.assert_array_equal(region.contains(Y[NEW]), bound(Y[NEW])[:, 0, 0] <= radius)
    y_pred, intervals = reg.predict_interval(X[NEW], [0.5, 0.8], guarantee=guarantee)
    assert y_pred.shape == (100, 2)
    np.testing.assert_array_equal(intervals[:, :, 1], region.project())


@SHAPES
def test_units_of_a_target_change_its_intervals_alone(shape):
    other = regressor(shape)
    other.estimator = (lambda rows: rows[:, :2] * [1.0, 1024.0], embed)
    scaled = Y * [1.0, 1024.0]
    other.fit(X[TRAIN], scaled[TRAIN]).conformalize(X[CALIB], scaled[CALIB])
    plain = fitted(shape).predict_interval(X[NEW])[1]
    np.testing.assert_allclose(other.predict_interval(X[NEW])[1], plain * [1.0, 1024.0], rtol=1e-6)


@SHAPES
def test_order_of_targets_changes_nothing(shape):
    other = regressor(shape)
    other.estimator = (lambda rows: rows[:, [1, 0]], embed)
    other.fit(X[TRAIN], Y[TRAIN][:, ::-1]).conformalize(X[CALIB], Y[CALIB][:, ::-1])
    plain = fitted(shape).predict_interval(X[NEW])[1]
    np.testing.assert_allclose(other.predict_interval(X[NEW])[1], plain[..., ::-1], rtol=1e-6)


@SHAPES
def test_saved_and_loaded_it_gives_the_same_bits(shape, tmp_path):
    net = lvd.NetRegressor(n_batches=30)
    reg = lvd.LVDRegressor(net, joint=shape, kernel=SHORT, random_state=0).fit(X[:300], Y[:300])
    reg.save(tmp_path / "model")
    loaded = lvd.load(tmp_path / "model")
    assert loaded.joint == shape
    for guarantee in ("local", "transductive"):
        ours, theirs = (one.predict_region(X[NEW], guarantee=guarantee) for one in (reg, loaded))
        np.testing.assert_array_equal(ours.project(), theirs.project())
        np.testing.assert_array_equal(ours.contains(Y[NEW]), theirs.contains(Y[NEW]))


@SHAPES
def test_updated_and_forgetful_it_is_as_calibrated_on_those_rows(shape):
    reg = regressor(shape).fit(X[TRAIN], Y[TRAIN]).conformalize(X[CALIB[:200]], Y[CALIB[:200]])
    reg.update(X[CALIB[200:]], Y[CALIB[200:]])
    wanted = fitted(shape)
    newest = regressor(shape).fit(X[TRAIN], Y[TRAIN]).conformalize(X[CALIB[-150:]], Y[CALIB[-150:]])
    scores = [one.calibrators_[0].calibration_.scores.numpy() for one in (reg, wanted)]
    np.testing.assert_array_equal(*scores)
    kept = reg.forget(150).calibrators_[0].calibration_.scores.numpy()
    np.testing.assert_array_equal(kept, newest.calibrators_[0].calibration_.scores.numpy())
    assert reg.n_calib_ == 150


@SHAPES
def test_groups_are_calibrated_by_their_own_rows(shape):
    halves = np.where(X[:, 2] > 0, "up", "down")
    reg = regressor(shape).fit(X[TRAIN], Y[TRAIN]).conformalize(X[CALIB], Y[CALIB], groups=halves[CALIB])
    region = reg.predict_region(X[NEW], groups=np.where(NEW % 2, "up", "new"))
    np.testing.assert_array_equal(np.isinf(region.log_volume()), NEW % 2 == 0)


@SHAPES
def test_weights_move_the_radius(shape):
    heavy = np.where(np.abs(NOISE[CALIB, 0]) > 0.8, 1.0, 0.01)
    reg = regressor(shape).fit(X[TRAIN], Y[TRAIN])
    plain = reg.conformalize(X[CALIB], Y[CALIB]).predict_region(X[NEW], 0.5).log_volume()
    weighted = reg.conformalize(X[CALIB], Y[CALIB], weights=heavy, max_weight=1.0)
    assert (weighted.predict_region(X[NEW], 0.5, weights=np.ones(100)).log_volume() > plain).mean() > 0.9


@SHAPES
def test_a_row_without_a_target_does_not_calibrate_and_is_counted(shape):
    holes = Y.copy()
    holes[CALIB[::4], 1] = np.nan
    with pytest.warns(
        lvd.CalibrationWarning, match=r"100 of 400 rows lack a target, so they do not calibrate"
    ):
        reg = regressor(shape).fit(X[TRAIN], Y[TRAIN]).conformalize(X[CALIB], holes[CALIB])
    whole = ~np.isnan(holes[CALIB]).any(axis=1)
    wanted = regressor(shape).fit(X[TRAIN], Y[TRAIN]).conformalize(X[CALIB[whole]], Y[CALIB[whole]])
    np.testing.assert_array_equal(reg.predict_interval(X[NEW])[1], wanted.predict_interval(X[NEW])[1])
    assert reg.predict_quantiles(X[NEW], [0.1, 0.9]).shape == (100, 2, 2)
    for one in reg.explain(X[NEW[:3]], n_neighbors=2):
        assert all(n.target == holes[CALIB][n.index, one.target] for n in one.evidence.neighbors)
    with pytest.raises(lvd.InputError, match="all targets are known, but none of 2 rows"):
        reg.conformalize(X[NEW[:2]], [[np.nan, 1.0], [1.0, np.nan]])


def test_a_target_that_no_training_row_has_is_refused():
    with pytest.raises(lvd.InputError, match="all targets are known, but none of 400 rows"):
        regressor("box").fit(X[TRAIN], Y[TRAIN] * [1.0, np.nan])


@SHAPES
def test_training_rows_may_lack_a_target(shape):
    holes = Y.copy()
    holes[TRAIN[::3], 0] = np.nan
    reg = fitted(shape, y=np.where(np.isin(np.arange(900), TRAIN)[:, None], holes, Y))
    assert 0.8 < reg.predict_region(X[NEW], 0.9).contains(Y[NEW]).mean() <= 1.0


@SHAPES
def test_evidence_names_the_target_that_makes_the_region_large(shape):
    reg = fitted(shape, conformity_score=lvd.scores.ScaledResidual(scales=("boosted",)))
    found = reg.predict_with_evidence(X[NEW], [0.5, 0.9])
    assert [part.shape for part in found[:3]] == [(100, 2), (100, 2, 2, 2), (100, 2)]
    assert len(found.regions) == 2
    np.testing.assert_array_equal(found.regions[1].project(), found.intervals[:, :, 1])
    first, second = reg.explain(X[NEW[:1]], 0.9)
    units = reg._bind(X[NEW[:1]])[1].unit[0] / np.median(reg.units_calib_, axis=0)
    assert first.largest == second.largest
    assert first.largest.target == units.argmax()
    assert f"it is largest in target {units.argmax()}, where" in first.sentence
    assert first.upper - first.y_pred == pytest.approx(first.evidence.radius * first.evidence.expected_error)


@SHAPES
def test_unknown_rows_get_everything_within_the_range(shape):
    far = np.full((1, 3), 50.0)
    reg = fitted(shape, when_unknown="infinite")
    assert np.isinf(reg.predict_region(far).log_volume()).all()
    assert reg.predict_region(far).contains([[1e9, -1e9]]).all()
    bounded = fitted(shape, when_unknown="infinite", y_range=(-60.0, 60.0))
    assert bounded.predict_region(far).log_volume() == pytest.approx(2.0 * np.log(120.0))
    np.testing.assert_array_equal(
        bounded.predict_interval(X[NEW])[1][:, :, 0], bounded.predict_region(X[NEW]).project()
    )


@SHAPES
def test_it_can_be_watched(shape):
    watch = fitted(shape).monitor(0.9, random_state=0)
    calm = watch.take(X[NEW], Y[NEW])
    assert not calm.alarm
    assert calm.coverage == fitted(shape).predict_region(X[NEW], 0.9).contains(Y[NEW]).mean()
    assert watch.take(X[NEW], Y[NEW] + 5.0 * np.sign(NOISE[NEW])).alarm


def test_without_a_kernel_there_is_one_region_for_all_rows():
    score = lvd.scores.JointResidual("ellipsoid", scales=())
    reg = lvd.SplitConformalRegressor(
        (predict, embed), conformity_score=score, prefit=True, calib_size=None, random_state=0
    )
    region = reg.fit(X[TRAIN], Y[TRAIN]).conformalize(X[CALIB], Y[CALIB]).predict_region(X[NEW])
    assert np.ptp(region.log_volume()) == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(lvd.InputError, match="takes no groups="):
        reg.predict_region(X[NEW], groups=np.ones(100))


@pytest.mark.parametrize(
    ("changes", "y", "message"),
    [
        ({}, Y[TRAIN, 0], "a joint region holds several targets together, and y has one"),
        ({"joint": "ball"}, Y[TRAIN], "joint must be one of 'box', 'ellipsoid', got 'ball'"),
        (
            {"conformity_score": "signed"},
            Y[TRAIN],
            "conformity_score must be 'scaled', 'absolute' or a ScaledResidual",
        ),
        ({"kernel_target": "y"}, Y[TRAIN], "joint regions need kernel_target 'errors'"),
        ({"preset": "paper"}, Y[TRAIN], "joint regions need kernel_target 'errors'.*that of preset 'paper'"),
    ],
)
def test_what_cannot_be_joint_is_refused_before_training(changes, y, message):
    with pytest.raises(lvd.InputError, match=message):
        regressor("box", **changes).fit(X[TRAIN], y)


def test_regions_are_asked_for_one_by_one_and_of_joint_models_alone():
    with pytest.raises(lvd.InputError, match="fit it with joint='box' or 'ellipsoid'"):
        fitted(None).predict_region(X[NEW])
    with pytest.raises(lvd.InputError, match="predict_region takes one confidence_level, got 2"):
        fitted("box").predict_region(X[NEW], [0.5, 0.9])
