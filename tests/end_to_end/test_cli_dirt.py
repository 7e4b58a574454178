"""A table as people keep it: currency, percents, thousands and dates in the usual orders."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lvd
from lvd.tables.column_coding import column_from_dict, column_to_dict, learn_column
from lvd.tables.column_values import without_signs
from lvd.tables.dates import find_order, to_moments

RNG = np.random.default_rng(0)
N = 120


def dirty(order="%d/%m/%Y"):
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 300, N), unit="D")
    cost, share = RNG.uniform(500, 5000, N), RNG.uniform(0, 60, N)
    return pd.DataFrame(
        {
            "sold": days.strftime(order),
            "cost": [f"${one:,.2f}" for one in cost],
            "share": [f"{one:.1f}%" for one in share],
            "area": RNG.uniform(30, 200, N).round(1),
            "price": [f"{one:,.0f}" for one in 3000 + 2 * cost + 10 * share + RNG.normal(size=N)],
        }
    )


FIT = ("--target", "price", "--preset", "paper", "--epochs", 2)


def test_all_of_it_is_read(lvd_here, tmp_path):
    table = dirty()
    table.to_csv(tmp_path / "t.csv", index=False)
    outcome = lvd_here("fit", tmp_path / "t.csv", *FIT, "--out", tmp_path / "model")
    assert outcome.code == 0, outcome.err
    assert "note: read as numbers, without their signs: 'cost' (such as '$" in outcome.out
    assert "note: read as dates: 'sold' (day first)" in outcome.out
    few = table[:1].assign(sold="03/04/2024")  # alone it tells no order
    few.to_csv(tmp_path / "new.csv", index=False)
    outcome = lvd_here("predict", tmp_path / "model", tmp_path / "new.csv", "--out", tmp_path / "o.csv")
    assert outcome.code == 0, outcome.err
    y_pred = lvd.load(tmp_path / "model").predict(few)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "o.csv")["y_pred"], y_pred)


@pytest.mark.parametrize("split", ["random", "time:sold"])
def test_an_order_that_only_its_owner_knows(lvd_here, tmp_path, split):
    table = dirty()
    table["sold"] = [f"{i % 12 + 1:02}/{i // 10 % 12 + 1:02}/2024" for i in range(N)]
    table.to_csv(tmp_path / "t.csv", index=False)
    words = ("fit", tmp_path / "t.csv", *FIT, "--split", split, "--out", tmp_path / "model")
    refused = lvd_here(*words)
    assert (refused.code, refused.out) == (2, "")
    assert (
        "day or month may come first; write dates as 2024-03-31, or say which with --date-format dmy"
        in refused.err
    )
    outcome = lvd_here(*words, "--date-format", "mdy")
    assert outcome.code == 0, outcome.err
    assert "'sold' (month first)" in outcome.out or split != "random"


def test_every_problem_of_every_column_in_one_message(lvd_here, tmp_path):
    table = dirty().assign(size=["3 m2"] * 60 + ["4"] * 60)
    table["sold"] = "03/04/2024"
    table.loc[5, "area"] = np.nan
    table.loc[7, "cost"] = "about $3"
    table.to_csv(tmp_path / "t.csv", index=False)
    refused = lvd_here("fit", tmp_path / "t.csv", *FIT, "--keep", "sold", "--out", tmp_path / "model")
    assert refused.code == 2
    for part in (
        "column 'sold': '03/04/2024': day or month may come first",
        "column 'area': 1 missing value (row 6); fill them in, remove these rows, or fit with --impute median",
        "column 'size': 60 numbers but 60 other values, like '3 m2'",
        "to leave out: --drop sold",
    ):
        assert part in refused.err


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["$1,000.12", "$5", ""], ["1000.12", "5", None]),
        (["-3 %", "4.5%"], ["-3", "4.5"]),
        (["1,234,567", "12"], ["1234567", "12"]),
        (["\u20ac 3", "\u20ac1,000"], ["3", "1000"]),
        (["3 \u20ac"], ["3"]),
        (["$-3.50", "-$2"], ["-3.50", "-2"]),
        (["5%", "5"], None),
        (["$5", "\u20ac5"], None),
        (["1,23", "4"], None),
        (["1.234,5"], None),
        (["1", "2"], None),
        (["$5", "five"], None),
    ],
)
def test_signs(texts, numbers):
    found = without_signs(pa.chunked_array([pa.array([text or None for text in texts])]))
    assert (None if found is None else found.to_pylist()) == numbers


@pytest.mark.parametrize(
    ("texts", "order"),
    [
        (["31/12/2024", "01/02/2024"], "dmy"),
        (["12/31/2024 10:00", "1/2/2024 9:30"], "mdy"),
        (["01.02.2024"], "dmy"),
        (["2024-01-02"], None),
    ],
)
def test_orders(texts, order):
    values = pa.chunked_array([texts])
    assert find_order(values) == order
    assert np.isfinite(to_moments(values)).all()


def test_the_order_travels_with_the_column():
    column = learn_column("sold", pa.chunked_array([["31/12/2024", "01/02/2024"]]), impute=False)
    assert column_from_dict(json.loads(json.dumps(column_to_dict(column)))).order == "dmy"
    with pytest.raises(ValueError, match="order 'ymd'"):
        column_from_dict(column_to_dict(column) | {"order": "ymd"})
