"""The learned kernel: what it learns, what it gives, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import lvd
from lvd.engine.compiled import project
from lvd.kernels import mahalanobis


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    embeddings = rng.normal(loc=5.0, scale=[1.0, 3.0, 0.5, 1.0, 2.0], size=(120, 5))
    embeddings[:, 2] = 4.0  # a constant dimension
    return embeddings, np.sin(embeddings[:, 1]) + 10.0


def new_kernel(**changes):
    return lvd.MahalanobisKernel(
        **({"n_components": 3, "max_iter": 40, "device": "cpu", "random_state": 0} | changes)
    )


@pytest.fixture(scope="module")
def kernel(data):
    return new_kernel().fit(*data)


class TestWhatItLearns:
    def test_attributes(self, kernel, data):
        embeddings, _ = data
        assert kernel.components_.shape == (3, 4)
        assert kernel.kept_.tolist() == [True, True, False, True, True]
        np.testing.assert_allclose(kernel.mean_, embeddings.mean(0))
        np.testing.assert_allclose(kernel.scale_, embeddings.std(0))
        assert len(kernel.loss_curve_) == kernel.n_iter_ == 40

    def test_a_barely_moving_dimension_is_dropped_and_may_be_anything_later(self, data):
        embeddings, y = data
        embeddings = embeddings.copy()
        embeddings[::2, 2] += 1e-3
        kernel = new_kernel(min_scale=1e-3).fit(embeddings, y)
        assert not kernel.kept_[2]
        assert new_kernel().fit(embeddings, y).kept_[2]
        changed = embeddings.copy()
        changed[:, 2] = 1e9
        np.testing.assert_array_equal(kernel.transform(changed), kernel.transform(embeddings))

    def test_the_same_seed_gives_the_same_bits(self, kernel, data):
        np.testing.assert_array_equal(new_kernel().fit(*data).components_, kernel.components_)
        assert (new_kernel(random_state=1).fit(*data).components_ != kernel.components_).all()

    def test_an_average_takes_all_steps_and_learns_more_than_the_luckiest_batch(self):
        errors = np.zeros(2)
        for seed in range(1, 5):
            rng = np.random.default_rng(seed)
            embeddings = rng.normal(size=(2000, 20))
            mean = np.exp(0.5 * embeddings[:, 0])
            y = mean * np.sqrt(np.abs(rng.normal(size=2000)))
            for number, average in enumerate((False, True)):
                kernel = new_kernel(n_components=5, max_iter=200, average=average, random_state=seed)
                kernel.fit(embeddings[:1000], y[:1000])
                errors[number] += np.square(kernel.predict(embeddings[1000:]) - 0.8222 * mean[1000:]).mean()
            assert kernel.n_iter_ == 200
        assert errors[1] < 0.8 * errors[0]

    @pytest.mark.parametrize("average", [False, True])
    def test_a_training_that_diverges_is_refused(self, data, average):
        kernel = new_kernel(learning_rate=1e30, smoothness=False, average=average)
        if average:
            with pytest.raises(
                lvd.InputError, match=r"diverged with learning_rate=1e\+30; choose a smaller one"
            ):
                kernel.fit(*data)
        else:
            assert np.isfinite(kernel.fit(*data).components_).all()

    def test_a_generator_may_be_the_random_state(self, data):
        first, second = (
            new_kernel(random_state=np.random.RandomState(3)).fit(*data).components_ for _ in range(2)
        )
        np.testing.assert_array_equal(first, second)

    def test_torch_and_float32_rows_train_it_too(self, kernel, data):
        embeddings, y = data
        from_torch = new_kernel().fit(torch.tensor(embeddings), torch.tensor(y))
        np.testing.assert_array_equal(from_torch.components_, kernel.components_)
        single = new_kernel().fit(embeddings.astype(np.float32), y.astype(np.float32))
        np.testing.assert_allclose(single.components_, kernel.components_, atol=1e-3)

    def test_clone_and_parameters(self, kernel):
        fresh = clone(kernel)
        assert fresh.get_params() == kernel.get_params()
        assert not hasattr(fresh, "components_")

    def test_max_neighbors_above_the_number_of_rows_leaves_out_the_farthest_only(self, kernel, data):
        # The paper's setting: of fewer rows than max_neighbors, all but one count, the row itself among them.
        limited = new_kernel(max_neighbors=3000).fit(*data)
        np.testing.assert_allclose(limited.components_, kernel.components_, atol=0.05)


class TestWhatItGives:
    def test_transform_standardises_and_projects(self, kernel, data):
        embeddings, _ = data
        kept = kernel.kept_
        standardised = (embeddings[:, kept] - embeddings[:, kept].mean(0)) / embeddings[:, kept].std(0)
        np.testing.assert_allclose(kernel.transform(embeddings), standardised @ kernel.components_.T)

    @pytest.mark.parametrize(("distance", "divisor"), [("mean", 3.0), ("sum", 1.0)])
    def test_similarities(self, data, distance, divisor):
        embeddings, y = data
        kernel = new_kernel(distance=distance).fit(embeddings, y)
        a, b = kernel.transform(embeddings[:7]), kernel.transform(embeddings[7:20])
        expected = np.exp(-np.square(a[:, None] - b[None]).sum(-1) / divisor)
        np.testing.assert_allclose(kernel(embeddings[:7], embeddings[7:20]), expected, rtol=1e-12)

    def test_similarities_are_symmetric_and_one_on_the_diagonal(self, kernel, data):
        embeddings, _ = data
        similarities = kernel(embeddings, embeddings)
        assert (np.diag(similarities) == 1.0).all()
        np.testing.assert_array_equal(similarities, similarities.T)
        assert ((similarities >= 0.0) & (similarities <= 1.0)).all()

    @pytest.mark.parametrize("smoothness", [True, False])
    def test_predict_is_kernel_regression_over_all_rows(self, data, smoothness):
        embeddings, y = data
        kernel = new_kernel(smoothness=smoothness, max_neighbors=5).fit(embeddings, y)
        weights = kernel(embeddings[:30] + 0.1, embeddings)
        expected = (weights @ y + smoothness * y.mean()) / (weights.sum(1) + smoothness)
        np.testing.assert_allclose(kernel.predict(embeddings[:30] + 0.1), expected, rtol=1e-6)

    def test_predict_far_from_everything(self, data):
        embeddings, y = data
        far = embeddings[:1] + 1e4
        assert new_kernel().fit(embeddings, y).predict(far) == pytest.approx(y.mean())
        assert new_kernel(smoothness=False).fit(embeddings, y).predict(far) == 0.0

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_torch_in_torch_out(self, kernel, data, dtype):
        rows = torch.tensor(data[0], dtype=dtype)
        for result, expected in [
            (kernel.transform(rows), kernel.transform(data[0])),
            (kernel.predict(rows), kernel.predict(data[0])),
            (kernel(rows, rows), kernel(data[0], data[0])),
        ]:
            assert result.dtype == dtype
            np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("as_given", [np.asarray, torch.as_tensor])
    def test_many_rows_are_projected_in_pieces(self, kernel, data, as_given, monkeypatch):
        rows = as_given(data[0])
        at_once = kernel.transform(rows)
        monkeypatch.setattr(mahalanobis, "PIECE_ROWS", 50)
        np.testing.assert_array_equal(kernel.transform(rows), at_once)

    def test_a_row_alone_is_where_it_is_among_others(self, kernel, data):
        together = kernel.transform(data[0])
        alone = np.concatenate([kernel.transform(data[0][i : i + 1]) for i in range(len(data[0]))])
        np.testing.assert_array_equal(alone, together)

    @pytest.mark.parametrize("as_given", [np.asfortranarray, lambda rows: np.broadcast_to(rows, rows.shape)])
    def test_arrays_of_any_kind_are_projected_by_the_same_code(self, kernel, data, as_given):
        expected = kernel.transform(data[0])
        compiled = len(project.compiled.signatures)
        np.testing.assert_array_equal(kernel.transform(as_given(data[0])), expected)
        assert len(project.compiled.signatures) == compiled


class TestFromComponents:
    @pytest.fixture
    def given(self, kernel):
        return {"mean": kernel.mean_, "scale": kernel.scale_, "kept": kernel.kept_}

    def test_is_the_same_kernel(self, kernel, data, given):
        embeddings, y = data
        copy = lvd.MahalanobisKernel.from_components(
            kernel.components_, **given, embeddings=embeddings, y=y, device="cpu"
        )
        np.testing.assert_array_equal(copy.transform(embeddings), kernel.transform(embeddings))
        np.testing.assert_array_equal(copy.predict(embeddings), kernel.predict(embeddings))
        assert copy.n_components == 3
        assert (copy.loss_curve_, copy.n_iter_) == ([], 0)

    def test_all_dimensions_are_kept_by_default(self):
        kernel = lvd.MahalanobisKernel.from_components([[2.0, 0.0]], mean=[1.0, 1.0], scale=[4.0, 1.0])
        np.testing.assert_array_equal(kernel.transform([[5.0, 9.0]]), [[2.0]])

    def test_without_training_rows_it_cannot_predict(self, kernel, data, given):
        copy = lvd.MahalanobisKernel.from_components(kernel.components_, **given)
        with pytest.raises(lvd.InputError, match="does not know its training rows: pass embeddings= and y="):
            copy.predict(data[0])

    def test_columns_must_match_the_kept_dimensions(self, kernel, given):
        with pytest.raises(lvd.InputError, match="components has 3 columns, but kept names 4 dimensions"):
            lvd.MahalanobisKernel.from_components(kernel.components_[:, :3], **given)

    def test_lengths_must_match(self, kernel, given):
        with pytest.raises(lvd.InputError, match="mean has 5, scale has 4, kept has 5"):
            lvd.MahalanobisKernel.from_components(kernel.components_, **given | {"scale": kernel.scale_[:4]})

    def test_scales_must_be_positive(self, kernel, given):
        with pytest.raises(lvd.InputError, match="scale must be positive in every kept dimension"):
            lvd.MahalanobisKernel.from_components(kernel.components_, **given | {"scale": np.zeros(5)})

    def test_training_rows_must_have_the_same_columns(self, kernel, data, given):
        with pytest.raises(lvd.InputError, match="embeddings has 4 features, but lvd is expecting 5"):
            lvd.MahalanobisKernel.from_components(
                kernel.components_, **given, embeddings=data[0][:, :4], y=data[1]
            )

    def test_unknown_distance(self, kernel, given):
        with pytest.raises(lvd.InputError, match="distance must be one of 'mean', 'sum', got 'max'"):
            lvd.MahalanobisKernel.from_components(kernel.components_, **given, distance="max")


class TestWhatItRefuses:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"n_components": 0}, "n_components must be a positive integer, got 0"),
            ({"n_components": 2.5}, "n_components must be a positive integer, got 2.5"),
            ({"batch_size": True}, "batch_size must be a positive integer, got True"),
            ({"max_iter": -1}, "max_iter must be a positive integer, got -1"),
            ({"patience": 0}, "patience must be a positive integer, got 0"),
            ({"learning_rate": 0.0}, "learning_rate must be a positive number, got 0.0"),
            ({"learning_rate": "fast"}, "learning_rate must be a positive number, got 'fast'"),
            ({"max_neighbors": 0}, "max_neighbors must be a positive integer, got 0"),
            ({"distance": "max"}, "distance must be one of 'mean', 'sum', got 'max'"),
            (
                {"random_state": -3},
                r"random_state must be None, a non-negative integer below 2\*\*32, .* got -3",
            ),
            ({"device": "abacus"}, "device must be 'auto' or a torch device .* got 'abacus'"),
        ],
    )
    def test_parameters(self, data, change, message):
        with pytest.raises(lvd.InputError, match=message):
            new_kernel().set_params(**change).fit(*data)

    @pytest.mark.parametrize(
        ("embeddings", "y", "message"),
        [
            ([[1.0, np.nan], [0.0, 1.0]], [0.0, 1.0], "embeddings contains 1 NaN .* at row 0, column 1"),
            ([[1.0, 2.0], [np.inf, 1.0]], [0.0, 1.0], "embeddings contains 1 NaN .* at row 1, column 0"),
            ([[1.0, 2.0], [0.0, 1.0]], [0.0, np.nan], "y contains 1 NaN or infinity values .* at row 1"),
            (np.empty((0, 2)), [], "embeddings is empty: 0 sample"),
            (np.empty((3, 0)), [1.0, 2.0, 3.0], "embeddings is empty: 0 feature"),
            ([1.0, 2.0], [0.0, 1.0], "embeddings must be a 2-d array .* got 1-d .*reshape"),
            (np.zeros((2, 2, 2)), [0.0, 1.0], "embeddings must be a 2-d array .* got 3-d"),
            ([[1.0], [2.0], [3.0]], [0.0, 1.0], "embeddings has 3, y has 2"),
            ([[1.0]], [0.0], "at least 2 training rows, got 1 sample"),
            ([[1.0, 2.0]] * 3, [0.0, 1.0, 2.0], "all 2 embedding dimensions are constant"),
            ([["a"], ["b"]], [0.0, 1.0], "embeddings must hold numbers only"),
            ([[1.0], [2.0]], [[0.0, 1.0], [1.0, 0.0]], r"y must be 1-d, got shape \(2, 2\)"),
        ],
    )
    def test_training_rows(self, embeddings, y, message):
        with pytest.raises(lvd.InputError, match=message):
            new_kernel().fit(embeddings, y)

    def test_another_number_of_columns(self, kernel, data):
        for call in (kernel.transform, kernel.predict, lambda rows: kernel(data[0], rows)):
            with pytest.raises(lvd.InputError, match="has 3 features, but lvd is expecting 5"):
                call(data[0][:, :3])

    def test_use_before_fit(self, data):
        for call in (new_kernel().transform, new_kernel().predict, lambda rows: new_kernel()(rows, rows)):
            with pytest.raises(NotFittedError, match="not fitted yet"):
                call(data[0])

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_a_gpu_that_is_not_there(self, data):
        with pytest.raises(lvd.InputError, match="device='cuda', but torch sees no GPU"):
            new_kernel(device="cuda").fit(*data)


def test_it_is_a_transformer_whose_points_may_be_a_frame(data):
    import pandas as pd

    embeddings, y = data
    frame = pd.DataFrame(embeddings, index=np.arange(len(y)) + 7)
    points = new_kernel().set_output(transform="pandas").fit_transform(frame, y)
    assert list(points.columns) == ["mahalanobiskernel0", "mahalanobiskernel1", "mahalanobiskernel2"]
    assert (points.index == frame.index).all()
    np.testing.assert_array_equal(points.to_numpy(), new_kernel().fit(embeddings, y).transform(embeddings))
