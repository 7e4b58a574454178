"""The report of a fitted model: figures, rivals, rows, and a page in which all that users give is text."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import Ridge

import lvd
from lvd._validation import InputError
from lvd.intervals import covered, widths
from lvd.page import content as page_report
from lvd.page import row_details as page_rows
from lvd.page.content import make_report
from lvd.page.render import Origin, render_report, write_report
from lvd.page.row_details import Pictures
from lvd.tables.table_model import TableModel

EVIL = "<script>alert(1)</script>"
BREAKOUT = '"></script><img src=x onerror=alert(2)>'
TARGET = "y&<b>"
N_ROWS = 240


def make_table(n_rows=N_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n_rows))
    return pa.table(
        {
            EVIL: pa.array(x, mask=rng.random(n_rows) < 0.2),
            "kind": rng.choice([BREAKOUT, "{{ 7 * 7 }}", "plain"], size=n_rows),
            "z": z,
            "id": [f"row-{number}-of-{seed}" for number in range(n_rows)],
            "nested": pa.array([[1, 2]] * n_rows),
            TARGET: x + 0.3 * rng.normal(size=n_rows),
        }
    )


def fit(table, **parameters):
    regressor = lvd.LVDRegressor(
        lvd.NetRegressor(n_batches=30, random_state=0),
        preset="paper",
        kernel=lvd.MahalanobisKernel(2, max_iter=20, random_state=0),
        random_state=0,
        **parameters,
    )
    dropped = ["id", "nested"]
    return TableModel.fit(table, regressor, target=TARGET, drop=dropped, impute="median")[0]


@pytest.fixture(scope="module")
def model():
    return fit(make_table())


@pytest.fixture(scope="module")
def new():
    return make_table(150, seed=1)


@pytest.fixture(scope="module")
def report(model, new):
    return make_report(
        model,
        new,
        target=TARGET,
        by=["kind", EVIL],
        rivals=("split", "madsplit", "cqr"),
        fitted_on=make_table(),
        pictures=Pictures(
            "id", lambda text: f"<svg xmlns='http://www.w3.org/2000/svg'><desc>{text[:3]}</desc></svg>"
        ),
    )


@pytest.fixture(scope="module")
def page(report):
    return render_report(report, Origin("<i>model</i>", "a&b.csv", "2026-01-01"))


def predicted(model, table, levels):
    y_pred, intervals = model.regressor.predict_interval(model.encoder.transform(table), levels)
    return model.encoder.target(table), y_pred, intervals


class Elements(HTMLParser):
    """The elements of a page and the attributes of each."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def of(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


# --- figures


def test_all_figures_are_those_of_all_rows(model, new, report):
    y, y_pred, intervals = predicted(model, new, [0.9])
    one = intervals[:, :, 0]
    own = report.methods[0]
    assert report.verdict.coverage == own.coverage == covered(y, one).mean()
    assert own.finite == 1.0 - report.infinite.share == np.isfinite(widths(one)).mean()
    assert report.mean_error == pytest.approx(np.abs(y - y_pred).mean())
    (kind, _), groups = report.by, new["kind"].to_pylist()
    for group in kind.groups:
        inside = np.array(groups) == group.label
        assert (group.count, group.coverage) == (inside.sum(), covered(y, one)[inside].mean())
    assert [group.coverage for group in kind.groups] == sorted(group.coverage for group in kind.groups)
    assert "missing" in [group.label for group in report.by[1].groups]
    assert {group.column for group in report.slabs.groups} == {"z"}  # the others are groups already
    assert len(report.curves[0][1].levels) == 20


def test_whole_distributions_are_those_that_evaluate_judges(model, new, report, page):
    (judged,) = model.evaluate(new.to_batches()).targets
    assert report.evaluated.distribution == judged.distribution
    bars = [shape for shape in report.pit.shapes if shape.css == "share"]
    tallest = max(bars, key=lambda bar: bar.attributes["height"])
    assert f"{max(judged.distribution.pit.shares):.1%}" in tallest.tip
    assert f"The distributions <strong>{judged.distribution.pit.finding}</strong>" in page
    X, y = model.encoder.transform(new), model.encoder.target(new)
    known = model.regressor.predict_distribution(X).crps(y)
    assert judged.distribution.crps == pytest.approx(np.nanmean(known))


def test_the_level_is_that_of_the_model_or_the_one_asked_for(model, new):
    asked = make_report(model, new, target=TARGET, confidence_level=0.42)
    y, _, intervals = predicted(model, new, [0.42])
    assert asked.verdict.coverage == covered(y, intervals[:, :, 0]).mean()
    assert 0.42 in asked.curves[0][1].levels


def test_split_is_split_conformal_on_the_same_network(model, new, report):
    table, regressor = make_table(), model.regressor
    network = regressor.model_
    prefit = lvd.SplitConformalRegressor((network.predict, network.embed), prefit=True, calib_size=None)
    X, y = model.encoder.transform(table), model.encoder.target(table)
    calib, unused = model.calibration_rows - 1, model.test_rows - 1
    prefit.fit(X[unused], y[unused]).conformalize(X[calib], y[calib])
    _, intervals = prefit.predict_interval(model.encoder.transform(new), 0.9)
    split = report.methods[1]
    assert split.name == "Split"
    assert split.width == pytest.approx(widths(intervals[:, :, 0]).mean(), rel=1e-6)
    assert split.coverage == covered(model.encoder.target(new), intervals[:, :, 0]).mean()


def test_madsplit_covers_on_average_and_adapts(report):
    mad = report.methods[2]
    assert mad.name == "MADSplit"
    assert 0.75 < mad.coverage <= 1.0
    assert mad.finite == 1.0
    assert mad.auroc != 0.5


def test_cqr_has_its_own_networks(report):
    cqr = report.methods[3]
    assert (cqr.name, cqr.promise) == ("CQR", "on average")
    assert "networks of its own" in cqr.how
    assert "around the same network" in report.methods[2].how
    assert 0.7 < cqr.coverage <= 1.0
    assert cqr.finite == 1.0


def test_madsplit_is_the_public_class_around_the_same_network(model, new, report):
    table, calib, test = make_table(), model.calibration_rows - 1, model.test_rows - 1
    train = np.setdiff1d(np.arange(N_ROWS), [*calib, *test])
    X, y = model.encoder.transform(table), model.encoder.target(table)
    prefit = lvd.MADSplitRegressor(model.regressor.model_, prefit=True, calib_size=None, random_state=0)
    prefit.fit(X[train], y[train]).conformalize(X[calib], y[calib])
    _, intervals = prefit.predict_interval(model.encoder.transform(new), 0.9)
    assert report.methods[2].width == pytest.approx(widths(intervals[:, :, 0]).mean(), rel=1e-6)


def test_split_uses_plain_errors_whatever_the_score(new):
    normalized = fit(make_table(), conformity_score="normalized")
    report = make_report(normalized, new, target=TARGET, rivals=("split",))
    errors = np.sort(np.abs(normalized.regressor.residuals_calib_[:, 0]))
    radius = errors[int(np.ceil(0.9 * (len(errors) + 1))) - 1]
    assert report.methods[1].width == pytest.approx(2.0 * radius, rel=1e-6)


def test_a_method_without_calibration_learns_from_both_parts(model, new):
    report = make_report(model, new, target=TARGET, rivals=("mcdropout",), fitted_on=make_table())
    assert (report.methods[1].name, report.methods[1].promise) == (
        "MCDropout",
        "nothing",
    )


@pytest.mark.parametrize(
    ("rivals", "said"),
    [
        (("madsplit",), "compare must be 'split' where fitted_on= is not given, got 'madsplit'"),
        (
            ("split", "best"),
            "compare must be one of 'split', 'madsplit', 'cqr', 'jackknifeplus', .* got 'best'",
        ),
        (("lvd",), "got 'lvd'"),
        (("",), "got ''"),
    ],
)
def test_rivals_are_refused_before_the_work(model, new, rivals, said, monkeypatch):
    monkeypatch.setattr(page_report, "evaluate_rows", lambda *arguments: pytest.fail("evaluated"))
    with pytest.raises(InputError, match=said):
        make_report(model, new, target=TARGET, rivals=rivals)


def test_clipped_intervals_over_the_whole_range_count_as_infinite(new):
    clipped = fit(make_table(), y_range=(-9.0, 9.0))
    report = make_report(clipped, new, target=TARGET, confidence_level=0.99)
    assert report.infinite.clipped_to == (-9.0, 9.0)
    assert report.infinite.count > 0
    assert report.methods[0].finite == 1.0
    assert "counts as infinite here" in render_report(report, Origin("m", "d", ""))


@pytest.mark.parametrize(
    ("count", "n_unknown", "said"),
    [
        (1, 1, "is infinite: its row is unknown. The median"),
        (5, 5, "are infinite: all of their rows are unknown. The median"),
        (5, 1, "are infinite: 1 of their rows is unknown, and for the others there are too few similar"),
        (
            5,
            0,
            "are infinite: there are too few similar calibration rows for a finite interval at level 90%. The",
        ),
    ],
)
def test_why_intervals_are_infinite(report, count, n_unknown, said):
    told = replace(report, infinite=replace(report.infinite, count=count, n_unknown=n_unknown))
    assert said in " ".join(render_report(told, Origin("m", "d", "")).split())


def test_one_of_several_targets(new):
    table = make_table().append_column("second", pa.array(np.random.default_rng(5).normal(size=N_ROWS)))
    regressor = lvd.LVDRegressor(
        lvd.NetRegressor(n_batches=10, random_state=0),
        preset="paper",
        kernel=lvd.MahalanobisKernel(2, max_iter=5, random_state=0),
        random_state=0,
    )
    names = {"target": ["second", TARGET], "drop": ["id", "nested"], "impute": "median"}
    both, _ = TableModel.fit(table, regressor, **names)
    report = make_report(both, new, target=TARGET, rivals=("split",), fitted_on=table)  # new has no "second"
    (reported,) = both.evaluate(new.to_batches(), targets=[TARGET]).targets
    assert report.verdict.coverage == reported.summary.rows[0]["marginal_coverage_rate"]
    number, *_, neighbors, _, _, _, _ = report.rows["rows"][0]
    explained = both.explain(new.to_batches(), number, n_neighbors=8)[1].evidence.neighbors
    assert [one[0] for one in neighbors] == [one.index for one in explained]


@pytest.mark.parametrize(
    "estimator", [None, "auto", (Ridge(), lambda rows: rows[:, :1])], ids=["None", "auto", "pair"]
)
def test_rivals_of_several_targets_have_models_of_their_own(new, estimator):
    table = make_table().append_column("second", pa.array(np.random.default_rng(5).normal(size=N_ROWS)))
    regressor = lvd.LVDRegressor(estimator, kernel=lvd.MahalanobisKernel(2, max_iter=5), random_state=0)
    names = {"target": ["second", TARGET], "drop": ["id", "nested"], "impute": "median"}
    both, _ = TableModel.fit(table, regressor, **names)
    report = make_report(both, new, target=TARGET, rivals=("madsplit",), fitted_on=table)
    assert report.methods[-1].how == "with networks of its own, trained on the same rows"


def test_training_rows_are_told(model):
    report = make_report(model, make_table(), target=TARGET)
    assert report.evaluated.n_repeated >= 0.6 * N_ROWS
    assert "<strong>Caution.</strong>" in render_report(report, Origin("m", "d", ""))


@pytest.mark.parametrize(("n_rows", "level"), [(3, 0.9), (1, 0.5), (3, 0.999)])
def test_few_rows_and_infinite_intervals(model, n_rows, level):
    report = make_report(
        model,
        make_table(n_rows, seed=2),
        target=TARGET,
        by=["kind"],
        rivals=("split",),
        confidence_level=level,
    )
    text = render_report(report, Origin("m", "d", ""))
    assert report.joint is None
    if level == 0.999:
        assert report.infinite.count == n_rows
        assert "No interval is finite" in text
        assert report.verdict.kind == "too many unknown"


# --- rows


def test_rows_carry_the_explanation_of_explain(model, new, report):
    number, *_, sentence, unknown, missing, neighbors, cells, picture, known, _ = report.rows["rows"][0]
    (expected,) = model.explain(new.to_batches(), number, 0.9, n_neighbors=8)
    assert (sentence, known) == (expected.sentence, expected.known)
    assert missing == expected.evidence.rows_missing
    assert [neighbor[0] for neighbor in neighbors] == [one.index for one in expected.evidence.neighbors]
    nearest = expected.evidence.neighbors[0]
    wanted = [nearest.index, nearest.weight, nearest.similarity, nearest.error, nearest.target]
    scaled = expected.evidence.expected_error is not None
    assert neighbors[0] == pytest.approx(wanted + [nearest.score] * scaled, rel=1e-5)
    assert unknown == pytest.approx(expected.evidence.weight_at_infinity, rel=1e-6)
    names = report.rows["columns"]
    assert names[:2] == ["kind", EVIL]
    assert "nested" not in names
    assert TARGET not in names
    assert cells[names.index("id")] == f"row-{number - 1}-of-1"
    assert report.rows["pictures"][picture].startswith("<svg")


def test_neighbours_show_the_cells_of_the_table_they_come_from(report):
    place, (cells, _) = next(iter(report.rows["neighbors"].items()))
    names = report.rows["neighborColumns"]
    assert cells[names.index("id")] == f"row-{int(place) - 1}-of-0"


@pytest.mark.parametrize("other", [make_table(N_ROWS - 1), make_table(seed=3)])
def test_neighbours_come_from_the_very_table(model, new, other):
    with pytest.raises(InputError, match="fitted_on must be the table that the model was fitted on"):
        make_report(model, new, target=TARGET, fitted_on=other)


def test_the_page_is_bounded(model, monkeypatch):
    monkeypatch.setattr(page_report, "choose_rows", lambda evaluated: np.arange(300))
    table = make_table(300, seed=4)
    long = table.set_column(3, "id", pa.array(["<" * 500] * 300))
    bounded = {"n_bytes": 60_000}
    original = page_rows.embed_rows
    monkeypatch.setattr(page_report, "embed_rows", lambda *a, **k: original(*a, **k, **bounded))
    report = make_report(model, long, target=TARGET)
    text = render_report(report, Origin("m", "d", ""))
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1]
    assert 20 < len(report.rows["rows"]) < 300
    assert 40_000 < len(data.encode()) < 70_000
    assert f"This page holds {len(report.rows['rows'])} of the 300 rows" in text


# --- the page


def test_whatever_users_give_stays_text(page):
    elements = Elements(page)
    kinds = [attributes.get("type") for attributes in elements.of("script")]
    assert kinds == ["application/json", None]
    assert elements.of("img") == elements.of("i") == []
    assert not [
        attributes for _, attributes in elements.found if any(name.startswith("on") for name in attributes)
    ]
    assert html.escape(EVIL, quote=False) in page
    assert "&lt;i&gt;model&lt;/i&gt;" in page
    assert "a&amp;b.csv" in page
    assert "{{ 7 * 7 }}" in page
    body = page[page.index("<body>") : page.index('<script type="application/json"')]
    assert "alert(1)" in body
    assert "<script" not in body


def test_the_page_stands_alone(page):
    elements = Elements(page)
    (policy,) = [
        a["content"] for a in elements.of("meta") if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    links = [a.get("href") or a.get("src") for _, a in elements.found if a.get("href") or a.get("src")]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "@import" not in page
    assert "url(" not in page


def test_the_page_can_be_read_by_a_screen_reader(page):
    elements = Elements(page)
    headings = [int(name[1]) for name, _ in elements.found if re.fullmatch("h[1-6]", name)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))
    assert all("scope" in attributes for attributes in elements.of("th"))
    for svg in elements.of("svg"):
        assert svg.get("aria-label") or svg.get("aria-hidden") == "true"
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = {
        attributes["aria-labelledby"] for _, attributes in elements.found if "aria-labelledby" in attributes
    }
    assert named <= set(ids)
    assert [name for name, _ in elements.found if name in ("header", "nav", "main")] == [
        "header",
        "nav",
        "main",
    ]
    assert elements.of("html") == [{"lang": "en"}]


def test_the_data_of_the_page_can_be_read_back(page, report):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    data = json.loads(text)
    assert data["rows"] == report.rows["rows"]
    assert data["target"] == TARGET


def test_nothing_is_written_where_it_cannot_be(report, tmp_path):
    origin = Origin("m", "d", "")
    with pytest.raises(InputError, match="it is a folder"):
        write_report(report, origin, tmp_path)
    with pytest.raises(InputError, match="cannot write"):
        write_report(report, origin, tmp_path / "nowhere" / "report.html")
    write_report(report, origin, tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
