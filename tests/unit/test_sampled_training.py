"""Kernel training on samples of the rows: what a step computes, what it is biased to, and what it learns."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

import lvd
from lvd.kernels.training import LeaveOneOut, SampledLeaveOneOut, draw_samples


@pytest.fixture(scope="module")
def whole():
    rng = np.random.default_rng(0)
    rows = torch.tensor(rng.normal(size=(200, 4)))
    return LeaveOneOut(
        rows, torch.sin(rows[:, 0]) + 0.3 * torch.tensor(rng.normal(size=200)), 2.0, True, None
    )


@pytest.fixture(scope="module")
def components():
    return torch.tensor(np.random.default_rng(1).normal(size=(2, 4)))


def sampled(whole, batch_size=5):
    def take(sample):
        return LeaveOneOut(whole.rows[sample], whole.y[sample], whole.scale, whole.smoothness, None)

    return SampledLeaveOneOut(take, batch_size)


def new_kernel(**changes):
    return lvd.MahalanobisKernel(**({"n_components": 2, "device": "cpu", "random_state": 0} | changes))


def test_a_step_is_that_of_a_problem_with_the_sampled_rows_alone(whole, components):
    sample = torch.tensor([17, 3, 199, 54, 120, 8, 77])
    losses, gradient = sampled(whole).loss_and_gradient(components, sample)
    alone = LeaveOneOut(whole.rows[sample], whole.y[sample], 2.0, True, None)
    expected_losses, expected_gradient = alone.loss_and_gradient(components, torch.arange(5))
    torch.testing.assert_close(losses, expected_losses, rtol=0, atol=0)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=0)


def test_a_batch_is_never_longer_than_the_sample(whole, components):
    losses, _ = sampled(whole, batch_size=100).loss_and_gradient(components, torch.arange(7))
    assert losses.shape == (7,)


def test_fewer_rows_are_biased_upward_and_ever_less(whole, components):
    """The loss of the whole problem is overestimated, by an amount that shrinks with the sample."""
    everything, _ = whole.loss_and_gradient(components, torch.arange(200))
    errors = []
    for size in (10, 40, 160):
        drawn = map(torch.tensor, islice(draw_samples(200, size, 0), 300))
        losses = [sampled(whole, size).loss_and_gradient(components, sample)[0].mean() for sample in drawn]
        errors.append(float(torch.stack(losses).mean() - everything.mean()))
    assert errors[0] > 2.0 * errors[1] > 0.0
    assert errors[1] > 2.0 * errors[2] > -1e-3


def test_enough_rows_change_nothing(rng):
    embeddings, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    whole = new_kernel(max_rows=None, max_iter=10).fit(embeddings, y)
    limited = new_kernel(max_rows=60, max_iter=10).fit(embeddings, y)
    np.testing.assert_array_equal(limited.components_, whole.components_)
    assert (new_kernel(max_rows=59, max_iter=10).fit(embeddings, y).components_ != whole.components_).any()


@pytest.mark.parametrize("max_neighbors", [None, 20])
def test_the_metric_learns_which_coordinate_matters(rng, max_neighbors):
    embeddings = rng.normal(size=(600, 6))
    kernel = new_kernel(max_rows=120, max_neighbors=max_neighbors, max_iter=300)
    kernel.fit(embeddings, np.sin(2.0 * embeddings[:, 3]))
    strength = np.square(kernel.components_).sum(0)
    assert strength[3] > 0.85 * strength.sum()
    assert len(kernel.train_points_) == 600


def test_samples_are_drawn_without_replacement_and_by_seed():
    first, second = (next(draw_samples(10**6, 1000, seed)) for seed in (0, 1))
    assert len(set(first.tolist())) == 1000
    np.testing.assert_array_equal(first, next(draw_samples(10**6, 1000, 0)))
    assert (first != second).any()
    assert np.abs(np.corrcoef(first, np.arange(1000))[0, 1]) < 0.15


@pytest.mark.parametrize(
    ("max_rows", "message"),
    [
        (0, "max_rows must be a positive integer, got 0"),
        (1, "max_rows must be at least 2, got 1"),
        (2.5, "max_rows must be a positive integer, got 2.5"),
    ],
)
def test_refusals(max_rows, message):
    with pytest.raises(lvd.InputError, match=message):
        new_kernel().set_params(max_rows=max_rows).fit([[0.0], [1.0]], [0.0, 1.0])
