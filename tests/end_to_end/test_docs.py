"""The documentation: its code runs, and so do the docstrings' examples."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import re
import sys
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest

from benchmarks import beyond, beyond_page
from experiments.molecules.group_counts import COUNTS, held_of
from experiments.molecules.quantum_page import write_quantum_page
from experiments.paper.collect import read_results
from experiments.paper.method_grids import decision_grid, tails_grid
from experiments.paper.methods import MAIN_VARIANT
from experiments.paper.pages import write_small_page
from lvd.kernels.training import keep_average

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src"
RESULTS = ROOT / "results"
OPTIONAL = {
    "lvd/molecules": "chemprop",
    "lvd/methods/conformal": "onnxruntime",
    "lvd/mlflow.py": "mlflow",
    "lvd/serve": "fastapi",
}
"""Which sources have examples that need an optional package."""

sys.path.append(str(DOCS / "_ext"))
from executed import BLOCK, as_notebook, execute, missing_package  # noqa: E402


def files_with(folder, pattern, found):
    """The files of which `found` is true, by their names inside the folder."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob(pattern)}
    return [name for name in sorted(names) if found(names[name].read_text(encoding="utf-8"))]


QUICK_NOTEBOOK = "notebooks/lightgbm.md"
PAGES = files_with(DOCS, "*.md", BLOCK.search)
EXAMPLES = files_with(SOURCE, "*.py", re.compile(r">>> (?!.*\+SKIP)").search)

quiet_ray = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning"),
]


def marked(names):
    return [pytest.param(name, marks=marks_of(name)) for name in names]


def marks_of(name):
    if name == "recipes/ray.md":
        # A cluster of their own takes the longest; tests/end_to_end/test_ray.py has the same calls in one.
        return [*quiet_ray, pytest.mark.slow]
    if name == "lvd/mlflow.py":
        # To import MLflow takes seconds, and warns; tests/end_to_end/test_mlflow.py has the same calls.
        return [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]
    return [pytest.mark.slow] if name.startswith("notebooks/") and name != QUICK_NOTEBOOK else []


@pytest.fixture
def short_training(monkeypatch):
    """Code runs as it is written, but networks and kernels are trained for a few batches only."""
    few = 50
    monkeypatch.setattr("lvd.kernels.mahalanobis.islice", lambda batches, n: islice(batches, min(n, few)))
    monkeypatch.setattr(
        "lvd.kernels.mahalanobis.keep_average", lambda steps, n: keep_average(steps, min(n, few))
    )
    monkeypatch.setattr("lvd.demo.homes.N_BATCHES", 30)  # tests/end_to_end/test_demo.py runs it whole


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("page", marked(PAGES))
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    text = (DOCS / page).read_text(encoding="utf-8")
    if package := missing_package(text):
        pytest.skip(f"this page needs {package}")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    shown = execute(text, tmp_path)
    assert len(shown) > len(text)


GONE = re.compile(
    r"kernel_floor|smallest_floor|embedding_layer|bandwidth(?:=.| )auto|\by_m(?:in|ax)\b|"
    r"\b(?:embed|sides|score|search|predictor)="
)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs", "examples"])
def test_no_text_speaks_of_parameters_that_are_gone(name):
    folder = ROOT / name
    paths = [folder] if folder.is_file() else [*folder.rglob("*.md"), *folder.rglob("*.py")]
    found = {path: GONE.findall(path.read_text(encoding="utf-8")) for path in paths}
    assert not {path: words for path, words in found.items() if words}


def test_the_walk_of_an_interval_names_files_that_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walk = text.split("## The walk of one interval")[1].split("\n## ")[0]
    names = re.findall(r"`(\w+/\w+\.py)`", walk)
    assert len(names) >= 10
    assert not [name for name in names if not (SOURCE / "lvd" / name).is_file()]


def test_a_page_that_fails_says_where(tmp_path):
    with pytest.raises(ZeroDivisionError) as failure:
        execute("# Title\n\n```python\nx = 0\n1 / x\n```\n", tmp_path)
    assert failure.traceback[-1].lineno + 1 == 5
    with pytest.raises(RuntimeError, match=r"\$ lvd evaluate nothing here\.csv ended with 2"):
        execute("```console\n$ lvd evaluate nothing here.csv\n```\n", tmp_path)


def test_figures_are_shown_below_the_block_that_draws_them(tmp_path):
    page = "# Title\n\n```python\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n```\n\nThe end.\n"
    shown = execute(page, tmp_path)
    picture = shown.index('<img class="drawn"')
    assert shown.index("plt.show()") < picture < shown.index("The end.")
    assert "data:image/png;base64,iVBOR" in shown
    assert execute("```python\nprint(1)\n```\n", tmp_path).count("<img") == 0


def test_a_page_as_a_notebook_has_its_text_and_code_in_their_order():
    text = (DOCS / "notebooks" / "tabular.md").read_text(encoding="utf-8")
    notebook = json.loads(as_notebook("---\nneeds: torch\n---\n" + text))
    cells = notebook["cells"]
    assert notebook["nbformat"] == 4
    assert "".join(cells[0]["source"]).startswith("# A table")
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    blocks = [block["code"].strip() for block in BLOCK.finditer(text)]
    assert code[:-1] == blocks[:-1]
    assert code[-1] == "!lvd explain flats --help"


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("name", marked(EXAMPLES))
def test_the_examples_of_the_docstrings_run(name):
    for folder, package in OPTIONAL.items():
        if name.startswith(folder) and find_spec(package) is None:
            pytest.skip(f"these examples need {package}")
    names = vars(
        importlib.import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    )
    runner = doctest.DocTestRunner()
    for node in ast.walk(ast.parse((SOURCE / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (
            text := ast.get_docstring(node)
        ):
            place = getattr(node, "name", name), name, getattr(node, "lineno", 0)
            example = doctest.DocTestParser().get_doctest(text, dict(names), *place)
            runner.run(example)
    assert runner.tries
    assert not runner.failures


def readme_claims():
    """What the README says was measured: text, and the page that it links to."""
    section = (
        (ROOT / "README.md").read_text(encoding="utf-8").split("## What was measured")[1].split("\n## ")[0]
    )
    return re.findall(r"((?:(?!\]\().)*)\]\((docs/\w+\.md)\)", section, re.DOTALL)


def test_the_figures_of_the_readme_are_on_the_pages_it_links_to():
    claims = readme_claims()
    assert len(claims) >= 3
    for said, page in claims:
        text = (ROOT / page).read_text(encoding="utf-8")
        for figure in re.findall(r"\*\*(.+?)\*\*", said):
            assert re.search(rf"(?<![\d.,]){re.escape(figure)}", text), (
                f"the README says {figure}, {page} does not"
            )


def test_the_readme_names_tails_and_groups_as_the_tables_have_them():
    """Its headline figures, recomputed from the committed results."""
    rows = read_results(RESULTS / "small_sound.csv")
    tails = {row[0].text: row for row in tails_grid(rows, "sound", read_results(RESULTS / "rerun")).rows}
    glance = {row[0].text: row for row in decision_grid(rows, "sound").rows}
    counts = COUNTS.read_file(RESULTS / "qm9_groups.csv")
    held = {
        method: "{} of {}".format(*held_of(counts, "paper", "qm9", method, "text"))
        for method in (MAIN_VARIANT, "split")
    }
    text = " ".join(" ".join(said for said, _ in readme_claims()).split())
    lvd, split, ensembles = (glance[name][2].text for name in ("LVD", "split", "DE"))
    assert f"LVD's coverage holds on **{lvd}**" in text
    assert (
        f"split conformal's holds on **{split}**; that of deep ensembles, which promise nothing, holds on "
        f"**{ensembles}**" in text
    )
    assert f"**{glance['LVD'][5].text}** of LVD's intervals are finite" in text
    shares = {name: row[2].text for name, row in tails.items()}
    lowest, *_, second, highest = sorted(shares, key=lambda name: int(shares[name].removesuffix("%")))
    assert f"from **{shares[lowest]}** on {lowest} to **{shares[second]}** on {second}" in text
    assert f"({highest}: **{shares[highest]}**)" in text
    assert (
        f"LVD's coverage holds in **{held[MAIN_VARIANT]}** cases, split conformal's in **{held['split']}**"
        in text
    )


@pytest.mark.slow
def test_the_pages_are_what_their_commands_write(tmp_path):
    small = [RESULTS / "small_paper.csv", RESULTS / "small_sound.csv"]
    write_small_page(small, tmp_path / "reproduction.md", rerun=RESULTS / "rerun")
    write_quantum_page(
        [RESULTS / "qm8.csv", RESULTS / "qm9.csv"],
        tmp_path / "molecule_tables.md",
        groups=RESULTS / "qm9_groups.csv",
        notes=RESULTS / "qm_notes.toml",
        study=study if (study := RESULTS / "molecules.csv").exists() else None,
        questions=RESULTS / "molecule_questions.csv",
    )
    beyond_page.write_page(tmp_path / "beyond.md", beyond.read_results(RESULTS / "beyond.csv"))
    for page in tmp_path.iterdir():
        assert page.read_text(encoding="utf-8") == (DOCS / page.name).read_text(encoding="utf-8"), (
            f"docs/{page.name} is not what its command writes from results/"
        )
