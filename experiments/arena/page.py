"""The arena's page: a scatter plot, a short table, where LVD loses, and then all results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter

from experiments.arena.contestants import CONTESTANTS
from experiments.arena.costs import ArenaCost, costs_grid
from experiments.arena.measures import ERT_ROWS, ArenaResult
from experiments.arena.split import MOST_OUTSIDE
from experiments.arena.summary import REFERENCE, TEST_SHARE, TIE, ArenaBoard, ArenaStanding, nan_mean
from experiments.arena.tables import ARENA_TABLES, MOST_ROWS, OUTSIDE, TUNED_ON, UNSEEN_TABLES
from experiments.paper.formats import MISSING, Grid, GridEntry, figure_text, render_markdown
from experiments.paper.result_store import Call
from experiments.paper.runs import grouped
from lvd import InputError
from lvd._files import atomic_path, write_text
from lvd.models.candidates import MANY_ROWS

MAIN_LEVEL = 0.9
ALL_SEEDS = 10
SHORT_LINES = 10
QUICK, SMALL_TABLE, LARGE_TABLE = 1.5, 2000, 5000
DEFAULT, CROSS, ENSEMBLE = "lvd", "lvd-cross", "lvd-ensemble"
NEAR = 1.12
"""Scores beyond this are drawn at the border, labelled with their value."""
SAFE = 1.1
"""A method whose score on some table exceeds this multiple of split conformal's is never recommended."""
_BLUE, _GREY = "#0072B2", "#767676"


def write_arena_page(
    results: Sequence[ArenaResult], calls: Sequence[Call], out: Path, costs: Sequence[ArenaCost] = ()
) -> list[Path]:
    """Write the page, and each model's figures in a folder ``images`` next to it; return what was written."""
    boards, unseen = (
        make_boards([one for one in results if (one.table in UNSEEN_TABLES) is chosen])
        for chosen in (False, True)
    )
    main = [board for board in boards if board.level == MAIN_LEVEL]
    if not main:
        raise InputError(f"the page needs results at level {MAIN_LEVEL:g}; run the arena with it")
    written = []
    for board, (suffix, draw) in product(main, FIGURES.items()):
        name = f"images/arena-{board.model}{suffix}.svg"
        path = out.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as part, rc_context({"svg.hashsalt": name}):
            draw(board).savefig(part, format="svg", metadata={"Date": None})
        written.append(path)
    page = render_markdown(
        "arena/arena.md.jinja",
        boards=[_view(board) for board in boards],
        main_level=MAIN_LEVEL,
        unseen=[_view(board) for board in unseen],
        unseen_tables=UNSEEN_TABLES,
        safe=SAFE,
        n_tables=len({one.table for one in results} - {*OUTSIDE, *UNSEEN_TABLES}),
        choices=choices_grid(main),
        most_outside=MOST_OUTSIDE,
        many_rows=MANY_ROWS,
        few_rows=tables_of_few_rows(results),
        all_tables=len(ARENA_TABLES),
        n_seeds=len({one.seed for one in results if one.table not in UNSEEN_TABLES}),
        unseen_seeds=len({one.seed for one in results if one.table in UNSEEN_TABLES}),
        seeds=seeds_grid(results),
        all_seeds=ALL_SEEDS,
        most_rows=MOST_ROWS,
        ert_rows=ERT_ROWS,
        tuned_on=", ".join(TUNED_ON),
        tie=TIE,
        failures=failures_grid(results),
        costs=[costs_grid(costs, model) for model in dict.fromkeys(one.model for one in costs)],
        measured=next((one for one in costs if not one.error), None),
        contestants=list(CONTESTANTS.values()),
        processors=", ".join(sorted({one.processor for one in results if one.processor})),
        calls=calls,
    )
    write_text(out, page)
    return [*written, out]


def make_boards(results: Sequence[ArenaResult]) -> list[ArenaBoard]:
    """A board per model and level, the main level first; none if split conformal is missing."""
    levels = sorted({one.level for one in results}, key=lambda level: (level != MAIN_LEVEL, level))
    models = list(dict.fromkeys(one.model for one in results))
    boards = [ArenaBoard(results, model, level, OUTSIDE) for level in levels for model in models]
    return [board for board in boards if board.tables]


def _view(board: ArenaBoard) -> dict[str, Any]:
    """The page's view of one model at one level."""
    return {
        "model": board.model,
        "level": board.level,
        "short": _short_grid(board),
        "sentences": [*_sentences(board), *(claims := _claims(board))],
        "claims": claims,
        "against": _against_grid(board),
        "losses": _losses_grid(board),
        "full": _full_grid(board),
        "by_table": _by_table_grid(board),
        "critical_difference": figure_text(board.critical_difference(), ".1f"),
        "outside": outside_grid(board),
    }


def draw_scatter(board: ArenaBoard) -> Figure:
    """Interval score against excess risk, one point per method; names are in a column, spaced apart."""
    rows = sorted((row for row in board.complete if not math.isnan(row.ert)), key=lambda row: -row.ert)
    most = 1.05 * max((row.ert for row in rows if row.score <= NEAR), default=1.0)
    figure = _draw_scores(rows, [min(row.ert, most) for row in rows])
    figure.axes[0].set_ylabel("excess risk of the target coverage")
    return figure


def draw_seconds(board: ArenaBoard) -> Figure:
    """Interval score against the seconds of a fit."""
    rows = sorted(board.complete, key=lambda row: -row.mean("fit_seconds"))
    figure = _draw_scores(rows, [row.mean("fit_seconds") for row in rows])
    figure.axes[0].set_yscale("log")
    figure.axes[0].yaxis.set_major_formatter(FormatStrFormatter("%g"))
    figure.axes[0].yaxis.set_minor_formatter(FormatStrFormatter("%g"))
    figure.axes[0].set_ylabel("processor seconds of a fit, mean over tables")
    return figure


def _draw_scores(rows: Sequence[ArenaStanding], heights: Sequence[float]) -> Figure:
    """Scores from left to right; one beyond `NEAR` is an arrow at the border, and every name shows its value."""
    figure = Figure(figsize=(8.5, 0.6 + 0.23 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for place, (row, height) in enumerate(zip(rows, heights, strict=True)):
        color, far = _colour(row.method), row.score > NEAR
        at = (NEAR if far else row.score, height)
        axes.plot(*at, ">" if far else "o", color=color, markersize=6, clip_on=False)
        axes.annotate(
            f"{_title(row.method)}  {row.score:.3f}",
            at,
            xytext=(1.03, 1.0 - (place + 0.5) / len(rows)),
            textcoords="axes fraction",
            fontsize=8,
            color=color,
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "alpha": 0.35,
                "linewidth": 0.7,
                "relpos": (0.0, 0.5),  # to the left edge of the text
                "shrinkA": 1.0,
            },
            annotation_clip=False,
        )
    axes.set_xlim(0.98 * min(row.score for row in rows), NEAR)
    axes.set_xlabel("interval score, relative to split conformal (geometric mean over tables)")
    axes.grid(alpha=0.3)
    return figure


def draw_ranks(board: ArenaBoard) -> Figure:
    """Mean ranks, the best on top; a bar to the right covers the ranks that are not significantly different."""
    ranks = sorted(board.ranks().items(), key=lambda item: item[1])
    figure = Figure(figsize=(8.0, 1.0 + 0.26 * len(ranks)), layout="constrained")
    axes, difference = figure.add_subplot(), board.critical_difference()
    for line, (method, rank) in enumerate(ranks):
        color = _colour(method)
        axes.plot(rank, line, "o", color=color, markersize=6)
        if not math.isnan(difference):
            axes.plot([rank, rank + difference], [line, line], "-", color=color, alpha=0.4, linewidth=3)
    axes.set_yticks(range(len(ranks)), [_title(method) for method, _ in ranks], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("mean rank by interval score; bars: the critical difference (Nemenyi, 5%)")
    axes.grid(axis="x", alpha=0.3)
    return figure


FIGURES: dict[str, Callable[[ArenaBoard], Figure]] = {
    "": draw_scatter,
    "-ranks": draw_ranks,
    "-seconds": draw_seconds,
}
"""The figures of each model at the main level, by the ending of the file name."""


def seeds_grid(results: Sequence[ArenaResult]) -> Grid:
    """How many seeds methods ran on at the main level, for methods that lack splits of split conformal."""
    places = {
        key: {(one.table, one.seed) for one in ran}
        for key, ran in grouped(
            (one for one in results if one.level == MAIN_LEVEL and not one.error),
            attrgetter("model", "method"),
        ).items()
    }
    lines = []
    for (model, method), ran in places.items():
        every = places.get((model, REFERENCE), set())
        if not every <= ran:
            seeds = Counter(table for table, _ in ran).values()
            least, most = min(seeds), max(seeds)
            spread = f"{most}" if least == most else f"{least} to {most}"
            splits = f"{len(ran & every)} of {len(every)}"
            lines.append((_title(method), model, f"{len(seeds)}", spread, splits))
    headings = ("method", "model", "tables", "seeds a table", "splits")
    return Grid("Who ran where", "", headings, lines)


def tables_of_few_rows(results: Sequence[ArenaResult]) -> list[str]:
    """Those with so few training and calibration rows that LVD calibrates across in more folds."""
    n_tested = {one.table: one.rows for one in results if one.method == REFERENCE and not one.error}
    return [table for table, rows in n_tested.items() if (TEST_SHARE - 1) * rows < MANY_ROWS]


def failures_grid(results: Sequence[ArenaResult]) -> Grid:
    """What failed, with each reason once per method and model."""
    failed = grouped((one for one in results if one.error), attrgetter("method", "model", "error"))
    lines = [
        (_title(method), model, ", ".join(dict.fromkeys(one.table for one in same)), f"{len(same)}", reason)
        for (method, model, reason), same in failed.items()
    ]
    return Grid("What did not run", "", ("method", "model", "tables", "results", "reason"), lines)


def _short_grid(board: ArenaBoard) -> Grid:
    """The best methods by score, always including split conformal."""
    best = board.complete[:SHORT_LINES]
    if REFERENCE not in {row.method for row in best}:
        best[-1:] = [row for row in board.complete if row.method == REFERENCE]
    rows: list[list[str | GridEntry]] = [
        [
            GridEntry(_title(row.method), emphasis="bold" if CONTESTANTS[row.method].ours else ""),
            f"{row.score:.3f} ({_band_text(row.score_band, '.2f')})",
            figure_text(row.ert, ".3f"),
            *(_percent(row.mean(name)) for name in ("coverage", "worst_slab", "finite")),
            f"{row.wins} : {row.losses}",
            f"{row.worst:.2f}",
            f"{row.splits}",
            figure_text(row.mean("fit_seconds"), ".1f"),
        ]
        for row in best
    ]
    headings = (
        *("method", "score", "ERT", "MCR", "slab", "finite"),
        *("tables won : lost against split", "worst table", "splits", "fit s"),
    )
    return Grid(f"The best by score, {board.model}, {board.level:.0%}", "", headings, rows)


def _sentences(board: ArenaBoard) -> list[str]:
    """Recommendations derived from the figures."""
    by_score, with_ert = board.complete[0], [row for row in board.complete if not math.isnan(row.ert)]
    lines = [
        f"**Sharpest: {_title(by_score.method)}**, {by_score.score:.3f} of split conformal's interval score."
    ]
    if with_ert:
        even = min(with_ert, key=lambda row: row.ert)
        lines.append(f"**Most even: {_title(even.method)}**, with an excess risk of {even.ert:.3f}.")
    return lines


def _claims(board: ArenaBoard) -> list[str]:
    """Whether LVD's default ranks first among methods like it, and its crossed form among all."""
    ran = [row.method for row in board.complete]
    apart = [method for method in ran if not CONTESTANTS[method].crossed]
    own = "methods that calibrate on rows of their own"
    among = {DEFAULT: (apart, own), CROSS: (ran, "methods"), ENSEMBLE: (ran, "methods")}
    return [_claim(board, ours, *rivals) for ours, rivals in among.items() if ours in ran]


def _against_grid(board: ArenaBoard) -> Grid:
    """LVD against each other method, on the tables and seeds they share."""
    forms = [form for form in (DEFAULT, CROSS, ENSEMBLE) if form in board.methods]
    lines = []
    for row in board.standings:
        if not CONTESTANTS[row.method].ours:
            found = [board.compare(form, row.method) for form in forms]
            texts = [
                text
                for one in found
                for text in (f"{one.ratio:.3f} ({_band_text(one.band, '.2f')})", f"{one.wins} : {one.losses}")
            ]
            lines.append(
                [_title(row.method), f"{len(row.pairs)}", f"{row.splits}", f"{row.score:.3f}", *texts]
            )
    beside = (text for form in forms for text in (f"{_title(form)} to it", "won : lost"))
    headings = ("method", "tables", "splits", "score", *beside)
    return Grid(f"LVD against each, {board.model}, {board.level:.0%}", "", headings, lines)


def _claim(board: ArenaBoard, ours: str, methods: Sequence[str], among: str) -> str:
    """The rank of a form of LVD by score among these methods, excluding its other forms, and the best of them."""
    rivals = [method for method in methods if not CONTESTANTS[method].ours]
    if not rivals:
        return f"**{_title(ours)}** has no rival here."
    place = 1 + sum(board.compare(ours, rival).ratio > 1.0 for rival in rivals)
    against = board.compare(ours, rivals[0])
    return (
        f"**{_title(ours)}** is {'first' if place == 1 else f'number {place}'} of {len(rivals) + 1} {among}, LVD's "
        f"other forms aside. Its score is {against.ratio:.3f} times that of the best rival, {_title(rivals[0])} "
        f"({_band_text(against.band, '.3f')}) on the {against.splits} "
        f"{'split' if against.splits == 1 else 'splits'} that both have, better on "
        f"{against.wins} of {len(board.tables)} tables and worse on {against.losses}."
    )


def choices_grid(boards: Sequence[ArenaBoard]) -> Grid:
    """The best method for each need, with its score and excess risk, in one column per model.

    Only methods that ran on all tables are recommended, as one table can rule a method out.
    """

    def best(board: ArenaBoard, choose: Wish) -> str:
        for row in choose(board):
            if board_worst.get((board.model, row.method), math.inf) > SAFE:
                continue
            risk = "" if math.isnan(row.ert) else f", ERT {row.ert:.3f}"
            return f"{_title(row.method)} ({row.score:.3f}{risk})"
        return MISSING

    board_worst = {(board.model, row.method): row.worst for board in boards for row in board.complete}
    lines = [[wanted, *(best(board, choose) for board in boards)] for wanted, choose in WANTED.items()]
    return Grid("Who should take what", "", ("you want", *(f"model: {one.model}" for one in boards)), lines)


def _quick(board: ArenaBoard) -> list[ArenaStanding]:
    rows = board.complete
    (unit,) = (row.mean("fit_seconds") for row in rows if row.method == REFERENCE)
    return [row for row in rows if row.mean("fit_seconds") <= QUICK * unit]


Wish = Callable[[ArenaBoard], list[ArenaStanding]]
WANTED: dict[str, Wish] = {
    "the best interval score": lambda board: board.complete,
    "coverage that is as even as possible": lambda board: sorted(
        (row for row in board.complete if not math.isnan(row.ert)), key=lambda row: row.ert
    ),
    "the best interval score, calibrated on rows of its own": lambda board: [
        row for row in board.complete if not CONTESTANTS[row.method].crossed
    ],
    "coverage near each row, with a promise": lambda board: [
        row for row in board.complete if row.method == DEFAULT
    ],
    "only finite intervals": lambda board: [row for row in board.complete if row.mean("finite") == 1.0],
    f"a fit that takes at most {QUICK:g} times split's": _quick,
    f"the best score with fewer than {SMALL_TABLE:,} rows": lambda board: (
        board.among(lambda rows: rows < SMALL_TABLE).complete
    ),
    f"the best score with more than {LARGE_TABLE:,} rows": lambda board: (
        board.among(lambda rows: rows > LARGE_TABLE).complete
    ),
}
"""What a user may need from a method, and the standings that meet it, the best first."""


def outside_grid(board: ArenaBoard) -> Grid:
    """What happened to out-of-distribution rows: the share flagged, and the coverage of the rest."""
    tables = list(dict.fromkeys(table for table, _ in board.outside))
    lines = []
    for row in board.standings if tables else []:
        texts = []
        for table in tables:
            ran = board.outside.get((table, row.method), [])
            finite, *others = (
                nan_mean([getattr(one, name) for one in ran])
                for name in ("finite", "outside_flagged", "outside_coverage")
            )
            texts += [_percent(share) for share in (1.0 - finite, *others)]
        lines.append([_title(row.method), *texts])
    parts = ("inside", "flagged", "covered")
    headings = ("method", *(f"{table}: {part}" for table in tables for part in parts))
    return Grid(f"Rows from outside, {board.model}, {board.level:.0%}", "", headings, lines)


def _losses_grid(board: ArenaBoard) -> Grid:
    """The tables where another method has a better score than LVD's default."""
    rivals = [method for method in board.methods if not CONTESTANTS[method].ours]
    rows = []
    for table in board.tables:
        both = {name: board.scores(table, DEFAULT, name) for name in rivals}  # on the seeds that both have
        ran = {name: theirs / ours for name, (ours, theirs) in both.items() if not math.isnan(theirs)}
        if ran and ran[best := min(ran, key=ran.__getitem__)] < 1 - TIE:
            ours, theirs = both[best]
            rows.append((table, f"{ours:.3f}", _title(best), f"{theirs:.3f}"))
    if DEFAULT not in board.methods:
        caption = "LVD did not run; see below."
    elif rows:
        caption = (
            "Against the best other method of each table, chosen after the fact, on the seeds that both have."
        )
    else:
        caption = "On no table."
    headings = ("table", "LVD's score", "best other method", "its score")
    return Grid(f"Where LVD loses, {board.model}", caption, headings, rows)


def _full_grid(board: ArenaBoard) -> Grid:
    """All measures of all methods."""
    headings = (
        "method", "tables", "splits", "finite", "known", "MCR", "TCR", "slab", "group", "width", "median", "score",
        "band", "worst table", "ERT", "ERT band", "under", "over", "AUROC", "width-error", "way", "rank", "fit s",
        "predict s",
    )  # fmt: skip
    shares = ("finite", "known", "coverage", "tail_coverage", "worst_slab")
    lines = [
        (
            _title(row.method),
            f"{len(row.pairs)}",
            f"{row.splits}",
            *(_percent(share) for share in (*map(row.mean, shares), row.lowest_group)),
            *(figure_text(row.relative(name), ".3f") for name in ("width", "median_width", "winkler")),
            _band_text(row.score_band, ".2f"),
            figure_text(row.worst, ".2f"),
            figure_text(row.ert, ".3f"),
            _band_text(row.ert_band, ".3f"),
            *(figure_text(row.mean(name), ".3f") for name in ("ert_under", "ert_over")),
            _percent(row.mean("auroc")),
            figure_text(row.mean("width_error"), ".2f"),
            _percent(row.way),
            figure_text(row.rank, ".1f"),
            *(figure_text(row.mean(name), ".2f") for name in ("fit_seconds", "predict_seconds")),
        )
        for row in board.standings
    ]
    return Grid(f"{board.model.capitalize()}, {board.level:.0%}", "", headings, lines)


def _by_table_grid(board: ArenaBoard) -> Grid:
    """The score of every method on every table, the best in bold."""
    methods = [row.method for row in board.standings]
    rows = []
    for table in board.tables:
        scores = [board.score(table, method) for method in methods]
        best = min(score for score in scores if not math.isnan(score))
        cells = [GridEntry(figure_text(one, ".3f"), emphasis="bold" if one == best else "") for one in scores]
        rows.append([table, *cells])
    title = f"Interval score relative to split conformal, {board.model}, {board.level:.0%}"
    return Grid(title, "", ("table", *map(_title, methods)), rows)


def _title(method: str) -> str:
    return CONTESTANTS[method].title


def _colour(method: str) -> str:
    return _BLUE if CONTESTANTS[method].ours else _GREY


def _band_text(ends: tuple[float, float], form: str) -> str:
    return MISSING if math.isnan(ends[0]) else f"{ends[0]:{form}} to {ends[1]:{form}}"


def _percent(share: float) -> str:
    return figure_text(100.0 * share, ".1f")
