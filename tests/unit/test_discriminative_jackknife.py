"""Influence functions against closed forms, and the intervals made of them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from torch import nn
from torch.nn.functional import huber_loss, mse_loss

from lvd._validation import InputError
from lvd.engine import jackknife_plus_intervals
from lvd.methods.discriminative_jackknife import DiscriminativeJackknifeRegressor
from lvd.models import NetRegressor
from lvd.models.influence import (
    flatten_module,
    leave_one_out_parameters,
    mean_hessian,
    memory_needed,
    outputs_of_all_rows,
    outputs_of_own_row,
)

LEVELS = [0.5, 0.9]


def rows(rng: np.random.Generator, n: int, n_targets: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.as_tensor(rng.normal(size=(n, 3))), torch.as_tensor(rng.normal(size=(n, n_targets)))


def small_net(n_targets: int = 1) -> nn.Sequential:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, n_targets)).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in net.parameters():
        parameter.data.normal_(generator=generator)
    return net


@pytest.fixture(scope="module")
def least_squares():
    """A linear network at its minimum: inputs, targets, the network as a function, and its parameters."""
    X, y = rows(np.random.default_rng(3), 25)
    run, _ = flatten_module(nn.Sequential(nn.Linear(3, 1)), 1)
    design = torch.cat([X, torch.ones(25, 1)], dim=1)
    return X, y, run, torch.linalg.lstsq(design, y).solution[:, 0], design


class TestInfluence:
    @pytest.mark.parametrize("order", [1, 2])
    def test_least_squares_has_a_closed_form(self, least_squares, order):
        X, y, run, parameters, design = least_squares
        without = leave_one_out_parameters(run, parameters, X, y, loss=mse_loss, order=order, damping=0.0)
        residuals = y - outputs_of_own_row(run, without, X)
        errors = y - run(parameters, X)
        leverages = (design @ torch.linalg.inv(design.T @ design) * design).sum(1, keepdim=True)
        expected = errors * sum(leverages**j for j in range(order + 1))
        torch.testing.assert_close(residuals, expected, rtol=0.0, atol=1e-8)

    def test_the_second_order_comes_closer_to_leaving_out(self, least_squares):
        X, y, run, parameters, design = least_squares
        exact = torch.stack(
            [
                torch.linalg.lstsq(design[kept], y[kept]).solution[:, 0]
                for kept in (np.delete(np.arange(25), i) for i in range(25))
            ]
        )
        none, first, second = (
            (
                leave_one_out_parameters(run, parameters, X, y, loss=mse_loss, order=o, damping=d) - exact
            ).norm()
            for o, d in ((1, 1e12), (1, 0.0), (2, 0.0))
        )
        assert second < 0.5 * first < 0.25 * none

    @pytest.mark.parametrize("order", [1, 2])
    def test_a_network_against_plain_derivatives(self, rng, order):
        (X, y), damping = rows(rng, 6, n_targets=2), 0.7
        run, parameters = flatten_module(small_net(2), 2)

        def hessian(x, t):
            return torch.autograd.functional.hessian(lambda flat: mse_loss(run(flat, x), t), parameters)

        inverse = torch.linalg.inv(hessian(X, y) + damping * torch.eye(len(parameters), dtype=torch.float64))
        expected = []
        for i in range(6):
            leaf = parameters.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(mse_loss(run(leaf, X[[i]]), y[[i]]), leaf)
            first = -inverse @ gradient / 6
            second = 2 / 6 * inverse @ hessian(X[[i]], y[[i]]) @ first
            expected.append(parameters - (first + (second / 2 if order == 2 else 0.0)))
        actual = leave_one_out_parameters(run, parameters, X, y, loss=mse_loss, order=order, damping=damping)
        torch.testing.assert_close(actual, torch.stack(expected))

    def test_chunks_make_no_difference(self, rng, monkeypatch):
        X, y = rows(rng, 20)
        run, parameters = flatten_module(small_net(), 1)

        def everything():
            without = leave_one_out_parameters(run, parameters, X, y, loss=mse_loss, order=2, damping=0.1)
            return (
                mean_hessian(run, parameters, X, y, mse_loss),
                without,
                outputs_of_own_row(run, without, X),
                outputs_of_all_rows(run, without, X[:7]),
            )

        whole = everything()
        monkeypatch.setattr("lvd.models.influence.HESSIAN_ROWS", 6)
        monkeypatch.setattr("lvd.models.influence.WORKING_NUMBERS", 300)
        torch.testing.assert_close(everything(), whole)

    def test_own_row_is_the_diagonal_of_all_rows(self, rng):
        X, _ = rows(rng, 5)
        run, parameters = flatten_module(small_net(), 1)
        some = parameters + torch.as_tensor(rng.normal(size=(5, len(parameters))))
        own, everything = outputs_of_own_row(run, some, X), outputs_of_all_rows(run, some, X)
        torch.testing.assert_close(own[:, 0], everything[:, :, 0].diagonal())

    def test_frozen_parameters_stay_out(self):
        net = small_net()
        net[0].requires_grad_(False)
        assert len(flatten_module(net, 1)[1]) == 5
        with pytest.raises(InputError, match=r"no trainable parameters; call module.requires_grad_\(True\)"):
            flatten_module(net.requires_grad_(False), 1)

    def test_a_singular_hessian_is_refused(self, rng):
        X, y = rows(rng, 5)
        run, parameters = flatten_module(small_net(), 1)
        with pytest.raises(InputError, match="no inverse with damping=0; raise damping, to 1e-4 say"):
            leave_one_out_parameters(run, parameters * 0.0, X, y, loss=mse_loss, order=1, damping=0.0)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(80, 3))
    return X, np.sin(3.0 * X[:, 0]) + 0.2 * rng.normal(size=80)


def regressor(**parameters) -> DiscriminativeJackknifeRegressor:
    net = NetRegressor(hidden_sizes=(8,), n_batches=500)
    return DiscriminativeJackknifeRegressor(net, random_state=0, device="cpu", **parameters)


@pytest.fixture(scope="module")
def fitted(data) -> DiscriminativeJackknifeRegressor:
    return regressor().fit(*data)


class TestMethod:
    def test_intervals_are_jackknife_plus_of_the_moved_networks(self, data, fitted):
        X, y = data
        network = fitted.model_
        without, test = [], X[:4] + 0.1
        for flat in fitted.leave_one_out_parameters_:
            moved = copy.deepcopy(network)
            moved.module_ = moved.module_.double()
            nn.utils.vector_to_parameters(flat, moved.module_.parameters())
            without.append(moved)
        residuals = [abs(y[i] - moved.predict(X[[i]])[0, 0]) for i, moved in enumerate(without)]
        predictions = np.stack([moved.predict(test)[:, 0] for moved in without])
        expected = jackknife_plus_intervals(predictions, np.array(residuals), np.array(LEVELS))
        y_pred, intervals = fitted.predict_interval(test, LEVELS)
        np.testing.assert_allclose(intervals, expected, rtol=1e-8)
        np.testing.assert_array_equal(y_pred, network.predict(test)[:, 0])

    def test_chunks_of_rows_make_no_difference(self, data, fitted, monkeypatch):
        _, whole = fitted.predict_interval(data[0], LEVELS)
        monkeypatch.setattr("lvd.methods.discriminative_jackknife.PREDICTIONS_AT_ONCE", 400)
        np.testing.assert_allclose(fitted.predict_interval(data[0], LEVELS)[1], whole)

    def test_the_same_seed_gives_the_same_intervals(self, data, fitted):
        again = clone(fitted).fit(*data)
        np.testing.assert_array_equal(
            again.predict_interval(data[0], LEVELS)[1], fitted.predict_interval(data[0], LEVELS)[1]
        )

    def test_residuals_exceed_those_of_training(self, data, fitted):
        X, y = data
        training = np.abs(y - fitted.predict(X))
        assert np.median(fitted.residuals_[:, 0]) > 1.1 * np.median(training)

    def test_a_trained_network_is_left_untouched(self, data, fitted):
        network = fitted.model_
        before = copy.deepcopy(network.module_.state_dict())
        post_hoc = DiscriminativeJackknifeRegressor(network, prefit=True).fit(*data)
        np.testing.assert_allclose(
            post_hoc.predict_interval(data[0], LEVELS)[1], fitted.predict_interval(data[0], LEVELS)[1]
        )
        torch.testing.assert_close(network.module_.state_dict(), before, rtol=0.0, atol=0.0)
        assert network.module_[0].weight.dtype == torch.float32

    def test_a_trained_module_with_dropout_and_one_value_per_row(self, data):
        module = nn.Sequential(nn.Linear(3, 5), nn.Dropout(), nn.Tanh(), nn.Linear(5, 1), nn.Flatten(0))
        reg = DiscriminativeJackknifeRegressor(module.train(), prefit=True, damping=0.1).fit(*data)
        y_pred, intervals = reg.predict_interval(data[0])
        assert module.training
        assert y_pred.shape == (80,)
        assert intervals.shape == (80, 2, 1)

    def test_several_targets(self, data):
        X, y = data
        reg = regressor().fit(X, np.stack([y, 10.0 * y], axis=1))
        y_pred, intervals = reg.predict_interval(X[:6], LEVELS)
        assert (y_pred.shape, intervals.shape) == ((6, 2), (6, 2, 2, 2))
        widths = (intervals[:, 1] - intervals[:, 0]).mean(0)
        np.testing.assert_allclose(widths[:, 1] / widths[:, 0], 10.0, rtol=0.5)

    def test_a_networks_own_loss_is_used(self, data, fitted):
        network = copy.deepcopy(fitted.model_)
        network.loss = huber_loss
        other = DiscriminativeJackknifeRegressor(network, prefit=True).fit(*data)
        assert not np.allclose(other.leave_one_out_parameters_, fitted.leave_one_out_parameters_)

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"order": 3}, "order must be 1 or 2, got 3"),
            ({"damping": -1.0}, "damping must be 0 or more, got -1.0; 1e-4 is usual"),
            ({"max_memory_gb": 0}, "max_memory_gb must be a positive number, got 0"),
            ({"confidence_level": 90}, "confidence_level must lie in (0, 1), got 90; did you mean 0.9?"),
        ],
    )
    def test_parameters_that_cannot_work(self, data, parameters, message):
        with pytest.raises(InputError) as error:
            regressor(**parameters).fit(*data)
        assert str(error.value) == message

    @pytest.mark.parametrize(
        "estimator",
        [NetRegressor(hidden_sizes=(20_000,)), nn.Sequential(nn.Linear(3, 20_000), nn.Linear(20_000, 1))],
    )
    def test_too_much_memory_is_refused_before_training(self, data, estimator, monkeypatch):
        monkeypatch.setattr(NetRegressor, "fit", lambda *_: pytest.fail("trained"))
        with pytest.raises(InputError) as error:
            DiscriminativeJackknifeRegressor(estimator).fit(*data)
        assert str(error.value) == (
            "100,001 parameters and 80 rows need about 240 GB of memory, but max_memory_gb=8; "
            "use a smaller network, fewer rows, a higher limit, or JackknifePlusRegressor(cv=10)"
        )
        assert memory_needed(100_001, 80) == pytest.approx(240e9, rel=0.01)

    @pytest.mark.parametrize(("estimator", "prefit"), [(LinearRegression(), False), ((len, len), True)])
    def test_models_without_gradients_are_refused(self, data, estimator, prefit):
        with pytest.raises(
            InputError, match=r"as its gradients are needed, got .*; use JackknifePlusRegressor"
        ):
            DiscriminativeJackknifeRegressor(estimator, prefit=prefit).fit(*data)
