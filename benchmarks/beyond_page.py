"""The page of ``benchmarks.beyond``, all of whose figures come from its results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.beyond import LEVELS, LOCAL, OURS, THEIRS, Result
from benchmarks.elsewhere import MAPIE_ROWS
from benchmarks.results import pipe_table
from experiments.paper.layout import dataset_title
from lvd import InputError
from lvd._files import write_text

INFINITY = [name for name in OURS if name.startswith(LOCAL)]
COMPARED = [
    LOCAL,
    "LVD, each side",
    "LVD, joint sides",
    "LVD, normalised",
    "LVD, calibrated",
    "LVD, randomized",
    "split",
    "MADSplit",
    *THEIRS,
]
RATES = ("MCR", "TCR", "worst_slab", "finite")
HEAD = """# Past the paper, measured

Written by `python -m benchmarks.beyond --page docs/beyond.md` from `results/beyond.csv`: six small tables,
{seeds} seeds, the sound protocol. On a split all methods share one network, one calibration part (a fifth
of the rows) and one test part. Rates in percent, means over the seeds. LVD is the paper's method here
(`preset="paper"`), and each suffix names one departure from it. All rows are counted: "median" is the median
width over all rows, infinite ones included, relative to split conformal. An infinite interval covers its
row, so read coverage together with the share of finite intervals. MCR: marginal coverage. TCR: coverage of the
tenths of the rows with the smallest and the largest target. Worst slab: the lowest coverage found between
two parallel planes that hold a tenth of the rows, searched on a quarter of the test rows and judged on the
others. MAPIE solves one linear program per row and level, so it predicts no more than {mapie_rows} test
rows of each split; its feature map is a constant and five principal components of the inputs. Seconds are
processor seconds of the interval method alone, the network not included.

"""


def write_page(path: Path, results: Sequence[Result]) -> None:
    """Write all tables."""
    if missing := [name for name in (*OURS, *THEIRS) if name not in {result.method for result in results}]:
        raise InputError(f"the results lack {missing[0]!r}; run python -m benchmarks.beyond first")
    seeds = len({result.seed for result in results})
    parts = [
        HEAD.format(seeds=seeds, mapie_rows=MAPIE_ROWS),
        "## Fewer infinite intervals\n\n",
        SAID_OF_INFINITY,
    ]
    parts += [said_of_sides(results), *(infinity_table(results, level) for level in LEVELS)]
    parts += ["## Compared with other packages\n\n", SAID_OF_OTHERS, said_of_each(results), overview(results)]
    parts += [comparison_table(results, dataset) for dataset in datasets_of(results)]
    write_text(path, "".join(parts))


SAID_OF_INFINITY = """An infinite interval says that too little is known nearby. The paper's method gives
many of them. Two ways to get fewer were measured here and then removed, a floor under the kernel and one
bandwidth for all rows chosen on the training rows: a bandwidth for each row did better. That, and the default
of `LVDRegressor`, are measured in the arena (`python -m experiments arena`). Never replace an infinite interval
by the largest score: that guarantees nothing.

"""
SAID_OF_OTHERS = """Read the first table by columns. A method that is closer to 90 in the worst slab knows
better where the model errs.

"""


def said_of_sides(results: Sequence[Result]) -> str:
    """The cost of a separate distance for each end."""
    medians = "; ".join(
        f"at level {level:.0%} {median_width(results, 'concrete', 'LVD, joint sides', level)} times as wide as "
        f"split conformal in the median, plain LVD {median_width(results, 'concrete', LOCAL, level)} times"
        for level in LEVELS
    )
    return (
        "Intervals with a separate distance for each side (`each side`) need twice the calibration rows for the "
        "same level, so with a few hundred of them they are mostly infinite. `joint sides` needs no more rows; on "
        f"Concrete it is {medians}.\n\n"
    )


def said_of_each(results: Sequence[Result]) -> str:
    """The other packages' methods compared with the paper's."""
    ours, lines = figures(results, LOCAL), []
    for method in THEIRS:
        theirs = figures(results, method)
        lines.append(
            f"- **{method}**: {theirs['finite']:.0f}% of the intervals are finite ({ours['finite']:.0f}% with "
            f"LVD); tail coverage {theirs['TCR']:.1f}% ({ours['TCR']:.1f}%); worst slab "
            f"{theirs['worst_slab']:.1f}% ({ours['worst_slab']:.1f}%).\n"
        )
    return "".join(lines) + "\n"


def figures(results: Sequence[Result], method: str) -> dict[str, float]:
    """Means over the datasets at the higher level, in percent."""
    cells = [select(results, name, method, LEVELS[-1]) for name in datasets_of(results)]
    return {name: 100.0 * fmean(known_mean(cell, name) for cell in cells) for name in RATES}


def infinity_table(results: Sequence[Result], level: float) -> str:
    """Finite share, widths and coverage of every choice on every dataset."""
    rows = []
    for dataset, method in product(datasets_of(results), INFINITY):
        if cell := select(results, dataset, method, level):
            finite, width = percent(cell, "finite"), median_width(results, dataset, method, level)
            rates = [percent(cell, name) for name in ("MCR", "TCR")]
            rows.append([dataset_title(dataset), method, finite, width, *rates])
    return table(f"Level {level:.0%}", ("dataset", "choice", "finite", "median", "MCR", "TCR"), rows)


def comparison_table(results: Sequence[Result], dataset: str) -> str:
    """All methods on one dataset at the higher level."""
    rows = []
    for method in COMPARED:
        if cell := select(results, dataset, method, LEVELS[-1]):
            rates = [percent(cell, name) for name in RATES]
            width = median_width(results, dataset, method, LEVELS[-1])
            rows.append([method, *rates, width, f"{fmean(r.seconds for r in cell):.2f}", str(cell[0].n_test)])
    headings = ("method", "MCR", "TCR", "worst slab", "finite", "median", "seconds", "rows")
    return table(f"{dataset_title(dataset)}, level {LEVELS[-1]:.0%}", headings, rows)


def overview(results: Sequence[Result]) -> str:
    """Means over the datasets, and the number of datasets on which a method beats plain LVD."""
    datasets = datasets_of(results)

    def slab_gap(dataset: str, method: str) -> float:
        return abs(known_mean(select(results, dataset, method, LEVELS[-1]), "worst_slab") - LEVELS[-1])

    rows = []
    for method in COMPARED:
        if all(select(results, dataset, method, LEVELS[-1]) for dataset in datasets):
            means = [f"{value:.1f}" for value in figures(results, method).values()]
            n_closer = sum(slab_gap(dataset, method) < slab_gap(dataset, LOCAL) for dataset in datasets)
            rows.append([method, *means, "" if method == LOCAL else f"{n_closer} of {len(datasets)}"])
    return table(
        f"Means over the {len(datasets)} datasets, level {LEVELS[-1]:.0%}",
        ("method", "MCR", "TCR", "worst slab", "finite", "worst slab closer to the level than LVD's"),
        rows,
    )


def datasets_of(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(result.dataset for result in results))


def select(results: Sequence[Result], dataset: str, method: str, level: float) -> list[Result]:
    return [r for r in results if (r.dataset, r.method, r.level) == (dataset, method, level)]


def median_width(results: Sequence[Result], dataset: str, method: str, level: float) -> str:
    """The median over the seeds of the median width relative to split conformal's."""
    ratio = float(np.median([r.median_width for r in select(results, dataset, method, level)]))
    return f"{ratio:.2f}" if np.isfinite(ratio) else "\N{INFINITY}"


def percent(cell: list[Result], name: str) -> str:
    return f"{100 * known_mean(cell, name):.1f}"


def known_mean(cell: list[Result], name: str) -> float:
    """The mean over the seeds with a figure: in a small test part the worst slab may contain no row."""
    return fmean(value for r in cell if np.isfinite(value := getattr(r, name)))


def table(title: str, headings: tuple[str, ...], rows: list[list[str]]) -> str:
    return f"### {title}\n\n{pipe_table([headings, ['---'] * len(headings), *rows])}\n"
