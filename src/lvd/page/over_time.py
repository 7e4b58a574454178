"""The picture over time: coverage in a rolling band, width, and the share of unknown rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lvd._typing import Float, NDArray
from lvd._validation import InputError
from lvd.intervals import covered, widths
from lvd.metrics.rolling import OverTime, TimeBlocks
from lvd.page.charts import Axis, Chart, axis_floor, band_area, line, polyline, x_axis, y_axis
from lvd.page.evaluation import Evaluated
from lvd.page.numbers import Digits, digits_for
from lvd.tables.column_values import check_columns, for_each_column, list_rows, to_numbers
from lvd.tables.dates import DAY, are_dates, to_moments
from lvd.tables.reports import percent

MONTHS, HOURS = 400.0, 5.0
"""An axis of more days than the first is labelled by months, one of fewer than the second by hours."""


@dataclass(frozen=True)
class OverTimeView:
    """What the page shows over time; `when` holds the moments of the lowest coverage and of the latest rows."""

    found: OverTime
    charts: tuple[Chart, ...]
    lowest: float
    when: tuple[str, str]
    below: float

    @classmethod
    def of(cls, blocks: TimeBlocks, level: float, digits: Digits, *, dated: bool) -> OverTimeView:
        """The picture of rows sorted by time."""
        found = blocks.rolling()
        charts = coverage_chart(found, level, dated=dated), *further_charts(found, digits, dated=dated)
        lowest = int(found.coverage.argmin())
        at_lowest, latest = (moment_text(float(found.moments[one]), dated=dated) for one in (lowest, -1))
        below = float((found.upper < level).mean())
        return cls(found, charts, float(found.coverage[lowest]), (at_lowest, latest), below)


def view_over_time(evaluated: Evaluated, column: str) -> OverTimeView:
    """The picture of evaluated rows in the order of a column of dates or numbers."""
    rows = evaluated.table
    check_columns(rows, [column])
    dated = are_dates(rows[column])
    read: Callable[[str], NDArray] = (
        (lambda name: to_moments(rows[name]) / DAY) if dated else lambda name: to_numbers(rows[name])
    )
    (moments,) = for_each_column([column], read)
    if (missing := np.isnan(moments)).any():
        raise InputError(
            f"column {column!r} lacks a value ({list_rows(missing, evaluated.row_numbers)}); fill it in"
        )
    ends = evaluated.intervals
    blocks = TimeBlocks.of(moments, covered(evaluated.y, ends), widths(ends), evaluated.known)
    return OverTimeView.of(blocks, evaluated.confidence_level, digits_for(evaluated.y), dated=dated)


def coverage_chart(found: OverTime, level: float, *, dated: bool) -> Chart:
    """Coverage in rolling windows, with its band; the dashed line is the level."""
    days, x = found.moments, time_axis(found.moments, dated=dated)
    y = y_axis("coverage", axis_floor([*found.lower.tolist(), level]), 1.0, percent)
    shapes = [
        band_area(x, y, days, found.lower, found.upper),
        line("ideal", x.start, y(level), x.stop, y(level)),
        polyline("curve s0", x, y, days, found.coverage),
    ]
    label = (
        f"Coverage of {found.window:,} rows in a row, with its exact 95% band; the dashed line is the level."
    )
    return Chart(label, x, y, shapes)


def further_charts(found: OverTime, digits: Digits, *, dated: bool) -> list[Chart]:
    """The mean width of finite intervals, if there are any, and the share of unknown rows."""
    x, some, charts = time_axis(found.moments, dated=dated), np.isfinite(found.width), []
    if some.any():
        y = y_axis("mean width", 0.0, 1.05 * max(float(found.width[some].max()), 1e-300))
        ends = [digits.text(float(one)) for one in found.width[some][[0, -1]]]
        label = f"Mean width of the finite intervals: {ends[0]} at first, {ends[1]} at last."
        charts.append(
            Chart(label, x, y, [polyline("curve s0", x, y, found.moments[some], found.width[some])])
        )
    most = float(found.unknown.max())
    y = y_axis("unknown rows", 0.0, max(0.1, min(1.0, 1.05 * most)), percent)
    label = f"Share of unknown rows, which are like none before: at most {percent(most, 1)}."
    return [*charts, Chart(label, x, y, [polyline("curve s0", x, y, found.moments, found.unknown)])]


def time_axis(moments: Float[NDArray, "k"], *, dated: bool) -> Axis:
    """From the first to the last moment; dates by months, days or hours."""
    first, last = float(moments.min()), float(moments.max())
    last = last if last > first else first + 1.0
    form = "%Y-%m" if last - first > MONTHS else "%m-%d" if last - first > HOURS else "%d %Hh"
    return x_axis("date" if dated else "row", first, last, lambda day: moment_text(day, form, dated=dated))


def moment_text(day: float, form: str = "%Y-%m-%d", *, dated: bool) -> str:
    """A day since 1970 as a date, or a row's number."""
    if not dated:
        return f"row {day:,.0f}" if form == "%Y-%m-%d" else f"{day:,.0f}"
    return f"{datetime.datetime(1970, 1, 1) + datetime.timedelta(days=day):{form}}"
