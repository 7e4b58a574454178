"""A messy table through all commands, and three real ones from file to page, as a new user would try them."""

from __future__ import annotations

import csv
import json
import resource
import time
from contextlib import contextmanager

import numpy as np
import pytest

from messy import write_messy

FAST = ("--epochs", 3, "--impute", "median", "--drop", "fee")


def column(path, name):
    with path.open(newline="") as file:
        return [row[name] for row in csv.DictReader(file)]


def walk(run, folder, n_rows, *options):
    """All commands, one after the other, in `folder`."""
    write_messy(folder / "sales.csv", n_rows)
    write_messy(folder / "new.csv", 60, seed=1, new_cities=10, clean=True)
    write_messy(folder / "later.csv", 150, seed=2, clean=True)
    write_messy(folder / "worse.csv", 300, seed=3, noise=12.0, clean=True)
    fit = run("fit", "sales.csv", "--target", "price", *options, "--test-out", "test.csv", "--out", "model")
    assert fit.code == 0, fit.err
    predict = run("predict", "model", "new.csv", "--out", "out.csv")
    assert predict.code == 0, predict.err
    evaluate = run("evaluate", "model", "test.csv", "--by", "city", "--json")
    assert evaluate.code == 0, evaluate.err
    explain = run("explain", "model", "new.csv", "--row", 1)
    assert explain.code == 0, explain.err
    report = run("report", "model", "test.csv", "--by", "kind", "--out", "page.html")
    assert report.code == 0, report.err
    calm = run("monitor", "model", "later.csv", "--json")
    assert calm.code == 0, calm.err
    alarm = run("monitor", "model", "worse.csv", "--json")
    assert alarm.code == 3, alarm.err
    update = run("update", "model", "later.csv")
    assert update.code == 0, update.err
    return (
        fit,
        predict,
        json.loads(evaluate.out),
        explain,
        json.loads(calm.out),
        json.loads(alarm.out),
        update,
    )


def check_walk(folder, outcomes, n_rows):
    fit, predict, evaluated, explain, calm, alarm, update = outcomes
    lines = fit.out.splitlines()
    n_missing = column(folder / "sales.csv", "price").count("")
    assert lines[0].startswith(f"sales.csv: {n_rows + n_rows // 100:,} rows, 6 input columns, ")
    assert lines[2] == (
        f"left out: {n_missing} rows without a target, the columns order_id (identifier), currency (constant), fee"
    )
    assert lines[3].startswith("price: ")
    assert lines[4].startswith("model written to model; it uses ")
    assert "note: column 'city' has " in fit.out
    assert (
        "note: column 'sold' holds dates: rows much later than the training rows will be unknown" in fit.out
    )
    assert "calibration and test rows repeat the inputs of a training row" in fit.out
    known, upper = column(folder / "out.csv", "known"), column(folder / "out.csv", "upper_90")
    assert known[:10] == ["false"] * 10
    assert upper[:10] == ["inf"] * 10
    assert np.mean(np.array(known[10:]) == "true") > 0.9
    assert np.mean(np.array(upper[10:]) != "inf") > 0.8
    assert " of these hold a text that no training row has (city: 'new-town-0', " in predict.out
    (target,) = evaluated["targets"]
    assert evaluated["n_rows"] + evaluated["n_unlabelled"] == len(column(folder / "test.csv", "price"))
    cities = {group["group"] for group in target["by"][0]["groups"]}
    assert cities <= set(column(folder / "sales.csv", "city"))
    assert target["summary"]["rows"][0]["marginal_coverage_rate"] > 0.8
    assert "Unknown: no training row has city 'new-town-0', so it gets no finite interval." in explain.out
    assert "known: no, no training row has city 'new-town-0'" in explain.out
    assert not calm["monitor"]["alarm"]
    assert alarm["monitor"]["alarm"]
    assert update.out.startswith(f"150 rows added; {(n_rows + n_rows // 100 - n_missing) // 5}"[:16])
    card = (folder / "model" / "card.md").read_text()
    assert "- updated on " in card
    assert "later.csv: 150 rows, 10 columns, sha256 " in card


def test_a_messy_table(lvd_here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcomes = walk(lvd_here, tmp_path, 1500, *FAST)
    check_walk(tmp_path, outcomes, 1500)
    leak = ("fit", "sales.csv", "--target", "price", "--epochs", 1, "--impute", "median", "--preset", "paper")
    outcome = lvd_here(*leak, "--out", "leaky")
    assert "note: column 'fee' alone explains 99." in outcome.out or "explains 100.0%" in outcome.out
    for name in ("city", "area", "sold"):
        assert f"column {name!r} alone" not in outcome.out


@contextmanager
def timed(what):
    """Say how long it took, by the clock and on the processor: others may be at work too."""
    clock, processor = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    yield
    spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - processor
    print(f"{what}: {time.monotonic() - clock:.0f} s, {spent:.0f} s on the processor")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_large_messy_table(lvd_outside, tmp_path):
    def run(*words):
        return lvd_outside(*words, cwd=tmp_path, timeout=1800)

    with timed("all commands"):
        outcomes = walk(run, tmp_path, 20_000, "--impute", "median", "--drop", "fee")
    check_walk(tmp_path, outcomes, 20_000)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "target"), [("communities", "c127"), ("diamonds", "price"), ("house", "price")]
)
def test_from_file_to_page_in_one_command(lvd_outside, shared_dir, tmp_path, name, target):
    data = shared_dir / "data" / "arena" / f"{name}.csv.gz"
    if not data.is_file():
        pytest.skip(f"needs {data}")
    outputs = ("--report", tmp_path / "page.html", "--out", tmp_path / "model")
    with timed(name):
        outcome = lvd_outside("fit", data, "--target", target, "--impute", "median", *outputs, timeout=1800)
    print(outcome.out)
    assert outcome.code == 0, outcome.err
    assert "</html>" in (tmp_path / "page.html").read_text()
    assert "does not hold" not in outcome.out
