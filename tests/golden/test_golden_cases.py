"""The stored cases: from A to every interval of all eight variants, and the first 60 training steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lvd
from lvd.kernels.training import LeaveOneOut, descend
from lvd.scores.residuals import error_unit
from lvd.scores.score import BoundResidual


@pytest.fixture(scope="module", params=[0, 1])
def case(request, shared_dir):
    with np.load(shared_dir / "golden" / f"yacht_seed{request.param}.npz") as stored:
        return dict(stored)


def kernel_of(case, smoothness, **changes):
    name = "smooth" if smoothness else "nosmooth"
    given = {
        "mean": case["x_mean"],
        "scale": case["x_std"],
        "kept": case["kept_mask"],
        "smoothness": smoothness,
        "embeddings": case["f_train"],
        "y": case["y_train"],
    }
    return lvd.MahalanobisKernel.from_components(case[f"{name}__A"], **(given | changes))


def intervals_of(case, kernel, predictor, score):
    if predictor == "KR":
        calib, test = kernel.predict(case["f_val"]), kernel.predict(case["f_test"])
    else:
        calib, test = case["yhat_nn_val"], case["yhat_nn_test"]
    levels = np.array([0.9, 0.5])
    scale = np.ones_like if score == "base" else error_unit
    on_calib, on_test = (
        BoundResidual(y_pred[:, None], *[scale(errors)[:, None]] * 3)
        for y_pred, errors in ((calib, case["rhat_val"]), (test, case["rhat_test"]))
    )
    scores = on_calib(case["y_val"][:, None])[:, 0, 0]
    radius = lvd.LocalConformal(kernel).conformalize(case["f_val"], scores).radius(case["f_test"], levels)
    return on_test.intervals(radius[:, None, :, None], levels)[..., 0]


@pytest.mark.parametrize("smoothness", [True, False])
@pytest.mark.parametrize("predictor", ["NN", "KR"])
@pytest.mark.parametrize("score", ["base", "MN"])
def test_every_variant_gives_the_stored_intervals(case, smoothness, predictor, score):
    ours = intervals_of(case, kernel_of(case, smoothness), predictor, score)
    tolerance = 1e-6 if predictor == "NN" else 1e-4
    name = "smooth" if smoothness else "nosmooth"
    for column, level in enumerate(("a0.1", "a0.5")):
        stored = [case[f"{name}__{predictor}__{score}__{level}__{end}"] for end in ("lo", "hi")]
        np.testing.assert_allclose(ours[:, :, column], np.stack(stored, 1), rtol=tolerance, atol=tolerance)


def test_a_summed_distance_breaks_most_rows(case):
    ours = intervals_of(case, kernel_of(case, True, distance="sum"), "NN", "base")
    assert np.mean(ours[:, 1, 0] != case["smooth__NN__base__a0.1__hi"]) > 0.3


@pytest.mark.parametrize("name", ["smooth", "nosmooth"])
def test_training_follows_the_stored_trace(shared_dir, name):
    with np.load(shared_dir / "golden" / "yacht_training_trace_seed0.npz") as stored:
        trace = dict(stored)
    with np.load(shared_dir / "golden" / "yacht_seed0.npz") as stored:
        case = dict(stored)
    kept = case["kept_mask"]
    rows = (case["f_train"][:, kept] - case["x_mean"][kept]) / case["x_std"][kept]
    problem = LeaveOneOut(
        torch.tensor(rows, dtype=torch.float32),
        torch.tensor(case["y_train"], dtype=torch.float32),
        10.0,
        name == "smooth",
        3000,
    )
    snapshots, counts = trace[f"{name}__A_snapshots"], trace["snapshot_after_n_steps"]
    start = torch.tensor(snapshots[0], dtype=torch.float32)
    ours = list(descend(problem, start, trace[f"{name}__batch_idx"], 1e-2))
    for count, expected in zip(counts[1:], snapshots[1:], strict=True):
        np.testing.assert_allclose(ours[count - 1][0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose([loss for _, loss in ours], trace[f"{name}__loss"], rtol=1e-4)
