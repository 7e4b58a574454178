"""Shape checks on, one torch thread per worker, fixtures built once."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("MPLBACKEND", "Agg")

from jaxtyping import install_import_hook

install_import_hook("lvd", "shape_checks.check")

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("lvd", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("lvd")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from scheduling import TogetherByFixtures

    return TogetherByFixtures(config, log)


@pytest.fixture(scope="session", autouse=True)
def _brief_training():
    """Networks with early stopping look for fewer rounds: few tests are about how well they predict."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lvd.models.validated.MOST_ROUNDS", 8)
        yield


@pytest.fixture
def full_training(monkeypatch):
    """As many rounds as a user gets."""
    monkeypatch.setattr("lvd.models.validated.MOST_ROUNDS", 100)


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
