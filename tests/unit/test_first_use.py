"""Compiled code: compiling is announced once, what comes from the cache is not, and the cache has fallbacks."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from lvd._progress import FIRST_USE, listening, perhaps_compiling
from lvd.engine import compiled
from lvd.engine.compiled import FirstUse

COMPILE = (
    "import numpy as np; from lvd.engine.compiled import _sum; "
    "_sum(np.zeros((1, 4)), 0); print(sum(_sum.stats.cache_hits.values()))"
)


def begun(module):
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))})


def test_a_listener_hears_of_the_first_compilation_once():
    first, heard = FirstUse(), []
    with listening(heard.append):
        for module in (None, "somebody.else", "lvd.engine.compiled", "lvd.models.trees"):
            first.on_start(begun(module))
    assert heard == [FIRST_USE]


@pytest.mark.parametrize(("terminal", "shown"), [(True, f"lvd: {FIRST_USE}\n"), (False, "")])
def test_without_a_listener_a_terminal_is_told(terminal, shown, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    first = FirstUse()
    first.on_start(begun("lvd.engine.compiled"))
    first.on_start(begun("lvd.engine.compiled"))
    assert capsys.readouterr().err == shown


@pytest.mark.parametrize(("seconds", "said"), [(0.0, [FIRST_USE]), (60.0, [])])
def test_what_takes_long_is_said_to_be_compiled(seconds, said):
    heard, told = [], threading.Event()

    def hear(stage):
        heard.append(stage)
        told.set()

    with listening(hear), perhaps_compiling(seconds):
        told.wait(5.0 if said else 0.05)
    assert heard == said


@pytest.mark.slow
def test_a_fresh_process_compiles_then_reads_the_cache(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    answers = []
    for _ in range(2):
        terminal, theirs = pty.openpty()
        done = subprocess.run(
            [sys.executable, "-c", COMPILE],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=theirs,
            check=True,
        )
        os.set_blocking(terminal, False)
        os.close(theirs)
        try:
            shown = os.read(terminal, 10_000).decode()
        except OSError:  # nothing was written
            shown = ""
        os.close(terminal)
        answers.append((int(done.stdout), FIRST_USE in shown))
    assert answers == [(0, True), (1, False)]


SUMMARY = """
import numpy as np, lvd
rng = np.random.default_rng(0)
moments = {"mean": np.zeros(3), "scale": np.ones(3)}
kernel = lvd.MahalanobisKernel.from_components(rng.normal(size=(3, 3)), **moments, device="cpu")
conformal = lvd.LocalConformal(kernel).conformalize(rng.normal(size=(100, 3)), rng.exponential(size=100))
print(conformal.summary(rng.normal(size=(120, 3))).n_effective.tobytes().hex())
"""


@pytest.mark.slow
def test_compiled_code_gives_the_bits_that_code_from_the_cache_gives(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SUMMARY]
    first, second = (
        subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True) for _ in range(2)
    )
    assert first.stdout == second.stdout


def test_without_any_folder_for_a_cache_it_is_compiled_each_time(monkeypatch):
    from numba.core import caching

    assert compiled._can_cache()
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    assert not compiled._can_cache()


def test_a_package_that_cannot_be_written_caches_for_the_user(monkeypatch):
    from numba.core import caching

    def refuse(self):
        raise OSError("read-only")

    monkeypatch.setattr(caching._SourceFileBackedLocatorMixin, "ensure_cache_path", refuse, raising=False)
    chosen = []

    class UserLocator(caching.UserWideCacheLocator):
        def ensure_cache_path(self):
            chosen.append(self.get_cache_path())

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [caching.InTreeCacheLocator, UserLocator])
    assert compiled._can_cache()
    assert chosen
