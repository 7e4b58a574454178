"""The command line, run as a user runs it or inside this process, and one model that the tests share."""

from __future__ import annotations

import functools

import pytest

from command_line import Terminal, run_here, run_outside, start
from homes import Homes, fit_homes


@pytest.fixture(scope="session")
def lvd_here():
    return run_here


@pytest.fixture(scope="session")
def lvd_on_terminal():
    return functools.partial(run_here, stream_type=Terminal)


@pytest.fixture(scope="session")
def lvd_outside():
    return run_outside


@pytest.fixture(scope="session")
def lvd_start():
    return start


@pytest.fixture(scope="session")
def homes(tmp_path_factory) -> Homes:
    """A fitted model, its table, and a table of rows it has not seen; not to be changed."""
    return fit_homes(tmp_path_factory.mktemp("homes"))
