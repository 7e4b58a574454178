"""lvd as strangers get it: the wheel alone, in an environment of its own, away from the repository.

The packages it needs are those of the environment that runs the tests; lvd itself comes from the wheel.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = '''"""A user's program, for mypy --strict: a comment that excuses nothing is an error."""

from pathlib import Path

import numpy as np

import lvd

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(300, 2))
y = X[:, 0] + rng.normal(size=300) * np.abs(X[:, 1])

net = lvd.NetRegressor(hidden_sizes=(8,), n_batches=50)
reg: lvd.LVDRegressor = lvd.LVDRegressor(net, calib_size=None, random_state=0)
reg.fit(X[:150], y[:150]).conformalize(X[150:250], y[150:250])
y_pred, intervals = reg.predict_interval(X[250:], confidence_level=[0.5, 0.9])
coverage: float = lvd.metrics.marginal_coverage_rate(y[250:], intervals[:, :, 1])
reg.save(Path("model"))
if len(y) < 300:
    reg.fit(X, y, weigths=None)  # type: ignore[call-arg]
same = bool((lvd.load("model").predict(X[250:]) == y_pred).all())
print(intervals.shape, 0.5 < coverage <= 1.0, same)
'''

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """The folder of programs of a new environment, in which lvd comes from the wheel and all else from ours."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    # A path in a .pth file is searched, but the .pth files there are not read: no editable lvd comes along.
    (packages / "ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    own = folder / "bin" / "python"
    install = ("install", "--no-deps", "--no-index", "--ignore-installed", "-q", wheel)
    run(sys.executable, "-m", "pip", "--python", own, *install, cwd=folder)
    return folder / "bin"


@pytest.fixture(scope="module", autouse=True)
def checked_types(fresh, tmp_path_factory):
    """mypy over the program, beside the other tests. It knows lvd's types from the wheel's ``py.typed``: without
    them the misspelt argument would pass, and the comment that excuses it would not."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "program.py").write_text(PROGRAM)
    command = (
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        fresh / "python",
        "program.py",
    )
    process = subprocess.Popen(command, cwd=folder, env=elsewhere(), stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder, and nothing that leads to the repository."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def elsewhere():
    """The environment without what leads to the repository."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*command, cwd=None):
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=elsewhere(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_only_the_package_is_inside(wheel):
    names = ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lvd"}
    here = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "lvd").rglob("*")}
    assert {name for name in names if name.startswith("lvd/")} == {
        name for name in here if (ROOT / "src" / name).is_file() and "__pycache__" not in name
    }
    assert "lvd/py.typed" in names
    assert not [name for name in names if re.search(r"test_|\.csv$|\.npz$|experiment|benchmark", name)]
    assert wheel.stat().st_size < 1 << 20


def test_what_it_says_of_itself(fresh, here):
    code = "import importlib.metadata as m, lvd; print(lvd.__file__, lvd.__version__, m.version('lvd'))"
    place, version, told = run(fresh / "python", "-c", code).split()
    assert Path(place).is_relative_to(fresh.parent)
    assert version == told
    assert run(fresh / "lvd", "--version").strip() == f"lvd {version}"


def test_a_new_user_gets_from_the_demo_to_a_report(fresh, here):
    lvd = fresh / "lvd"
    assert "split conformal" in run(lvd, "demo").lower()
    run(lvd, "data", "export", "diabetes", "diabetes.csv")
    fitted = run(
        *(lvd, "fit", "diabetes.csv", "--target", "progression", "--model", "trees"),
        *("--test-out", "test.csv", "--out", "model"),
    )
    assert "coverage" in fitted
    run(lvd, "predict", "model", "test.csv", "--level", "0.9", "--out", "intervals.csv")
    header, *rows = Path("intervals.csv").read_text().splitlines()
    assert {"y_pred", "lower_90", "upper_90"} <= set(header.split(","))
    assert len(rows) > 50
    run(lvd, "report", "model", "test.csv", "--out", "report.html")
    assert "<html" in Path("report.html").read_text()


def test_a_users_program_runs_and_its_types_are_checked(fresh, here, checked_types):
    Path("program.py").write_text(PROGRAM)
    assert run(fresh / "python", "program.py").strip() == "(50, 2, 2) True True"
    said, _ = checked_types.communicate()
    assert said == "Success: no issues found in 1 source file\n"
