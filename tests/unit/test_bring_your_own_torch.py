"""Torch modules that take several tensors by name, modules in bfloat16, and skorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import lvd

N = 160


class Encoder(nn.Module):
    """The mean of the vectors of a text's words, padding left out, and a head."""

    def __init__(self, size=8):
        super().__init__()
        self.words = nn.Embedding(20, size)
        self.head = nn.Linear(size, 1)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask[..., None].to(self.words.weight.dtype)
        return self.head((self.words(input_ids) * mask).sum(1) / mask.sum(1))


@pytest.fixture(scope="module")
def tokens():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 20, size=(N, 6))
    mask = np.arange(6) < rng.integers(1, 7, size=(N, 1))
    y = (ids * mask).sum(1) / mask.sum(1) + 0.1 * rng.normal(size=N)
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}, y


@pytest.fixture(scope="module")
def numbers():
    X = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
    return X, X[:, 0] + 0.1 * X[:, 1] ** 2


def quick(estimator, **settings):
    kernel = lvd.MahalanobisKernel(2, max_iter=5)
    settings = {"conformity_score": "absolute", "device": "cpu", "random_state": 0} | settings
    return lvd.LVDRegressor(estimator, kernel=kernel, **settings)


def some(rows, part):
    return {name: tensor[part] for name, tensor in rows.items()}


def encoder():
    torch.manual_seed(0)
    return Encoder()


class TestDictsOfTensors:
    def test_a_trained_encoder(self, tokens, tmp_path):
        X, y = tokens
        module = encoder()
        reg = quick(module, prefit=True, calib_size=None).fit(some(X, slice(60)), y[:60])
        reg.conformalize(some(X, slice(60, 120)), y[60:120])
        new = some(X, slice(120, None))
        found = reg.predict_with_evidence(new)
        with torch.no_grad():
            np.testing.assert_allclose(found.y_pred, module(**new)[:, 0].numpy(), rtol=1e-4)
        assert found.embeddings.shape == (40, 8)
        reg.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model", estimator=Encoder())
        np.testing.assert_array_equal(loaded.predict_interval(new)[1], found.intervals)

    def test_trained_by_us(self, tokens):
        X, y = tokens
        net = lvd.NetRegressor(encoder(), n_batches=300, learning_rate=0.1, random_state=0)
        reg = quick(net).fit(X, y)
        assert np.mean((reg.predict(X) - y) ** 2) < 0.5 * y.var()
        arrays = {name: tensor.numpy() for name, tensor in X.items()}
        np.testing.assert_array_equal(reg.predict(arrays), reg.predict(X))

    def test_shared_rows_are_found(self, tokens):
        X, y = tokens
        reg = quick(encoder(), prefit=True, calib_size=None).fit(some(X, slice(60)), y[:60])
        with pytest.warns(lvd.CalibrationWarning, match=r"\d+ of 60 calibration rows equal a training row"):
            reg.conformalize(some(X, slice(50, 110)), y[50:110])

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda X: {}, "X holds nothing, but in fit it held attention_mask, input_ids"),
            (
                lambda X: {"input_ids": X["input_ids"]},
                "X holds input_ids, but in fit it held attention_mask, input_ids",
            ),
            (lambda X: X | {"input_ids": X["input_ids"][:3]}, "inconsistent numbers of rows"),
            (lambda X: X | {"input_ids": X["input_ids"] * np.nan}, r"X\['input_ids'\] must hold finite"),
        ],
    )
    def test_refusals(self, tokens, change, message):
        X, y = tokens
        reg = quick(encoder(), prefit=True).fit(X, y)
        with pytest.raises(lvd.InputError, match=message):
            reg.predict(change(X))

    def test_the_built_in_network_takes_none(self, tokens):
        with pytest.raises(
            lvd.InputError, match="X is a dict, which only a torch module of your own accepts"
        ):
            quick("net").fit(*tokens)
        with pytest.raises(lvd.InputError, match="X is an empty dict"):
            quick(encoder(), prefit=True).fit({}, tokens[1])


class TestBfloat16:
    def test_given_as_trained(self, numbers, tmp_path):
        X, y = numbers
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1)).bfloat16()
        reg = quick(module, prefit=True).fit(X[:60], y[:60]).conformalize(X[60:], y[60:])
        with torch.no_grad():
            own = module(torch.tensor(X).bfloat16()).float().numpy()[:, 0]
        np.testing.assert_allclose(reg.predict(X), own, atol=0.05)
        assert next(module.parameters()).dtype == torch.bfloat16
        reg.save(tmp_path / "model")
        fresh = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1)).bfloat16()
        loaded = lvd.load(tmp_path / "model", estimator=fresh)
        np.testing.assert_array_equal(loaded.predict_interval(X)[1], reg.predict_interval(X)[1])

    def test_rows_in_bfloat16(self, numbers):
        X, y = numbers
        rows = torch.tensor(X).bfloat16()
        module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1)).bfloat16()
        reg = quick(lvd.NetRegressor(module, n_batches=20, random_state=0)).fit(rows, y)
        assert reg.predict_interval(rows)[1].dtype == torch.float32


class TestSkorch:
    @pytest.fixture
    def net(self):
        skorch = pytest.importorskip("skorch", reason="skorch is not installed: pip install skorch")
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1))
        return skorch.NeuralNetRegressor(
            module, max_epochs=30, lr=0.05, verbose=0, train_split=None, optimizer=torch.optim.Adam
        )

    def test_trained_by_us(self, net, numbers):
        X, y = numbers
        reg = quick(net).fit(X, y)
        assert np.mean((reg.predict(X) - y) ** 2) < 0.5 * y.var()
        fitted = reg.model_.fitted_.module_
        with torch.no_grad():
            hidden = fitted[:2](torch.tensor(X)).numpy()
        np.testing.assert_allclose(reg.embed(X), hidden, rtol=1e-5)
        assert next(fitted.parameters()).dtype == torch.float32

    def test_trained_already(self, net, numbers):
        X, y = numbers
        net.fit(X, y[:, None].astype(np.float32))
        reg = quick(net, prefit=True, calib_size=None).fit(X[:80], y[:80]).conformalize(X[80:], y[80:])
        np.testing.assert_array_equal(reg.predict(X), net.predict(X)[:, 0])

    def test_at_the_end_of_a_pipeline(self, net, numbers):
        X, y = numbers
        reg = quick(make_pipeline(StandardScaler(), net)).fit(X.astype(float), y)
        assert reg.embed(X).shape == (N, 6)

    def test_it_is_not_saved(self, net, numbers, tmp_path):
        pytest.importorskip("skops")
        X, y = numbers
        with pytest.raises(
            lvd.InputError, match=r"a NeuralNetRegressor, cannot be saved: .*pair of functions"
        ):
            quick(net).fit(X, y).save(tmp_path / "model")
