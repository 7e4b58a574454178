"""``lvd report``: the page of the command, and what it refuses."""

from __future__ import annotations

import json
import re

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1])


@pytest.fixture(scope="module")
def page(lvd_here, homes, tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "report.html"
    options = (
        "--by",
        "district",
        "--by",
        "rooms",
        "--compare",
        "split,madsplit,cqr",
        "--fitted-on",
        homes.table,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lvd.models.validated.MOST_ROUNDS", 2)  # the rivals' networks are not what is tested
        outcome = lvd_here("report", homes.model, homes.new, "--target", "price", *options, "--out", out)
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    assert outcome.out.endswith(f"page written to {out}\n")
    return out


def test_the_page_agrees_with_the_other_commands(lvd_here, homes, page):
    (found,) = json.loads(lvd_here("evaluate", homes.model, homes.new, "--json").out)["targets"]
    figures = found["summary"]["rows"][0]
    text = page.read_text()
    assert f"they contain {figures['marginal_coverage_rate']:.1%} of 120 true values" in text
    assert f"<dd>{figures['mean_absolute_deviation']:.1f}</dd>" in text
    data = data_of(page)
    assert len(data["rows"]) == 120
    row = next(row for row in data["rows"] if row[0] == 17)
    (explained,) = json.loads(
        lvd_here("explain", homes.model, homes.new, "--row", 17, "--neighbors", 8, "--json").out
    )
    assert row[7] == explained["sentence"]
    assert [one[0] for one in row[10]] == [one["index"] for one in explained["evidence"]["neighbors"]]


def test_parquet_gives_the_same_page_as_csv(lvd_here, homes, page, tmp_path):
    pq.write_table(pa_csv.read_csv(homes.new), tmp_path / "new.parquet")
    options = (
        "--by",
        "district",
        "--by",
        "rooms",
        "--compare",
        "split",
    )  # the target is the model's
    outcome = lvd_here(
        "report", homes.model, tmp_path / "new.parquet", *options, "--out", tmp_path / "other.html"
    )
    assert outcome.code == 0, outcome.err
    figures = [[row[:6] for row in data_of(one)["rows"]] for one in (page, tmp_path / "other.html")]
    assert figures[0] == figures[1]


def test_rivals_are_shown(page):
    text = page.read_text()
    for name, how in (
        ("Split", "one width for all rows"),
        ("MADSplit", "around the same network"),
        ("CQR", "networks of its own"),
    ):
        assert name in text
        assert how in text


def test_training_rows_are_warned_of(lvd_here, homes, tmp_path):
    outcome = lvd_here(
        "report", homes.model, homes.table, "--target", "price", "--out", tmp_path / "report.html"
    )
    assert outcome.code == 0
    assert outcome.err.startswith("warning: 300 of 500 rows have the inputs of a training row")
    assert "this page is too favourable" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target", "area"), "--target must be what the model was fitted to predict, 'price', got 'area'"),
        (
            ("--target", "price", "--target", "area"),
            "a page shows one target, but there are 2: price, area; name one with --target",
        ),
        (("--target", "price", "--by", "distict"), "no column 'distict'; did you mean 'district'?"),
        (("--compare", "mad"), "--compare must be one of 'split', 'madsplit', 'cqr', 'jackknifeplus'"),
        (("--compare", "split,"), "got ''"),
        (
            ("--compare", "split,cqr"),
            "--compare must be 'split' where --fitted-on is not given, got 'cqr'",
        ),
        (("--target", "price", "--level", 90), "--level must lie in (0, 1), got 90; did you mean"),
        (("--target", "price", "--smiles", "smile"), "the table has no column 'smile'"),
    ],
)
def test_refusals_leave_nothing(lvd_here, homes, tmp_path, options, message):
    outcome = lvd_here("report", homes.model, homes.new, *options, "--out", tmp_path / "report.html")
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_neighbours_table_must_be_the_fitted_one(lvd_here, homes, tmp_path):
    outcome = lvd_here(
        *("report", homes.model, homes.new, "--target", "price", "--fitted-on", homes.new),
        *("--out", tmp_path / "report.html"),
    )
    assert outcome.code == 2
    assert (
        "--fitted-on must be the table that the model was fitted on, of 500 rows, got one of 120"
        in outcome.err
    )


@pytest.mark.parametrize("out", [".", "nowhere/report.html"])
def test_a_page_that_cannot_be_written(lvd_here, homes, tmp_path, out):
    outcome = lvd_here("report", homes.model, homes.new, "--target", "price", "--out", tmp_path / out)
    assert outcome.code == 2
    assert "cannot write" in outcome.err


def test_another_guarantee_in_evaluate_and_on_the_page_and_no_page_is_replaced_unasked(
    lvd_here, homes, tmp_path
):
    out, words = tmp_path / "page.html", ("--guarantee", "calibrated")
    plain, other = (
        json.loads(lvd_here("evaluate", homes.model, homes.new, *given, "--json").out)["targets"][0][
            "verdicts"
        ][0]
        for given in ((), words)
    )
    assert other["sentence"] != plain["sentence"]
    assert lvd_here("report", homes.model, homes.new, *words, "--out", out).code == 0
    written = out.read_text()
    assert other["sentence"] in written
    assert "Guarantee: calibrated" in written
    refused = lvd_here("report", homes.model, homes.new, "--out", out)
    assert refused.code == 2
    assert "exists already; give --force to replace it" in refused.err
    assert out.read_text() == written


@pytest.mark.slow
def test_a_process_ends_without_a_word_of_leaks(lvd_outside, homes, tmp_path):
    words = ("--target", "price", "--preset", "paper", "--epochs", 1, "--out", tmp_path / "model")
    outcome = lvd_outside("fit", homes.table, *words, "--impute", "median")
    assert (outcome.code, outcome.err) == (0, "")
