"""The leave-one-out loss and its hand-written gradient, and what descending it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lvd
from lvd.kernels import compiled_training, training
from lvd.kernels.training import (
    SMALLEST_DENOMINATOR,
    LeaveOneOut,
    descend,
    draw_batches,
    initial_components,
    keep_average,
    keep_best,
)


def problem(n=40, h=5, *, smoothness=True, max_neighbors=None, scale=3.0, spread=1.0):
    rng = np.random.default_rng(0)
    rows, y = torch.tensor(spread * rng.normal(size=(n, h))), torch.tensor(rng.normal(size=n))
    return LeaveOneOut(rows, y, scale, smoothness, max_neighbors)


def components(k=3, h=5):
    return torch.tensor(0.5 * np.random.default_rng(1).normal(size=(k, h)))


def plain_losses(given, components, batch):
    """Eqs. 4-6 as they read, row by row, for autograd."""
    losses = []
    for i in batch.tolist():
        squared = (given.rows - given.rows[i]).matmul(components.T).square().sum(1) / given.scale
        others = torch.arange(len(given.y)) != i
        weights, targets = torch.exp(-squared[others]), given.y[others]
        if given.max_neighbors is not None:
            n_kept = min(given.max_neighbors, len(targets)) - given.smoothness
            kept = weights.topk(n_kept).indices
            weights, targets = weights[kept], targets[kept]
        own = 1.0 if given.smoothness else 0.0
        total = (weights.sum() + own).clamp(min=SMALLEST_DENOMINATOR)
        predicted = ((weights * targets).sum() + own * given.y[others].mean()) / total
        losses.append((predicted - given.y[i]).square())
    return torch.stack(losses)


@pytest.mark.parametrize("smoothness", [True, False])
@pytest.mark.parametrize("max_neighbors", [None, 1000, 12])
@pytest.mark.parametrize("tile", [4096, 7])
class TestLossAndGradient:
    @pytest.fixture
    def given(self, smoothness, max_neighbors, tile, monkeypatch):
        monkeypatch.setattr(training, "TILE_POINTS", tile)
        return problem(smoothness=smoothness, max_neighbors=max_neighbors)

    @pytest.fixture
    def batch(self):
        return torch.tensor([0, 39, 7, 13, 14])

    def test_equal_autograd_through_the_plain_formula(self, given, batch):
        matrix = components().requires_grad_()
        expected = plain_losses(given, matrix, batch)
        expected.sum().backward()
        losses, gradient = given.loss_and_gradient(matrix.detach(), batch)
        torch.testing.assert_close(losses, expected.detach(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(gradient, matrix.grad, rtol=1e-9, atol=1e-11)

    def test_equal_finite_differences(self, given, batch):
        matrix, step = components(), 1e-6
        _, gradient = given.loss_and_gradient(matrix, batch)
        for index in np.ndindex(*matrix.shape):
            change = torch.zeros_like(matrix)
            change[index] = step
            above, _ = given.loss_and_gradient(matrix + change, batch)
            below, _ = given.loss_and_gradient(matrix - change, batch)
            slope = float((above.sum() - below.sum()) / (2 * step))
            assert float(gradient[index]) == pytest.approx(slope, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("smoothness", [True, False])
@pytest.mark.parametrize("batch", [[7], [0, 1299], [5, 511, 512, 1023, 1024, 1299, 600]])
@pytest.mark.parametrize("spread", [1.0, 1e3])
def test_compiled_differences_equal_tiles_of_float64(smoothness, batch, spread, monkeypatch):
    """Rows in three blocks, the last of them in part; a batch of one, of two, and of an odd number of rows."""
    exact = problem(1300, smoothness=smoothness, spread=spread)
    losses, gradient = exact.loss_and_gradient(components(), torch.tensor(batch))
    monkeypatch.setattr(training, "FEW_ROWS", 1299)
    monkeypatch.setattr(compiled_training, "BLOCKS_AT_A_TIME", 2)
    monkeypatch.delattr(training.TiledNeighborhood, "of")
    single = LeaveOneOut(exact.rows.float(), exact.y.float(), exact.scale, smoothness, None)
    found, slope = single.loss_and_gradient(components().float(), torch.tensor(batch))
    torch.testing.assert_close(found.double(), losses, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(slope.double(), gradient, rtol=1e-3, atol=1e-5)


def test_many_rows_are_learned_from_by_compiled_code_on_threads(rng, monkeypatch):
    embeddings = rng.normal(size=(900, 6))
    y = np.sin(2.0 * embeddings[:, 3])

    def learned(few_rows):
        monkeypatch.setattr(training, "FEW_ROWS", few_rows)
        monkeypatch.setattr(compiled_training, "BLOCKS_AT_A_TIME", 1)
        return lvd.MahalanobisKernel(2, max_iter=20, device="cpu", random_state=0).fit(embeddings, y)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        compiled, tiled = learned(0), learned(10_000)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(compiled.components_, tiled.components_, rtol=1e-3, atol=1e-4)
    assert not np.array_equal(compiled.components_, tiled.components_)


@pytest.mark.parametrize("spread", [6.0, 1e3])
def test_clamped_denominators(spread):
    """Rows so far apart that some, or all, of the weights together stay below the smallest denominator."""
    given, batch = problem(smoothness=False, spread=spread), torch.arange(40)
    matrix = components().requires_grad_()
    expected = plain_losses(given, matrix, batch)
    expected.sum().backward()
    weights = torch.exp(-torch.cdist(*[given.rows @ matrix.detach().T] * 2).square() / given.scale).sum(1) - 1
    assert (weights < SMALLEST_DENOMINATOR).any()
    losses, gradient = given.loss_and_gradient(matrix.detach(), batch)
    torch.testing.assert_close(losses, expected.detach())
    torch.testing.assert_close(gradient, matrix.grad)


def test_a_toy_by_hand():
    # Rows at 0, 1 and 2 with A = 1: the weights of row 0 are e^-1 and e^-4.
    given = LeaveOneOut(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([5.0, 1.0, 2.0]), 1.0, False, None)
    near, far = np.exp(-1.0), np.exp(-4.0)
    losses, _ = given.loss_and_gradient(torch.ones(1, 1), torch.tensor([0]))
    assert float(losses) == pytest.approx(((near * 1.0 + far * 2.0) / (near + far) - 5.0) ** 2, rel=1e-6)
    smooth = LeaveOneOut(given.rows, given.y, 1.0, True, None)
    losses, _ = smooth.loss_and_gradient(torch.ones(1, 1), torch.tensor([0]))
    predicted = (near * 1.0 + far * 2.0 + 1.5) / (near + far + 1.0)
    assert float(losses) == pytest.approx((predicted - 5.0) ** 2, rel=1e-6)


def test_float32_far_from_the_origin_keeps_its_digits():
    near, far = problem(), problem()
    shifted = LeaveOneOut((far.rows + 100.0).float(), far.y.float(), far.scale, True, None)
    losses, gradient = shifted.loss_and_gradient(components().float(), torch.arange(10))
    expected_losses, expected_gradient = near.loss_and_gradient(components(), torch.arange(10))
    torch.testing.assert_close(losses.double(), expected_losses, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("smoothness", [True, False])
def test_the_metric_learns_which_coordinate_matters(smoothness, rng):
    embeddings = rng.normal(size=(300, 6))
    kernel = lvd.MahalanobisKernel(2, smoothness=smoothness, max_iter=300, device="cpu", random_state=0)
    kernel.fit(embeddings, np.sin(2.0 * embeddings[:, 3]))
    strength = np.square(kernel.components_).sum(0)
    assert strength[3] > 0.9 * strength.sum()
    curve = kernel.loss_curve_
    assert np.mean(curve[-20:]) < 0.3 * np.mean(curve[:5])


class TestTraining:
    def test_the_start_is_that_of_a_linear_layer(self):
        with torch.random.fork_rng():
            torch.manual_seed(5)
            expected = torch.nn.Linear(7, 3, bias=False).weight.detach()
        torch.testing.assert_close(initial_components(3, 7, 5), expected, rtol=0, atol=0)

    def test_batches_are_drawn_without_replacement_from_the_legacy_generator(self):
        batches, rng = draw_batches(30, 8, 4), np.random.RandomState(4)
        for _ in range(5):
            np.testing.assert_array_equal(next(batches), rng.choice(30, 8, replace=False))

    def test_a_batch_is_never_longer_than_the_rows(self):
        assert sorted(next(draw_batches(5, 100, 0))) == [0, 1, 2, 3, 4]

    def test_one_step_is_adam_on_the_summed_gradient(self):
        given, start, batch = problem(), components(), np.arange(6)
        (after, loss), *_ = descend(given, start, [batch], 0.01)
        squared_errors, gradient = given.loss_and_gradient(start, torch.tensor(batch))
        torch.testing.assert_close(after, start - 0.01 * gradient.sign(), rtol=0, atol=1e-6)
        assert loss == pytest.approx(float(squared_errors.mean()))

    @staticmethod
    def steps(losses):
        return [(torch.full((1, 1), float(i)), loss) for i, loss in enumerate(losses)]

    def test_the_weights_after_the_lowest_loss_are_kept(self):
        best, losses = keep_best(self.steps([3.0, 1.0, 2.0, 1.0, 4.0]), patience=50)
        assert (float(best), losses) == (1.0, [3.0, 1.0, 2.0, 1.0, 4.0])

    def test_ends_after_patience_and_one_more_batches_without_a_lower_loss(self):
        _, losses = keep_best(self.steps([3.0, 1.0] + [2.0] * 100), patience=50)
        assert len(losses) == 2 + 51

    @pytest.mark.parametrize(
        ("losses", "mean"), [([3.0, 1.0, 2.0, 4.0], 2.5), ([3.0, 1.0, 2.0], 1.5), ([3.0], 0.0)]
    )
    def test_the_mean_of_the_second_half_is_kept(self, losses, mean):
        average, found = keep_average(self.steps(losses), len(losses))
        assert (float(average), found) == (mean, losses)


class TestCollapse:
    """Data in which there is little or nothing to learn must train all the same."""

    @staticmethod
    def fit(embeddings, y, **settings):
        kernel = lvd.MahalanobisKernel(3, max_iter=30, device="cpu", random_state=0, **settings)
        kernel.fit(embeddings, y)
        assert np.isfinite(kernel.components_).all()
        assert np.isfinite(kernel.loss_curve_).all()
        assert np.isfinite(kernel.predict(embeddings)).all()
        return kernel

    @pytest.fixture(params=[True, False], ids=["smooth", "no-smooth"])
    def smoothness(self, request):
        return request.param

    @pytest.mark.parametrize("max_neighbors", [None, 1, 3000])
    def test_two_rows(self, smoothness, max_neighbors):
        self.fit([[0.0, 1.0], [2.0, 5.0]], [1.0, 3.0], smoothness=smoothness, max_neighbors=max_neighbors)

    def test_fewer_rows_than_a_batch(self, smoothness, rng):
        self.fit(rng.normal(size=(9, 4)), rng.normal(size=9), smoothness=smoothness, batch_size=100)

    def test_constant_y(self, smoothness, rng):
        embeddings = rng.normal(size=(50, 4))
        kernel = self.fit(embeddings, np.full(50, 7.25), smoothness=smoothness)
        np.testing.assert_allclose(kernel.predict(embeddings), 7.25, rtol=1e-6)

    def test_duplicated_rows(self, smoothness, rng):
        embeddings = np.repeat(rng.normal(size=(5, 4)), 10, axis=0)
        self.fit(embeddings, rng.normal(size=50), smoothness=smoothness)

    def test_one_outlier(self, smoothness, rng):
        embeddings = np.vstack([rng.normal(size=(60, 4)), np.full((1, 4), 1e6)])
        self.fit(embeddings, rng.normal(size=61), smoothness=smoothness)

    def test_targets_far_from_zero(self, rng):
        embeddings = rng.normal(size=(200, 4))
        y = np.sin(2.0 * embeddings[:, 0])
        near, far = self.fit(embeddings, y), self.fit(embeddings, y + 1e7)
        np.testing.assert_allclose(far.predict(embeddings) - 1e7, near.predict(embeddings), atol=1e-4)
