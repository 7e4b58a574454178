"""Networks as regressors: the built-in one, and modules of the user's, trained by us or left alone."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import lvd
from lvd.models.losses import NormalLoss, SquaredLoss
from lvd.models.torch_modules import (
    build_mlp,
    draw_with_replacement,
    forward_with_embedding,
    run_mlp,
    weights_in_float64,
)


def new_net(module=None, **changes):
    return lvd.NetRegressor(module, **({"n_batches": 30, "device": "cpu", "random_state": 0} | changes))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    return X, X[:, 0] - 2.0 * X[:, 1]


def small_module(n_inputs=3, n_outputs=1):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(n_inputs, 6), nn.Tanh(), nn.Linear(6, n_outputs))


class TestBuiltIn:
    @pytest.mark.parametrize("hidden_sizes", [(), (100,), (7, 5)])
    def test_starts_as_torch_starts_linear_layers(self, hidden_sizes):
        ours = build_mlp(4, hidden_sizes, 2, generator=torch.Generator().manual_seed(3))
        with torch.random.fork_rng():
            torch.manual_seed(3)
            sizes = [4, *hidden_sizes, 2]
            theirs = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        linears = [layer for layer in ours if isinstance(layer, nn.Linear)]
        for mine, other in zip(linears, theirs, strict=True):
            assert torch.equal(mine.weight, other.weight)
            assert torch.equal(mine.bias, other.bias)
        assert len(ours) == 2 * len(linears) - 1

    def test_batches_are_drawn_with_replacement_from_the_legacy_generator(self):
        rng = np.random.RandomState(9)
        for batch in draw_with_replacement(20, 4, 15, 9):
            np.testing.assert_array_equal(batch, rng.choice(20, 15))

    def test_learns(self, data):
        X, y = data
        net = new_net(n_batches=300).fit(X, y)
        assert net.score(X, y) > 0.98

    def test_the_embedding_is_the_last_hidden_layer(self, data):
        X, y = data
        net = new_net(hidden_sizes=(9, 4)).fit(X, y)
        embeddings = net.embed(X)
        assert embeddings.shape == (80, 4)
        scaled = torch.tensor((X - X.mean(0)) / X.std(0), dtype=torch.float32)
        np.testing.assert_allclose(embeddings, net.module_[:4](scaled).detach().numpy(), rtol=1e-5)

    def test_evaluation_gives_both_at_once(self, data):
        X, y = data
        net = new_net().fit(X, y)
        evaluation = net.evaluate(X)
        np.testing.assert_array_equal(evaluation.y_pred[:, 0], net.predict(X))
        np.testing.assert_array_equal(evaluation.embeddings, net.embed(X))

    def test_more_rows_than_one_evaluation_takes(self, data, monkeypatch):
        X, y = data
        net = new_net().fit(X, y)
        whole = net.predict(X)
        monkeypatch.setattr("lvd.models.regressor.EVALUATION_ROWS", 7)
        np.testing.assert_allclose(net.predict(X), whole, rtol=1e-5)

    def test_the_same_seed_gives_the_same_bits(self, data):
        X, y = data
        first, second, other = (new_net(random_state=seed).fit(X, y).predict(X) for seed in (0, 0, 1))
        np.testing.assert_array_equal(first, second)
        assert (first != other).all()

    def test_clone(self):
        net = new_net(hidden_sizes=(5,), weight_decay=0.1)
        assert clone(net).get_params() == net.get_params()

    def test_weight_decay_shrinks(self, data):
        free, held = (new_net(weight_decay=decay).fit(*data).module_ for decay in (0.0, 1.0))
        norms = [sum(float(p.detach().square().sum()) for p in net.parameters()) for net in (free, held)]
        assert norms[1] < norms[0]

    def test_squared_errors_may_be_named(self, data):
        X, y = data
        named, default = (new_net(n_batches=20, loss=loss).fit(X, y) for loss in (SquaredLoss(), None))
        np.testing.assert_allclose(named.predict(X), default.predict(X), rtol=1e-4, atol=1e-4)
        with pytest.raises(lvd.InputError, match="one number for each target, but NormalLoss takes 2"):
            new_net(loss=NormalLoss()).fit(X, y)

    def test_a_loss_of_your_own(self, data):
        X, _ = data
        skewed = np.random.default_rng(1).exponential(size=80)
        fitted = new_net(n_batches=400, loss=nn.functional.l1_loss, hidden_sizes=()).fit(0 * X, skewed)
        assert fitted.predict(X[:1] * 0)[0] == pytest.approx(np.median(skewed), abs=0.15)


class TestLengthOfTraining:
    @pytest.mark.parametrize(
        ("settings", "n_rows", "expected"),
        [
            ({"n_batches": 3}, 80, 3),
            ({"n_batches": None, "epochs": 5, "batch_size": 16}, 80, 25),
            ({"n_batches": None, "epochs": 1, "batch_size": 100}, 80, 1),
            ({"n_batches": None, "early_stopping": False}, 80, 1000),
            ({"n_batches": None, "early_stopping": False, "batch_size": 1}, 80, 1600),
        ],
    )
    def test_batches(self, data, settings, n_rows, expected, full_training):
        X, y = data
        seen = []
        new_net(hidden_sizes=(2,), **settings).fit(X[:n_rows], y[:n_rows], on_batch=lambda: seen.append(1))
        assert len(seen) == expected

    def test_batches_and_epochs_exclude_each_other(self, data):
        with pytest.raises(lvd.InputError, match="give n_batches or epochs, not both"):
            new_net(epochs=3).fit(*data)


class TestScaling:
    def test_units_do_not_matter_when_scaled(self, data):
        X, y = data
        plain = new_net().fit(X, y).predict(X)
        moved = new_net().fit(1e3 * X + 1e5, 1e4 * y - 7e6).predict(1e3 * X + 1e5)
        np.testing.assert_allclose((moved + 7e6) / 1e4, plain, rtol=1e-3, atol=1e-4)

    def test_constant_columns_keep_their_size(self, data):
        X, _ = data
        net = new_net().fit(np.hstack([X, np.full((80, 1), 3.0)]), np.full(80, 5.0))
        assert net.x_scale_[3] == 1.0
        np.testing.assert_allclose(net.y_scale_, 1.0)

    def test_scaling_can_be_left_out(self, data):
        net = new_net(scale_inputs=False, scale_target=False).fit(*data)
        np.testing.assert_array_equal(net.x_mean_, 0.0)
        np.testing.assert_array_equal(net.y_scale_, 1.0)

    def test_divergence_is_told(self, data):
        X, y = data
        net = new_net(learning_rate=1e3, scale_inputs=False, scale_target=False)
        with pytest.raises(lvd.InputError, match=r"training diverged: .* lower learning_rate, or scale"):
            net.fit(1e20 * X, 1e20 * y)


class TestInputsAndOutputs:
    def test_several_targets(self, data):
        X, y = data
        net = new_net().fit(X, np.stack([y, 2.0 * y], axis=1))
        assert net.predict(X).shape == (80, 2)

    def test_a_column_gives_columns(self, data):
        X, y = data
        assert new_net().fit(X, y[:, None]).predict(X).shape == (80, 1)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_torch_in_torch_out(self, data, dtype):
        X, y = (torch.tensor(array, dtype=dtype) for array in data)
        net = new_net().fit(X, y)
        assert net.predict(X).dtype == net.embed(X).dtype == dtype
        np.testing.assert_allclose(net.predict(X).numpy(), net.predict(X.numpy()), rtol=1e-5)

    def test_frames(self, data):
        pd = pytest.importorskip("pandas")
        X, y = data
        frame = pd.DataFrame(X, columns=list("abc"))
        predicted = new_net().fit(frame, pd.Series(y)).predict(frame)
        np.testing.assert_array_equal(predicted, new_net().fit(X, y).predict(X))

    def test_use_before_fit(self, data):
        for call in (new_net().predict, new_net().embed):
            with pytest.raises(NotFittedError):
                call(data[0])

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"n_batches": 0}, "n_batches must be a positive integer, got 0"),
            ({"n_batches": None, "epochs": 1.5}, "epochs must be a positive integer, got 1.5"),
            ({"batch_size": 0}, "batch_size must be a positive integer, got 0"),
            ({"learning_rate": -1.0}, "learning_rate must be a positive number, got -1.0"),
            ({"hidden_sizes": (10, 0)}, "hidden_sizes must be a positive integer, got 0"),
            ({"prefit": True}, "prefit=True needs a trained module; pass it as the first argument"),
            ({"random_state": -1}, "random_state must be None, .* got -1"),
        ],
    )
    def test_refused_parameters(self, data, change, message):
        with pytest.raises(lvd.InputError, match=message):
            new_net().set_params(**change).fit(*data)


class TwoOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        return self.head(x), x.sum(1)


class TestModules:
    def test_a_copy_is_trained(self, data):
        module = small_module()
        before = copy.deepcopy(module.state_dict())
        net = new_net(module).fit(*data)
        assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
        assert not torch.equal(net.module_[0].weight, module[0].weight)

    def test_the_last_linear_layer_is_found_by_running_it(self, data):
        class Reversed(nn.Module):
            def __init__(self):
                super().__init__()
                self.last, self.first = nn.Linear(5, 1), nn.Linear(3, 5)

            def forward(self, x):
                return self.last(torch.relu(self.first(x)))

        net = new_net(Reversed()).fit(*data)
        assert net.embedding_layer_ == "last"
        assert net.embed(data[0]).shape == (80, 5)

    def test_a_layer_may_be_named(self, data):
        net = new_net(small_module(), embedding_layer="1").fit(*data)
        assert net.embedding_layer_ == "1"
        assert (np.abs(net.embed(data[0])) > 1.0).any()  # before the tanh

    def test_a_wrong_name_lists_the_layers(self, data):
        message = "the embedding's layer 'head' is not in the module; choose one of: 0, 1, 2"
        with pytest.raises(lvd.InputError, match=message):
            new_net(small_module(), embedding_layer="head").fit(*data)

    def test_no_linear_layer_lists_the_layers(self):
        module = nn.Sequential(nn.Conv1d(1, 1, 3), nn.Flatten(0))
        message = r"no Linear layer is called .* name the layer of the embedding, one of: 0, 1"
        with pytest.raises(lvd.InputError, match=message):
            new_net(module).fit(np.random.default_rng(0).normal(size=(20, 1, 3)), np.arange(20.0))

    def test_a_layer_that_is_never_called(self, data):
        module = small_module()
        module[0].spare = nn.Linear(2, 2)
        with pytest.raises(
            lvd.InputError, match=r"'0.spare' does not see one entry per row .* 0, 0.spare, 1, 2"
        ):
            new_net(module, embedding_layer="0.spare").fit(*data)

    def test_two_outputs_are_refused(self, data):
        with pytest.raises(lvd.InputError, match="the module must return one tensor, got tuple"):
            new_net(TwoOutputs()).fit(*data)

    def test_two_columns_are_refused(self, data):
        message = r"output of shape \(2, 2\) for 2 rows; it must return 1 value\(s\) per row"
        with pytest.raises(lvd.InputError, match=message):
            new_net(small_module(n_outputs=2)).fit(*data)

    def test_inputs_it_cannot_take(self, data):
        message = r"the module cannot be run on inputs of shape \(2, 3\): "
        with pytest.raises(lvd.InputError, match=message):
            new_net(small_module(n_inputs=4)).fit(*data)

    def test_a_vector_is_a_column(self, data):
        net = new_net(nn.Sequential(small_module(), nn.Flatten(0)), n_batches=200).fit(*data)
        assert net.score(*data) > 0.5

    def test_double_precision_modules(self, data):
        net = new_net(small_module().double()).fit(*data)
        assert net.module_[0].weight.dtype == torch.float64
        assert net.predict(data[0]).shape == (80,)

    @pytest.mark.filterwarnings("ignore:Lazy modules")
    def test_lazy_layers(self, data):
        module = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1))
        assert new_net(module).fit(*data).embed(data[0]).shape == (80, 4)

    def test_images(self, rng):
        images = rng.normal(size=(40, 1, 6, 6))
        module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5), nn.Linear(5, 1))
        net = new_net(module).fit(images, images.mean((1, 2, 3)))
        assert net.predict(images).shape == (40,)
        assert net.embed(images).shape == (40, 5)
        with pytest.raises(lvd.InputError, match="X contains 1 NaN"):
            net.predict(np.where(np.arange(36).reshape(1, 1, 6, 6) == 7, np.nan, images[:1]))

    def test_dropout_repeats_with_the_seed(self, data):
        module = nn.Sequential(nn.Linear(3, 20), nn.Dropout(0.5), nn.Linear(20, 1))
        first, second = (new_net(module).fit(*data).predict(data[0]) for _ in range(2))
        np.testing.assert_array_equal(first, second)

    def test_a_network_that_predicts_nan_is_told(self, data):
        module = small_module()
        with torch.no_grad():
            module[2].bias.fill_(torch.nan)
        with pytest.raises(lvd.InputError, match="the network predicts NaN or infinity at row 0"):
            new_net(module, prefit=True).fit(*data).predict(data[0])


class TestPrefit:
    @pytest.fixture
    def module(self):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            module = nn.Sequential(
                nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.ReLU(), nn.Linear(6, 1)
            )
        return module.train()

    def test_nothing_changes(self, module, data):
        module[1].eval()  # a layer that its owner has frozen
        before = copy.deepcopy(module.state_dict())
        modes = [layer.training for layer in module.modules()]
        net = new_net(module, prefit=True).fit(*data)
        net.predict(data[0])
        net.embed(data[0])
        assert net.module_ is module
        assert [layer.training for layer in module.modules()] == modes
        for name, value in module.state_dict().items():
            assert torch.equal(before[name], value), name

    def test_predicts_as_in_evaluation_mode(self, module, data):
        net = new_net(module, prefit=True).fit(*data)
        predicted = net.predict(data[0])
        expected = module.eval().double()(torch.tensor(data[0]))[:, 0].detach()
        np.testing.assert_allclose(predicted, expected.numpy(), rtol=1e-12)

    def test_nothing_of_an_earlier_fit_stays_behind(self, module, data):
        refitted = lvd.NetRegressor(device="cpu", random_state=0).fit(*data)
        refitted.set_params(module=module, prefit=True).fit(*data)
        far = 20.0 * data[0]
        expected = new_net(module, prefit=True).fit(*data).predict(far)
        np.testing.assert_array_equal(refitted.predict(far), expected)

    def test_no_hook_stays_behind(self, module, data):
        new_net(module, prefit=True).fit(*data).predict(data[0])
        assert not any(layer._forward_pre_hooks for layer in module.modules())


@pytest.mark.parametrize("module", [None, nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))])
@pytest.mark.parametrize("seed", [0, None])
def test_the_generators_of_the_process_stay_untouched(module, seed, data):
    X, y = data
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    reg = lvd.LVDRegressor(
        new_net(module, random_state=seed),
        kernel=lvd.MahalanobisKernel(2, max_iter=5),
        conformity_score="normalized",
        device="cpu",
        random_state=seed,
    )
    reg.fit(X, y).predict_interval(X)
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state[1])  # noqa: NPY002
    assert np.random.get_state()[2] == numpy_state[2]  # noqa: NPY002


@pytest.mark.parametrize("sizes", [(7,), (9, 4)], ids=["one layer", "two layers"])
def test_the_short_way_through_the_built_in_network_has_the_same_bits(sizes):
    mlp = build_mlp(3, sizes, 2, generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(11, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        expected = forward_with_embedding(mlp, str(len(mlp) - 1), inputs, weights_in_float64(mlp))
        for ours, theirs in zip(run_mlp(mlp, inputs), expected, strict=True):
            assert torch.equal(ours, theirs)
