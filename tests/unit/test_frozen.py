"""What is calibrated stays as it was, whatever becomes of the kernel and of the arrays it was made of."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import lvd
from lvd.kernels.mahalanobis import FAR_OUT

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5))
Y = X[:, 0] + RNG.normal(size=300) * np.abs(X[:, 1])
NEW = RNG.normal(size=(64, 5))
GUARANTEES = ("local", "randomized", "calibrated", "transductive")
LARGEST = np.finfo(np.float64).max


def fitted(**parameters):
    return lvd.MahalanobisKernel(2, max_iter=10, random_state=0, **parameters).fit(X[:100], Y[:100])


def calibrate(kernel, **parameters):
    prior = lvd.calibration.transductive.Prior()
    conformal = lvd.LocalConformal(kernel, prior=prior, **parameters)
    return conformal.conformalize(X[100:], np.abs(Y[100:]))


def radii(conformal):
    return [conformal.radius(NEW, guarantee=guarantee) for guarantee in GUARANTEES]


@pytest.mark.parametrize("bandwidth", [1.0, 2.0, "adaptive"])
@pytest.mark.parametrize("n_components", [1, 2, 400])
def test_a_kernel_that_is_fitted_again_changes_nothing(n_components, bandwidth, tmp_path):
    kernel = fitted()
    expected, conformal = (
        radii(calibrate(kernel, bandwidth=bandwidth)),
        calibrate(kernel, bandwidth=bandwidth),
    )
    kernel.set_params(n_components=n_components, random_state=1).fit(X[:100, ::-1], Y[:100] ** 2)
    conformal.save(tmp_path / "model")
    for one in (conformal, copy.deepcopy(conformal), lvd.load(tmp_path / "model")):
        np.testing.assert_array_equal(radii(one), expected)
    assert conformal.update(X[:9], np.abs(Y[:9])).radius(NEW).shape == (64,)
    again = radii(conformal.conformalize(X[100:], np.abs(Y[100:])))
    assert not np.array_equal(again, expected)
    np.testing.assert_array_equal(again, radii(calibrate(kernel, bandwidth=bandwidth)))


@pytest.mark.parametrize(
    "later",
    [
        {"bandwidth": 9.0},
        {"mass": 9.0},
        {"confidence_level": 0.5},
        {"prior": None},
    ],
)
def test_parameters_that_change_count_from_the_next_calibration_on(later, tmp_path):
    wide = {"bandwidth": "adaptive"} if later == {"mass": 9.0} else {}
    conformal = calibrate(fitted(), **wide)
    expected = radii(conformal)
    for name, value in later.items():
        setattr(conformal, name, value)
    np.testing.assert_array_equal(radii(conformal), expected)
    conformal.save(tmp_path / "model")
    np.testing.assert_array_equal(radii(lvd.load(tmp_path / "model")), expected)


def test_a_kernel_with_new_parameters_that_was_not_fitted_again_is_the_same():
    kernel = fitted()
    before = kernel.transform(NEW), kernel.predict(NEW), kernel(NEW, X)
    kernel.set_params(n_components=7)
    for one, other in zip(before, (kernel.transform(NEW), kernel.predict(NEW), kernel(NEW, X)), strict=True):
        np.testing.assert_array_equal(one, other)


class Columns(lvd.kernels.Kernel):
    """A kernel of the user's: some of the columns."""

    def __init__(self, n_columns):
        self.n_columns = n_columns

    def fit(self, embeddings, y):
        return self

    def coordinates(self, embeddings):
        return torch.as_tensor(embeddings)[:, : self.n_columns]


def test_a_kernel_of_the_users_is_copied():
    kernel = Columns(2)
    conformal = calibrate(kernel)
    expected = radii(conformal)
    kernel.n_columns = 5
    np.testing.assert_array_equal(radii(conformal), expected)
    conformal._settings.kernel.n_columns = 5  # what no copy can prevent: that it depends on something else
    for ask in (conformal.radius, conformal.explain, lambda rows: conformal.update(rows, np.ones(64))):
        with pytest.raises(
            lvd.InputError, match=r"kernel.coordinates must give 2 columns, as it did in conformalize, got 5"
        ):
            ask(NEW)


@pytest.mark.parametrize(
    ("coordinates", "message"),
    [
        (lambda rows: torch.as_tensor(rows).float(), r"must give float64 numbers.*float32 \(200, 5\)"),
        (lambda rows: torch.as_tensor(rows)[0], r"must give float64 numbers.*float64 \(5,\)"),
        (lambda rows: torch.as_tensor(rows)[1:], "coordinates has 199"),
    ],
)
def test_what_is_no_kernel(coordinates, message):
    kernel = Columns(2)
    kernel.coordinates = coordinates
    with pytest.raises(lvd.InputError, match=message):
        calibrate(kernel)


def test_coordinates_may_be_in_any_layout():
    kernel, turned = Columns(2), Columns(2)
    turned.coordinates = lambda rows: torch.as_tensor(np.asfortranarray(rows))[:, :2]
    np.testing.assert_array_equal(radii(calibrate(turned)), radii(calibrate(kernel)))


def test_arrays_that_change_afterwards():
    arrays = {"components": np.ones((1, 2)), "mean": np.zeros(3), "scale": np.ones(3)}
    kept, rows, y = np.array([True, True, False]), X[:, :3].copy(), Y.copy()
    kernel = lvd.MahalanobisKernel.from_components(
        arrays["components"], mean=arrays["mean"], scale=arrays["scale"], kept=kept, embeddings=rows, y=y
    )
    learned = fitted()
    before = kernel(NEW[:, :3], NEW[:, :3]), kernel.predict(NEW[:, :3])
    for array in (*arrays.values(), rows, y, kept):
        array[...] = 0
    np.testing.assert_array_equal(kernel(NEW[:, :3], NEW[:, :3]), before[0])
    np.testing.assert_array_equal(kernel.predict(NEW[:, :3]), before[1])
    for one in (kernel, learned):
        with pytest.raises(ValueError, match="read-only"):
            one.components_ *= 2.0


def test_scores_groups_and_targets_that_change_afterwards():
    scores, groups, y = np.abs(Y[100:]), np.arange(200) % 2, Y[:100].copy()
    conformal = lvd.LocalConformal(fitted()).conformalize(X[100:], scores, groups=groups)
    everywhere = lvd.calibration.GlobalConformal().conformalize(X[100:], scores)
    kernel = lvd.MahalanobisKernel(2, max_iter=5, random_state=0).fit(X[:100], y)

    def answers():
        return [
            conformal.update(X[:1], [1.0], groups=[0]).forget(200).radius(NEW, groups=np.ones(64, int)),
            everywhere.radius(NEW, [0.9])[:, 0],
            kernel.predict(NEW),
        ]

    twin = copy.deepcopy(conformal)
    expected, conformal = answers(), twin
    for array in (scores, groups, y):
        array[...] = 0
    np.testing.assert_array_equal(answers(), expected)


def test_arrays_are_shared_and_not_copied_for_each_calibration():
    kernel = fitted()
    one, other = calibrate(kernel), calibrate(kernel)
    assert one._settings.kernel is not kernel
    assert one._settings.kernel.train_points_ is other._settings.kernel.train_points_ is kernel.train_points_
    loaded = pickle.loads(pickle.dumps(kernel))
    assert loaded.components_.flags.writeable
    assert calibrate(loaded)._settings.kernel.components_ is loaded.components_
    assert not loaded.components_.flags.writeable


def test_a_fitted_kernel_of_a_method_is_the_methods_own():
    kernel = fitted()
    model = (lambda rows: rows[:, 0], lambda rows: rows)
    reg = lvd.LVDRegressor(model, kernel=kernel, preset="paper", random_state=0)
    reg.fit(X[:150], Y[:150]).conformalize(X[150:], Y[150:])
    expected = reg.predict_interval(NEW)[1]
    kernel.set_params(n_components=9).fit(X[:50], Y[:50])
    np.testing.assert_array_equal(reg.predict_interval(NEW)[1], expected)


class TestOverflow:
    FAR = np.array([[LARGEST, 0, 0, 0, 0], [LARGEST, LARGEST, 0, 0, 0], [-LARGEST] * 5, [1e200, 0, 0, 0, 0]])

    @pytest.fixture
    def kernel(self):
        """Of coordinates that are beyond all numbers there, in either direction or in both."""
        components = 3.0 * np.array([[1.0, -1.0, 1.0, 0.0, 0.0], [1.0, 1.0, -1.0, 1.0, 1.0]])
        moments = {"mean": np.zeros(5), "scale": np.ones(5)}
        return lvd.MahalanobisKernel.from_components(components, **moments, embeddings=X[:100], y=Y[:100])

    @pytest.mark.parametrize("bandwidth", [1.0, "adaptive", 1e-300])
    @pytest.mark.parametrize("guarantee", ["local", "randomized", "calibrated"])
    def test_rows_beyond_all_numbers_are_near_no_others(self, guarantee, bandwidth, kernel):
        conformal = calibrate(kernel, bandwidth=bandwidth)
        assert np.isinf(conformal.radius(self.FAR, guarantee=guarantee)).all()
        assert conformal.effective_sample_size(self.FAR).tolist() == [0.0] * 4

    def test_calibration_rows_out_there_change_nothing(self, kernel):
        rows, scores = np.concatenate([X[100:], self.FAR]), np.append(np.abs(Y[100:]), [1e-6] * 4)
        conformal = lvd.LocalConformal(kernel).conformalize(rows, scores)
        np.testing.assert_array_equal(conformal.radius(NEW), calibrate(kernel).radius(NEW))
        assert np.isinf(conformal.radius(self.FAR)).all()

    def test_where_they_are(self, kernel):
        assert (kernel.coordinates(self.FAR[:3]) == FAR_OUT).all()
        np.testing.assert_array_equal(kernel(self.FAR, X), np.zeros((4, 300)))

    def test_weights_whose_sums_overflow(self):
        conformal = lvd.LocalConformal(fitted())
        with pytest.raises(
            lvd.InputError, match=r"weights must be at most 1e\+100, got 1e\+306: their sums would"
        ):
            conformal.conformalize(X, np.abs(Y), weights=np.full(300, 1e306))
        at_most = conformal.conformalize(X, np.abs(Y), weights=np.full(300, 1e100))
        found = at_most.radius(NEW, weights=np.full(64, 1e100))
        alike = lvd.LocalConformal(fitted()).conformalize(X, np.abs(Y))
        np.testing.assert_array_equal(found, alike.radius(NEW))


class TestKernelsThatAreNone:
    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"components_": np.ones((2, 4))}, "components has 4 columns, but kept names 5"),
            ({"components_": np.full((2, 5), np.inf)}, "components, mean and scale must be finite"),
            ({"scale_": np.zeros(5)}, "scale must be positive"),
            ({"mean_": np.zeros(4)}, "mean has 4"),
            ({"kept_": np.ones(5)}, "kept must be true or false"),
            ({"train_y_": np.zeros(3)}, "train_y has 3"),
            ({"train_points_": np.zeros((100, 3))}, "training rows do not have the kernel's coordinates"),
            ({"n_components": 3, "components_": np.ones((3, 5))}, "training rows do not have the kernel's"),
        ],
    )
    def test_are_not_loaded(self, changed, message, tmp_path):
        conformal = calibrate(fitted())
        vars(conformal._settings.kernel).update(changed)
        conformal.save(tmp_path / "model")
        with pytest.raises(lvd.InputError, match=message):
            lvd.load(tmp_path / "model")

    def test_nor_calibration_rows_of_another_width(self, tmp_path):
        conformal = calibrate(fitted())
        rows = conformal.calibration_.rows
        vars(rows)["points"] = torch.cat([rows.points] * 3, 1)
        conformal.save(tmp_path / "model")
        with pytest.raises(lvd.InputError, match="calibration rows do not have the kernel's coordinates"):
            lvd.load(tmp_path / "model")
