"""``lvd fit``."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow.csv as pa_csv
import pytest

import lvd
from lvd.tables.splits import split_indices

TINY = "x,y\n" + "".join(f"{i % 7 + i / 100},{i % 5 + i / 50}\n" for i in range(200))


@pytest.fixture
def tiny(tmp_path):
    (tmp_path / "tiny.csv").write_text(TINY)
    return tmp_path / "tiny.csv"


def test_the_report(homes):
    lines = homes.report.splitlines()
    assert lines[0] == f"{homes.table}: 500 rows, 4 input columns, 6 features"
    assert lines[1] == "split (seed 0): 300 training, 100 calibration and 100 test rows"
    assert lines[2] == "left out: no row, the column id"
    assert "price, on the 100 test rows, which no step has seen" in lines
    assert lines[3].startswith("price: ")
    assert " of the true values are inside their 90% interval, " in lines[3]
    assert lines[4].startswith(f"model written to {homes.model}; it uses ")
    assert "\x1b" not in homes.report


def test_json_test_rows_and_the_same_model_again(lvd_here, homes, tmp_path):
    model, test_file = tmp_path / "model", tmp_path / "test.csv"
    outcome = lvd_here(
        *("fit", homes.table, "--target", "price", "--drop", "id", "--epochs", 20, "--preset", "paper"),
        *("--out", model, "--test-out", test_file, "--json"),
    )
    report = json.loads(outcome.out)
    assert (report["n_train"], report["n_calib"], report["n_test"]) == (300, 100, 100)
    assert report["left_out"] == ["id"]
    test, rows = pa_csv.read_csv(test_file), split_indices(500, 0)[2]
    assert test.column("id").to_pylist() == [f"home-{row}" for row in rows]
    assert test.equals(pa_csv.read_csv(homes.table).take(rows))
    evaluated = json.loads(lvd_here("evaluate", model, test_file, "--json").out)
    assert evaluated["targets"] == report["targets"]
    first, again = ((m / "tensors.safetensors").read_bytes() for m in (homes.model, model))
    assert first == again


def test_a_model_is_replaced_only_by_force(lvd_here, homes, tiny, tmp_path):
    model = shutil.copytree(homes.model, tmp_path / "model")
    before = (model / "manifest.json").read_bytes()
    arguments = ("fit", tiny, "--target", "y", "--epochs", 1, "--preset", "paper", "--out", model)
    refused = lvd_here(*arguments)
    assert refused.code == 2
    assert "exists already; give --force to replace it" in refused.err
    assert (model / "manifest.json").read_bytes() == before
    assert lvd_here(*arguments, "--force").code == 0
    assert json.loads((model / "manifest.json").read_text())["columns"]["n_rows"] == 200
    assert sorted(tmp_path.iterdir()) == sorted([tiny, model])


def test_force_does_not_replace_what_is_no_model(lvd_here, tiny, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    outcome = lvd_here("fit", tiny, "--target", "y", "--out", tmp_path / "thesis", "--force")
    assert outcome.code == 2
    assert "it holds something else" in outcome.err
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


def test_missing_values_are_counted_or_imputed(lvd_here, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{'' if i in (3, 9) else rng.normal()},{rng.choice(['u', 'v', ''])},{i}" for i in range(200)]
    (tmp_path / "holes.csv").write_text("\n".join(["x,kind,y", *rows, ""]))
    arguments = (
        "fit",
        tmp_path / "holes.csv",
        "--target",
        "y",
        "--epochs",
        1,
        "--preset",
        "paper",
        "--out",
        tmp_path / "model",
    )
    refused = lvd_here(*arguments)
    assert refused.code == 2
    assert "column 'x': 2 missing values (rows 4, 10)" in refused.err
    assert "--impute median" in refused.err
    assert lvd_here(*arguments, "--impute", "median").code == 0
    outcome = lvd_here("predict", tmp_path / "model", tmp_path / "holes.csv", "--out", "-")
    assert len(outcome.out.splitlines()) == 201


def test_what_a_user_should_know_is_said(lvd_here, tmp_path):
    (tmp_path / "twice.csv").write_text(TINY + TINY.split("\n", 1)[1])
    outcome = lvd_here(
        *(
            "fit",
            tmp_path / "twice.csv",
            "--target",
            "y",
            "--epochs",
            1,
            "--preset",
            "paper",
            "--out",
            tmp_path / "model",
        ),
        *("--level", 0.999, "--y-min", 0, "--y-max", 5),
    )
    assert outcome.code == 0
    assert "repeat the inputs of a training row" in outcome.out
    assert outcome.err.startswith("warning: every interval at confidence_level=0.999 is infinite")
    assert len(outcome.err.splitlines()) == 1
    _, intervals = lvd.load(tmp_path / "model").predict_interval([[3.0], [500.0]])
    np.testing.assert_array_equal(intervals, [[[0], [5]], [[0], [5]]])


def test_fewer_infinite_intervals_on_request(lvd_here, tmp_path):
    rows = np.random.default_rng(0).normal(size=(200, 6))
    np.savetxt(tmp_path / "spread.csv", rows, delimiter=",", header="a,b,c,d,e,y", comments="")
    arguments = (
        "fit",
        tmp_path / "spread.csv",
        "--target",
        "y",
        "--epochs",
        1,
        "--preset",
        "paper",
        "--out",
        tmp_path / "model",
        "--force",
    )
    note = "if --bandwidth is a number, so does adaptive, which looks as far as needed for similar rows"
    assert note in lvd_here(*arguments).out
    assert note not in lvd_here(*arguments, "--level", 0.99).out  # 40 rows are too few, however near

    def finite(*choices):
        (report,) = json.loads(lvd_here(*arguments, "--json", *choices).out)["targets"]
        return report["summary"]["rows"][0]["finite_fraction"]

    plain = finite()
    assert plain < 0.5
    assert finite("--bandwidth", "adaptive") > 0.5
    assert finite("--bandwidth", 2) > plain


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (("--bandwidth", "wide"), "--bandwidth must be a number or adaptive, got 'wide'"),
        (("--bandwidth", "auto"), "--bandwidth must be a number or adaptive, got 'auto'"),
        (("--bandwidth", "0"), "--bandwidth must be a positive number"),
        (("--bandwidth", "inf"), "--bandwidth must be finite"),
        (("--kernel-floor", "1"), "No such option: --kernel-floor"),
        (("--y-min", 5, "--y-max", 1), "--y-min must be below --y-max, got 5 and 1"),
        (("--level", 90), "--level must lie in (0, 1), got 90; did you mean 0.9?"),
    ],
)
def test_a_kernel_that_cannot_be(choice, message, lvd_here, tiny, tmp_path):
    outcome = lvd_here("fit", tiny, "--target", "y", "--out", tmp_path / "model", *choice)
    assert outcome.code == 2
    assert message in outcome.err
    assert not (tmp_path / "model").exists()


def test_cross_calibration_says_what_it_promises(lvd_here, homes, tmp_path):
    table, out, page = tmp_path / "few.csv", tmp_path / "model", tmp_path / "page.html"
    table.write_text("".join(homes.table.read_text().splitlines(keepends=True)[:101]))
    given = ("fit", table, "--target", "price", "--model", "trees", "--score", "absolute", "--out", out)
    split = lvd_here(*given)
    assert "only 60 rows train and 20 calibrate; with --calibration cross all 80 do both" in split.out
    assert "20 test rows are too few to tell whether 90% are covered, which takes about 220" in split.out
    outcome = lvd_here(*given, "--force", "--calibration", "cross", "--report", page)
    assert (outcome.code, "with --calibration cross" in outcome.out) == (0, False), outcome.err
    lines = outcome.out.splitlines()
    assert lines[1].endswith(
        "80 training rows, which also calibrate by out-of-fold errors (cross), and 20 test rows"
    )
    assert lines[2].startswith("promise: Calibrated on cross-validated errors of all training rows")
    assert "exact 95% band of the coverage" in lines[4]
    assert "at most twice 1 - level" in (out / "card.md").read_text()
    assert "all of them calibrate" in page.read_text()
    explained = lvd_here("explain", out, table, "--row", 3).out
    assert "The errors are cross-validated" in explained
    compared = lvd_here(
        *("report", out, table, "--compare", "split,madsplit", "--fitted-on", table, "--out", page, "--force")
    )
    assert compared.code == 0, compared.err
    assert "near each row, measured and not proved" in page.read_text()


def test_an_ensemble_of_quantile_models(lvd_here, homes, tmp_path):
    given = ("--score", "quantile", "--calibration", "ensemble", "--epochs", 2, "--out", tmp_path / "model")
    outcome = lvd_here("fit", homes.table, "--target", "price", *given)
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("calibration", ["cross", "ensemble"])
def test_other_guarantees_need_rows_set_aside(calibration, lvd_here, homes, tmp_path):
    given = ("--calibration", calibration, "--guarantee", "calibrated", "--out", tmp_path / "model")
    outcome = lvd_here("fit", homes.table, "--target", "price", *given)
    assert outcome.code == 2
    assert f"--calibration {calibration} works only with --guarantee local" in outcome.err
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("n_rows", "choice", "calibration"),
    [
        (100, (), "cross"),
        (70, ("--calibration", "ensemble"), "ensemble"),
        (100, ("--calibration", "split"), "split"),
        (100, ("--guarantee", "calibrated"), "split"),
        (100, ("--groups", "district"), "split"),
        (100, ("--split", "group:district"), "split"),
        (70, (), "split"),
    ],
)
def test_few_rows_calibrate_crosswise(n_rows, choice, calibration, lvd_here, homes, tmp_path):
    table = tmp_path / "few.csv"
    table.write_text("".join(homes.table.read_text().splitlines(keepends=True)[: n_rows + 1]))
    given = ("fit", table, "--target", "price", "--model", "trees", "--out", tmp_path / "model", *choice)
    outcome = lvd_here(*given, "--json")
    assert outcome.code == 0, outcome.err
    report = json.loads(outcome.out)
    assert report["calibration"] == calibration
    assert (report["n_train"] == report["n_calib"]) == (calibration != "split")
    card = json.loads((tmp_path / "model" / "manifest.json").read_text())["columns"]["card"]
    assert card["settings"]["calibration"] == calibration
    assert ("(mean of " in card["settings"]["model"]) == (calibration == "ensemble")
    again = lvd_here("predict", tmp_path / "model", table, "--out", tmp_path / "out.csv")
    assert again.code == 0, again.err
