"""``python -m experiments``: run the experiments, and see their tables, figures and pages."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lvd.cli import console
from lvd.cli.console import argument, option

if TYPE_CHECKING:
    from experiments.paper.result_store import Call, ResultTable

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The paper's experiments: run them, and see their tables and figures.",
)


def _experiment(name: str, *examples: str) -> Callable[[Callable[..., None]], object]:
    """A command, with the options of some examples for its help."""
    commands = (f"python -m experiments {name} {words}" for words in examples)
    return app.command(name, epilog=console.examples(*commands))


def _results_of(command: str) -> Any:
    return argument(
        "RESULTS", f"The folder that the command {command} wrote, or the compact table made of it."
    )


Format = StrEnum("Format", ["terminal", "markdown", "latex", "csv"])
RunEngine = StrEnum("RunEngine", ["local", "ray"])

ResultsPath = Annotated[
    Path,
    argument(
        "RESULTS",
        "The folder that the command run wrote, the table that collect made of it, or a folder of such tables.",
    ),
]
OutFolder = Annotated[Path, option("RESULTS", "Folder for the results.")]
Page = Annotated[Path, option("FILE", "The Markdown file to write.")]
AnyProtocol = Annotated[
    str | None, option("paper|sound", "Which results to show.", "the only one in the results")
]
OneProtocol = Annotated[str, option("paper|sound", "Which protocol's runs to show.", True)]
Methods = Annotated[str, option("NAMES", "Names separated by commas; all: every method that fits.", True)]
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
Notes = Annotated[Path | None, option("FILE", "Notes on single cells: a TOML file with [[note]] entries.")]
Groups = Annotated[Path | None, option("FILE", "Counts that the command groups wrote.")]
Study = Annotated[Path | None, option("FILE", "The table that the command molecules wrote.")]
Questions = Annotated[
    Path | None, option("FILE", "Answers of benchmarks.molecule_questions on printed figures.")
]
Rerun = Annotated[
    Path | None, option("RESULTS", "The same runs on another machine: the page shows what differs.")
]


@_experiment(
    "run",
    "--protocol paper --workers 2 --out RESULTS",
    "--datasets yacht,concrete --methods LVD-NN-smooth-base,split --seeds 0:3 --out RESULTS",
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
    methods: Methods = "all",
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
    from experiments.paper.result_store import recorded_call
    from experiments.paper.runner import execute, failures, plan, unfinished
    from experiments.paper.runs import SMALL_DATASETS, parse_levels, parse_names, parse_seeds

    runs = plan(
        protocol=protocol,
        datasets=parse_names(datasets, SMALL_DATASETS),
        methods=None if methods == "all" else parse_names(methods),
        seeds=parse_seeds(seeds),
        levels=parse_levels(levels),
    )
    todo = unfinished(runs, out)
    chosen = {"datasets": datasets, "methods": methods, "seeds": seeds, "levels": levels}
    command = _command("run", protocol=protocol, **chosen, workers=workers, engine=engine)
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


@_experiment(
    "collect",
    "RESULTS --out results/small_paper.csv",
)
def collect_metrics(
    results: Annotated[list[Path], argument("RESULTS...", "Folders that the command run wrote.")],
    *,
    out: Annotated[Path, option("FILE", "The .csv file to write.")],
    workers: Workers = 1,
) -> None:
    """Make a compact table of the metrics of every run; commands and versions go into a .json beside it."""
    from experiments.paper.collect import METRICS, collect_folder
    from experiments.paper.result_store import read_calls

    _check_apart(_with_record("--out", out), *results)
    rows = [row for folder in results for row in collect_folder(folder, workers=workers)]
    calls = [call for folder in results for call in read_calls(folder)]
    _write_compact(out, METRICS, rows, calls)
    console.show(f"{out}: the metrics of {len(rows)} runs and levels")


@_experiment(
    "groups",
    "RESULTS --out results/qm9_groups.csv",
    "results/qm9_groups.csv",
)
def show_groups(
    results: ResultsPath,
    *,
    out: Annotated[Path | None, option("FILE", "Write the counts to this .csv file instead.")] = None,
    protocol: OneProtocol = "paper",
    workers: Workers = 1,
    data_dir: DataDir = None,
) -> None:
    """Show the coverage of molecules within functional groups, from a folder of results or from counts of it."""
    from experiments.molecules.group_counts import COUNTS, count_groups, group_grids
    from experiments.paper.formats import to_terminal
    from experiments.paper.runs import TASK_TABLES
    from lvd.data import load_dataset

    _check_apart({"--out": out}, results)
    if results.is_dir():
        counts = count_groups(results, lambda name: load_dataset(name, data_dir=data_dir), workers=workers)
    else:
        counts = COUNTS.read_file(results)
    if out is None:
        for table in TASK_TABLES:
            console.show_parts(to_terminal(group_grids(counts, protocol, table)))
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        COUNTS.write(counts, out)
        console.show(f"{out}: {len(counts)} counts")


@_experiment(
    "tables",
    "RESULTS",
    "results/small_paper.csv --compare",
    "RESULTS --format latex > tables.tex",
    "RESULTS --protocol paper --csv -",
)
def show_tables(
    results: ResultsPath,
    *,
    protocol: AnyProtocol = None,
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
    from experiments.paper.collect import read_results
    from experiments.paper.formats import to_terminal
    from experiments.paper.pages import FILES, tables_report
    from lvd._files import write_text

    written = [] if out is None else [out / name for name in FILES]
    _check_apart(
        {"--csv": None if csv in (None, "-") else Path(csv)} | {str(file): file for file in written}, results
    )
    grids, texts = tables_report(read_results(results), protocol, compare_with_paper=compare)
    if csv not in (None, "-"):
        write_text(Path(csv), texts["csv"])
    elif csv is None and out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for file in written:
            if FILES[file.name] in texts:
                write_text(file, texts[FILES[file.name]])
                console.show(str(file))
    elif csv is None and format is Format.terminal:
        console.show_parts(to_terminal(grids))
    else:
        sys.stdout.write(texts["csv" if csv else format])


@_experiment(
    "figures",
    "RESULTS --out figures",
    "results --protocol sound --out figures",
)
def draw_figures(
    results: ResultsPath,
    *,
    out: Annotated[Path, option("FOLDER", "Folder for the figures.")],
    protocol: AnyProtocol = None,
) -> None:
    """Draw the figures: from results where possible; those on the synthetic data train their methods first."""
    from experiments.paper.figures import FIGURES, NEED_INTERVALS, read_source
    from lvd.demo.figures import save_figure

    _check_apart({str(file): file for file in (out / f"{name}.png" for name in FIGURES)}, results)
    rows, intervals = read_source(results, protocol)
    out.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        if intervals is None and name in NEED_INTERVALS:
            console.complain(
                "warning",
                f"{name} is not drawn: it needs the interval of every row, which tables do not hold; "
                "give the folder that the command run wrote",
            )
            continue
        with console.working(f"drawing {name}"):
            save_figure(draw(rows, intervals or ()), out / f"{name}.png")
        console.show(str(out / f"{name}.png"))


@_experiment(
    "compare",
    "results results/rerun",
    "results/small_paper.csv RESULTS --protocol paper",
)
def compare_runs(
    first: ResultsPath,
    second: Annotated[Path, argument("OTHER", "Results of the same runs, done again.")],
    *,
    protocol: OneProtocol = "paper",
) -> None:
    """Show how much two sets of results of the same runs differ, for example those of two processors."""
    from experiments.paper.collect import read_results
    from experiments.paper.formats import to_terminal
    from experiments.paper.rerun import pair_runs, rerun_grid

    pairs = pair_runs(read_results(first), read_results(second), protocol)
    console.show_parts(to_terminal([rerun_grid(pairs, protocol)]))


@_experiment(
    "page",
    "results/small_paper.csv results/small_sound.csv --rerun results/rerun --out page.md",
    "--molecules results/qm8.csv results/qm9.csv --groups results/qm9_groups.csv --out page.md",
)
def write_page(
    results: Annotated[
        list[Path], argument("RESULTS...", "Folders of results, or compact tables made of them.")
    ],
    *,
    out: Page,
    notes: Notes = None,
    groups: Groups = None,
    study: Study = None,
    questions: Questions = None,
    rerun: Rerun = None,
    molecules: Annotated[
        bool, typer.Option("--molecules", help="The page on molecules instead of that on the small tables.")
    ] = False,
) -> None:
    """Write the page on the reproduction: all tables, how they agree with the paper, and how they were made."""
    from experiments.molecules.quantum_page import write_quantum_page
    from experiments.paper.pages import write_small_page
    from lvd import InputError

    on_molecules = {"groups": groups, "study": study, "questions": questions}
    for name, given in on_molecules.items():
        if given is not None and not molecules:
            raise InputError(f"--{name} is for the page on molecules; add --molecules, or leave --{name} out")
    if rerun is not None and molecules:
        raise InputError("--rerun is for the page on the small tables; leave --molecules or --rerun out")
    _check_apart({"--out": out}, *results, notes, *on_molecules.values(), rerun)
    if molecules:
        write_quantum_page(results, out, notes=notes, **on_molecules)
    else:
        write_small_page(results, out, notes=notes, rerun=rerun)
    console.show(str(out))


@_experiment(
    "molecules",
    "--tables qm8 --seeds 0:3 --workers 8 --out RESULTS",
    "--tables qm9 --splits scaffold --csv results/molecules.csv --out RESULTS",
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

    Networks are shared by all tasks of a table and trained once for each split: one of squared errors, and without
    each of five folds for MADSplit; one of quantiles for CQR; a deep ensemble; and the five of lvd's default, which
    LVD goes around, and, for comparison, split conformal (split-members) and CQR (CQR-members).
    """
    from experiments.molecules.study import STUDY_RESULTS, plan_study, run_study
    from experiments.paper.result_store import read_calls, recorded_call

    _check_apart(_with_record("--csv", csv), out)
    chosen = {"tables": tables, "splits": splits, "methods": methods, "seeds": seeds}
    runs = plan_study(**chosen)
    with recorded_call(out, _command("molecules", **chosen, workers=workers)) as count:
        done = run_study(runs, out, workers=workers, data_dir=data_dir, progress=console.progress)
        count(done)
    results = STUDY_RESULTS.read(out)
    _show_outcome(results, done, "dataset")
    if csv is not None:
        _write_compact(csv, STUDY_RESULTS, results, read_calls(out))
        console.show(str(csv))


@_experiment(
    "arena",
    "--workers 16 --out RESULTS",
    "--tables yacht,corner --methods split,ten-lines,lvd --seeds 0:2 --out RESULTS",
)
def run_arena_contest(
    out: OutFolder,
    *,
    tables: Annotated[
        str,
        option(
            "NAMES",
            "Names separated by commas; all: the paper's six, twelve more, two made up, four on rows from outside; "
            "unseen: ten of Python packages that nothing was chosen on.",
            True,
        ),
    ] = "all",
    models: Annotated[str, option("NAMES", "network, trees, or all.", True)] = "all",
    methods: Methods = "all",
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
    from experiments.arena.contest import ARENA_RESULTS, plan_arena, run_arena, unpack_arena
    from experiments.paper.result_store import recorded_call

    chosen = {"tables": tables, "models": models, "methods": methods, "seeds": seeds, "levels": levels}
    jobs = plan_arena(**chosen, data_dir=data_dir)
    if known is not None:
        unpack_arena(known, out)
    with recorded_call(out, _command("arena", **chosen, workers=workers)) as count:
        done = run_arena(jobs, out, workers=workers, data_dir=data_dir, progress=console.progress)
        count(done)
    _show_outcome(ARENA_RESULTS.read(out), done, "table")


@_experiment(
    "arena-page",
    "RESULTS --csv results/arena.csv --out docs/arena.md",
    "results/arena.csv --costs results/arena_costs.csv --out docs/arena.md",
)
def write_page_on_arena(
    results: Annotated[Path, _results_of("arena")],
    *,
    out: Page,
    csv: CompactTable = None,
    costs: Annotated[
        Path | None,
        option("FILE", "What `python -m benchmarks.arena` wrote, such as results/arena_costs.csv."),
    ] = None,
) -> None:
    """Write the page on the arena: which methods give the best intervals, and where LVD loses."""
    from experiments.arena.contest import ARENA_RESULTS
    from experiments.arena.costs import COSTS
    from experiments.arena.page import write_arena_page

    found = _rows_and_calls(ARENA_RESULTS, results, out, csv)
    for path in write_arena_page(*found, out, COSTS.read_file(costs) if costs is not None else ()):
        console.show(str(path))


@_experiment(
    "small-samples",
    "--jobs 16 --out RESULTS",
    "--jobs 16 --draws 0:100 --csv results/small_samples.csv --out RESULTS",
)
def run_small_samples(
    out: OutFolder,
    *,
    samples: Annotated[str, option("NAMES", "noise-levels, skewed-errors, friedman, or all.", True)] = "all",
    models: Annotated[str, option("NAMES", "network, trees, or all.", True)] = "all",
    methods: Methods = "all",
    sizes: Annotated[
        str, option("SIZES", "Numbers of rows, 60, 120, 250 or 500, separated by commas.", True)
    ] = "all",
    draws: Annotated[
        str, option("DRAWS", "0:500 for 0 to 499, or numbers separated by commas.", True)
    ] = "0:500",
    jobs: Annotated[int, option("N", "How many processes to use.", True)] = 1,
    minutes: Annotated[
        float | None, option("MINUTES", "Begin no draw after so many minutes.", "until all are done")
    ] = None,
    csv: CompactTable = None,
) -> None:
    """Draw small samples many times, and see what is covered; it can be stopped and restarted at any time.

    Three generators, LVD with split and with cross calibration, split conformal prediction and CV+, beside
    one network or one model of boosted trees for each draw. All samples and sizes of ten draws come before the
    next ten, so that a run that is stopped is balanced.
    """
    from experiments.paper.result_store import read_calls, recorded_call
    from experiments.small.study import SMALL_RESULTS, count_small, plan_small, run_small

    _check_apart(_with_record("--csv", csv), out)
    chosen = {"samples": samples, "models": models, "methods": methods, "sizes": sizes, "draws": draws}
    todo = plan_small(**chosen)
    with recorded_call(out, _command("small-samples", **chosen, jobs=jobs)) as count:
        before = count_small(out)
        run_small(todo, out, workers=jobs, minutes=minutes, progress=console.progress)
        results = SMALL_RESULTS.read(out)
        done = len(results) - before
        count(done)
    _show_outcome(results, done, "sample")
    if csv is not None:
        _write_compact(csv, SMALL_RESULTS, results, read_calls(out))
        console.show(str(csv))


@_experiment(
    "small-samples-page",
    "RESULTS --csv results/small_samples.csv --out docs/small_samples.md",
    "results/small_samples.csv --out docs/small_samples.md",
)
def write_page_on_small_samples(
    results: Annotated[Path, _results_of("small-samples")],
    *,
    out: Page,
    csv: CompactTable = None,
) -> None:
    """Write the page on small samples: coverage on average and in the worst of five groups, and the score."""
    from experiments.small.page import write_small_page
    from experiments.small.study import SMALL_RESULTS

    write_small_page(*_rows_and_calls(SMALL_RESULTS, results, out, csv), out)
    console.show(str(out))


@_experiment(
    "over-time",
    "--out RESULTS",
    "--sequences sml,abrupt --methods lvd-online,split-dtaci --out RESULTS",
)
def run_contest_over_time(
    out: OutFolder,
    *,
    sequences: Annotated[
        str, option("NAMES", "turbine, bike, sml, abrupt, slow, separated by commas, or all.", True)
    ] = "all",
    methods: Methods = "all",
    data_dir: DataDir = None,
) -> None:
    """Compare intervals of rows that come one by one while the world changes; it can be stopped and restarted.

    A sequence whose table is not there is recorded with its reason, and tried again next time.
    """
    from experiments.over_time.contest import COURSE_RESULTS, run_contest
    from experiments.over_time.rivals import RIVALS
    from experiments.over_time.sequences import SEQUENCES
    from experiments.paper.result_store import recorded_call
    from experiments.paper.runs import parse_names

    chosen = parse_names(sequences, SEQUENCES), parse_names(methods, RIVALS)
    with recorded_call(out, _command("over-time", sequences=sequences, methods=methods)) as count:
        done = run_contest(*chosen, out, data_dir=data_dir, progress=console.progress)
        count(done)
    _show_outcome(COURSE_RESULTS.read(out), done, "sequence")


@_experiment(
    "over-time-page",
    "RESULTS --csv results/over_time.csv --out docs/over_time.md",
)
def write_page_over_time(
    results: Annotated[Path, _results_of("over-time")],
    *,
    out: Page,
    csv: CompactTable = None,
    speed: Annotated[
        Path | None, option("FILE", "Figures that python -m benchmarks.online --out wrote.", "none")
    ] = None,
) -> None:
    """Write the page on intervals over time."""
    from experiments.over_time.contest import COURSE_RESULTS
    from experiments.over_time.page import write_over_time_page

    write_over_time_page(*_rows_and_calls(COURSE_RESULTS, results, out, csv, speed), out, speed)
    console.show(str(out))


def _command(name: str, **words: object) -> str:
    """A command as it can be given again; paths of this machine are left out."""
    options = (f"--{option} {value}" for option, value in words.items())
    return " ".join([f"python -m experiments {name}", *options, "--out RESULTS"])


def _check_apart(written: Mapping[str, Path | None], *results: Path | None) -> None:
    """No file to be written is one of those that are read; beside them, in a folder of results, it may be."""
    from experiments.paper.collect import compact_tables
    from lvd.cli.console import check_apart

    given = [one for one in results if one is not None]
    check_apart(
        written, *(read for one in given for read in (one / "runs", one / "calls", *compact_tables(one)))
    )


def _with_record(option: str, csv: Path | None) -> dict[str, Path | None]:
    """A compact table, if one is to be written, and the file that says how it was made."""
    return {} if csv is None else {option: csv, f"the file beside {option}": csv.with_suffix(".json")}


def _rows_and_calls(
    table: ResultTable[Any], results: Path, out: Path, csv: Path | None, *read: Path | None
) -> tuple[list[Any], list[Call]]:
    """The results for a page, also written as a compact table if asked for, and the calls that made them."""
    from experiments.paper.result_store import read_calls

    _check_apart({"--out": out} | _with_record("--csv", csv), results, *read)
    rows, calls = table.read(results), read_calls(results)
    if csv is not None:
        _write_compact(csv, table, rows, calls)
        console.show(f"{csv}: {len(rows)} results")
    return rows, calls


def _write_compact(csv: Path, table: ResultTable[Any], results: Any, calls: Any) -> None:
    """All results as one table, and how they were made beside it."""
    from experiments.paper.result_store import write_calls

    csv.parent.mkdir(parents=True, exist_ok=True)
    table.write(results, csv)
    write_calls(calls, csv.with_suffix(".json"))


def _show_outcome(results: Sequence[Any], done: int, place: str) -> None:
    """How many results there are, and what failed; `place` is what a result calls its table."""
    failed = [(getattr(one, place), one.method, one.error) for one in results if one.error]
    console.show(f"{len(results)} results, {done} of them done now; {len(failed)} failed")
    _show_failures([place, "method", "error", "results"], failed)


def _show_failures(headings: list[str], failed: Iterable[tuple[str, str, str]]) -> None:
    """Where something failed, with which error, and how often."""
    counts = Counter((*where, " ".join(error.split())) for *where, error in failed)
    if counts:
        rows = [[*where, str(count)] for where, count in counts.items()]
        console.show_table(headings, rows, text_columns=3)
