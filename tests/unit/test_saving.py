"""A saved model comes back with the same bits, and says what it needs when it cannot."""

from __future__ import annotations

import inspect
import json
import sys

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

import lvd
from lvd.methods import ALL_METHODS
from lvd.store import read_manifest, save_object

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = X[:, 0] + RNG.normal(size=80) * np.abs(X[:, 1])
QUICK = {
    "estimator": lvd.NetRegressor(hidden_sizes=(5,), n_batches=20),
    "kernel": lvd.MahalanobisKernel(n_components=2, max_iter=5),
    "hidden_sizes": (5,),
    "epochs": 1,
    "n_passes": 10,
    "cv": 3,
    "confidence_level": 0.8,
    "random_state": 0,
}


@pytest.fixture(autouse=True)
def short_training(monkeypatch):
    monkeypatch.setattr("lvd.models.regressor.LEAST_BATCHES", 5)
    monkeypatch.setattr("lvd.models.regressor.LEAST_EPOCHS", 1)


def quick(method, **changes):
    known = set(inspect.signature(method).parameters)
    if method is lvd.DeepEnsembleRegressor:
        known.discard("estimator")  # it takes no network of this kind
    return method(**{name: value for name, value in {**QUICK, **changes}.items() if name in known})


class Net(nn.Module):
    def __init__(self, width=4, activation=torch.tanh):
        super().__init__()
        self.first, self.last = nn.Linear(3, width), nn.Linear(width, 1)
        self.activation = activation

    def forward(self, rows):
        return self.last(self.activation(self.first(rows)))


def fitted_net():
    torch.manual_seed(0)
    return Net()


def predict_one(rows):
    return rows[:, 0]


def embed_two(rows):
    return rows[:, :2]


def assert_same(left, right, rows=X):
    for ours, theirs in zip(left.predict_interval(rows), right.predict_interval(rows), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(left.predict(rows), right.predict(rows))


def round_trip(model, folder, **given):
    model.save(folder / "model")
    return lvd.load(folder / "model", **given)


@pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.__name__)
class TestEveryMethod:
    def test_comes_back_with_the_same_bits(self, method, tmp_path):
        reg = quick(method).fit(X, Y)
        loaded = round_trip(reg, tmp_path)
        assert type(loaded) is method
        assert vars(loaded).keys() == vars(reg).keys()
        assert_same(loaded, reg)

    def test_two_targets(self, method, tmp_path):
        reg = quick(method).fit(X, np.stack([Y, -Y], axis=1))
        assert_same(round_trip(reg, tmp_path), reg)

    def test_unfitted(self, method, tmp_path):
        reg = quick(method)
        assert repr(round_trip(reg, tmp_path)) == repr(reg)

    def test_can_be_fitted_again(self, method, tmp_path):
        reg = quick(method).fit(X, Y)
        loaded = round_trip(reg, tmp_path)
        assert_same(loaded.fit(X[::-1].copy(), Y), reg.fit(X[::-1].copy(), Y))


def test_one_network_per_level(tmp_path):
    reg = quick(lvd.ConformalizedQuantileRegressor, confidence_level=[0.5, 0.8]).fit(X, Y)
    assert_same(round_trip(reg, tmp_path), reg)


class TestLVD:
    @pytest.mark.parametrize(
        "parameters",
        [
            {
                "conformity_score": "normalized",
                "estimator": lvd.KernelRegressor(QUICK["estimator"], kernel=QUICK["kernel"]),
            },
            {"conformity_score": "signed", "y_range": (-1.0, None)},
            {"conformity_score": lvd.scores.SidedResidual(), "bandwidth": "adaptive"},
            {"random_state": np.random.RandomState(0)},
        ],
        ids=["normalized", "signed", "sided", "generator"],
    )
    def test_variants_come_back(self, parameters, tmp_path):
        reg = quick(lvd.LVDRegressor, **parameters).fit(X, Y)
        loaded = round_trip(reg, tmp_path)
        assert_same(loaded, reg)
        np.testing.assert_array_equal(loaded.embed(X), reg.embed(X))

    def test_explanations_come_back(self, tmp_path):
        reg = quick(lvd.LVDRegressor).fit(X, Y)
        loaded = round_trip(reg, tmp_path)
        assert repr(loaded.explain(X[:5], n_neighbors=3)) == repr(reg.explain(X[:5], n_neighbors=3))

    def test_before_conformalize(self, tmp_path):
        reg = quick(lvd.LVDRegressor, calib_size=None).fit(X[:40], Y[:40])
        loaded = round_trip(reg, tmp_path)
        assert_same(loaded.conformalize(X[40:], Y[40:]), reg.conformalize(X[40:], Y[40:]))

    def test_the_kernel_is_saved_once(self, tmp_path):
        loaded = round_trip(quick(lvd.LVDRegressor).fit(X, Y), tmp_path)
        assert loaded.calibrators_[0].kernel is loaded.kernels_[0]

    def test_the_manifest_can_be_read(self, tmp_path):
        save_object(quick(lvd.LVDRegressor).fit(X, Y), tmp_path / "model", columns=["a", "b", "c"])
        manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
        assert manifest["format"] == 2
        assert manifest["lvd"] == lvd.__version__
        assert manifest["torch"] == torch.__version__
        assert manifest["class"] == "LVDRegressor"
        assert manifest["objects"][-1]["parameters"]["confidence_level"] == 0.8
        assert manifest["tensors"]["model_.x_mean_"] == {"dtype": "float64", "shape": [3], "finite": True}
        assert read_manifest(tmp_path / "model")["columns"] == ["a", "b", "c"]


class TestLocalConformal:
    def make(self, **parameters):
        kernel = lvd.MahalanobisKernel(n_components=2, max_iter=5, random_state=0, **parameters).fit(X, Y)
        return lvd.LocalConformal(kernel)

    def test_comes_back_with_the_same_bits(self, tmp_path):
        conformal = self.make().conformalize(X, np.abs(Y))
        loaded = round_trip(conformal, tmp_path)
        np.testing.assert_array_equal(loaded.radius(X, [0.5, 0.8]), conformal.radius(X, [0.5, 0.8]))
        np.testing.assert_array_equal(loaded.effective_sample_size(X), conformal.effective_sample_size(X))
        np.testing.assert_array_equal(loaded.kernel.predict(X), conformal.kernel.predict(X))

    def test_can_be_updated(self, tmp_path):
        conformal = self.make().conformalize(X[:40], np.abs(Y[:40]))
        loaded = round_trip(conformal, tmp_path)
        for each in (conformal, loaded):
            each.update(X[40:], np.abs(Y[40:]))
        np.testing.assert_array_equal(loaded.radius(X), conformal.radius(X))

    def test_without_a_calibration_set(self, tmp_path):
        loaded = round_trip(self.make(), tmp_path).conformalize(X, np.abs(Y))
        np.testing.assert_array_equal(loaded.radius(X), self.make().conformalize(X, np.abs(Y)).radius(X))

    def test_array_layout_is_kept(self, tmp_path):
        """A product with the other layout may round otherwise."""
        conformal = self.make()
        conformal.kernel.components_ = np.asfortranarray(conformal.kernel.components_)
        conformal.conformalize(X, np.abs(Y))
        loaded = round_trip(conformal, tmp_path)
        assert loaded.kernel.components_.flags.f_contiguous
        np.testing.assert_array_equal(loaded.kernel.components_, conformal.kernel.components_)


class TestOwnModules:
    @pytest.mark.parametrize("prefit", [False, True])
    @pytest.mark.parametrize("wrap", [lambda m: m, lambda m: lvd.NetRegressor(m, n_batches=5)])
    def test_weights_go_into_a_copy(self, prefit, wrap, tmp_path):
        module = fitted_net()
        reg = quick(
            lvd.LVDRegressor, estimator=wrap(module), prefit=prefit and wrap(module) is module, random_state=0
        )
        reg.fit(X, Y)
        if reg.prefit:
            reg.conformalize(X + 1.0, Y)
        reg.save(tmp_path / "model")
        other = Net()
        before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
        assert_same(lvd.load(tmp_path / "model", estimator=wrap(other)), reg)
        for name, tensor in other.state_dict().items():
            assert torch.equal(tensor, before[name])

    def test_a_fitted_regressor_of_the_users(self, tmp_path):
        net = lvd.NetRegressor(hidden_sizes=(4,), n_batches=5, random_state=0).fit(X[:40], Y[:40])
        reg = quick(lvd.LVDRegressor, estimator=net, prefit=True, random_state=0).fit(X[:40], Y[:40])
        reg.conformalize(X[40:], Y[40:])
        loaded = round_trip(reg, tmp_path)
        assert_same(loaded, reg)
        assert loaded.estimator is loaded.model_.model

    def test_two_modules(self, tmp_path):
        reg = quick(
            lvd.MADSplitRegressor,
            estimator=Net(),
            error_estimator=Net(activation=torch.relu),
            random_state=0,
        ).fit(X, Y)
        loaded = round_trip(reg, tmp_path, estimator=Net(), error_estimator=Net(activation=torch.relu))
        assert_same(loaded, reg)

    def test_two_modules_that_cannot_be_told_apart(self, tmp_path):
        reg = quick(
            lvd.MADSplitRegressor,
            estimator=lvd.NetRegressor(Net(), n_batches=5),
            error_estimator=lvd.NetRegressor(Net(), n_batches=5),
        ).fit(X, Y)
        with pytest.raises(lvd.InputError, match=r"model_.module holds Net, which cannot be saved"):
            reg.save(tmp_path / "model")

    def test_a_missing_module(self, tmp_path):
        reg = lvd.SplitConformalRegressor(fitted_net(), prefit=True).fit(X, Y)
        with pytest.raises(
            lvd.InputError, match=r"made with Net as estimator=.*lvd.load\(folder, estimator="
        ):
            round_trip(reg, tmp_path)

    def test_another_module(self, tmp_path):
        reg = lvd.SplitConformalRegressor(fitted_net(), prefit=True).fit(X, Y)
        message = r"first.weight: saved float32 \(4, 3\), in the module float32 \(7, 3\); first.bias: .*"
        with pytest.raises(lvd.InputError, match=message):
            round_trip(reg, tmp_path, estimator=Net(7))
        with pytest.raises(lvd.InputError, match=r"first.weight: saved .*, in the module not at all"):
            round_trip(reg, tmp_path, estimator=nn.Sequential(nn.Linear(3, 1)))
        with pytest.raises(lvd.InputError, match=r"saved float32 .*in the module float64"):
            round_trip(reg, tmp_path, estimator=fitted_net().double())
        with pytest.raises(lvd.InputError, match="estimator= must be a torch module, a Net, got <function"):
            round_trip(reg, tmp_path, estimator=predict_one)

    def test_a_module_that_is_not_needed(self, tmp_path):
        reg = quick(lvd.SplitConformalRegressor).fit(X, Y)
        with pytest.raises(lvd.InputError, match="estimator= is not needed"):
            round_trip(reg, tmp_path, estimator=Net())


class TestFunctions:
    def test_a_pair_is_given_again(self, tmp_path):
        reg = quick(lvd.LVDRegressor, estimator=(predict_one, embed_two), prefit=True, random_state=0)
        reg.fit(X[:40], Y[:40]).conformalize(X[40:], Y[40:])
        assert_same(round_trip(reg, tmp_path, estimator=(predict_one, embed_two)), reg)
        with pytest.raises(lvd.InputError, match="made with predict_one as part 0 of estimator="):
            lvd.load(tmp_path / "model")
        with pytest.raises(lvd.InputError, match="estimator= must be given as it was"):
            lvd.load(tmp_path / "model", estimator=predict_one)

    def test_a_loss_is_given_again(self, tmp_path):
        net = lvd.NetRegressor(n_batches=5, loss=nn.functional.l1_loss)
        reg = lvd.SplitConformalRegressor(net, random_state=0).fit(X, Y)
        assert_same(round_trip(reg, tmp_path, estimator=net), reg)
        with pytest.raises(lvd.InputError, match="made with l1_loss as part loss of estimator="):
            lvd.load(tmp_path / "model")

    def test_a_function_put_in_later_is_refused(self, tmp_path):
        reg = quick(lvd.SplitConformalRegressor).fit(X, Y)
        reg.model_.loss = nn.functional.l1_loss
        with pytest.raises(lvd.InputError, match=r"model_.loss holds l1_loss, which cannot be saved"):
            reg.save(tmp_path / "model")


class TestSklearn:
    @pytest.mark.parametrize(
        "estimator",
        [
            Ridge(),
            RandomForestRegressor(n_estimators=3, random_state=0),
            HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=5),
            make_pipeline(
                StandardScaler(), MLPRegressor(hidden_layer_sizes=(4,), max_iter=50, random_state=0, tol=1e9)
            ),
            KNeighborsRegressor(),
            GaussianProcessRegressor(alpha=1.0),
        ],
        ids=lambda estimator: type(estimator).__name__,
    )
    def test_comes_back_with_the_same_bits(self, estimator, tmp_path):
        pytest.importorskip("skops")
        reg = quick(lvd.LVDRegressor, estimator=estimator, random_state=0).fit(X, Y)
        loaded = round_trip(reg, tmp_path)
        assert_same(loaded, reg)
        np.testing.assert_array_equal(loaded.embed(X), reg.embed(X))

    def test_an_embedding_function_is_given_again(self, tmp_path):
        pytest.importorskip("skops")
        reg = quick(lvd.LVDRegressor, estimator=(Ridge(), embed_two), random_state=0).fit(X, Y)
        assert_same(round_trip(reg, tmp_path, estimator=(None, embed_two)), reg)
        with pytest.raises(lvd.InputError, match="made with embed_two as part 1 of estimator="):
            lvd.load(tmp_path / "model")

    def test_a_prefit_estimator_is_saved_once(self, tmp_path):
        pytest.importorskip("skops")
        reg = lvd.SplitConformalRegressor(Ridge().fit(X, Y), prefit=True).fit(X, Y).conformalize(X + 1.0, Y)
        loaded = round_trip(reg, tmp_path)
        assert loaded.model_.fitted_ is loaded.estimator
        assert [path.name for path in (tmp_path / "model").glob("*.skops")] == ["estimator-0.skops"]

    def test_types_of_other_packages_are_refused(self, tmp_path):
        pytest.importorskip("skops")
        estimator = make_pipeline(FunctionTransformer(embed_two), Ridge())
        reg = lvd.SplitConformalRegressor(estimator).fit(X, Y)
        with pytest.raises(lvd.InputError, match=r"a Pipeline, cannot be saved: it holds .*embed_two"):
            reg.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()

    def test_without_skops(self, tmp_path, monkeypatch):
        pytest.importorskip("skops")
        reg = lvd.SplitConformalRegressor(Ridge()).fit(X, Y)
        reg.save(tmp_path / "model")
        for name in ("skops", "skops.io"):
            monkeypatch.setitem(sys.modules, name, None)
        for use in (lambda: lvd.load(tmp_path / "model"), lambda: reg.save(tmp_path / "other")):
            with pytest.raises(lvd.InputError, match=r'pip install "lvd\[sklearn-models\]"'):
                use()


class TestDevice:
    def test_a_gpu_that_is_not_here(self, tmp_path, monkeypatch):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
        reg = quick(lvd.LVDRegressor).fit(X, Y)
        for owner in (reg, reg.model_, *reg.kernels_):
            owner.device = "cuda:0"
        reg.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model")
        assert {loaded.device, loaded.model_.device, loaded.kernels_[0].device} == {"auto"}
        for owner in (reg, reg.model_, *reg.kernels_):
            owner.device = "cpu"
        assert_same(loaded, reg)

    def test_networks_go_to_the_device_of_their_owner(self, tmp_path, monkeypatch):
        net = lvd.NetRegressor(n_batches=5)
        reg = lvd.SplitConformalRegressor(net, random_state=0, calib_size=None).fit(X, Y)
        monkeypatch.setattr("lvd.store.decoding.resolve_device", lambda device: torch.device("meta"))
        assert round_trip(reg, tmp_path).model_.module_[0].weight.is_meta


class TestWriting:
    def test_replaces_a_saved_model(self, tmp_path):
        quick(lvd.LVDRegressor).fit(X, Y).save(tmp_path / "model")
        reg = quick(lvd.SplitConformalRegressor).fit(X, Y)
        assert_same(round_trip(reg, tmp_path), reg)
        assert [path.name for path in tmp_path.iterdir()] == ["model"]

    def test_replaces_nothing_else(self, tmp_path):
        reg = quick(lvd.SplitConformalRegressor).fit(X, Y)
        (tmp_path / "notes.txt").write_text("mine")
        for target in (tmp_path, tmp_path / "notes.txt"):
            with pytest.raises(lvd.InputError, match="it holds something else; give a new folder"):
                reg.save(target)
        with pytest.raises(lvd.InputError, match="does not exist"):
            reg.save(tmp_path / "missing" / "model")
        assert (tmp_path / "notes.txt").read_text() == "mine"

    def test_a_failed_save_leaves_the_old_model(self, tmp_path):
        reg = quick(lvd.SplitConformalRegressor).fit(X, Y)
        reg.save(tmp_path / "model")
        broken = quick(lvd.SplitConformalRegressor).fit(X, Y)
        broken.y_calib_ = np.full_like(broken.y_calib_, np.nan)
        with pytest.raises(lvd.InputError, match="y_calib_ holds NaN"):
            broken.save(tmp_path / "model")
        assert_same(lvd.load(tmp_path / "model"), reg)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (object(), "extra_ is a object, which cannot be saved"),
            (np.array(["a"]), "extra_ holds values of type <U1, which cannot be saved"),
            (np.ones(2, complex), "type complex128"),
            (torch.ones(2, dtype=torch.complex64), "extra_ is not a tensor of real numbers"),
            (torch.Size([1]), "extra_ is a Size, which cannot be saved"),
            (nn.Bilinear(1, 1, 1), "extra_ holds Bilinear, which cannot be saved"),
        ],
    )
    def test_what_cannot_be_saved_is_named(self, value, message, tmp_path):
        reg = quick(lvd.SplitConformalRegressor).fit(X, Y)
        reg.extra_ = value
        with pytest.raises(lvd.InputError, match=message):
            reg.save(tmp_path / "model")

    def test_values_of_all_kinds_come_back(self, tmp_path):
        reg = quick(lvd.SplitConformalRegressor).fit(X, Y)
        reg.extra_ = {
            0.5: [1, 2.5, None, "text", True, float("inf")],
            "sizes": (1, (2,), []),
            "numbers": np.float32(0.1),
            "flag": np.bool_(True),
            "tensor": torch.arange(3),
            "infinite": np.array([np.inf, 1.0]),
            "none": np.zeros((0, 2), np.uint64),
            "point": np.array(1.5),
        }
        loaded = round_trip(reg, tmp_path).extra_
        assert repr(loaded) == repr(reg.extra_)
        assert [type(value) for value in loaded.values()] == [type(value) for value in reg.extra_.values()]
