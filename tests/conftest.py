"""Shape checks on, one torch thread per worker, fixtures built once."""

from __future__ import annotations

import os
import sys
from inspect import unwrap
from pathlib import Path
from pkgutil import resolve_name

os.environ["OMP_NUM_THREADS"] = "1"
# Otherwise every worker and every child would compile all modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ.setdefault("MPLBACKEND", "Agg")

from jaxtyping import config, install_import_hook

install_import_hook(["lvd", "experiments"], "shape_checks.check")

import numpy as np
import pytest
from hypothesis import settings

import lvd

settings.register_profile("lvd", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("lvd")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from scheduling import TogetherByFixtures

    return TogetherByFixtures(config, log)


BRIEF = {
    "lvd.models.candidates.N_FOLDS": 2,
    "lvd.models.candidates.MORE_FOLDS": 3,
    "lvd.models.validated.ROUND": 10,
    "lvd.models.validated.MOST_ROUNDS": 4,
    "lvd.models.regressor.LEAST_BATCHES": 100,
    "lvd.methods.mc_dropout.LEAST_BATCHES": 100,
    "lvd.models.validated.MOST_EPOCHS": 3,
    "lvd.scores.scaled.MOST_TREES": 20,
    "lvd.scores.distributional.MOST_STEPS": 60,
    "lvd.scores.quantile_trees.MOST_TREES": 20,
}
"""How long the defaults train in tests: few tests are about how well they predict."""


BRIEF_ITERATIONS = {lvd.MahalanobisKernel: 50, lvd.TreesRegressor: 20}
"""Defaults of `max_iter`."""


def defaults_of(learner: type) -> dict[str, object]:
    """Those of the constructor; the shape checks have wrapped it."""
    return unwrap(learner.__init__).__kwdefaults__


@pytest.fixture(scope="session", autouse=True)
def usual_training(request):
    """All that learns does so for as short as `BRIEF` says, but in the slow suite; the values that users have."""
    usual = {name: resolve_name(name) for name in BRIEF}
    iterations = {learner: defaults_of(learner)["max_iter"] for learner in BRIEF_ITERATIONS}
    with pytest.MonkeyPatch.context() as patch:
        if "not slow" in request.config.getoption("markexpr"):
            for name, value in BRIEF.items():
                patch.setattr(name, value)
            for learner, value in BRIEF_ITERATIONS.items():
                patch.setitem(defaults_of(learner), "max_iter", value)
        yield usual, iterations


@pytest.fixture
def full_training(monkeypatch, usual_training):
    usual, iterations = usual_training
    for name, value in usual.items():
        monkeypatch.setattr(name, value)
    for learner, value in iterations.items():
        monkeypatch.setitem(defaults_of(learner), "max_iter", value)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder with the real datasets, the paper and the golden cases, where it exists."""
    folder = Path(os.environ.get("LVD_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip("needs the shared folder with the real datasets and golden cases (set LVD_SHARED)")
    return folder


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def unchecked_types():
    """As a user without jaxtyping has it: the shape checks would refuse some arguments before lvd does."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
