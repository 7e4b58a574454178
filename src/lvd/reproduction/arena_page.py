"""The page on the arena: a scatter, a short table, where LVD loses, and then everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter

from lvd._files import atomic_path
from lvd._validation import InputError
from lvd.reproduction.arena_measures import ERT_ROWS, ArenaResult
from lvd.reproduction.arena_methods import CONTESTANTS
from lvd.reproduction.arena_split import MOST_OUTSIDE
from lvd.reproduction.arena_summary import REFERENCE, TIE, ArenaBoard, Standing, nan_mean
from lvd.reproduction.arena_tables import ARENA_TABLES, MOST_ROWS, OUTSIDE, TUNED_ON
from lvd.reproduction.formats import MISSING, Grid, GridEntry, render_markdown
from lvd.reproduction.result_store import Call

MAIN_LEVEL = 0.9
ALL_SEEDS = 10
SHORT_LINES = 10
QUICK, SMALL_TABLE, LARGE_TABLE = 1.5, 2000, 5000
OURS = "lvd"
_BLUE, _GREY = "#0072B2", "#767676"


@dataclass(frozen=True)
class BoardView:
    """What the page shows of one model at one level."""

    model: str
    level: float
    figure: str
    ranks_figure: str
    short: Grid
    sentences: tuple[str, ...]
    losses: Grid
    full: Grid
    by_table: Grid
    critical_difference: str
    outside: Grid


@dataclass(frozen=True)
class FailureLine:
    """Why a method has no result."""

    method: str
    model: str
    tables: str
    count: int
    reason: str


def write_arena_page(results: Sequence[ArenaResult], calls: Sequence[Call], out: Path) -> list[Path]:
    """Write the page, and two figures for each model in a folder ``images`` beside it; returns what was written."""
    boards = make_boards(results)
    if not any(board.level == MAIN_LEVEL for board in boards):
        raise InputError(f"the page needs results at level {MAIN_LEVEL:g}; run the arena with it")
    written = []
    for board in boards:
        if board.level == MAIN_LEVEL:
            figures = {
                _figure_name(board): draw_scatter(board.standings()),
                _ranks_name(board): draw_ranks(board),
            }
            for name, figure in figures.items():
                path = out.parent / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with atomic_path(path) as part, rc_context({"svg.hashsalt": name}):
                    figure.savefig(part, format="svg", metadata={"Date": None})
                written.append(path)
    with atomic_path(out) as part:
        part.write_text(render_arena_page(results, boards, calls), encoding="utf-8")
    return [*written, out]


def make_boards(results: Sequence[ArenaResult]) -> list[ArenaBoard]:
    """A board for each model and level, the main level first; none where split conformal is missing."""
    levels = sorted({one.level for one in results}, key=lambda level: (level != MAIN_LEVEL, level))
    models = list(dict.fromkeys(one.model for one in results))
    boards = [ArenaBoard(results, model, level, OUTSIDE) for level in levels for model in models]
    return [board for board in boards if board.tables]


def render_arena_page(
    results: Sequence[ArenaResult], boards: Sequence[ArenaBoard], calls: Sequence[Call]
) -> str:
    """The page as Markdown."""
    return render_markdown(
        "arena.md.jinja",
        boards=[_view(board) for board in boards],
        main_level=MAIN_LEVEL,
        n_tables=len({one.table for one in results} - set(OUTSIDE)),
        choices=choices_grid([board for board in boards if board.level == MAIN_LEVEL]),
        most_outside=MOST_OUTSIDE,
        all_tables=len(ARENA_TABLES),
        n_seeds=len({one.seed for one in results}),
        all_seeds=ALL_SEEDS,
        most_rows=MOST_ROWS,
        ert_rows=ERT_ROWS,
        tuned_on=", ".join(TUNED_ON),
        tie=TIE,
        failures=failure_lines(results),
        contestants=list(CONTESTANTS.values()),
        processors=", ".join(sorted({one.processor for one in results if one.processor})),
        calls=calls,
    )


def draw_scatter(standings: Sequence[Standing]) -> Figure:
    """Interval score against excess risk, one point a method; names are in a column, apart from each other."""
    figure = Figure(figsize=(8.5, 5.5), layout="constrained")
    axes = figure.add_subplot()
    rows = sorted((row for row in standings if not math.isnan(row.ert)), key=lambda row: -row.ert)
    axes.set_xscale("log")
    for place, row in enumerate(rows):
        color = _BLUE if CONTESTANTS[row.method].ours else _GREY
        axes.plot(row.score, row.ert, "o", color=color, markersize=6)
        axes.annotate(
            f"{CONTESTANTS[row.method].title}  {row.score:.3f}",
            (row.score, row.ert),
            xytext=(1.03, 1.0 - (place + 0.5) / len(rows)),
            textcoords="axes fraction",
            fontsize=8,
            color=color,
            va="center",
            arrowprops={"arrowstyle": "-", "color": color, "alpha": 0.35, "linewidth": 0.7},
            annotation_clip=False,
        )
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(FormatStrFormatter("%g"))
    axes.tick_params(axis="x", which="minor", labelsize=7)
    axes.set_xlabel("interval score, relative to split conformal")
    axes.set_ylabel("excess risk of the target coverage")
    axes.grid(alpha=0.3)
    return figure


def draw_ranks(board: ArenaBoard) -> Figure:
    """Mean ranks, the best on top; a bar to the right covers the ranks that cannot be told from it."""
    ranks = sorted(board.ranks().items(), key=lambda item: item[1])
    figure = Figure(figsize=(8.0, 1.0 + 0.26 * len(ranks)), layout="constrained")
    axes, difference = figure.add_subplot(), board.critical_difference()
    for line, (method, rank) in enumerate(ranks):
        color = _BLUE if CONTESTANTS[method].ours else _GREY
        axes.plot(rank, line, "o", color=color, markersize=6)
        if not math.isnan(difference):
            axes.plot([rank, rank + difference], [line, line], "-", color=color, alpha=0.4, linewidth=3)
    axes.set_yticks(range(len(ranks)), [_title(method) for method, _ in ranks], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("mean rank by interval score; bars: the critical difference (Nemenyi, 5%)")
    axes.grid(axis="x", alpha=0.3)
    return figure


def failure_lines(results: Sequence[ArenaResult]) -> list[FailureLine]:
    """What failed, the same reason once for each method and model."""
    found: dict[tuple[str, str, str], list[ArenaResult]] = {}
    for one in results:
        if one.error:
            found.setdefault((one.method, one.model, one.error), []).append(one)
    return [
        FailureLine(
            CONTESTANTS[method].title,
            model,
            ", ".join(dict.fromkeys(one.table for one in failed)),
            len(failed),
            reason.replace("|", "\\|"),
        )
        for (method, model, reason), failed in found.items()
    ]


def _view(board: ArenaBoard) -> BoardView:
    standings = board.standings()
    return BoardView(
        board.model,
        board.level,
        _figure_name(board),
        _ranks_name(board),
        short_grid(board, standings),
        tuple(sentences(board, standings)),
        losses_grid(board),
        full_grid(board, standings),
        by_table_grid(board, standings),
        _number(board.critical_difference(), ".1f"),
        outside_grid(board, standings),
    )


def _figure_name(board: ArenaBoard) -> str:
    return f"images/arena-{board.model}.svg"


def _ranks_name(board: ArenaBoard) -> str:
    return f"images/arena-{board.model}-ranks.svg"


def short_grid(board: ArenaBoard, standings: Sequence[Standing]) -> Grid:
    """The best by score, split conformal among them in any case."""
    best = list(standings[:SHORT_LINES])
    if REFERENCE not in {row.method for row in best}:
        best[-1:] = [row for row in standings if row.method == REFERENCE]
    rows = [
        (
            GridEntry(_title(row.method), emphasis="bold" if CONTESTANTS[row.method].ours else ""),
            GridEntry(f"{row.score:.3f} ({row.score_band[0]:.2f} to {row.score_band[1]:.2f})"),
            GridEntry(_number(row.ert, ".3f")),
            GridEntry(_percent(row.coverage)),
            GridEntry(_percent(row.worst_slab)),
            GridEntry(_percent(row.finite)),
            GridEntry(f"{row.wins} : {row.losses}"),
        )
        for row in best
    ]
    headings = ("method", "score", "ERT", "MCR", "slab", "finite", "tables won : lost against split")
    return Grid(f"The best by score, {board.model}, {board.level:.0%}", "", headings, tuple(rows))


def sentences(board: ArenaBoard, standings: Sequence[Standing]) -> list[str]:
    """Who should take what, from the figures."""
    by_score, with_ert = standings[0], [row for row in standings if not math.isnan(row.ert)]
    lines = [
        f"**Sharpest: {_title(by_score.method)}**, {by_score.score:.3f} of split conformal's interval score."
    ]
    if with_ert:
        even = min(with_ert, key=lambda row: row.ert)
        lines.append(f"**Most even: {_title(even.method)}**, with an excess risk of {even.ert:.3f}.")
    promised = [row for row in standings if row.method == OURS]
    rivals = [row for row in standings if not CONTESTANTS[row.method].ours]
    if promised and rivals:
        ours, rival = promised[0], rivals[0]
        wins, losses = board.duel(OURS, rival.method)
        lines.append(
            f"**LVD**, the only one here that promises coverage locally, scores {ours.score:.3f}; the best of the "
            f"others, {_title(rival.method)}, {rival.score:.3f}. Of {len(board.tables)} tables LVD is better on "
            f"{wins} and worse on {losses}."
        )
    return lines


def choices_grid(boards: Sequence[ArenaBoard]) -> Grid:
    """Which method the figures are for, by what is wanted, with its score and excess risk; one column a model."""
    lines = [[f"{wanted}", *(_best(board, choose) for board in boards)] for wanted, choose in WANTED.items()]
    return Grid("Who should take what", "", ("you want", *(f"model: {one.model}" for one in boards)), lines)


def _best(board: ArenaBoard, choose: Callable[[ArenaBoard], list[Standing]]) -> str:
    """The first of the standings that a wish leaves, or a dash."""
    found = choose(board)
    if not found:
        return MISSING
    risk = "" if math.isnan(found[0].ert) else f", ERT {found[0].ert:.3f}"
    return f"{_title(found[0].method)} ({found[0].score:.3f}{risk})"


def _quick(board: ArenaBoard) -> list[Standing]:
    rows = board.standings()
    (unit,) = (row.fit_seconds for row in rows if row.method == REFERENCE)
    return [row for row in rows if row.fit_seconds <= QUICK * unit]


WANTED: dict[str, Callable[[ArenaBoard], list[Standing]]] = {
    "the best interval score": lambda board: board.standings(),
    "coverage that is as even as possible": lambda board: sorted(
        (row for row in board.standings() if not math.isnan(row.ert)), key=lambda row: row.ert
    ),
    "coverage near each row, with a promise": lambda board: [
        row for row in board.standings() if row.method == OURS
    ],
    "only finite intervals": lambda board: [row for row in board.standings() if row.finite == 1.0],
    f"a fit that takes at most {QUICK:g} times split's": _quick,
    f"it for fewer than {SMALL_TABLE:,} rows": lambda board: board.among(
        lambda rows: rows < SMALL_TABLE
    ).standings(),
    f"it for more than {LARGE_TABLE:,} rows": lambda board: board.among(
        lambda rows: rows > LARGE_TABLE
    ).standings(),
}
"""What somebody may want of a method, and the standings that it leaves, the best first."""


def outside_grid(board: ArenaBoard, standings: Sequence[Standing]) -> Grid:
    """What became of rows from outside: the share flagged, and the coverage of what is not."""
    tables = list(dict.fromkeys(table for table, _ in board.outside))
    lines = []
    for row in standings:
        texts = []
        for table in tables:
            ran = board.outside.get((table, row.method), [])
            flagged = nan_mean([one.outside_flagged for one in ran])
            texts += [
                _percent(1.0 - nan_mean([one.finite for one in ran])),
                _percent(flagged),
                _percent(nan_mean([one.outside_coverage for one in ran])),
            ]
        lines.append([_title(row.method), *texts])
    parts = ("inside", "flagged", "covered")
    headings = ("method", *(f"{table}: {part}" for table in tables for part in parts))
    return Grid(f"Rows from outside, {board.model}, {board.level:.0%}", "", headings, lines if tables else [])


def losses_grid(board: ArenaBoard) -> Grid:
    """The tables where some other method has a better score than LVD's default."""
    rivals = [method for method in board.methods if not CONTESTANTS[method].ours]
    rows = []
    for table in board.tables:
        ours, (name, best) = board.score(table, OURS), board.best_rival(table, rivals)
        if not math.isnan(ours) and best < (1 - TIE) * ours:
            rows.append((table, f"{ours:.3f}", _title(name), f"{best:.3f}"))
    headings = ("table", "LVD's score", "best other method", "its score")
    lines = tuple(tuple(GridEntry(text) for text in row) for row in rows)
    ran = any(method == OURS for _, method in board.cells)
    caption = (
        "Against the best other method of each table, chosen after the fact." if rows else "On no table."
    )
    if not ran:
        caption = "LVD did not run; see below."
    return Grid(f"Where LVD loses, {board.model}", caption, headings, lines)


def full_grid(board: ArenaBoard, standings: Sequence[Standing]) -> Grid:
    """All measures of all methods."""
    headings = (
        "method", "tables", "finite", "known", "MCR", "TCR", "slab", "group", "width", "median", "score", "band",
        "ERT", "ERT band", "under", "over", "AUROC", "width-error", "way", "rank", "fit s", "predict s",
    )  # fmt: skip
    rows = []
    for row in standings:
        texts = [
            _title(row.method),
            str(row.n_tables),
            *(_percent(share) for share in (row.finite, row.known, row.coverage, row.tail_coverage)),
            *(_percent(share) for share in (row.worst_slab, row.lowest_group)),
            *(_number(ratio, ".3f") for ratio in (row.width, row.median_width, row.score)),
            f"{row.score_band[0]:.2f} to {row.score_band[1]:.2f}",
            _number(row.ert, ".3f"),
            MISSING if math.isnan(row.ert_band[0]) else f"{row.ert_band[0]:.3f} to {row.ert_band[1]:.3f}",
            *(_number(part, ".3f") for part in (row.ert_under, row.ert_over)),
            _percent(row.auroc),
            _number(row.width_error, ".2f"),
            _percent(row.way),
            _number(row.rank, ".1f"),
            *(_number(seconds, ".2f") for seconds in (row.fit_seconds, row.predict_seconds)),
        ]
        rows.append(tuple(GridEntry(text) for text in texts))
    return Grid(f"{board.model.capitalize()}, {board.level:.0%}", "", headings, tuple(rows))


def by_table_grid(board: ArenaBoard, standings: Sequence[Standing]) -> Grid:
    """The score of every method on every table, the best in bold."""
    methods = [row.method for row in standings]
    rows = []
    for table in board.tables:
        scores = [board.score(table, method) for method in methods]
        best = min(score for score in scores if not math.isnan(score))
        cells = [GridEntry(_number(one, ".3f"), emphasis="bold" if one == best else "") for one in scores]
        rows.append((GridEntry(table), *cells))
    return Grid(
        f"Interval score relative to split conformal, {board.model}, {board.level:.0%}",
        "",
        ("table", *(_title(method) for method in methods)),
        tuple(rows),
    )


def _title(method: str) -> str:
    return CONTESTANTS[method].title


def _number(value: float, form: str) -> str:
    if math.isinf(value):
        return "\N{INFINITY}"
    return MISSING if math.isnan(value) else format(value, form)


def _percent(share: float) -> str:
    return _number(100.0 * share, ".1f")
