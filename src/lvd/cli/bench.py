"""``lvd bench``: the paper's experiments."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lvd.cli import console
from lvd.cli.console import argument, option

bench = typer.Typer(
    name="bench",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="The paper's experiments: run them, and see their tables and figures.",
)


Format = StrEnum("Format", ["terminal", "markdown", "latex", "csv"])
RunEngine = StrEnum("RunEngine", ["local", "ray"])


Results = Annotated[
    Path,
    argument(
        "RESULTS",
        "The folder that lvd bench run wrote, the table that lvd bench collect made of it, or a folder of such "
        "tables.",
    ),
]
OutFolder = Annotated[Path, option("RESULTS", "Folder for the results.")]
Page = Annotated[Path, option("FILE", "The Markdown file to write.")]
Protocol = Annotated[
    str | None, option("paper|sound", "Which results to show.", "the only one in the results")
]
OneProtocol = Annotated[str, option("paper|sound", "Which protocol's runs to show.", True)]
Seeds = Annotated[str, option("SEEDS", "0:10 for 0 to 9, or seeds separated by commas.", True)]
Levels = Annotated[str, option("LEVELS", "Confidence levels separated by commas.", True)]
Workers = Annotated[int, option("N", "How many splits to work on at the same time.", True)]
DataDir = Annotated[
    Path | None, option("FOLDER", "Folder with the datasets.", "that of the variable LVD_DATA")
]
CompactTable = Annotated[
    Path | None,
    option("FILE", "Also write all results to this .csv file, and how they were made to a .json beside it."),
]


@bench.command(
    "run",
    epilog=console.examples(
        "lvd bench run --protocol paper --workers 2 --out RESULTS",
        "lvd bench run --datasets yacht,concrete --methods LVD-NN-smooth-base,split --seeds 0:3 --out RESULTS",
    ),
)
def run_experiments(
    out: OutFolder,
    *,
    protocol: Annotated[
        str, option("paper|sound", "As the printed numbers were made, or as we recommend.", True)
    ] = "paper",
    datasets: Annotated[
        str,
        option(
            "NAMES",
            "Names separated by commas; qm8 and qm9 mean all their tasks, 'qm9(mu)' one; all: six small ones.",
            True,
        ),
    ] = "all",
    methods: Annotated[
        str, option("NAMES", "Names separated by commas; all: every method for the dataset.", True)
    ] = "all",
    seeds: Seeds = "0:10",
    levels: Levels = "0.5,0.9",
    workers: Workers = 1,
    engine: Annotated[
        RunEngine, typer.Option(help="Processes of this machine, or a Ray cluster (extra ray).")
    ] = RunEngine.local,
    data_dir: DataDir = None,
) -> None:
    """Run experiments; finished runs are skipped, so the command can be stopped and restarted at any time.

    A run is one method on one split of one dataset. A run that fails is recorded with its error, does not stop
    the others, and is tried again next time.
    """
    from lvd.reproduction.result_store import recorded_call
    from lvd.reproduction.runner import execute, failures, plan, unfinished
    from lvd.reproduction.runs import SMALL_DATASETS, parse_levels, parse_names, parse_seeds

    runs = plan(
        protocol=protocol,
        datasets=SMALL_DATASETS if datasets == "all" else parse_names(datasets),
        methods=None if methods == "all" else parse_names(methods),
        seeds=parse_seeds(seeds),
        levels=parse_levels(levels),
    )
    todo = unfinished(runs, out)
    command = (
        f"lvd bench run --protocol {protocol} --datasets {datasets} --methods {methods} --seeds {seeds} "
        f"--levels {levels} --workers {workers} --engine {engine} --out RESULTS"
    )
    with recorded_call(out, command) as count:
        execute(todo, out, workers=workers, engine=engine, data_dir=data_dir, progress=console.progress)
        count(len(todo))
    failed = failures(runs, out)
    console.show(
        f"{len(runs)} runs: {len(runs) - len(todo)} were finished before, {len(todo) - len(failed)} done now, "
        f"{len(failed)} failed"
    )
    _show_failures(
        ["dataset", "method", "error", "seeds"], ((r.dataset, r.method, error) for r, error in failed)
    )


@bench.command("collect", epilog=console.examples("lvd bench collect RESULTS --out results/small_paper.csv"))
def collect_metrics(
    results: Annotated[list[Path], argument("RESULTS...", "Folders that lvd bench run wrote.")],
    *,
    out: Annotated[Path, option("FILE", "The .csv file to write.")],
    workers: Workers = 1,
) -> None:
    """Make a compact table of the metrics of every run; commands and versions go into a .json beside it."""
    from lvd.reproduction.collect import collect_folder, write_csv
    from lvd.reproduction.result_store import read_calls, write_calls

    for file in (out, out.with_suffix(".json")):
        _check_apart(file, *results)
    rows = [row for folder in results for row in collect_folder(folder, workers=workers)]
    out.parent.mkdir(parents=True, exist_ok=True)
    write_csv(rows, out)
    write_calls([call for folder in results for call in read_calls(folder)], out.with_suffix(".json"))
    console.show(f"{out}: the metrics of {len(rows)} runs and levels")


@bench.command(
    epilog=console.examples(
        "lvd bench groups RESULTS --out results/qm9_groups.csv", "lvd bench groups results/qm9_groups.csv"
    )
)
def groups(
    results: Results,
    *,
    out: Annotated[Path | None, option("FILE", "Write the counts to this .csv file instead.")] = None,
    protocol: OneProtocol = "paper",
    workers: Workers = 1,
    data_dir: DataDir = None,
) -> None:
    """Show the coverage of molecules within functional groups, from a folder of results or from counts of it."""
    from lvd.reproduction import load
    from lvd.reproduction.formats import to_terminal
    from lvd.reproduction.functional_groups import count_groups, group_grids, read_counts, write_counts
    from lvd.reproduction.runs import TASK_TABLES

    if out is not None:
        _check_apart(out, results)
    if results.is_dir():
        counts = count_groups(results, lambda name: load(name, data_dir=data_dir), workers=workers)
    else:
        counts = read_counts(results)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_counts(counts, out)
        console.show(f"{out}: {len(counts)} counts")
        return
    for table in TASK_TABLES:
        console.show_parts(to_terminal(group_grids(counts, protocol, table)))


@bench.command(
    epilog=console.examples(
        "lvd bench tables RESULTS",
        "lvd bench tables results/small_paper.csv --compare",
        "lvd bench tables RESULTS --format latex > tables.tex",
        "lvd bench tables RESULTS --protocol paper --csv -",
    )
)
def tables(
    results: Results,
    *,
    protocol: Protocol = None,
    format: Annotated[Format, typer.Option(help="How to print the tables.")] = Format.terminal,
    csv: Annotated[
        str | None, option("FILE", "Write the cells, one a line, to this file; - prints them.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Put every cell beside the one printed in the paper, and count.")
    ] = False,
    out: Annotated[
        Path | None, option("FOLDER", "Write tables.md, tables.tex and cells.csv there instead.")
    ] = None,
) -> None:
    """Show the paper's tables, made from results."""
    from lvd._files import write_text
    from lvd.reproduction.collect import read_results
    from lvd.reproduction.pages import FILES, TablesReport

    written = [] if out is None else [out / name for name in FILES]
    for file in written if csv is None else [Path(csv), *written]:
        _check_apart(file, results)
    report = TablesReport(read_results(results), protocol, compare_with_paper=compare)
    if csv not in (None, "-"):
        write_text(Path(csv), report.text("csv"))
    elif csv is None and out is not None:
        for file in report.write_folder(out):
            console.show(str(file))
    elif csv is None and format is Format.terminal:
        console.show_parts(report.terminal())
    else:
        sys.stdout.write(report.text("csv" if csv else format))


@bench.command(
    epilog=console.examples(
        "lvd bench figures RESULTS --out figures", "lvd bench figures results --protocol sound --out figures"
    )
)
def figures(
    results: Results,
    *,
    out: Annotated[Path, option("FOLDER", "Folder for the figures.")],
    protocol: Protocol = None,
) -> None:
    """Draw the figures: from results where possible; those on the synthetic data train their methods first."""
    from lvd.reproduction.bench_figures import FIGURES, NEED_INTERVALS, draw_figure, read_source

    source = read_source(results).of_protocol(protocol)
    out.mkdir(parents=True, exist_ok=True)
    for name in FIGURES:
        if source.results is None and name in NEED_INTERVALS:
            console.complain(
                "warning",
                f"{name} is not drawn: it needs the interval of every row, which tables do not hold; "
                "give the folder that lvd bench run wrote",
            )
            continue
        with console.working(f"drawing {name}"):
            path = draw_figure(name, source, out)
        console.show(str(path))


@bench.command(
    "compare",
    epilog=console.examples(
        "lvd bench compare results results/rerun",
        "lvd bench compare results/small_paper.csv RESULTS --protocol paper",
    ),
)
def compare_runs(
    first: Results,
    second: Annotated[Path, argument("OTHER", "Results of the same runs, done again.")],
    *,
    protocol: OneProtocol = "paper",
) -> None:
    """Show how much two sets of results of the same runs differ, for example those of two processors."""
    from lvd.reproduction.collect import read_results
    from lvd.reproduction.formats import to_terminal
    from lvd.reproduction.rerun import pair_runs, rerun_grid

    pairs = pair_runs(read_results(first), read_results(second), protocol)
    console.show_parts(to_terminal([rerun_grid(pairs, protocol)]))


@bench.command(
    epilog=console.examples(
        "lvd bench page results/small_paper.csv results/small_sound.csv --rerun results/rerun --out page.md",
        "lvd bench page --molecules results/qm8.csv results/qm9.csv --groups results/qm9_groups.csv --out page.md",
    )
)
def page(
    results: Annotated[
        list[Path], argument("RESULTS...", "Folders of results, or compact tables made of them.")
    ],
    *,
    out: Page,
    notes: Annotated[
        Path | None, option("FILE", "Notes on single cells: a TOML file with [[note]] entries.")
    ] = None,
    groups: Annotated[Path | None, option("FILE", "Counts that lvd bench groups wrote.")] = None,
    study: Annotated[Path | None, option("FILE", "The table that lvd bench molecules wrote.")] = None,
    questions: Annotated[
        Path | None, option("FILE", "Answers of benchmarks.molecule_questions on printed figures.")
    ] = None,
    rerun: Annotated[
        Path | None, option("RESULTS", "The same runs on another machine: the page shows what differs.")
    ] = None,
    molecules: Annotated[
        bool, typer.Option("--molecules", help="The page on molecules instead of that on the small tables.")
    ] = False,
) -> None:
    """Write the page on the reproduction: all tables, how they agree with the paper, and how they were made."""
    from lvd._validation import InputError
    from lvd.reproduction.pages import write_small_page
    from lvd.reproduction.quantum_page import write_quantum_page

    for name, given in (("--groups", groups), ("--study", study), ("--questions", questions)):
        if given is not None and not molecules:
            raise InputError(f"{name} is for the page on molecules; add --molecules, or leave {name} out")
    if rerun is not None and molecules:
        raise InputError("--rerun is for the page on the small tables; leave --molecules or --rerun out")
    _check_apart(out, *results, notes, groups, study, questions, rerun)
    if molecules:
        write_quantum_page(results, out, groups=groups, notes=notes, study=study, questions=questions)
    else:
        write_small_page(results, out, notes=notes, rerun=rerun)
    console.show(str(out))


@bench.command(
    "molecules",
    epilog=console.examples(
        "lvd bench molecules --tables qm8 --seeds 0:3 --workers 8 --out RESULTS",
        "lvd bench molecules --tables qm9 --splits scaffold --csv results/molecules.csv --out RESULTS",
    ),
)
def study_molecules(
    out: OutFolder,
    *,
    tables: Annotated[str, option("NAMES", "qm8, qm9, or single tasks such as 'qm9(mu)'.", True)] = "qm8,qm9",
    splits: Annotated[str, option("NAMES", "random, scaffold, or both.", True)] = "random,scaffold",
    methods: Annotated[
        str, option("NAMES", "Names separated by commas; all: those of the page.", True)
    ] = "all",
    seeds: Seeds = "0:1",
    workers: Workers = 1,
    data_dir: DataDir = None,
    csv: CompactTable = None,
) -> None:
    """Compare intervals on molecules, of known scaffolds and of new ones; it can be stopped and restarted.

    One network for all tasks of a table, trained once for each split, and once more without each of five folds:
    LVD, as it is by default, and MADSplit learn from errors out of fold.
    """
    from lvd.reproduction.molecule_study import STUDY_METHODS, plan_study, read_study, run_study, write_study
    from lvd.reproduction.result_store import read_calls, recorded_call
    from lvd.reproduction.runs import parse_names, parse_seeds

    if csv is not None:
        for file in (csv, csv.with_suffix(".json")):
            _check_apart(file, out)
    runs = plan_study(
        tables=parse_names(tables),
        splits=parse_names(splits),
        methods=STUDY_METHODS if methods == "all" else parse_names(methods),
        seeds=parse_seeds(seeds),
    )
    command = (
        f"lvd bench molecules --tables {tables} --splits {splits} --methods {methods} --seeds {seeds} "
        f"--workers {workers} --out RESULTS"
    )
    with recorded_call(out, command) as count:
        done = run_study(runs, out, workers=workers, data_dir=data_dir, progress=console.progress)
        count(done)
    results = read_study(out)
    failed = [(one.dataset, one.method, one.error) for one in results if one.error]
    console.show(f"{len(results)} results, {done} of them done now; {len(failed)} failed")
    _show_failures(["dataset", "method", "error", "results"], failed)
    if csv is not None:
        _write_compact(csv, write_study, results, read_calls(out))
        console.show(str(csv))


@bench.command(
    "arena",
    epilog=console.examples(
        "lvd bench arena --workers 16 --out RESULTS",
        "lvd bench arena --tables yacht,corner --methods split,ten-lines,lvd --seeds 0:2 --out RESULTS",
    ),
)
def run_arena_contest(
    out: OutFolder,
    *,
    tables: Annotated[
        str,
        option(
            "NAMES",
            "Names separated by commas; all: the paper's six, twelve more, two made up, four on rows from outside.",
            True,
        ),
    ] = "all",
    models: Annotated[str, option("NAMES", "network, trees, or all.", True)] = "all",
    methods: Annotated[
        str, option("NAMES", "Names separated by commas; all: every method for the model.", True)
    ] = "all",
    seeds: Seeds = "0:10",
    levels: Levels = "0.5,0.9,0.95",
    workers: Workers = 1,
    data_dir: DataDir = None,
    known: Annotated[
        Path | None,
        option(
            "FILE", "A compact table of results, such as results/arena.csv: what it has is not done again."
        ),
    ] = None,
) -> None:
    """Compare the intervals of many methods on many tables; it can be stopped and restarted at any time.

    A method that cannot run is recorded with its reason, and tried again next time.
    """
    from lvd.reproduction.arena import plan_arena, read_arena, run_arena, unpack_arena
    from lvd.reproduction.arena_methods import CONTESTANTS
    from lvd.reproduction.arena_split import ARENA_MODELS
    from lvd.reproduction.arena_tables import ARENA_TABLES, OUTSIDE
    from lvd.reproduction.result_store import recorded_call
    from lvd.reproduction.runs import parse_levels, parse_names, parse_seeds

    jobs = plan_arena(
        tables=(*ARENA_TABLES, *OUTSIDE) if tables == "all" else parse_names(tables),
        models=ARENA_MODELS if models == "all" else parse_names(models),
        methods=tuple(CONTESTANTS) if methods == "all" else parse_names(methods),
        seeds=parse_seeds(seeds),
        levels=parse_levels(levels),
        data_dir=data_dir,
    )
    command = (
        f"lvd bench arena --tables {tables} --models {models} --methods {methods} --seeds {seeds} "
        f"--levels {levels} --workers {workers} --out RESULTS"
    )
    if known is not None:
        unpack_arena(known, out)
    with recorded_call(out, command) as count:
        done = run_arena(jobs, out, workers=workers, data_dir=data_dir, progress=console.progress)
        count(done)
    results = read_arena(out)
    failed = [(one.table, one.method, one.error) for one in results if one.error]
    console.show(f"{len(results)} results, {done} of them done now; {len(failed)} failed")
    _show_failures(["table", "method", "error", "results"], failed)


@bench.command(
    "arena-page",
    epilog=console.examples(
        "lvd bench arena-page RESULTS --csv results/arena.csv --out docs/arena.md",
        "lvd bench arena-page results/arena.csv --out docs/arena.md",
    ),
)
def arena_page(
    results: Annotated[
        Path,
        argument("RESULTS", "The folder that lvd bench arena wrote, or the compact table made of it."),
    ],
    *,
    out: Page,
    csv: CompactTable = None,
) -> None:
    """Write the page on the arena: which methods give the best intervals, and where LVD loses."""
    from lvd.reproduction.arena import read_arena, write_arena
    from lvd.reproduction.arena_page import write_arena_page
    from lvd.reproduction.result_store import read_calls

    for file in (out,) if csv is None else (out, csv, csv.with_suffix(".json")):
        _check_apart(file, results)
    rows, calls = read_arena(results), read_calls(results)
    if csv is not None:
        _write_compact(csv, write_arena, rows, calls)
        console.show(f"{csv}: {len(rows)} results")
    for path in write_arena_page(rows, calls, out):
        console.show(str(path))


def _check_apart(out: Path, *results: Path | None) -> None:
    """The file to be written is none of those that are read; beside them, in a folder of results, it may be."""
    from lvd._files import check_apart
    from lvd.reproduction.collect import compact_tables

    for given in results:
        if given is not None:
            check_apart(out, given / "runs", given / "calls", *compact_tables(given))


def _write_compact(csv: Path, write: Callable[[Any, Path], None], results: Any, calls: Any) -> None:
    """All results as one table, and how they were made beside it."""
    from lvd.reproduction.result_store import write_calls

    csv.parent.mkdir(parents=True, exist_ok=True)
    write(results, csv)
    write_calls(calls, csv.with_suffix(".json"))


def _show_failures(headings: list[str], failed: Iterable[tuple[str, str, str]]) -> None:
    """Where something failed, with which error, and how often."""
    counts = Counter((*where, " ".join(error.split())) for *where, error in failed)
    if counts:
        rows = [[*where, str(count)] for where, count in counts.items()]
        console.show_table(headings, rows, text_columns=3)
