"""Tables for forecasts: lags and horizons by hand, missing and odd dates, parts and folds with gaps between."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import lvd
from lvd.models.candidates import BlockFolds
from lvd.tables.forecasting import ForecastPlan, Raster, read_horizons, read_steps
from lvd.tables.inputs import split_table
from lvd.tables.splits import RowSplit


def hourly(n, *, start="2024-01-01T00:00", without=()):
    moments = np.datetime64(start) + np.arange(n).astype("timedelta64[h]")
    rows = [row for row in range(n) if row not in without]
    return pa.table({"hour": [str(moments[row]) for row in rows], "load": [float(row) for row in rows]})


def plan_of(table, lags=(1, 3), horizons=(1, 2), **names):
    return ForecastPlan.of(
        table, **{"time": "hour", "target": "load"} | names, lags=list(lags), horizons=list(horizons)
    )


def columns(rows, *names):
    return list(zip(*(rows.table[name].to_pylist() for name in names), strict=True))


def test_lags_and_horizons_by_hand():
    table = hourly(8)
    found = plan_of(table).rows(table)
    names = ("load", "load_lag1", "load_lag3", "load_h1", "load_h2")
    assert columns(found, *names) == [
        (2.0, 2.0, 0.0, 3.0, 4.0),
        (3.0, 3.0, 1.0, 4.0, 5.0),
        (4.0, 4.0, 2.0, 5.0, 6.0),
        (5.0, 5.0, 3.0, 6.0, 7.0),
        (6.0, 6.0, 4.0, 7.0, None),
        (7.0, 7.0, 5.0, None, None),
    ]
    assert (found.n_before, found.n_missing) == (2, 0)


def test_the_order_of_the_rows_does_not_matter():
    table = hourly(30)
    plan = plan_of(table)
    mixed = table.take(pa.array(np.random.default_rng(0).permutation(30)))
    assert plan_of(mixed) == plan
    assert plan.rows(mixed).table.equals(plan.rows(table).table)


def test_missing_dates_are_told_and_take_their_lags_with_them():
    table = hourly(12, without=(5,))
    found = plan_of(table).rows(table)
    assert found.table["load"].to_pylist() == [2.0, 3.0, 4.0, 6.0, 8.0, 9.0, 10.0, 11.0]  # 7 lacks lag 3
    assert found.table["load_h1"].to_pylist()[:4] == [3.0, 4.0, None, 7.0]
    assert (found.n_missing, found.first_missing) == (1, "2024-01-01T05:00:00")
    assert found.note == (
        "3 rows are left out because a lag is not known, as at the beginning; 1 date on the raster missing, the "
        "first 2024-01-01T05:00:00"
    )


def test_an_empty_target_is_a_lag_that_is_not_known():
    table = hourly(6)
    table = table.set_column(1, "load", pa.array([0.0, 1.0, None, 3.0, 4.0, 5.0]))
    found = plan_of(table, lags=(1, 2), horizons=(1,)).rows(table)
    assert found.table["load"].to_pylist() == [1.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("dates", "words", "after"),
    [
        (["2024-01-31", "2024-02-29", "2024-03-31"], None, None),
        (["2024-01-01", "2024-02-01", "2024-03-01", "2024-05-01"], "1 month", "2024-06-01"),
        (["2023-12-15", "2024-03-15", "2024-06-15"], "3 months", "2024-09-15"),
        (["2024-01-01", "2024-01-08", "2024-01-15"], "1 week", "2024-01-22"),
        (["2024-02-28", "2024-02-29", "2024-03-01"], "1 day", "2024-03-02"),
        (["2024-02-28T10:15", "2024-02-28T10:30", "2024-02-28T10:45"], "15 minutes", "2024-02-28T11:00:00"),
        (["2024-02-28T10:00:00", "2024-02-28T10:00:07", "2024-02-28T10:00:14"], "7 seconds", None),
    ],
)
def test_rasters(dates, words, after):
    moments = np.array(dates, "M8[s]").astype(np.float64)
    raster = Raster.of(moments)
    if words is None:  # the ends of months are not evenly apart
        assert not (raster.places(moments) == np.round(raster.places(moments))).all()
        return
    places = raster.places(moments)
    assert (raster.words, places[0]) == (words, 0.0)
    np.testing.assert_array_equal(raster.moments(places), moments)
    if after is not None:
        plan = ForecastPlan("day", "y", (1,), (1,), raster)
        table = pa.table({"day": dates, "y": [1.0] * len(dates)})
        assert plan.latest(table)[1]["day"].to_pylist() == [after]


def test_the_latest_row_is_the_last_that_has_the_target():
    table = hourly(10)
    plan = plan_of(table)
    coming = table.set_column(1, "load", pa.array([*map(float, range(8)), None, None]))
    row, dates = plan.latest(coming)
    assert (row.num_rows, row["load"][0].as_py()) == (1, 7.0)
    assert dates.to_pylist() == [
        {"hour": "2024-01-01T08:00:00", "horizon": 1},
        {"hour": "2024-01-01T09:00:00", "horizon": 2},
    ]
    with pytest.raises(lvd.InputError, match="at that date and 2 steps before it; give more of its past"):
        plan.latest(table.slice(8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda hours: [*hours[:-1], hours[0]], "holds 2024-01-01T00:00:00 more than once"),
        (lambda hours: [*hours[:-1], "2024-01-02T00:30"], r"most dates are 1 hour apart, and row 12 are not"),
        (lambda hours: [*hours[:-1], "2044-01-02T00:00"], "too few rows are on that raster"),
        (lambda hours: [*hours[:-1], ""], r"lacks dates \(row 12\)"),
        (lambda hours: [*hours[:-1], "soon"], "'hour'.*is not a date or time|must hold dates"),
    ],
)
def test_dates_that_are_no_raster(change, message):
    table = hourly(12)
    changed = table.set_column(0, "hour", pa.array(change(table["hour"].to_pylist())))
    with pytest.raises(lvd.InputError, match=message):
        plan_of(changed).rows(changed)


def test_plans_that_cannot_be():
    table = hourly(12)
    with pytest.raises(lvd.InputError, match="time must be another column than the target"):
        plan_of(table, time="load")
    with pytest.raises(lvd.InputError, match="no column 'demand'"):
        plan_of(table, target="demand")
    with pytest.raises(lvd.InputError, match="12 rows are too few for lag 10 and horizon 5"):
        plan_of(table, lags=(10,), horizons=(5,))
    with pytest.raises(lvd.InputError, match="already has a column 'load_h1'"):
        plan_of(table.append_column("load_h1", table["load"]))
    with pytest.raises(lvd.InputError, match=r"lags= must be whole numbers from 1 on, got \[0\]"):
        plan_of(table, lags=(0,))
    with pytest.raises(lvd.InputError, match="lags= must be whole numbers separated by commas, got 'one'"):
        read_steps("one", "lags")
    assert (read_horizons("3"), read_horizons("6,1"), read_steps("24,1,1", "lags")) == (
        (1, 2, 3),
        (1, 6),
        (1, 24),
    )


def test_a_plan_is_saved_and_a_damaged_one_refused():
    plan = plan_of(hourly(12))
    assert ForecastPlan.from_dict(plan.to_dict()) == plan
    for name, value in (("lags", [1.5]), ("raster", {}), ("time", 3), ("horizons", [])):
        with pytest.raises(lvd.InputError, match="the plan of the forecasts is damaged"):
            ForecastPlan.from_dict(plan.to_dict() | {name: value})
    for raster in ({"origin": 0.0, "step": 0.0, "months": 0}, {"origin": 0.0, "step": np.inf, "months": 0}):
        with pytest.raises(lvd.InputError, match="the plan of the forecasts is damaged"):
            ForecastPlan.from_dict(plan.to_dict() | {"raster": raster})


def test_parts_in_time_know_nothing_of_each_other():
    table = hourly(200)
    plan = plan_of(table, lags=(1, 2), horizons=(1, 5))
    rows = plan.rows(table).table
    labelled = np.arange(rows.num_rows - 5)
    split = RowSplit("time", "hour", plan.gap)
    train, calib, test = split_table(split, rows, labelled, 0)
    load = np.array(rows["load"].to_pylist())
    assert load[train].max() + 5 == load[calib].min()
    assert load[calib].max() + 5 == load[test].min()
    with pytest.raises(lvd.InputError, match="no row is left between the parts"):
        split_table(RowSplit("time", "hour", 1000 * plan.gap), rows, labelled, 0)


def test_folds_are_blocks_with_a_gap():
    folds = BlockFolds(4, gap=3).split(range(40))
    for inside, outside in folds:
        assert np.abs(inside[:, None] - outside).min() == 4
    np.testing.assert_array_equal(np.concatenate([outside for _, outside in folds]), np.arange(40))
    assert BlockFolds(4).get_n_splits() == 4


def test_held_out_errors_are_of_blocks(monkeypatch):
    """A model of neighbours knows the row beside it, unless whole blocks are held out."""
    from sklearn.neighbors import KNeighborsRegressor

    rng = np.random.default_rng(0)
    X = np.arange(300.0)[:, None]
    y = np.cumsum(rng.normal(size=300))
    errors, learned = {}, []
    monkeypatch.setattr(lvd.LVDRegressor, "_learn", lambda self, training: learned.append(training))
    for folds in (5, BlockFolds(5, gap=5)):
        lvd.LVDRegressor(
            KNeighborsRegressor(1), folds=folds, calib_size=None, conformity_score="scaled", random_state=0
        ).fit(X, y)
        errors[str(folds)] = np.abs(learned[-1].held_out_errors).mean()
    at_random, in_blocks = errors.values()
    assert in_blocks > 2.0 * at_random
