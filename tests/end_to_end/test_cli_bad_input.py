"""Refused input: one clear message, exit status 2, no traceback, and no file left."""

from __future__ import annotations

import json
import os
import resource
import shutil

import pytest

from lvd.store.folder import _self_digest

GOOD_ROWS = "".join(f"{i % 7},{i % 3 + i / 10}\n" for i in range(30))
GOOD = "x,y\n" + GOOD_ROWS

BAD_TABLES = {
    "empty file": (b"", "is empty; give a table with a header and rows"),
    "header only": (b"x,y\n", "has a header but no rows"),
    "wrong delimiter": (GOOD.replace(",", ";").encode(), "it seems to be separated by ';'"),
    "not UTF-8": (GOOD.replace("x", "prix \u20ac").encode("cp1252"), "line 1: byte 0x80 is not UTF-8"),
    "no such target": (GOOD.replace("y", "Y ").encode(), "the table has no column 'y'"),
    "text as target": (
        b"x,y\n" + b"".join(f"{i},{'abc'[i % 3]}\n".encode() for i in range(30)),
        "target 'y': must be a number, got 'a'",
    ),
    "constant target": (
        b"x,y\n" + b"".join(b"%d,5\n" % i for i in range(30)),
        "target 'y': is 5 in every row",
    ),
    "missing column": (
        b"x,y\n" + b"".join(b",%d\n" % i for i in range(30)),
        "no column is left to predict from: 'x' (constant); to use one nevertheless: --keep x",
    ),
    "twice the same name": (
        ("x,x,y\n" + GOOD_ROWS.replace(",", ",1,")).encode(),
        "several columns named 'x'",
    ),
    "NaN among inputs": ((GOOD + "nan,1\n").encode(), "column 'x': 1 missing value (row 31)"),
    "infinity among inputs": ((GOOD + "inf,1\n").encode(), "column 'x': 1 infinite value (row 31)"),
    "no target at all": (
        b"x,y\n" + b"".join(b"%d,\n" % (i % 7) for i in range(30)),
        "target 'y': has no values at all; choose another target",
    ),
    "infinity as target": ((GOOD + "1,-inf\n").encode(), "target 'y': 1 infinite value (row 31)"),
    "dates in no known order": (
        b"x,y\n" + b"".join(b"%02d/%02d/2020,%d\n" % (i % 12 + 1, i // 12 + 1, i) for i in range(1, 29)),
        "column 'x': '02/01/2020': day or month may come first; write dates as 2024-03-31, or say which with "
        "--date-format dmy",
    ),
    "dates that do not exist": (
        b"x,y\n" + b"".join(b"2021-02-%02d,%d\n" % (i, i) for i in range(1, 31)),
        "column 'x': holds a date or time that does not exist",
    ),
    "nothing but constants": (
        b"x,z,y\n" + b"".join(b"1,a,%d\n" % i for i in range(30)),
        "no column is left to predict from: 'x' (constant), 'z' (constant); to use one nevertheless: --keep x",
    ),
    "ragged row": ((GOOD + "1,2,3\n").encode(), "row 31 has 3 cells, the header 2"),
    "too few rows": (b"x,y\n1,2\n2,1\n", "2 rows cannot be split"),
    "only the target": (b"y\n1\n2\n3\n", "no column is left to predict from"),
}


def check_refused(outcome, message):
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.out == ""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("case", BAD_TABLES)
def test_fit_refuses_a_table(lvd_here, tmp_path, case):
    content, message = BAD_TABLES[case]
    (tmp_path / "t.csv").write_bytes(content)
    options = ("--out", tmp_path / "model", "--test-out", tmp_path / "test.csv")
    check_refused(lvd_here("fit", tmp_path / "t.csv", "--target", "y", *options), message)
    assert names(tmp_path) == ["t.csv"]


def test_no_table_at_all(lvd_here, homes, tmp_path):
    for command in (("fit",), ("predict", homes.model), ("evaluate", homes.model), ("explain", homes.model)):
        options = {
            "fit": ("--target", "y", "--out", tmp_path / "model"),
            "predict": ("--out", tmp_path / "out.csv"),
            "evaluate": (),
            "explain": ("--row", 1),
        }[command[0]]
        check_refused(lvd_here(*command, tmp_path / "t.csv", *options), "t.csv does not exist")
        check_refused(lvd_here(*command, tmp_path, *options), "is a folder; give one file")
        check_refused(lvd_here(*command, tmp_path / "t.xlsx", *options), "t.xlsx does not exist")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace(",area,", ",aera,"), "no column 'area'; did you mean 'aera'"),
        (lambda text: text.replace("garden,price", "garten,price"), "no column 'garden'"),
        (lambda text: text + "x,1,,north,true,1\n", "column 'rooms': 1 missing value (row 121)"),
        (lambda text: text + "x,inf,2,north,true,1\n", "column 'area': 1 infinite value (row 121)"),
        (lambda text: text + "x,big,2,north,true,1\n", "column 'area': must be a number, got 'big'"),
        (lambda text: text + "x,1,2,north,maybe,1\n", "column 'garden': must be true or false, got 'maybe'"),
        (lambda text: text.replace("id,", "y_pred,", 1), "already has column(s) 'y_pred'"),
        (lambda text: text.splitlines()[0], "has a header but no rows"),
        (lambda text: text.replace(",", ";"), "it seems to be separated by ';'"),
    ],
)
def test_predict_refuses_a_table(lvd_here, homes, tmp_path, change, message):
    (tmp_path / "t.csv").write_text(change(homes.new.read_text()))
    outcome = lvd_here("predict", homes.model, tmp_path / "t.csv", "--out", tmp_path / "out.csv")
    check_refused(outcome, message)
    assert names(tmp_path) == ["t.csv"]


def reseal(model, change):
    """A change of the manifest by someone who knows how its digest is made."""
    manifest = json.loads((model / "manifest.json").read_text())
    del manifest["sha256"]
    change(manifest)
    manifest["sha256"] = _self_digest(manifest)
    (model / "manifest.json").write_text(json.dumps(manifest))


def flip_a_byte(model):
    data = bytearray((model / "tensors.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (model / "tensors.safetensors").write_bytes(data)


def give_absurd_shapes(model):
    def change(manifest):
        next(iter(manifest["tensors"].values()))["shape"] = [10**12, 10**12]

    reseal(model, change)


BAD_MODELS = {
    "no folder": (shutil.rmtree, "no saved model at"),
    "no manifest": (lambda model: (model / "manifest.json").unlink(), "manifest.json cannot be read"),
    "no weights": (lambda model: (model / "tensors.safetensors").unlink(), "tensors.safetensors in"),
    "a flipped byte": (flip_a_byte, "has been changed since it was saved"),
    "a newer format": (lambda model: reseal(model, lambda m: m.update(format=99)), "upgrade lvd"),
    "an edited manifest": (
        lambda model: (model / "manifest.json").write_text(
            (model / "manifest.json").read_text().replace('"north"', '"North"')
        ),
        "manifest.json in",
    ),
    "absurd shapes": (give_absurd_shapes, "not as the manifest says"),
    "no columns": (
        lambda model: reseal(model, lambda m: m.update(columns=None)),
        "was fitted on an array, whose columns have no names",
    ),
    "empty columns": (lambda model: reseal(model, lambda m: m.update(columns={})), "columns is damaged"),
    "a column less": (
        lambda model: reseal(model, lambda m: m["columns"]["encoder"]["columns"].pop()),
        "do not belong together",
    ),
    "absurd number of rows": (
        lambda model: reseal(model, lambda m: m["columns"].update(n_rows=10**15)),
        "do not belong together",
    ),
    "text as seed": (
        lambda model: reseal(model, lambda m: m["columns"].update(seed="0")),
        "do not belong together",
    ),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_a_damaged_model_is_refused(lvd_here, homes, tmp_path, case):
    damage, message = BAD_MODELS[case]
    model = shutil.copytree(homes.model, tmp_path / "model")
    damage(model)
    before = names(tmp_path)
    outcome = lvd_here("predict", model, homes.new, "--out", tmp_path / "out.csv")
    check_refused(outcome, message)
    assert names(tmp_path) == before
    check_refused(lvd_here("evaluate", model, homes.new), message)
    check_refused(lvd_here("explain", model, homes.new, "--row", 1), message)


@pytest.fixture
def full_disk():
    """Files may have 2,000 bytes, as on a disk that is almost full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_predict_to_a_full_disk(lvd_here, homes, tmp_path, name):
    outcome = lvd_here("predict", homes.model, homes.new, "--out", tmp_path / name)
    check_refused(outcome, f"cannot write {tmp_path / name}")
    assert names(tmp_path) == []


@pytest.mark.usefixtures("full_disk")
def test_fit_to_a_full_disk(lvd_here, tmp_path):
    (tmp_path / "t.csv").write_text(GOOD + GOOD_ROWS * 6)
    options = ("--epochs", 1, "--out", tmp_path / "model", "--test-out", tmp_path / "test.csv")
    outcome = lvd_here("fit", tmp_path / "t.csv", "--target", "y", *options)
    assert outcome.code == 2
    assert f"error: cannot write {tmp_path / 'model'}" in outcome.err
    assert "Traceback" not in outcome.err
    assert names(tmp_path) == ["t.csv"]


def test_output_folders_that_are_missing_or_forbidden(lvd_here, homes, tmp_path):
    nowhere = tmp_path / "nowhere"
    (tmp_path / "t.csv").write_text(GOOD)
    fit = ("fit", tmp_path / "t.csv", "--target", "y", "--out")
    check_refused(lvd_here(*fit, nowhere / "model"), "does not exist")
    check_refused(
        lvd_here("predict", homes.model, homes.new, "--out", nowhere / "o.csv"),
        "the folder above it must exist",
    )
    check_refused(
        lvd_here("predict", homes.model, homes.new, "--out", tmp_path / "o.txt"), "must end in one of"
    )
    check_refused(lvd_here("predict", homes.model, homes.new, "--out", tmp_path), "it is a folder")
    forbidden = tmp_path / "forbidden"
    forbidden.mkdir(mode=0o555)
    if not os.access(forbidden, os.W_OK):  # root may write anywhere
        check_refused(lvd_here(*fit, forbidden / "model"), "you may not write to")
        check_refused(
            lvd_here("predict", homes.model, homes.new, "--out", forbidden / "o.csv"), "Permission denied"
        )
    assert names(tmp_path) == ["forbidden", "t.csv"]
    assert names(forbidden) == []


def test_wrong_options(lvd_here, homes, tmp_path):
    (tmp_path / "t.csv").write_text(GOOD)
    fit = ("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "model")
    check_refused(lvd_here(*fit, "--level", 90), "--level must lie in (0, 1), got 90; did you mean 0.9?")
    check_refused(lvd_here(*fit, "--impute", "mean"), "impute must be one of 'median', got 'mean'")
    check_refused(lvd_here(*fit, "--device", "abacus"), "device must be 'auto' or a torch device")
    check_refused(lvd_here(*fit, "--drop", "z"), "the table has no column 'z'")
    check_refused(lvd_here(*fit, "--y-min", 2, "--y-max", 1), "--y-min must be below --y-max")
    predict = ("predict", homes.model, homes.new, "--out", "-")
    check_refused(lvd_here(*predict, "--level", 1), "--level must lie in (0, 1), got 1")
    check_refused(lvd_here(*predict, "--json"), "both print to standard output")
    assert names(tmp_path) == ["t.csv"]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (("--split", "time"), "--split must be random, time:COLUMN, group:COLUMN"),
        (("--split", "time:z"), "the table has no column 'z'"),
        (("--split", "group:x"), "no column is left to predict from besides"),
        (("--keep", "z"), "the table has no column 'z'"),
        (("--target", "x", "--report", "page.html"), "a page shows one target, but there are 2"),
    ],
)
def test_choices_of_fit_that_cannot_be(lvd_here, tmp_path, monkeypatch, choices, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(GOOD)
    check_refused(lvd_here("fit", "t.csv", "--target", "y", *choices, "--out", "model"), message)
    assert names(tmp_path) == ["t.csv"]


def test_update_and_monitor(lvd_here, homes, tmp_path):
    model = shutil.copytree(homes.model, tmp_path / "model")
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    no_target = tmp_path / "t.csv"
    no_target.write_text(homes.new.read_text().replace(",price", ",prize", 1))
    text = tmp_path / "text.csv"
    text.write_text(homes.new.read_text() + "x,1,2,north,true,dear\n")
    for command in ("update", "monitor"):
        check_refused(
            lvd_here(command, model, no_target), "the table has no column 'price'; did you mean 'prize'?"
        )
        check_refused(
            lvd_here(command, model, text),
            "target 'price': must be a number, got 'dear' (1 such value, row 121)",
        )
        check_refused(lvd_here(command, model, tmp_path / "no.csv"), "no.csv does not exist")
        check_refused(lvd_here(command, tmp_path / "no", homes.new), "no saved model at")
        check_refused(
            lvd_here(command, model, homes.new, "--skip-invalid"), "--skip-invalid is for models fitted with"
        )
    check_refused(
        lvd_here("update", model, homes.table),
        "400 of 500 rows have the inputs and targets of rows in use: 300 ",
    )
    check_refused(lvd_here("update", model, homes.new, "--out", model), "exists already; give --force")
    check_refused(lvd_here("update", model, homes.new, "--out", tmp_path / "a" / "b"), "does not exist")
    check_refused(lvd_here("monitor", model, homes.new, "--level", 2), "--level must lie in (0, 1), got 2")
    check_refused(
        lvd_here("monitor", model, homes.new, "--false-alarm-rate", 0),
        "--false-alarm-rate must lie in (0, 1), got 0",
    )
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
    assert lvd_here("update", model, homes.new).code == 0
    again = lvd_here("update", model, homes.new, "--force")
    check_refused(
        again, "120 already calibrate it (rows 1, 2, 3, 4, 5, ...); remove them, or give --allow-repeated,"
    )
    added = lvd_here("update", model, homes.new, "--allow-repeated", "--newest", 150)
    assert added.code == 0
    assert "120 of them were in use before: the intervals may be too narrow" in added.out
    card = (model / "card.md").read_text()
    assert card.count("- updated on ") == 2
    assert "- calibration rows now: 150" in card
    assert "update " in lvd_here("explain", model, homes.new, "--row", 1).out
    check_refused(
        lvd_here(
            "report",
            model,
            homes.new,
            "--compare",
            "cqr",
            "--fitted-on",
            homes.table,
            "--out",
            tmp_path / "p.html",
        ),
        "--compare must be 'split' for a model that was updated",
    )
    page = ("report", model, homes.new, "--fitted-on", homes.table, "--out", tmp_path / "p.html")
    assert lvd_here(*page).code == 0
