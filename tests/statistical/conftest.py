"""Thousands of small calls: their shapes are checked by the other tests."""

from __future__ import annotations

import jaxtyping
import pytest


@pytest.fixture(scope="module", autouse=True)
def unchecked_shapes():
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
