"""What is installed with lvd, why, and at what cost: ``python -m tools.dependencies`` writes the page.

Measured in the current environment: megabytes from the lists of installed files, milliseconds of processor time
in fresh interpreters (the minimum of several), and licences from the packages' own metadata.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "dependencies.md"
REPEATS = 5
PURPOSES = {
    "torch": "networks, training and embeddings; learning the kernel; GPUs; tensors of saved models",
    "numpy": "all arrays",
    "scipy": "beta and binomial distributions for exact bands, isotonic and sparse helpers",
    "scikit-learn": "the estimator interface (clone, Pipeline, grid search), boosted trees, neighbours",
    "joblib": "parallel fits",
    "threadpoolctl": "limiting threads where more of them only wait",
    "numba": "the compiled loops of radii, trees and kernels",
    "llvmlite": "numba's compiler; listed so that the versions match",
    "safetensors": "the numbers of saved models, in a format that cannot hold code",
    "typer": "the command line",
    "rich": "tables and progress in a terminal",
    "pyarrow": "reading and writing CSV and Parquet",
    "jinja2": "the report page and the model's card",
    "markupsafe": "escaping texts from tables in the report",
    "matplotlib": "figures of the demo and `lvd.plot`",
}
"""What each hard dependency is for; a test compares the names with pyproject.toml."""
MODULES = {"scikit-learn": "sklearn"}
COMMANDS = {
    "`import lvd`": "import lvd",
    "`lvd --help`": "import sys; sys.argv = ['lvd', '--help']; from lvd.cli import main; main()",
    "`lvd predict`": "import lvd.cli.app as a, sys; sys.meta_path.insert(0, a.ImportedLater()); "
    "import lvd.tables.table_model",
    "`lvd.LVDRegressor`": "import lvd; lvd.LVDRegressor",
}
"""Code after which loaded modules are counted; for `lvd predict`, its imports before it reads a row."""


class Cost(NamedTuple):
    """The cost of one distribution; `also` names what it pulls in that no other dependency needs."""

    name: str
    version: str
    licence: str
    megabytes: float
    also: tuple[str, ...]
    also_megabytes: float
    import_ms: float
    loaded_by: tuple[str, ...]


def hard_dependencies() -> list[str]:
    """The names in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [name_of(requirement) for requirement in project["dependencies"]]


def name_of(requirement: str) -> str:
    """The normalised name at the start of a requirement."""
    return re.sub(r"[-_.]+", "-", re.split(r"[ ;<>=!~\[(]", requirement, maxsplit=1)[0]).lower()


def brought_by(name: str) -> set[str]:
    """Everything that an installed distribution needs, including itself, without extras."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        try:
            needed = distribution(one).requires or []
        except PackageNotFoundError:
            continue  # for another system or Python
        found.add(one)
        waiting += {name_of(line) for line in needed if "extra ==" not in line} - found
    return found


def megabytes(names: Iterable[str]) -> float:
    """The size on disk of some distributions, without bytecode caches."""
    files = (file for name in names for file in distribution(name).files or [])
    paths = (Path(str(file.locate())) for file in files if "__pycache__" not in str(file))
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def licence_of(dist: Distribution) -> str:
    """The licence in the metadata: the expression, else the classifiers, else the first line of the text."""
    data: Any = dist.metadata
    told = data.get("License-Expression") or ", ".join(
        line.rpartition(":: ")[2].removesuffix(" License")
        for line in data.get_all("Classifier") or []
        if line.startswith("License :: OSI Approved :: ")
    )
    return told or (data.get("License") or "not said").strip().splitlines()[0][:60]


def processor_ms(code: str) -> float:
    """User time of a fresh interpreter that runs this, minus that of an empty one; the minimum of several."""
    return min(_user_seconds(code) for _ in range(REPEATS)) * 1000.0


def _user_seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def loaded_after(code: str, modules: Sequence[str]) -> set[str]:
    """Which of these modules are loaded after the code has run, however it ends."""
    told = f"try:\n exec({code!r})\nexcept SystemExit: pass\nimport sys\n"
    told += f"print('loaded', *[m for m in {list(modules)!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", told], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


def measure() -> list[Cost]:
    """The cost of each hard dependency."""
    names = hard_dependencies()
    modules = {name: MODULES.get(name, name) for name in names}
    loaded = {what: loaded_after(code, [*modules.values()]) for what, code in COMMANDS.items()}
    closures = {name: brought_by(name) for name in names}
    idle = processor_ms("pass")
    costs = []
    for name in names:
        others = set(names).union(*(closures[other] for other in names if other not in closures[name]))
        also = tuple(sorted(closures[name] - others))
        dist = distribution(name)
        costs.append(
            Cost(
                name,
                dist.version,
                licence_of(dist),
                megabytes([name]),
                also,
                megabytes(also),
                max(processor_ms(f"import {modules[name]}") - idle, 0.0),
                tuple(what for what in COMMANDS if modules[name] in loaded[what]),
            )
        )
    return costs


def licences_along(costs: Sequence[Cost]) -> str:
    """What the hard dependencies bring along, by licence."""
    found: dict[str, list[str]] = {}
    for name in sorted({name for one in costs for name in one.also}):
        found.setdefault(licence_of(distribution(name)), []).append(name)
    return "; ".join(f"{licence}: {', '.join(names)}" for licence, names in sorted(found.items()))


def consistency() -> str:
    """What pip says of the versions that are installed together."""
    told = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    return " ".join(told.stdout.split()) or "pip is not installed"


FIGURES = "| package | licence | MB | brings along (MB) | import, ms |"
WHEELS = {"torch_release": "2.13.0", "cpu_wheel": 192, "cuda_wheel": 527, "cuda_libraries": 2203}
"""Megabytes to download for Linux, as pip names them: either build of torch, and what the second one brings."""
TEMPLATE = Path(__file__).with_name("dependencies_page.md")


def page(costs: Sequence[Cost], timings: dict[str, float]) -> str:
    """The Markdown page."""
    ordered = sorted(costs, key=lambda cost: -cost.megabytes - cost.also_megabytes)
    uses, figures = ["| package | for | loaded by |", "|---|---|---|"], [FIGURES, "|---|---|---|---|---|"]
    for one in ordered:
        uses.append(
            f"| {one.name} | {PURPOSES[one.name]} | {', '.join(one.loaded_by) or 'when it is used'} |"
        )
        also = f"{', '.join(one.also)} ({one.also_megabytes:,.0f})" if one.also else "-"
        figures.append(
            f"| {one.name} {one.version} | {one.licence} | {one.megabytes:,.1f} | {also} | {one.import_ms:,.0f} |"
        )
    total = megabytes(set().union(*(brought_by(one.name) for one in costs)))
    said = [f"All of it together takes {total:,.0f} MB."]
    said += [
        f"{what} takes {ms:,.0f} ms of processor time with the interpreter." for what, ms in timings.items()
    ]
    tables = {"uses": "\n".join(uses), "figures": "\n".join(figures), "said": " ".join(said)}
    tables |= {"along": licences_along(costs), "consistent": consistency()}
    return TEMPLATE.read_text(encoding="utf-8").format(**torch_figures(costs), **tables)


def torch_figures(costs: Sequence[Cost]) -> dict[str, Any]:
    """How deeply the code depends on torch."""
    lines = {path: path.read_text(encoding="utf-8").splitlines() for path in (ROOT / "src").rglob("*.py")}
    ours = {
        path: any(re.match(r"\s*(import|from) torch\b", line) for line in text)
        for path, text in lines.items()
    }
    deep = {path for path in lines if {"engine", "kernels", "calibration"} & {*path.parts}}
    used = {
        path: sum(bool(re.search(r"torch\.|Tensor\b", line)) for line in text) for path, text in lines.items()
    }
    return {
        "files": len(lines),
        "torch_files": sum(ours.values()),
        "engine_files": sum(ours[path] for path in deep),
        "torch_lines": sum(used.values()),
        "engine_lines": sum(used[path] for path in deep),
        "torch_megabytes": next(one.megabytes for one in costs if one.name == "torch"),
        **WHEELS,
    }


def main() -> None:
    """Measure, and write the page."""
    argparse.ArgumentParser(
        prog="python -m tools.dependencies", description=__doc__.splitlines()[0]
    ).parse_args()
    timings = {what: processor_ms(code) for what, code in COMMANDS.items() if what != "`lvd.LVDRegressor`"}
    PAGE.write_text(page(measure(), timings), encoding="utf-8")


if __name__ == "__main__":
    main()
