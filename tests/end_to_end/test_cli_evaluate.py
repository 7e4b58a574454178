"""``lvd evaluate``."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.csv as pa_csv
import pytest

from lvd import metrics


def read(outcome):
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)["targets"][0]


def test_the_metrics_are_those_of_the_predicted_table(lvd_here, homes, tmp_path):
    levels = ("--level", 0.5, "--level", 0.9)
    lvd_here("predict", homes.model, homes.new, *levels, "--out", tmp_path / "out.csv")
    table = pa_csv.read_csv(tmp_path / "out.csv")
    y, y_pred, low_50, high_50, low_90, high_90 = (
        np.asarray(table[name], dtype=float)
        for name in ("price", "y_pred", "lower_50", "upper_50", "lower_90", "upper_90")
    )
    intervals = np.stack([np.stack([low_50, high_50], 1), np.stack([low_90, high_90], 1)], axis=-1)
    expected = metrics.summary(y, y_pred, intervals, [0.5, 0.9])
    outcome = lvd_here(
        "evaluate", homes.model, homes.new, "--target", "price", "--by", "district", *levels, "--json"
    )
    assert outcome.err == ""
    report = read(outcome)
    assert report["target"] == "price"
    assert report["summary"]["rows"] == list(expected.rows)
    groups = metrics.group_coverage(y, intervals[..., 1], table["district"].to_pylist(), 0.9)
    found = report["by"][1]
    assert found["confidence_level"] == 0.9
    assert [(g["group"], g["count"], g["coverage"]) for g in found["groups"]] == [
        (g.group, g.count, g.coverage) for g in groups
    ]


def test_a_group_that_is_covered_too_rarely_is_flagged(lvd_here, homes, tmp_path):
    header, *rows = homes.new.read_text().splitlines()
    assert header.endswith("garden,price")
    spoiled = [f"{row.rsplit(',', 1)[0]},1000" if ",south," in row else row for row in rows]
    (tmp_path / "spoiled.csv").write_text("\n".join([header, *spoiled, ""]))
    flagged = lvd_here("evaluate", homes.model, tmp_path / "spoiled.csv", "--by", "district")
    assert flagged.code == 0
    (line,) = [line for line in flagged.out.splitlines() if "BELOW THE LEVEL" in line]
    assert line.startswith("south")
    assert "BELOW" not in lvd_here("evaluate", homes.model, homes.new, "--by", "district").out


@pytest.mark.parametrize(
    ("column", "groups"),
    [("rooms", ["1", "2", "3", "4", "5", "6"]), ("garden", ["false", "true"]), ("kind", ["a", "missing"])],
)
def test_groups_of_few_values(lvd_here, homes, tmp_path, column, groups):
    header, *rows = homes.new.read_text().splitlines()
    lines = [f"{header},kind", *(f"{row},{'a' if i % 3 else ''}" for i, row in enumerate(rows))]
    (tmp_path / "new.csv").write_text("\n".join([*lines, ""]))
    outcome = lvd_here("evaluate", homes.model, tmp_path / "new.csv", "--by", column)
    table = outcome.out.split("95% band")[1].splitlines()[1:]
    assert [line.split()[0] for line in table] == groups


def test_a_number_of_many_values_is_cut_into_ten_groups(lvd_here, homes):
    report = read(lvd_here("evaluate", homes.model, homes.new, "--by", "area", "--json"))
    groups = report["by"][0]["groups"]
    assert [group["count"] for group in groups] == [12] * 10
    assert all(" to " in group["group"] for group in groups)


def test_training_rows_are_warned_of(lvd_here, homes):
    outcome = lvd_here("evaluate", homes.model, homes.table)
    assert outcome.code == 0
    assert outcome.err.startswith("warning: 300 of 500 rows have the inputs of a training row")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target", "area"), "target must be what the model was fitted to predict, 'price', got 'area'"),
        (("--by", "distict"), "no column 'distict'; did you mean 'district'?"),
        (("--level", 90), "--level must lie in (0, 1), got 90; did you mean 0.9?"),
        (("--level", 0.9, "--level", 0.9), "must name each level once"),
    ],
)
def test_refusals(lvd_here, homes, options, message):
    outcome = lvd_here("evaluate", homes.model, homes.new, *options)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.out == ""
