"""Whole public calls against plain torch, in one process and run: ``python -m benchmarks.speed --out FILE.csv``.

``--device cuda`` measures on a GPU instead. ``--page`` measures nothing and writes docs/speed.md from existing
files: the two of this command, and those of benchmarks.gpu, gpu_training and molecule_overhead, in any order.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.speed import calls, company, on_gpu, training
from benchmarks.speed.cases import threads
from benchmarks.speed.figures import Figure, Recorder, this_setting
from lvd import InputError

PAGE = Path(__file__).parents[2] / "docs" / "speed.md"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--out", type=Path, help="csv file for the figures, written as they are measured")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="on the CPU also one thread is measured")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument(
        "--page", type=Path, nargs="+", metavar="FILE", help="write the page from these files"
    )
    parser.add_argument("--to", type=Path, default=PAGE, help="the page, default: docs/speed.md")
    return parser.parse_args(arguments)


def measure_cpu(record: Recorder, count: int, *, quick: bool) -> None:
    sizes = calls.QUICK if quick else calls.SIZES
    calls.radii(record, sizes, sorted({1, count}))
    with threads(count):
        calls.guarantees(record, sizes)
        company.in_company(record, *sizes.company, sizes.seconds)
        training.one_step(record, sizes.training[0], sizes.seconds)
        company.first_use(record, "cpu")
        for n_rows in sizes.training:
            training.whole_fit(record, n_rows)
        calls.regressors(record, sizes)


def measure_gpu(record: Recorder, device: str, *, quick: bool) -> None:
    sizes = on_gpu.GPU_QUICK if quick else on_gpu.GPU_SIZES
    on_gpu.radii(record, sizes, device)
    company.first_use(record, device)
    calls.regressors(record, calls.SIZES._replace(table=sizes.table, seconds=sizes.seconds), device)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    try:
        if options.page:
            from benchmarks.speed.page import write_page

            write_page(options.to, options.page)
            return
        check(options)
        start = time.perf_counter()
        record = Recorder(options.out, this_setting(options.device), tell)
        if options.device == "cuda":
            measure_gpu(record, "cuda", quick=options.quick)
        else:
            measure_cpu(record, options.threads, quick=options.quick)
        print(f"{len(record.figures)} figures in {time.perf_counter() - start:.0f} s: {options.out}")
    except InputError as error:
        print(f"benchmarks.speed: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def check(options: argparse.Namespace) -> None:
    if options.out is None:
        raise InputError("--out is missing: give the csv file to write")
    if not options.out.parent.is_dir():
        raise InputError(f"--out: there is no folder {options.out.parent}; make it first")
    if options.threads < 1:
        raise InputError(f"--threads must be at least 1, got {options.threads}")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch sees no GPU here; leave it out")


def tell(figure: Figure) -> None:
    size = f"{figure.queries:,} x {figure.rows:,} {figure.case}, {figure.threads} threads"
    print(f"{figure.section}: {size}, {figure.who}: {figure.measure} {figure.value:.4g}", flush=True)


if __name__ == "__main__":
    main()
