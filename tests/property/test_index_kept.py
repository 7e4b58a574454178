"""An index that is kept while rows come, go, are scored anew and saved gives the radii of weighing all rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lvd
from lvd.quantiles import index_search
from lvd.quantiles import leaves

LEVELS = [0.1, 0.5, 0.9]
STEPS = ("update", "forget", "rescored", "save")


@pytest.fixture(autouse=True, scope="module")
def small_leaves():
    """Leaves of ten rows, which are searched however many of them a query needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaves, "LEAF_ROWS", 12)
        patch.setattr(leaves, "FRESH_ROWS", 10)
        patch.setattr(leaves, "FEWEST_ROWS", 1)
        patch.setattr(index_search, "WORTHWHILE", 1.0)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("index")


def kernel():
    return lvd.MahalanobisKernel.from_components(np.eye(2), mean=np.zeros(2), scale=np.ones(2))


def some_rows(rng, n, *, grouped, weighted):
    """Clumps far apart, with repeated rows and tied scores."""
    embeddings = 12.0 * rng.integers(4, size=(n, 2)) + np.round(rng.normal(size=(n, 2)), 1)
    return {
        "embeddings": embeddings,
        "scores": np.round(rng.normal(size=n), 2),
        "groups": rng.choice(["a", "b"], size=n) if grouped else None,
        "weights": rng.uniform(0.1, 5.0, size=n) if weighted else None,
    }


def changed(conformal, step, rows, rng, folder):
    known = conformal.calibration_
    if step == "update":
        return conformal.update(**rows)
    if step == "forget":
        return conformal.forget(max(1, int(rng.uniform(0.3, 1.0) * len(known.scores))))
    if step == "rescored":
        return conformal.rescored(rng.gamma(1.0, size=len(known.scores)))
    conformal.save(folder / "model")
    return lvd.load(folder / "model")


@settings(max_examples=15)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.sampled_from(STEPS), st.booleans()), max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_the_radii_are_those_of_all_rows(folder, seed, steps, grouped, weighted):
    rng = np.random.default_rng(seed)
    kinds = {"grouped": grouped, "weighted": weighted}
    rows, queries = some_rows(rng, 100, **kinds), some_rows(rng, 20, **kinds)
    del queries["scores"]
    both = [lvd.LocalConformal(kernel(), search=search).conformalize(**rows) for search in ("index", "all")]
    for step, asked_before in [*steps, ("update", True)]:
        if asked_before:
            np.testing.assert_array_equal(*(one.radius(**queries, confidence_level=LEVELS) for one in both))
        rows, step_seed = some_rows(rng, int(rng.integers(1, 60)), **kinds), rng.integers(2**32)
        both = [changed(one, step, rows, np.random.default_rng(step_seed), folder) for one in both]
    np.testing.assert_array_equal(*(one.radius(**queries, confidence_level=LEVELS) for one in both))
    np.testing.assert_array_equal(*(one.interval(**queries, confidence_level=LEVELS) for one in both))
    searched, not_searched = (one.calibration_.leaves for one in both)
    assert (searched.numbers >= 0).any()
    assert not not_searched.found


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.sampled_from([0.0, 0.1, 0.9, 1.0]))
def test_all_rows_are_placed_in_leaves_that_are_not_too_large(seed, n_rows, share_new):
    """Whatever the numbers were, as in a file that was tampered with."""
    rng = np.random.default_rng(seed)
    points = torch.tensor(rng.choice([1.0, 30.0]) * rng.normal(size=(n_rows, 3)))
    given = rng.integers(2**31, size=n_rows) if rng.integers(2) else rng.integers(5, size=n_rows)
    numbers = torch.tensor(np.where(rng.uniform(size=n_rows) < share_new, -1, given), dtype=torch.int32)
    placed = leaves.place(points, numbers)
    sizes = placed.bincount()
    assert placed.dtype == torch.int32
    assert sizes.min() >= 1
    assert sizes.max() <= leaves.LEAF_ROWS


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.integers(1, 50))
def test_nearest(seed, n_points, n_centres):
    rng = np.random.default_rng(seed)
    points, centres = (torch.tensor(1e6 + rng.normal(size=(n, 3))) for n in (n_points, n_centres))
    distances = torch.cdist(points, centres, compute_mode="donot_use_mm_for_euclid_dist")
    found = distances.gather(1, leaves.nearest(points, centres)[:, None])[:, 0]
    np.testing.assert_allclose(found, distances.min(1).values, atol=1e-3)
