"""The page on growth, written from files of costs and of learning curves: what was not measured is said to be
missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from jinja2 import FileSystemLoader
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, NullLocator

from benchmarks import learning, million
from benchmarks.growth import slope
from benchmarks.learning import DEFAULT, LEVELS, Point, read_points
from benchmarks.million import (
    ALL_ROWS,
    CALIBRATION,
    FITS,
    GROWTH,
    MOST_GIGABYTES,
    MOST_TIMES,
    N_COLUMNS,
    N_TEST,
    SEVERAL,
    Cost,
    read_costs,
    times_ten_lines,
)
from benchmarks.results import MISSING, duration, number, versions_text
from experiments.paper.formats import Grid, render_markdown
from lvd import InputError
from lvd._files import write_text
from lvd.demo.figures import panels_of, save_figure

OURS, WITHIN, MOST_GROWTH = "lvd", 0.01, 3.0
STYLES = {
    "lvd": {"color": "#0072B2", "marker": "o", "linewidth": 3.0, "zorder": 5},
    "ten lines": {"color": "#D55E00", "marker": "s"},
    "crepes": {"color": "#009E73", "marker": "D"},
    "MAPIE split": {"color": "#CC79A7", "marker": "v"},
    "model alone": {"color": "#555555", "marker": "x", "linestyle": "--"},
}
LEVEL_STYLES = (
    {"color": "#009E73", "marker": "v"},
    {"color": "#0072B2", "marker": "o"},
    {"color": "#D55E00", "marker": "s"},
)
BUSY = 2.0
"""A load above this before a measurement means that other programs ran: the benchmark itself uses two cores."""


def write_page(docs: Path, paths: Sequence[Path]) -> None:
    """growth.md in the folder of the documentation, from the template beside this file, and its plots."""
    images = docs / "images"
    if not images.is_dir():
        raise InputError(f"--docs: there is no folder {images}; give the folder of the documentation")
    costs: list[Cost] = []
    found: list[Point] = []
    for path in paths:
        if _first_line(path).startswith("date,machine,threads"):
            costs += read_costs(path)
        else:
            found += read_points(path)
    points = complete(found)
    grown = [one for one in costs if one.part == GROWTH]
    several = [one for one in costs if one.part == CALIBRATION]
    if grown:
        save_figure(cost_figure(grown), images / "growth.png")
    if points:
        save_figure(learning_figure(points), images / "learning_curves.png")
    text = render_markdown(
        "growth.md.jinja",
        FileSystemLoader(Path(__file__).parent),
        files=" ".join(f"results/{path.name}" for path in paths),
        n_columns=N_COLUMNS,
        n_test=N_TEST,
        most_set_aside=million.MOST_SET_ASIDE,
        most_square=learning.MOST_SQUARE,
        most_gigabytes=MOST_GIGABYTES,
        n_train=million.N_TRAIN,
        setting=_setting(costs),
        learned_on=_lines(f"{one.machine}; {one.date}; {_versions(one)}" for one in points),
        load=max((one.load for one in costs), default=0.0),
        busy=BUSY,
        fits=fits(grown) if grown else None,
        predictions=predictions(grown) if grown else None,
        memory=memory(grown) if grown else None,
        quality=quality(grown) if grown else None,
        aims=aims(grown),
        calibrations=calibrations(several) if several else None,
        verdict=verdict(several),
        curves=curves(points) if points else None,
        defaults=defaults(points) if points else None,
        claims=claims(points),
        tables=[f"{table} {n_rows:,} rows" for table, n_rows in tables(points)],
        levels=", ".join(f"{level:.0%}" for level in LEVELS),
    )
    write_text(docs / "growth.md", f"{text}\n")


def fits(costs: Sequence[Cost]) -> Grid:
    """Seconds of each fit, and of lvd's how many times those of ten lines."""
    return _by_size(costs, "fit", _fit_text, lambda one: one.fit_seconds)


def predictions(costs: Sequence[Cost]) -> Grid:
    """Seconds of predicting."""
    return _by_size(costs, "predict", lambda _, one: duration(one.predict_seconds))


def memory(costs: Sequence[Cost]) -> Grid:
    """Gigabytes at the highest, the table's and the libraries' included."""
    return _by_size(costs, "peak memory in GB", lambda _, one: f"{one.peak_gb:.2f}")


def quality(costs: Sequence[Cost]) -> Grid:
    """The interval score on fresh rows."""
    with_intervals = [one for one in costs if np.isfinite(one.interval_score)]
    return _by_size(with_intervals, "interval score", lambda _, one: f"{one.interval_score:.3f}")


def aims(costs: Sequence[Cost]) -> list[str]:
    """What was aimed at, and whether it was reached."""
    ours = {one.rows: one for one in costs if one.who == OURS}
    lines = []
    for n_rows, most in MOST_TIMES.items():
        aim = f"`fit` of {n_rows:,} rows in at most {most:g} times the time of ten lines"
        times = times_ten_lines(costs, ours[n_rows]) if n_rows in ours else np.nan
        lines.append(f"{aim}: {_reached(times, most, f'{times:.2g} times')}")
    largest = max(MOST_TIMES)
    peak = ours[largest].peak_gb if largest in ours else np.nan
    aim = f"at most {MOST_GIGABYTES:g} GB at {largest:,} rows"
    return [*lines, f"{aim}: {_reached(peak, MOST_GIGABYTES, f'{peak:.2f} GB')}"]


def calibrations(costs: Sequence[Cost]) -> Grid:
    """One lvd, calibrated by fewer and by more rows."""
    base, whole = (_calibrated(costs, n_rows, ALL_ROWS) for n_rows in SEVERAL)
    lines = []
    for one in costs:
        bound = one.who if one.who == ALL_ROWS else f"{int(one.who):,}"
        change = MISSING if whole is None else f"{one.interval_score / whole.interval_score - 1.0:+.2%}"
        wider = MISSING if whole is None else f"{one.width / whole.width - 1.0:+.2%}"
        times = MISSING if base is None else f"{one.predict_seconds / base.predict_seconds:.2f}"
        lines.append(
            [f"{one.rows:,}", bound, duration(one.fit_seconds), duration(one.predict_seconds), times,
             f"{one.effective_rows:,.0f}", f"{one.interval_score:.4g} ({change})", f"{one.width:.4g} ({wider})"]
        )  # fmt: skip
    headings = (
        "calibration rows", "`max_calibration_rows`", "calibrate",
        f"predict {costs[0].predictions:,} rows", "times the first", "effective rows",
        "interval score (against all rows)", "mean width (against all rows)",
    )  # fmt: skip
    return Grid("", "", headings, lines)


def verdict(costs: Sequence[Cost]) -> str | None:
    """Whether predictions against ten times the rows take at most three times as long."""
    base, whole = (_calibrated(costs, n_rows, ALL_ROWS) for n_rows in SEVERAL)
    if base is None or whole is None:
        return None
    few, many = SEVERAL
    times = whole.predict_seconds / base.predict_seconds
    reached = "reached" if times <= MOST_GROWTH else "not reached with all rows"
    share = whole.effective_rows / whole.rows
    return (
        f"Predicting against {many:,} calibration rows is to take at most {MOST_GROWTH:g} times as long as against "
        f"{few:,}: {reached}, {times:.2g} times. An exact radius needs the weight of every calibration row that "
        f"counts, and here the median prediction rests on {share:.0%} of them by their effective number, so there "
        "is hardly a row to skip."
    )


def curves(points: Sequence[Point]) -> Grid:
    """By how much the score is larger than after learning from all rows, at the level of 90%."""
    sizes = sorted({one.rows for one in points if one.way != DEFAULT and one.rows in learning.BOUNDS})
    lines = []
    for table, n_rows in tables(points):
        some = [one for one in points if (one.table, one.n_rows) == (table, n_rows)]
        every = _changes(some, DEFAULT, None)
        lines.append(
            [f"{table}, {_n_learn(some):,}", *(_percent(_changes(some, learning.ROWS, size)) for size in sizes),
             _percent(every)]
        )  # fmt: skip
    return Grid("", "", ("table, rows to learn from", *(f"{size:,}" for size in sizes), "default"), lines)


def defaults(points: Sequence[Point]) -> Grid:
    """The default beside all rows, at each level, and the seconds of both."""
    lines = []
    for table, n_rows in tables(points):
        some = [one for one in points if (one.table, one.n_rows) == (table, n_rows)]
        seconds = [
            np.mean([one.seconds for one in some if (one.way, one.rows) == (way, _n_learn(some))])
            for way in (learning.ROWS, DEFAULT)
        ]
        lines.append(
            [table, f"{len({one.seed for one in some})}",
             *(_percent(_changes(some, DEFAULT, None, level)) for level in LEVELS), *map(duration, seconds)]
        )  # fmt: skip
    headings = ("table", "seeds", *(f"{level:.0%}" for level in LEVELS), "all rows", "default")
    return Grid("", "", headings, lines)


def claims(points: Sequence[Point]) -> dict[str, list[str]]:
    """On which tables the default is within one percent of all rows at every level, and where not."""
    held, missed = [], []
    for table, n_rows in tables(points):
        some = [one for one in points if (one.table, one.n_rows) == (table, n_rows)]
        worst, level = max((_changes(some, DEFAULT, None, level), level) for level in LEVELS)
        if np.isfinite(worst):
            text = f"{table} (at most {worst:+.2%}, at {level:.0%})"
            (held if worst <= WITHIN else missed).append(text)
    return {"held": held, "missed": missed}


def complete(points: Sequence[Point]) -> list[Point]:
    """The points of tables and seeds that were measured to the end, which is the default."""
    ended = {(one.table, one.n_rows, one.seed) for one in points if one.way == DEFAULT}
    return [one for one in points if (one.table, one.n_rows, one.seed) in ended]


def tables(points: Sequence[Point]) -> list[tuple[str, int]]:
    """The tables with their rows, in the order they were measured."""
    return list(dict.fromkeys((one.table, one.n_rows) for one in points))


def cost_figure(costs: Sequence[Cost]) -> Figure:
    """Fit, predict and memory against rows, a line for each."""
    figure, panels = panels_of(3)
    shown: tuple[tuple[str, Callable[[Cost], float]], ...] = (
        ("seconds of fit", lambda one: one.fit_seconds),
        (f"seconds of {N_TEST:,} predictions", lambda one: one.predict_seconds),
        ("peak memory in GB", lambda one: one.peak_gb),
    )
    for axes, (title, value) in zip(panels, shown, strict=True):
        for who in FITS:
            series = sorted((one.rows, value(one)) for one in costs if one.who == who)
            if series:
                axes.plot(*zip(*series, strict=True), label=who, **({"linewidth": 1.6} | STYLES[who]))
        axes.set(xscale="log", yscale="log", xlabel="rows", title=title)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        _readable(axes, sorted({one.rows for one in costs}))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def learning_figure(points: Sequence[Point]) -> Figure:
    """For each table the score relative to all rows against the rows that teach, a line for each level."""
    found = tables(points)
    figure, panels = panels_of(len(found))
    for axes, (table, n_rows) in zip(panels, found, strict=True):
        some = [one for one in points if (one.table, one.n_rows) == (table, n_rows)]
        sizes = sorted({one.rows for one in some if one.way == learning.ROWS})
        for level, style in zip(LEVELS, LEVEL_STYLES, strict=True):
            changes = [100.0 * _changes(some, learning.ROWS, size, level) for size in sizes]
            axes.plot(sizes, changes, label=f"{level:.0%}", **style)
            default = 100.0 * _changes(some, DEFAULT, None, level)
            axes.plot([_n_learn(some)], [default], marker="*", markersize=13, color=style["color"], zorder=6)
        axes.axhspan(-100.0 * WITHIN, 100.0 * WITHIN, color="#EEEEEE", zorder=0)
        axes.set(xscale="log", xlabel="rows that teach", title=table)
        _readable(axes, [size for size in sizes if size in learning.BOUNDS])
    panels[0].set_ylabel("interval score above that of all rows, in %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _readable(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set_xticks(sizes)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(which="major", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)


def _by_size(
    costs: Sequence[Cost],
    title: str,
    text: Callable[[Sequence[Cost], Cost], str],
    value: Callable[[Cost], float] | None = None,
) -> Grid:
    """A line for each contestant and a column for each size; with `value` also how it grows."""
    sizes = sorted({one.rows for one in costs})
    lines = []
    for who in FITS:
        series = {one.rows: one for one in costs if one.who == who}
        if series:
            line = [who, *(text(costs, series[size]) if size in series else MISSING for size in sizes)]
            if value is not None:
                known = sorted(series)
                line.append(number(slope(known, [value(series[size]) for size in known]), ".2f"))
            lines.append(line)
    growing = [] if value is None else ["slope"]
    return Grid("", "", (title, *(f"{size:,} rows" for size in sizes), *growing), lines)


def _fit_text(costs: Sequence[Cost], one: Cost) -> str:
    times = times_ten_lines(costs, one)
    return f"{duration(one.fit_seconds)} ({number(times, '.2g')})"


def _reached(found: float, most: float, text: str) -> str:
    if np.isnan(found):
        return "not measured yet"
    return f"{'reached' if found <= most else 'not reached'}, {text}"


def _calibrated(costs: Sequence[Cost], n_rows: int, who: str) -> Cost | None:
    return next((one for one in costs if (one.rows, one.who) == (n_rows, who)), None)


def _changes(points: Sequence[Point], way: str, rows: int | None, level: float = 0.9) -> float:
    """The mean over the seeds by what share the score is above that of all rows of the same seed."""
    n_learn, at_level = _n_learn(points), [one for one in points if one.level == level]
    every = {
        one.seed: one.interval_score for one in at_level if (one.way, one.rows) == (learning.ROWS, n_learn)
    }
    wanted = n_learn if rows is None else rows
    found = [
        one.interval_score / every[one.seed] - 1.0
        for one in at_level
        if (one.way, one.rows) == (way, wanted) and one.seed in every
    ]
    return float(np.mean(found)) if found else float("nan")


def _n_learn(points: Sequence[Point]) -> int:
    return max(one.rows for one in points)


def _percent(change: float) -> str:
    return MISSING if np.isnan(change) else f"{change:+.1%}"


def _setting(costs: Sequence[Cost]) -> list[str]:
    """Machine, date and versions, a line for each that differs."""
    return _lines(
        f"{one.machine}; {one.threads} thread{'s' if one.threads > 1 else ''}; {one.date}; "
        f"{_versions(one, 'python', 'crepes', 'mapie')}"
        for one in costs
    )


def _versions(one: Cost | Point, *more: str) -> str:
    return versions_text(one, ("numpy", "sklearn", "lvd", *more))


def _lines(texts: Iterable[str]) -> list[str]:
    """Each text once, where it begins."""
    return [text for text, _ in groupby(texts)]


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--page: cannot read {path} ({error}); give a csv file of a benchmark") from error
