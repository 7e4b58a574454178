"""The results page of ``python -m benchmarks``; every figure in it comes from their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from pathlib import Path

from benchmarks.contestants import CONTESTANTS, LEVELS, OURS, K
from benchmarks.growth import ABOVE_OVERHEAD
from benchmarks.plot import growth_figure
from benchmarks.results import MISSING, Cell, duration, footnotes, number, select, slope_of, versions_text
from lvd import InputError
from lvd._files import write_text
from lvd.demo.figures import save_figure

HEAD = """# Benchmarks: time, memory, growth

Written by `python -m benchmarks --page {files}`; no figure on this page is typed.
`python -m benchmarks` prints the same as one table on your machine (`--quick`: smaller sizes, half a minute).

## What is measured

All contestants start from the same calibration rows in the {components} coordinates of a learned kernel, their
scores, and queries in the same coordinates, and end with intervals at the levels {levels}. No network is run.
In one sweep the calibration set grows, in the other the number of queries.

| contestant | what it computes |
|---|---|
{questions}
Only the first four answer the same question. The others are included because they are what one might install
instead. A faster one may simply do less: a width that is the same everywhere needs no look at the calibration rows.

- **Calibration** is taking the calibration set. **First prediction** is the first one after it, in which lvd lays
  out the rows for the GPU, and MAPIE solves its linear programs. **Prediction** is a later one
  of as many queries, the median of repeats where these are short. What is compiled or loaded once is not counted.
- **Rows/s** are queries answered in a second of predicting.
- **Peak memory** is what calibrating and a first prediction add to the inputs at their highest: on a GPU what torch
  allocated, on the CPU the resident memory of the process.
- **Slope** is the exponent p with which the time of a prediction grows, size^p: least squares on logarithms over
  the sizes that take at least {above:g} times the shortest time, where the constant overhead no longer dominates
  (over the last two sizes where fewer do). 1 is proportional growth.
- The **floors** are not runs: they are the number of exponentials, or of bytes, over a rate measured in the same
  run.
- A dash marks what was not measured, with the reason below the tables; nothing is extrapolated.

"""
TAIL = """
## Adding a contestant or a machine

A contestant is a function from calibration points and scores to a function from queries to intervals, and an entry
of `CONTESTANTS` (`benchmarks/contestants.py`) that says which question it answers. A machine is a file of results:

    python -m benchmarks --out results/bench_NAME.csv
    python -m benchmarks --page {files} results/bench_NAME.csv

A pull request brings the entry, its line of `python -m benchmarks --quick`, and the files and pages that these
commands write. The machine should have nothing else to do.
"""
CAPTION = "Prediction time against calibration rows and against queries, one line for each contestant"


def write_page(docs: Path, results: Mapping[str, Sequence[Cell]]) -> None:
    """Write benchmarks.md to the documentation folder, and a plot for each file of results, by its name."""
    images = docs / "images"
    if not images.is_dir():
        raise InputError(f"--docs: there is no folder {images}; give the folder of the documentation")
    for name, cells in results.items():
        save_figure(growth_figure(cells), images / f"{name}.png")
    questions = "".join(f"| {one.title} | {one.question} |\n" for one in CONTESTANTS.values())
    files = " ".join(f"results/{name}.csv" for name in results)
    head = HEAD.format(
        files=files,
        components=K,
        levels=" and ".join(map(str, LEVELS)),
        questions=questions,
        above=ABOVE_OVERHEAD,
    )
    sections = "\n".join(starmap(section, results.items()))
    write_text(docs / "benchmarks.md", head + sections + TAIL.format(files=files))


def section(name: str, cells: Sequence[Cell]) -> str:
    """The section on one machine."""
    first = cells[0]
    versions = versions_text(first, ("python", "torch", "numpy", "triton", "lvd", "crepes", "mapie"))
    parts = [
        f"## {first.machine}\n\n{first.date}, {first.threads} threads; {versions}.\n\n",
        f"![{CAPTION}](images/{name}.png)\n\n",
        *findings(cells),
        "\n",
    ]
    for sweep in dict.fromkeys(cell.sweep for cell in cells):
        fixed = next(cell for cell in cells if cell.sweep == sweep)
        what = f"{fixed.queries:,} queries" if sweep == "rows" else f"{fixed.rows:,} calibration rows"
        grown = "calibration rows" if sweep == "rows" else "queries"
        tables: dict[str, Callable[[Cell], str]] = {
            "Prediction": lambda cell: duration(cell.predict_seconds),
            "Rows/s": lambda cell: number(
                cell.rows_per_second, ",.3g" if cell.rows_per_second < 100 else ",.0f"
            ),
            "Calibration, then first prediction": _beginning,
            "Peak memory, MB": lambda cell: number(cell.peak_mb, ",.0f" if cell.peak_mb >= 100 else ".1f"),
        }
        for title, text in tables.items():
            parts.append(f"### {title}: {what}, growing {grown}\n\n")
            parts.append(table(cells, sweep, text, with_slope=title == "Prediction"))
    notes = [f"- {note}.\n" for note in footnotes(cells)]
    return "".join([*parts, *(["Not measured:\n\n", *notes] if notes else [])])


def findings(cells: Sequence[Cell]) -> list[str]:
    """How long each contestant takes compared with lvd, on the largest problem where both ran."""
    lines = []
    for sweep in dict.fromkeys(cell.sweep for cell in cells):
        ours = {cell.size: cell for cell in select(cells, sweep, OURS) if cell.measured}
        if not ours:
            continue
        last = ours[max(ours)]
        ratios = []
        for name in CONTESTANTS:
            both = [cell for cell in select(cells, sweep, name) if cell.measured and cell.size in ours]
            if name != OURS and both:
                ratio = both[-1].predict_seconds / ours[both[-1].size].predict_seconds
                at = "" if both[-1].size == last.size else f" (at {both[-1].size:,})"
                ratios.append(
                    f"{CONTESTANTS[name].title} {number(ratio, ',.0f' if ratio >= 100 else '.2g')}{at}"
                )
        slope = number(slope_of(select(cells, sweep, OURS)), ".2f")
        lines.append(
            f"- {last.queries:,} queries x {last.rows:,} calibration rows: lvd predicts in "
            f"{duration(last.predict_seconds)}, slope {slope} over the {sweep}. Times as long as lvd: "
            f"{'; '.join(ratios) or MISSING}.\n"
        )
    return lines


def table(cells: Sequence[Cell], sweep: str, text: Callable[[Cell], str], *, with_slope: bool) -> str:
    """One row per contestant, one column per size; contestants without results are left out."""
    sizes = list(dict.fromkeys(cell.size for cell in cells if cell.sweep == sweep))
    slope_title = ["slope"] if with_slope else []
    lines = [["contestant", *(f"{size:,}" for size in sizes), *slope_title]]
    lines.append(["---", *["---:"] * (len(lines[0]) - 1)])
    for name in dict.fromkeys(cell.contestant for cell in cells):
        series = select(cells, sweep, name)
        texts = [text(cell) for cell in series]
        if any(one != MISSING for one in texts):
            title = f"**{CONTESTANTS[name].title}**" if name == OURS else CONTESTANTS[name].title
            slope = [number(slope_of(series), ".2f")] if with_slope else []
            lines.append([title, *texts, *slope])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def _beginning(cell: Cell) -> str:
    if duration(cell.calibrate_seconds) == MISSING:
        return MISSING
    return f"{duration(cell.calibrate_seconds)}, {duration(cell.first_seconds)}"
