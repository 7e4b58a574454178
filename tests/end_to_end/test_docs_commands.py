"""The commands that pages show without running them: each runs as written, on small tables that fit the page."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from command_line import run_here, start
from homes import write_homes

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(?:bash|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
ELSEWHERE = {"pip", "pytest", "ruff", "mypy", "lint-imports", "python", "source", "sphinx-build"}
"""Commands that prepare a checkout and check it: ``.ci/run`` has them."""
OTHER_PAGES = {"README.md": "tests/end_to_end/test_readme.py"}
ALARM = 3


def commands(text):
    """The command lines of a page's blocks, in order, without their comments."""
    code = "".join(BLOCK.findall(text)).replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in code.splitlines()]
    parts = [" ".join(shlex.quote(word) for word in line).split(" '&&' ") for line in lines if line]
    return [shlex.split(part) for line in parts for part in line]


def pages():
    """Pages with commands that are for users, by name."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    found = {path: commands(path.read_text(encoding="utf-8")) for path in paths}
    return {
        path.relative_to(ROOT).as_posix(): [words for words in lines if words[0] not in ELSEWHERE]
        for path, lines in found.items()
        if any(words[0] not in ELSEWHERE for words in lines)
    }


def write(path, **columns):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def write_tables_of_homes(folder):
    write_homes(folder / "homes.csv", 150, seed=0)
    write_homes(folder / "new-homes.csv", 20, seed=1)


def hours(first, n):
    return (np.datetime64("2024-01-01T00:00") + np.arange(first, first + n).astype("timedelta64[h]")).astype(
        str
    )


def load_of(n, seed=0):
    rng = np.random.default_rng(seed)
    return (10.0 + np.sin(np.arange(n) / 4.0) + 0.3 * rng.normal(size=n)).round(3)


def write_forecasts(folder):
    load = load_of(700)
    write(folder / "demand.csv", hour=hours(0, 500), load=load[:500])
    write(folder / "latest.csv", hour=hours(0, 500), load=load[:500])
    write(folder / "measured.csv", hour=hours(300, 400), load=load[300:])


def write_days(folder):
    rng = np.random.default_rng(0)
    heat, load = rng.uniform(0, 10, size=400).round(2), load_of(400)
    write(folder / "past.csv", hour=hours(0, 352), heat=heat[:352], load=load[:352])
    write(folder / "today.csv", id=[f"h{n}" for n in range(48)], hour=hours(352, 48), heat=heat[352:])
    write(folder / "yesterday-measured.csv", id=[f"h{n}" for n in range(24)], load=load[352:376])


def write_molecules(folder):
    smiles = [
        ring + "C" * n for ring in ("c1ccccc1", "C1CCCC1", "CO", "N", "OC", "ClC") for n in range(1, 26)
    ]
    solubility = (-0.2 * np.array([len(one) for one in smiles])).round(2)
    chosen = np.random.default_rng(0).permutation(len(smiles))
    for name, rows in (("molecules", chosen), ("train", chosen[:60]), ("unseen", chosen[60:])):
        write(folder / f"{name}.csv", smiles=[smiles[row] for row in rows], logS=solubility[rows])
    write(folder / "new.csv", smiles=[smiles[row] for row in chosen[:8]], logS=solubility[chosen[:8]])


FOLDERS = {
    "docs/models.md": write_tables_of_homes,
    "docs/molecules.md": write_molecules,
    "docs/production.md": write_tables_of_homes,
    "docs/recipes/forecasting.md": write_forecasts,
    "docs/recipes/time.md": write_days,
}
"""What writes the tables of a page; they have its file names and columns."""


def test_every_page_with_commands_is_run():
    assert set(pages()) == set(FOLDERS) | set(OTHER_PAGES)


def run(words, folder, statuses=(0,)):
    """One command, in this process if it is ours."""
    out = folder / words[words.index("--out") + 1] if "--out" in words else None
    if words[1] == "fit" and out is not None and out.exists():  # a page shows two ways of the same
        out.rename(folder / f"before-{time.monotonic_ns()}")
    if words[0] == "lvd":
        outcome = run_here(*words[1:])
        assert outcome.code in statuses, f"{shlex.join(words)}\n{outcome.err}"
    else:
        tool = str(Path(sys.executable).with_name(words[0]))
        subprocess.run([tool, *words[1:]], check=True, capture_output=True)
    assert out is None or out.exists()


@pytest.mark.parametrize(
    "page",
    [
        "docs/recipes/time.md",
        pytest.param("docs/models.md", marks=pytest.mark.slow),
        pytest.param("docs/recipes/forecasting.md", marks=pytest.mark.slow),
    ],
)
def test_the_commands_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FOLDERS[page](tmp_path)
    for words in pages()[page]:
        if "--horizon" in words:  # two horizons take as many seconds as 24 take minutes
            assert words[words.index("--horizon") + 1] == "24"
            words[words.index("--horizon") + 1] = "1,24"
        run(words, tmp_path, statuses=(0, ALARM) if words[1:3] == ["online", "status"] else (0,))


@pytest.mark.slow
def test_the_commands_about_molecules_run(tmp_path, monkeypatch):
    if find_spec("chemprop") is None:
        pytest.skip("these commands need chemprop")
    monkeypatch.chdir(tmp_path)
    write_molecules(tmp_path)
    brief = {"chemprop train": ["--epochs", "3", "--accelerator", "cpu"], "lvd fit": ["--epochs", "2"]}
    for words in pages()["docs/molecules.md"]:
        added = [] if "--checkpoint" in words else brief.get(" ".join(words[:2]), [])
        run([*words, *added], tmp_path)


@pytest.mark.slow
def test_the_requests_to_a_server_are_answered(tmp_path, monkeypatch):
    if find_spec("fastapi") is None:
        pytest.skip("lvd serve needs fastapi")
    monkeypatch.chdir(tmp_path)
    write_tables_of_homes(tmp_path)
    fitted = run_here("fit", "homes.csv", "--target", "price", "--model", "trees", "--out", "homes-model")
    assert fitted.code == 0, fitted.err
    serve, *requests = pages()["docs/production.md"]
    assert serve[:2] == ["lvd", "serve"]
    serve[serve.index("--port") + 1] = "0"
    with start(*serve[1:]) as process:
        try:
            address = re.search(r"http://\S+/", process.stdout.readline().decode())[0]
            answers = [asked(words, address, tmp_path) for words in requests]
        finally:
            process.terminate()
            process.communicate(timeout=60)
    assert len(answers) == 2
    assert all(b"lower_90" in one for one in answers)


def asked(words, address, folder):
    """What a line of curl asks, from this process: it need not be installed."""
    values = dict(pairwise(words))
    body = values.get("-d") or values["--data-binary"]
    data = (folder / body[1:]).read_bytes() if body.startswith("@") else body.encode()
    headers = [words[n + 1].split(": ") for n, word in enumerate(words) if word == "-H"]
    url = words[-1].replace("http://127.0.0.1:8000/", address)
    request = urllib.request.Request(url, data, dict(headers))
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()
