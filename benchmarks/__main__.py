"""lvd compared with similar methods and packages, and with the floor of this machine: ``python -m benchmarks``.

Prints one table: time, rows per second, peak memory, and how time grows with calibration rows and with queries.
``--page FILE.csv ...`` writes docs/benchmarks.md and its plots from files written by ``--out``.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.contestants import CONTESTANTS
from benchmarks.results import Cell, read_cells, this_environment, write_cells
from benchmarks.sweeps import plan, run
from benchmarks.table import table_of
from lvd import InputError

DOCS = Path(__file__).parents[1] / "docs"
LEAST_WIDTH = 140
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LOKY_MAX_CPU_COUNT")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the cells to this csv file")
    parser.add_argument("--quick", action="store_true", help="small sizes, half a minute")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: as torch does")
    parser.add_argument("--only", default=",".join(CONTESTANTS), help="default: %(default)s")
    parser.add_argument("--limit", type=float, help="no cell that takes longer than so many seconds")
    parser.add_argument(
        "--stop-after", type=float, default=math.inf, help="begin no cell after so many seconds"
    )
    parser.add_argument(
        "--page", type=Path, nargs="+", help="measure nothing, write the page from these files"
    )
    parser.add_argument(
        "--docs", type=Path, default=DOCS, help="folder of the page, default: the repository's"
    )
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace, console: Console) -> list[Cell]:
    names = list(dict.fromkeys(name.strip() for name in options.only.split(",")))
    for name in names:
        if name not in CONTESTANTS:
            raise InputError(f"--only names no contestant {name!r}; choose among {', '.join(CONTESTANTS)}")
    if options.threads < 1:
        raise InputError(f"--threads must be at least 1, got {options.threads}")
    if options.limit is not None and not options.limit > 0.0:
        raise InputError(f"--limit must be above 0 seconds, got {options.limit:g}")
    if options.out and not options.out.parent.is_dir():
        raise InputError(f"--out: there is no folder {options.out.parent}; make it first")
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(options.threads)))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    chosen = plan(device, quick=options.quick, limit=options.limit)
    cells: list[Cell] = []
    with console.status("starting") as status:
        for cell in run(names, chosen, this_environment(options.threads), options.stop_after):
            cells.append(cell)
            status.update(f"{CONTESTANTS[cell.contestant].title}: {cell.queries:,} x {cell.rows:,} done")
            if options.out:
                write_cells(options.out, cells)
    return cells


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    console = Console()
    console.width = max(console.width, LEAST_WIDTH)
    try:
        if options.page:
            from benchmarks.page import write_page

            write_page(options.docs, {path.stem: read_cells(path) for path in options.page})
        else:
            console.print(table_of(measure(options, console)))
    except InputError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
