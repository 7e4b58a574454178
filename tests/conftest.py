"""Shape checks on, one torch thread per worker, small fixtures built once."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

from jaxtyping import install_import_hook

install_import_hook("lvd", "shape_checks.check")

import numpy as np
import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("lvd", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("lvd")


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
