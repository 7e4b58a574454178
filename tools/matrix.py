"""The versions of Python and of its dependencies that lvd works with: ``python -m tools.matrix``.

Creates an environment for each combination available on this machine, installs lvd from the checkout, runs the
core tests, and writes the table in CONTRIBUTING.md. Unavailable combinations are listed too.

- ``oldest``: the lower bounds of pyproject.toml, which constraints-oldest.txt repeats.
- ``pinned``: the versions of constraints.txt.
- ``newest``: the latest versions on the package index.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "matrix.json"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- matrix begin -->\n", "<!-- matrix end -->"
COMBINATIONS = (
    *(("3.11", "oldest"), ("3.11", "pinned"), ("3.11", "newest")),
    *(("3.12", "newest"), ("3.13", "newest"), ("3.14", "newest")),
)
CONSTRAINTS = {"oldest": "constraints-oldest.txt", "pinned": "constraints.txt"}
TEST_TOOLS = ("pytest", "pytest-xdist", "pytest-timeout", "hypothesis", "pandas", "jaxtyping", "beartype")
CORE = (
    *("tests/unit/test_oracle.py", "tests/unit/test_sums.py", "tests/unit/test_local_conformal.py"),
    *(
        "tests/unit/test_mahalanobis.py",
        "tests/unit/test_lvd_regressor.py",
        "tests/unit/test_metrics_coverage.py",
    ),
    *("tests/unit/test_net_regressor.py", "tests/unit/test_built_in_models.py", "tests/unit/test_scales.py"),
    *("tests/unit/test_shapes.py", "tests/unit/test_support.py", "tests/unit/test_saving.py"),
    *("tests/unit/test_table_model.py", "tests/unit/test_tables_reading.py", "tests/unit/test_files.py"),
    *("tests/property/test_engine.py", "tests/end_to_end/test_cli_predict.py"),
)
"""Tests of what lvd computes, saves, reads and writes; two or three minutes, without extras."""
NAMED = ("torch", "numpy", "scipy", "scikit-learn", "numba", "pyarrow", "pandas", "matplotlib", "typer")
"""The packages whose versions the table shows."""


@dataclass(frozen=True)
class Tried:
    """The result of one combination: `outcome` is pytest's last line, or the reason for its absence."""

    python: str
    versions: str
    outcome: str
    date: str
    installed: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether all tests passed."""
        return " passed" in self.outcome and not re.search(r"\b(failed|errors?)\b", self.outcome)


def find_python(version: str) -> str | None:
    """An interpreter of this version: on the path, from pyenv, or from uv."""
    for command in _candidates(version):
        try:
            done = subprocess.run(
                [*command, "-c", "import sys, venv; print(sys.version_info[:2], sys.executable)"],
                capture_output=True,
                text=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        release, _, executable = done.stdout.strip().rpartition(") ")
        if release == f"({version.replace('.', ', ')}":
            return executable
    return None


def _candidates(version: str) -> Iterator[list[str]]:
    yield [f"python{version}"]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from ([str(folder / "bin" / "python")] for folder in sorted(pyenv.glob(f"versions/{version}.*")))
    if shutil.which("uv"):
        yield ["uv", "run", "--no-project", "--python", version, "python"]


def try_combination(python: str, versions: str, folder: Path, extra: Sequence[str]) -> Tried:
    """Install and test one combination in an environment below `folder`, reused if it exists."""
    today = datetime.now(UTC).date().isoformat()
    executable = find_python(python)
    if executable is None:
        return Tried(python, versions, "no such interpreter on this machine", today)
    environment = folder / f"{python}-{versions}"
    if not environment.exists():
        subprocess.run([executable, "-m", "venv", environment], check=True)
    own = environment / "bin" / "python"
    constraints = ["-c", CONSTRAINTS[versions]] if versions in CONSTRAINTS else ["--upgrade"]
    install: list[str | Path] = [
        own,
        "-m",
        "pip",
        "install",
        "-q",
        *constraints,
        *extra,
        *TEST_TOOLS,
        "-e",
        ".",
    ]
    if (log := _run(install))[0]:
        return Tried(python, versions, f"cannot be installed: {_last_line(log[1])}", today)
    # Old packages warn about later changes; their warnings are errors only with the newest versions.
    warnings = ["-o", "filterwarnings=default"] if versions == "oldest" else []
    tests = _run([own, "-m", "pytest", "-n", "2", "-q", "--tb=short", *warnings, *CORE])
    (environment / "tests.log").write_text(tests[1], encoding="utf-8")
    release = _run([own, "-c", "import platform; print(platform.python_version())"])[1].strip()
    return Tried(python, versions, _last_line(tests[1]), today, {"python": release, **_installed(own)})


def _run(command: Sequence[str | Path]) -> tuple[int, str]:
    done = subprocess.run(
        ["nice", "-n", "15", *command],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def _last_line(text: str) -> str:
    """How pytest ended, without the seconds; or pip's last line."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return re.sub(r" in [\d.:s ()]+=*$", "", lines[-1].strip("= ")) if lines else "nothing was said"


def _installed(python: Path) -> dict[str, str]:
    listed = json.loads(_run([python, "-m", "pip", "list", "--format", "json"])[1].splitlines()[0])
    versions = {one["name"].lower(): one["version"] for one in listed}
    return {name: versions[name] for name in NAMED if name in versions}


def table(tried: Sequence[Tried]) -> str:
    """The table of CONTRIBUTING.md."""
    rows = ["| Python | versions | core tests | on | with |", "|---|---|---|---|---|"]
    for one in tried:
        python = one.installed.get("python", one.python)
        with_these = ", ".join(f"{name} {one.installed[name]}" for name in NAMED if name in one.installed)
        outcome = f"**{one.outcome}**" if one.passed else one.outcome
        rows.append(f"| {python} | {one.versions} | {outcome} | {one.date} | {with_these or '-'} |")
    return "\n".join(rows) + "\n"


def read_results(path: Path = RESULTS) -> list[Tried]:
    """Read the known result of each combination, in order."""
    known = [Tried(**one) for one in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []
    found = {(one.python, one.versions): one for one in known}
    return [found[combination] for combination in COMBINATIONS if combination in found]


def write(tried: Sequence[Tried], results: Path = RESULTS, page: Path = PAGE) -> None:
    """Merge new results with the known ones, and write all of them to the page."""
    merged = {(one.python, one.versions): one for one in [*read_results(results), *tried]}
    ordered = [merged[combination] for combination in COMBINATIONS if combination in merged]
    results.write_text(json.dumps([asdict(one) for one in ordered], indent=1) + "\n", encoding="utf-8")
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table(ordered)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Try the requested combinations."""
    parser = argparse.ArgumentParser(prog="python -m tools.matrix", description=__doc__.splitlines()[0])
    names = [" ".join(combination) for combination in COMBINATIONS]
    parser.add_argument(
        "only", nargs="*", metavar="'PYTHON VERSIONS'", help=f"by default all: {', '.join(names)}"
    )
    parser.add_argument("--folder", type=Path, help="keep the environments here; by default they are removed")
    parser.add_argument("--pip", action="append", default=[], help="a word for pip, such as torch==2.13.0")
    options = parser.parse_args(arguments)
    if wrong := set(options.only) - set(names):
        parser.error(f"no such combination: {', '.join(sorted(wrong))}")
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.only or names:
            python, versions = name.split()
            found = try_combination(python, versions, options.folder or Path(temporary), options.pip)
            print(f"{name}: {found.outcome}")
            write([found])


if __name__ == "__main__":
    main()
