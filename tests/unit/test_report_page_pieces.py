"""The report page's pure pieces: verdict, groups, choice of rows, charts, numbers, JSON, drawings."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from importlib import resources

import numpy as np
import pyarrow as pa
import pytest

from lvd._validation import InputError
from lvd.metrics import binomial_band, calibration_curve
from lvd.molecules.drawing import compact_svg, draw_molecule
from lvd.page import charts
from lvd.page.content import _list, only_target
from lvd.page.evaluation import CURVE_LEVELS, Description, evaluate_arrays, says_nothing
from lvd.page.groups import (
    Grouping,
    feature_slabs,
    group_rows,
    joint_slab,
    judged_together,
    measure_groups,
    most_infinite_first,
    worst_first,
)
from lvd.page.numbers import Digits, digits_for, short
from lvd.page.render import to_script_json
from lvd.page.rivals import RIVALS, check_rivals
from lvd.page.row_details import choose_rows, missed_by
from lvd.tables.reports import JudgedRows, judge, percent, rows_to_tell, tolerated

INF = np.inf


def hits(n, n_covered):
    return np.arange(n) < n_covered


def evaluated(y, intervals, level=0.9, row_ids=None):
    """Rows with these intervals at every level, predicted in the middle of the finite ones."""
    y, intervals = np.asarray(y, dtype=float), np.asarray(intervals, dtype=float)
    levels = np.unique([*CURVE_LEVELS, level])
    found = evaluate_arrays(
        *(Description("name", "nothing", "Nothing.", "by hand", "from nowhere", None), pa.table({}), None),
        columns=(),
        target="y",
        y=y,
        y_pred=np.zeros(len(y)),
        all_intervals=np.repeat(intervals[:, :, None], len(levels), axis=2),
        levels=[level, *levels[levels != level]],
    )
    return replace(found, judged=replace(found.judged, row_ids=row_ids))


# --- verdict


def judged(y, *, known=None, features=None, y_range=(-INF, INF), row_ids=None):
    """Rows predicted as 0, and 200 calibration rows of which split conformal takes the errors: radius 5 at 90%."""
    y = np.asarray(y, dtype=float)
    return JudgedRows(
        y=y,
        y_pred=np.zeros(len(y)),
        known=np.ones(len(y), dtype=bool) if known is None else known,
        features=np.zeros((len(y), 1)) if features is None else features,
        y_calib=np.repeat([-6.0, 6.0], 100),
        residuals_calib=np.full(200, 5.0),
        y_range=y_range,
        row_ids=row_ids,
    )


def around(radius):
    radius = np.asarray(radius, dtype=float)
    return np.stack([-radius, radius], axis=1)


NOISY = np.arange(1000) % 2 == 0
"""Every other row has y = 4.9 or -4.9, the others 0.5."""


@pytest.mark.parametrize(
    ("n", "n_covered", "kind", "begins"),
    [
        (
            1000,
            905,
            "holds, and tells rows apart",
            "The intervals hold, and tell rows apart: at level 90% they ",
        ),
        (1000, 850, "does not hold", "The intervals do not hold: at level 90% they contain 85.0% of 1,000"),
        (20, 18, "cannot tell", "These rows cannot tell whether the intervals hold: at level 90%"),
        (1, 0, "cannot tell", "These rows cannot tell"),
        (3, 0, "does not hold", "The intervals do not hold"),
    ],
)
def test_verdict_by_coverage(n, n_covered, kind, begins):
    verdict = judge(judged(np.where(hits(n, n_covered), 0.0, 1.001)), around(np.ones(n)), 0.9)
    lower, upper = binomial_band(n_covered, n)
    assert verdict.kind == kind
    assert verdict.sentence.startswith(begins)
    assert (verdict.coverage, verdict.lower, verdict.upper) == (n_covered / n, lower, upper)
    assert verdict.tone == {"holds, and tells rows apart": "good", "does not hold": "bad"}.get(kind, "warn")


def test_copies_of_rows_are_no_evidence():
    y = np.where(hits(25, 23), 0.0, 1.001)
    once = judge(judged(y), around(np.ones(25)), 0.9)
    ids = np.tile(np.arange(25), 60)
    often = judge(judged(np.tile(y, 60), row_ids=ids), around(np.ones(1500)), 0.9)
    assert (once.kind, often.kind) == ("cannot tell", "cannot tell")
    assert (often.coverage, often.lower, often.upper) == (once.coverage, once.lower, once.upper)
    assert "92.0% of 1,500 true values in 25 different rows (exact" in often.sentence
    assert often.ert is None
    assert judge(judged(np.tile(y, 60)), around(np.ones(1500)), 0.9).kind != "cannot tell"


def test_a_better_score_on_copies_may_be_chance():
    y, radius = np.where(hits(8, 1), 0.5, 4.9), np.where(hits(8, 1), 0.5, 4.99)
    copies = np.tile(y, 100), np.tile(radius, 100)
    assert judge(judged(copies[0]), around(copies[1]), 0.5).kind == "holds, and tells rows apart"
    ids = np.tile(np.arange(8), 100)
    verdict = judge(judged(copies[0], row_ids=ids), around(copies[1]), 0.5)
    assert verdict.kind == "holds, but no better than one width for all"
    assert "which may be chance" in verdict.sentence


def test_scores_are_those_of_one_width_and_of_the_intervals():
    verdict = judge(judged(np.where(NOISY, 4.9, 0.5)), around(np.where(NOISY, 5, 1)), 0.9)
    assert verdict.kind == "holds, and tells rows apart"
    assert verdict.interval_score == pytest.approx(6.0)
    assert verdict.split_interval_score == pytest.approx(10.0)
    assert verdict.sentence.endswith("their interval score is 0.6 times that of one width for all rows.")


@pytest.mark.parametrize(("radius", "noise"), [(5.0, 0.0), (6.5, 0.0), (5.0, 0.05)])
def test_no_better_than_one_width_for_all(radius, noise):
    radius = radius + np.random.default_rng(0).normal(scale=noise, size=1000)
    verdict = judge(judged(np.where(NOISY, 4.7, 0.5)), around(radius), 0.9)
    assert verdict.kind == "holds, but no better than one width for all"
    assert verdict.tone == "warn"


def test_a_better_score_with_coverage_that_differs_more_from_row_to_row():
    """The rows that are narrow are all missed, and those can be told from the features."""
    rows = np.arange(1000)
    few = rows % 12 == 0
    y = np.where(few, 1.001, 0.5)
    verdict = judge(judged(y, features=few[:, None].astype(float)), around(np.ones(1000)), 0.9)
    assert verdict.interval_score < verdict.split_interval_score
    assert verdict.ert > verdict.split_ert + 0.01
    assert verdict.kind == "holds, but no better than one width for all"
    assert "but coverage differs more from row to row than with one width" in verdict.sentence
    blind = judge(judged(y), around(np.ones(1000)), 0.9)
    assert blind.kind == "holds, and tells rows apart"
    assert judge(judged(y[:599]), around(np.ones(599)), 0.9).ert is None


@pytest.mark.parametrize(("n_few", "kind"), [(50, "holds, and tells rows apart"), (51, "too many unknown")])
def test_more_than_one_row_in_twenty_is_too_many(n_few, kind):
    few, y = hits(1000, n_few), np.zeros(1000)
    infinite = judge(judged(y), around(np.where(few, INF, 0.1)), 0.9)
    unknown = judge(judged(y, known=~few), around(np.full(1000, 0.1)), 0.9)
    clipped = judge(judged(y, y_range=(-6, 6)), around(np.where(few, 6, 0.1)), 0.9)
    for verdict in (infinite, unknown, clipped):
        assert (verdict.kind, verdict.unknown) == (kind, n_few / 1000)


def test_infinity_counts_as_the_range_of_the_calibration_rows_a_tenth_wider():
    verdict = judge(judged(np.zeros(500)), around(np.full(500, INF)), 0.9)
    assert verdict.interval_score == pytest.approx(12.0 + 2 * 1.2)
    assert verdict.kind == "too many unknown"
    assert verdict.sentence.startswith("Too many unknown: 100.0% of 500 rows are unlike all training rows or")


@pytest.mark.parametrize("level", [0.05, 0.5, 0.9, 0.99, 0.999])
def test_so_many_rows_can_tell(level):
    n = round(1.1 * rows_to_tell(level))
    assert binomial_band(round(level * n), n)[0] >= tolerated(level)
    assert binomial_band(round(level * 0.7 * n), 0.7 * n)[0] < tolerated(level)


def test_percent_rounds_nothing_away():
    assert [percent(0.9), percent(0.9, 1), percent(0.99999, 1), percent(1e-6, 1), percent(1.0, 1)] == [
        *("90%", "90.0%", ">99.9%", "<0.1%", "100.0%")
    ]


# --- groups


def test_groups_of_few_values_texts_and_missing_ones():
    numbers = group_rows("x", pa.chunked_array([[1.0, 2.0, None, 1.0]]), n_bins=10)
    assert [numbers.labels[code] for code in numbers.codes] == ["1", "2", "missing", "1"]
    texts = group_rows("x", pa.chunked_array([["b", None, "", "<script>"]]), n_bins=10)
    assert [texts.labels[code] for code in texts.codes] == ["b", "missing", "missing", "<script>"]
    true = group_rows("x", pa.chunked_array([[True, False]]), n_bins=10)
    assert [true.labels[code] for code in true.codes] == ["true", "false"]
    empty = group_rows("x", pa.chunked_array([pa.array([None, None], pa.float64())]), n_bins=10)
    assert [empty.labels[code] for code in empty.codes] == ["missing", "missing"]


def test_many_values_are_cut_into_slabs_and_missing_ones_stay_apart():
    values = [*range(100), None, None]
    grouping = group_rows("x", pa.chunked_array([values]), n_bins=4)
    assert grouping.labels == ("0 to 24", "25 to 49", "50 to 74", "75 to 99", "missing")
    assert np.bincount(grouping.codes).tolist() == [25, 25, 25, 25, 2]


def test_slabs_that_differ_in_the_last_digit_have_different_names():
    values = pa.chunked_array([1e9 + np.arange(40.0)])
    assert len(set(group_rows("x", values, n_bins=10).labels)) == 10


def test_dates_are_cut_into_slabs():
    days = np.arange("2024-01-01", "2024-04-10", dtype="datetime64[D]")
    grouping = group_rows("sold", pa.chunked_array([[*days.astype(str), None]]), n_bins=2)
    assert grouping.labels == ("2024-01-01 to 2024-02-19", "2024-02-20 to 2024-04-09", "missing")
    assert np.bincount(grouping.codes).tolist() == [50, 50, 1]
    names = group_rows("town", pa.chunked_array([[f"town {n}" for n in range(30)]]), n_bins=2)
    assert len(names.labels) == 30


def test_groups_of_few_rows_are_kept_apart_unless_they_are_below_the_level():
    rows = evaluated(np.where(np.arange(139) < 19, 9.0, 0.0), np.tile([-1.0, 1.0], (139, 1)))
    codes = np.repeat([0, 1, 2, 3], [19, 19, 50, 51])
    listed = _list("by", measure_groups(Grouping("by", ("bad", "few", "b", "c"), codes), rows))
    assert [group.label for group in listed.groups] == ["bad", "b", "c"]
    assert [group.label for group in listed.few] == ["few"]
    assert (listed.n_groups, listed.n_below, listed.n_few) == (4, 1, 1)


def test_intervals_are_drawn_with_their_true_values():
    ends = np.array([[-1.0, 1.0], [-INF, INF], [-1.0, 1.0]])
    rows = evaluated([0.0, 0.5, 5.0], ends)
    chart = charts.interval_chart(rows, np.arange(3), np.array([1.0, 2.0, 3.0]), "x", Digits(1))
    lines, dots = chart.shapes[::2], chart.shapes[1::2]
    assert [shape.css for shape in lines] == ["interval covered", "interval", "interval missed"]
    assert [shape.css for shape in dots] == ["dot covered", "dot covered", "dot missed"]
    assert (lines[1].attributes["y1"], lines[1].attributes["y2"]) == (chart.y.start, chart.y.stop)
    assert lines[0].attributes["y1"] == chart.y(-1.0)
    assert dots[2].tip == "row 3: 5.0, interval -1.0 to 1.0"
    assert "2 of them hold the true value" in chart.label


def test_first_the_feature_along_which_the_width_changes():
    half = np.linspace(1.0, 3.0, 200)
    rows = evaluated(np.zeros(200), np.column_stack([-half, half]))
    noise = np.random.default_rng(0).normal(size=200)
    columns = {
        "noise": noise,
        "slope": -half,
        "two": noise > 0,
        "gaps": np.where(noise > 0, half + noise, np.nan),
    }
    found = charts.intervals_along(
        rows, {name: np.asarray(one, float) for name, one in columns.items()}, Digits(1)
    )
    assert [name for name, _ in found] == ["slope", "gaps", "noise"]


def test_few_rows_are_cut_into_few_slabs():
    assert len(feature_slabs("x", pa.chunked_array([np.arange(8.0)])).labels) == 2
    assert len(feature_slabs("x", pa.chunked_array([np.arange(1000.0)])).labels) == 10


def measured(columns, y, intervals):
    made = []
    for name, values in columns.items():
        grouping = group_rows(name, pa.chunked_array([values]), n_bins=10)
        made += measure_groups(grouping, evaluated(y, intervals))
    return made


def test_worst_groups_come_first_and_are_flagged():
    kinds = ["good"] * 50 + ["bad"] * 50 + ["lone"]
    y = [0.0] * 50 + [0.0] * 20 + [9.0] * 30 + [9.0]
    groups = worst_first(measured({"kind": kinds}, y, [[-1, 1]] * 101))
    assert [group.label for group in groups] == ["lone", "bad", "good"]
    assert [group.below_level for group in groups] == [False, True, False]
    bad = groups[1]
    assert (bad.count, bad.coverage) == (50, 0.4)
    assert (bad.lower, bad.upper) == tuple(map(float, binomial_band(20, 50)))


def test_copies_flag_no_group():
    y, intervals = [0.0, 9.0, 0.0] * 40, [[-INF, INF], [-1, 1], [-1, 1]] * 40
    grouping = group_rows("kind", pa.chunked_array([["a"] * 120]), n_bins=10)
    (copies,) = measure_groups(grouping, evaluated(y, intervals, row_ids=np.arange(120) % 3))
    (rows,) = measure_groups(grouping, evaluated(y, intervals))
    assert (copies.count, copies.n_distinct, copies.coverage) == (120, 3, rows.coverage)
    assert (copies.below_level, rows.below_level) == (False, True)
    assert (copies.lower, copies.upper) == tuple(map(float, binomial_band(2, 3)))
    assert (copies.infinite_lower, copies.infinite_upper) == tuple(map(float, binomial_band(1, 3)))
    assert (most_infinite_first([copies], 0.1), most_infinite_first([rows], 0.1)) == ([], [rows])


def test_flags_are_corrected_for_all_columns_together():
    y = [9.0] * 4 + [0.0] * 16
    alone = measured({"a": ["x"] * 20}, y, [[-1, 1]] * 20)
    assert [group.below_level for group in judged_together(alone)] == [False]
    worse = [replace(alone[0], p_value=0.04)]
    assert [group.below_level for group in judged_together(worse)] == [True]
    assert not any(group.below_level for group in judged_together(worse * 2))
    assert judged_together([]) == []


def test_where_infinite_intervals_concentrate():
    intervals = [[-INF, INF]] * 20 + [[-1, 1]] * 80
    where = ["far"] * 25 + ["near"] * 75
    groups = measured({"where": where, "noise": ["u", "v"] * 50}, [0.0] * 100, intervals)
    (found,) = most_infinite_first(groups, 0.2)
    assert (found.column, found.label, found.infinite) == ("where", "far", 0.8)
    assert (found.infinite_lower, found.infinite_upper) == tuple(map(float, binomial_band(20, 25)))
    assert most_infinite_first([], 0.2) == []


def test_the_slab_across_features_is_judged_on_other_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3)) * [1.0, 1000.0, 0.0]
    y = np.where(X[:, 0] > 1.0, 9.0, 0.0)
    intervals = np.tile([-1.0, 1.0], (2000, 1))
    slab = joint_slab(X, ("x", "large", "constant"), y, intervals)
    assert slab.n_searched == 500
    assert slab.upper < 0.3
    assert slab.along[0][0] == "x"
    assert {name for name, _ in slab.along} == {"x", "large"}
    assert joint_slab(X[:100], ("x", "large", "constant"), y[:100], intervals[:100]) is None
    assert joint_slab(X[:, :1], ("x",), y, intervals) is None


# --- which rows


def test_chosen_rows_are_a_mixture():
    y = np.concatenate([np.arange(10.0) + 5, np.zeros(990)])
    intervals = np.tile([-1.0, 1.0], (1000, 1))
    intervals[100:200] = -INF, INF
    intervals[300] = -50, 50
    rows = evaluated(y, intervals)
    chosen = choose_rows(rows, n_most=40)
    assert len(set(chosen.tolist())) == 40
    assert chosen[0] == 9  # missed by most
    assert set(range(10)) <= set(chosen.tolist())
    assert 300 in chosen[:4]
    assert 8 <= (rows.unlimited[chosen]).sum() <= 25
    assert sorted(choose_rows(rows).tolist()) == list(range(1000))
    assert chosen.tolist() == choose_rows(rows, n_most=40).tolist()


def test_missed_by_and_says_nothing():
    intervals = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [-INF, INF]])
    assert missed_by(np.array([-2.0, 0.5, 4.0, 1e9]), intervals).tolist() == [2.0, 0.0, 3.0, 0.0]
    assert says_nothing(intervals, (-INF, INF)).tolist() == [False, False, False, True]
    clipped = np.clip(intervals, 0.0, 5.0)
    assert says_nothing(clipped, (0.0, 5.0)).tolist() == [False, False, False, True]
    assert says_nothing(np.array([[0.0, INF]]), (0.0, INF)).tolist() == [True]


# --- charts


def test_axes_and_ticks():
    axis = charts.Axis("x", 0.0, 10.0, 100.0, 0.0)
    assert [axis(0.0), axis(5.0), axis(20.0)] == [100.0, 50.0, 0.0]
    assert axis.ticks[:2] == [(100.0, "0"), (80.0, "2")]
    assert charts.nice_ticks(0.0, 10.0) == [0, 2, 4, 6, 8, 10]
    assert charts.nice_ticks(0.0, 0.37) == pytest.approx([0, 0.1, 0.2, 0.3])
    for high in (1e-9, 0.03, 7.0, 99.0, 1e12):
        values = charts.nice_ticks(0.0, high)
        assert 2 <= len(values) <= 7
        assert values[-1] <= high * (1 + 1e-9)


def test_the_calibration_chart_says_what_it_shows():
    y, levels = np.arange(4.0), [0.5, 0.9]
    curve = calibration_curve(y, [[[0, 0], [1, 3]]] * 4, levels)
    chart = charts.calibration_chart([("LVD", curve), ("Split", curve)], 0.9)
    assert [shape.css for shape in chart.shapes if shape.element == "polyline"] == [
        "ideal",
        "curve s1",
        "curve s0",
    ]
    assert "never below" in chart.label
    assert "coverage 50.0%" in chart.shapes[-2].tip


def test_the_chart_of_width_and_error():
    rows = evaluated([0.0, 3.0, 0.5, 0.0], [[-1, 1], [-1, 1], [-2, 2], [-INF, INF]])
    covered = np.array([True, False, True, True])
    chart = charts.width_error_chart(replace(rows, row_numbers=np.array([4, 7, 8, 9])), covered, Digits(1))
    dots = [shape for shape in chart.shapes if shape.element == "circle"]
    assert sorted(dot.css for dot in dots) == ["dot covered", "dot covered", "dot missed"]
    assert dots[-1].tip == "row 7: width 2.0, error 3.0"
    nothing = evaluated([0.0], [[-INF, INF]])
    assert charts.width_error_chart(nothing, np.array([True]), Digits(1)) is None
    exact = evaluated([0.0, 0.0], [[0, 0], [0, 0]])
    assert charts.width_error_chart(exact, np.array([True, True]), Digits(1)) is not None


def test_the_chart_of_finite_shares():
    levels = np.array([0.5, 0.9])
    chart = charts.finite_chart(levels, [("LVD", np.array([0.8, 0.2]))], 0.9)
    assert chart.label.endswith("At least half of them are finite up to level 50%.")
    assert "Fewer than half" in charts.finite_chart(levels, [("LVD", np.array([0.3, 0.2]))], 0.9).label


def test_an_axis_begins_at_a_tenth():
    assert [charts.axis_floor([0.83, 0.97]), charts.axis_floor([0.0]), charts.axis_floor([1.0])] == [
        0.8,
        0.0,
        0.9,
    ]


# --- numbers and JSON


def test_numbers_line_up():
    digits = digits_for(np.array([10.0, 20.0, 35.5]))
    assert [digits.text(value) for value in (3.14159, 1234.5, INF, -INF, np.nan)] == [
        *("3.1", "1,234.5", "∞", "\N{MINUS SIGN}∞", "\N{EN DASH}")
    ]
    assert digits_for(np.array([0.001, 0.002])).decimals == 6
    assert digits_for(np.array([1e15, 3e15])).text(1.5e15) == "1.500e+15"
    assert digits_for(np.zeros(3)).decimals == 2
    assert [short(1 / 3), short(INF)] == [0.3333333, None]


def test_json_cannot_leave_its_element():
    hostile = {"</script><script>": ["<!--", "\u2028", "é"]}
    text = str(to_script_json(hostile))
    assert "<" not in text
    assert json.loads(text) == hostile


# --- options


def test_rivals_are_named():
    assert check_rivals((), None) == ()
    assert check_rivals(("split", " MADSplit", "split"), pa.table({})) == ("split", "madsplit")


def test_every_method_has_a_line_of_its_own():
    style = (resources.files("lvd.page") / "page.css").read_text()
    lines = re.findall(r"^svg \.s(\d) (.*)$", style, re.MULTILINE)
    assert [int(number) for number, _ in lines] == list(range(len(RIVALS) + 1))
    assert len({rule for _, rule in lines}) == len(lines)


def test_one_target_a_page():
    assert only_target(["mu"]) == "mu"
    with pytest.raises(
        InputError, match="a page shows one target, but there are 2: mu, alpha; name one with target="
    ):
        only_target(["mu", "alpha"])


# --- molecules


def test_molecules_are_drawn():
    pytest.importorskip("rdkit", reason="drawing molecules needs RDKit")
    drawing = draw_molecule("CC(=O)Oc1ccccc1C(=O)O")
    root = ET.fromstring(drawing)
    assert root.tag.endswith("svg")
    assert len(drawing) < 5000
    assert "style=" not in drawing  # the page forbids it: bonds would have no strokes
    assert "stroke='currentColor'" in drawing
    assert draw_molecule("no molecule") is None
    assert draw_molecule("") is None
    assert draw_molecule("C" * 500) is None


def test_drawings_lose_what_nobody_sees():
    svg = (
        "<?xml version='1.0'?>\n<svg version='1.1'\n  xmlns:xlink='x'\n  width='9px'>\n<!-- END -->\n"
        "<path class='bond-0' d='M 1.234,2.00' style='fill:none;stroke-opacity:1' />\n</svg>\n"
    )
    assert compact_svg(svg) == "<svg version='1.1' width='9px'><path d='M 1.2,2' fill='none' /></svg> "
