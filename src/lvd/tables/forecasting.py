"""Forecasts from a table in order of time: its rows get lags as inputs, and one target per horizon."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError, Parameter
from lvd.tables.column_values import check_columns, for_each_column, list_rows, to_numbers
from lvd.tables.dates import DAY, DateOrder, to_moments

MONTH = 28 * DAY
"""Dates further apart than this, on the same day of the month, are months apart."""
SPARSE = 100
"""A regular spacing is rejected if it has more than this many dates per row."""


@dataclass(frozen=True)
class Raster:
    """Evenly spaced dates: `step` seconds from `origin` on, or `months` apart."""

    origin: float
    step: float
    months: int = 0

    @classmethod
    def of(cls, moments: Float[NDArray, "n"]) -> Raster:
        """The raster of increasing moments: most are one step apart, some may be missing."""
        dates = moments.astype("datetime64[s]")
        months = dates.astype("datetime64[M]").astype(np.int64)
        in_month = moments - dates.astype("datetime64[M]").astype("datetime64[s]").astype(np.float64)
        apart = np.diff(moments)
        if apart.min() >= MONTH and (in_month == in_month[0]).all():
            return cls(float(moments[0]), 0.0, int(np.gcd.reduce(np.diff(months))))
        steps, counts = np.unique(apart, return_counts=True)
        return cls(float(moments[0]), float(steps[counts.argmax()]))

    def places(self, moments: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
        """The number of steps after the origin; integers for dates on the raster."""
        if not self.months:
            found: NDArray = (moments - self.origin) / self.step
            return found
        months = (moments.astype("datetime64[s]").astype("datetime64[M]")).astype(np.float64)
        begin = np.floor(self.origin).astype("datetime64[s]").astype("datetime64[M]").astype(np.float64)
        on_day = self.moments((months - begin) / self.months) == moments
        return np.where(on_day, (months - begin) / self.months, np.nan)

    def moments(self, places: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
        """The dates at these numbers of steps."""
        if not self.months:
            found: NDArray = self.origin + places * self.step
            return found
        begin = np.floor(self.origin).astype("datetime64[s]")
        first = begin.astype("datetime64[M]")
        months = first + np.round(places * self.months).astype("timedelta64[M]")
        found = months.astype("datetime64[s]").astype(np.float64)
        return found + self.origin - first.astype("datetime64[s]").astype(np.float64)

    @property
    def words(self) -> str:
        """The step in words."""
        for unit, seconds in (("week", 7 * DAY), ("day", DAY), ("hour", 3600.0), ("minute", 60.0)):
            if not self.months and self.step % seconds == 0.0:
                return _counted(int(self.step // seconds), unit)
        return _counted(self.months, "month") if self.months else f"{self.step:g} seconds"


class ForecastRows(NamedTuple):
    """The rows of a table whose lags are known, in order of time, with lag columns and positions on the raster.
    `n_before` other rows lack a lag; `n_missing` dates have no row, of which the first is named."""

    table: pa.Table
    places: Int[NDArray, "n"]
    n_before: int
    n_missing: int
    first_missing: str

    @property
    def note(self) -> str:
        """A sentence on what is left out."""
        told = f"{self.n_before:,} rows are left out because a lag is not known, as at the beginning"
        if self.n_missing:
            told += (
                f"; {_counted(self.n_missing, 'date')} on the raster missing, the first {self.first_missing}"
            )
        return told


@dataclass(frozen=True)
class ForecastPlan:
    """What is forecast from what: for each horizon h the value h steps after a row's date, from the lagged values.

    Lag 1 is the row's own value, the latest known at its date, and lag 24 the one 23 steps earlier. The other
    columns are inputs as of the row's date.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from lvd.tables.forecasting import ForecastPlan
    >>> days = pa.table({"day": ["2024-03-01", "2024-03-02", "2024-03-03"], "sold": [1.0, 2.0, 4.0]})
    >>> plan = ForecastPlan.of(days, time="day", target="sold", lags=[1, 2], horizons=[1])
    >>> plan.rows(days).table.to_pylist()[0]
    {'day': '2024-03-02', 'sold': 2.0, 'sold_lag1': 2.0, 'sold_lag2': 1.0, 'sold_h1': 4.0}
    """

    time: str
    target: str
    lags: tuple[int, ...]
    horizons: tuple[int, ...]
    raster: Raster

    @classmethod
    def of(
        cls,
        table: pa.Table,
        *,
        time: str,
        target: str,
        lags: Sequence[int],
        horizons: Sequence[int],
        date_format: DateOrder | None = None,
    ) -> ForecastPlan:
        """The plan for tables like this one, whose dates determine the raster."""
        check_columns(table, [time, target])
        if time == target:
            raise InputError(Parameter("time"), f" must be another column than the target, got {time!r}")
        plan = cls(time, target, _steps(lags, "lags"), _steps(horizons, "horizon"), Raster(0.0, 1.0))
        taken = [name for name in (*plan.targets, *plan.lag_names) if name in table.column_names]
        if taken:
            raise InputError(f"the table already has a column {taken[0]!r}, which is to be added; rename it")
        moments = np.sort(_read_moments(table, time, date_format))
        if len(moments) < max(plan.lags) + max(plan.horizons):
            raise InputError(
                f"{len(moments):,} rows are too few for lag {max(plan.lags)} and horizon {max(plan.horizons)}; "
                "give more rows, or smaller ones"
            )
        return cls(time, target, plan.lags, plan.horizons, Raster.of(_moments_apart(moments, time)))

    @property
    def lag_names(self) -> tuple[str, ...]:
        """The names of the lag columns."""
        return tuple(f"{self.target}_lag{lag}" for lag in self.lags)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the horizon columns."""
        return tuple(f"{self.target}_h{horizon}" for horizon in self.horizons)

    @property
    def gap(self) -> float:
        """The gap in seconds between parts that keeps targets of one out of the other."""
        longest = max(self.horizons)
        return longest * (self.raster.step or self.raster.months * 31 * DAY)

    def rows(self, table: pa.Table, date_format: DateOrder | None = None) -> ForecastRows:
        """The rows of a table whose lags are known, with lags and targets; unknown targets are empty."""
        check_columns(table, [self.time, self.target])
        moments = _read_moments(table, self.time, date_format)
        order = np.argsort(moments, kind="stable")
        _moments_apart(moments[order], self.time)
        places = self._places(moments)[order]
        (values,) = for_each_column([self.target], lambda name: to_numbers(table[name]), noun="target")
        known = np.full(places[-1] - places[0] + 1, np.nan)
        known[places - places[0]] = values[order]
        moved = dict(zip(self.lag_names, (1 - lag for lag in self.lags), strict=True))
        moved |= dict(zip(self.targets, self.horizons, strict=True))
        columns = {name: _moved(known, by)[places - places[0]] for name, by in moved.items()}
        complete = ~np.isnan([columns[name] for name in self.lag_names]).any(axis=0)
        sorted_rows = table.take(pa.array(order[complete]))
        for name, column in columns.items():
            sorted_rows = sorted_rows.append_column(name, pa.array(column[complete], from_pandas=True))
        lacking = np.setdiff1d(np.arange(places[0], places[-1] + 1), places)
        first = self._text(float(lacking[0])) if len(lacking) else ""
        return ForecastRows(
            sorted_rows, places[complete], len(places) - int(complete.sum()), len(lacking), first
        )

    def from_place(self, table: pa.Table, place: int) -> pa.Table:
        """The rows of a table in order of time, starting with those needed for the lags at a position."""
        places = self._places(_read_moments(table, self.time, None))
        order = np.argsort(places, kind="stable")
        return table.take(pa.array(order[places[order] > place - max(self.lags)]))

    def latest(self, table: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The latest row with a target, with its lags, and the dates and horizons to forecast from it."""
        found = self.rows(table)
        (values,) = for_each_column([self.target], lambda name: to_numbers(table[name]), noun="target")
        known = self._places(_read_moments(table, self.time, None))[~np.isnan(values)]
        last = known.max(initial=0)
        if not len(found.places) or found.places[-1] != last:
            raise InputError(
                f"the lags of the latest row, {self._text(float(last))}, are not all known: the table needs column "
                f"{self.target!r} at that date and {max(self.lags) - 1:,} steps before it; give more of its past"
            )
        dates = [self._text(float(last + horizon)) for horizon in self.horizons]
        return found.table.slice(len(found.places) - 1), pa.table(
            {self.time: dates, "horizon": list(self.horizons)}
        )

    def _places(self, moments: Float[NDArray, "n"]) -> Int[NDArray, "n"]:
        """The rows' positions on the raster; raises if some are off it."""
        places = self.raster.places(moments)
        off = ~(places == np.round(places))
        if off.any() or np.ptp(places) > SPARSE * len(places):
            what = f"{list_rows(off)} are not" if off.any() else "too few rows are"
            raise InputError(
                f"column {self.time!r} is not evenly spaced: most dates are {self.raster.words} apart, and {what} "
                "on that raster; correct them, or give one row for each date"
            )
        return places.astype(np.int64)

    def _text(self, place: float) -> str:
        moment = float(self.raster.moments(np.array([place]))[0])
        date = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=moment)
        plain = self.raster.months or (self.raster.step % DAY == 0.0 and self.raster.origin % DAY == 0.0)
        return f"{date:%Y-%m-%d}" if plain else f"{date:%Y-%m-%dT%H:%M:%S}"

    def to_dict(self) -> dict[str, Any]:
        """The complete plan, in JSON types."""
        return asdict(self) | {"lags": list(self.lags), "horizons": list(self.horizons)}

    @classmethod
    def from_dict(cls, content: Any) -> ForecastPlan:
        """Restore the output of `to_dict`; anything else is an error."""
        try:
            raster = Raster(**content["raster"])
            names = [content[name] for name in ("time", "target")]
            lags, horizons = _steps(content["lags"], "lags"), _steps(content["horizons"], "horizon")
            sizes = (raster.origin, raster.step, raster.months)
            if not all(isinstance(name, str) for name in names) or not np.isfinite(sizes).all():
                raise ValueError("a name or a number is missing")
            if (
                type(raster.months) is not int
                or raster.months < 0
                or (raster.months == 0) == (raster.step <= 0)
            ):
                raise ValueError("the raster has no step")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the plan of the forecasts is damaged ({error!r}); fit again") from None
        return cls(names[0], names[1], lags, horizons, raster)


def read_steps(text: str, name: str) -> tuple[int, ...]:
    """Parse comma-separated numbers of steps."""
    try:
        return _steps([int(one) for one in text.split(",")], name)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            Parameter(name, named=True), f" must be whole numbers separated by commas, got {text!r}"
        ) from None


def read_horizons(text: str) -> tuple[int, ...]:
    """The horizons: a single number means all up to it, several mean themselves."""
    found = read_steps(text, "horizon")
    return tuple(range(1, found[0] + 1)) if "," not in text else found


def _steps(given: Sequence[int], name: str) -> tuple[int, ...]:
    if not given or any(type(one) is not int or one < 1 for one in given):
        raise InputError(Parameter(name, named=True), f" must be whole numbers from 1 on, got {list(given)}")
    return tuple(sorted(set(given)))


def _read_moments(table: pa.Table, time: str, date_format: DateOrder | None) -> Float[NDArray, "n"]:
    (moments,) = for_each_column([time], lambda name: to_moments(table[name], order=date_format))
    if (missing := np.isnan(moments)).any():
        raise InputError(f"column {time!r} lacks dates ({list_rows(missing)}); fill them in")
    return moments


def _moments_apart(moments: Float[NDArray, "n"], time: str) -> Float[NDArray, "n"]:
    """The increasing moments, checked to be distinct."""
    twice = np.flatnonzero(np.diff(moments) == 0.0)
    if len(twice):
        date = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=float(moments[twice[0]]))
        raise InputError(
            f"column {time!r} holds {date:%Y-%m-%dT%H:%M:%S} more than once; forecasts are of one series, "
            "so fit one model for each, or add their values up"
        )
    return moments


def _moved(known: Float[NDArray, "p"], by: int) -> Float[NDArray, "p"]:
    """The value this many positions later or earlier; NaN if there is none."""
    found = np.full(len(known), np.nan)
    if abs(by) < len(known):
        found[max(0, -by) : len(known) - max(0, by)] = known[max(0, by) : len(known) + min(0, by)]
    return found


def _counted(number: int, unit: str) -> str:
    """``1 hour`` or ``3 hours``."""
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
