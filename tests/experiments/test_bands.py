"""What is drawn: finite and infinite stretches where the data have them, and counts that are the data's."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import StepPatch

from experiments.paper import bands
from lvd.demo.figures import panels_of, save_figure
from lvd.intervals import covered

INF = np.inf


def texts(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def band_of(intervals, y):
    x = np.arange(float(len(y)))
    return bands.Band(x, np.zeros_like(x), intervals, x, y, intervals)


def draw(band, **others):
    figure = bands.band_figure({"a method": band, **others}, 0.9)
    return figure, figure.axes


def stairs(axes):
    """The patches of the band: the filled one and the hatched one."""
    band, infinite = [patch for patch in axes.patches if isinstance(patch, StepPatch)]
    assert band.get_hatch() is None
    assert infinite.get_hatch() is not None
    return band, infinite


@pytest.fixture
def some_infinite():
    intervals = np.array([[-1.0, 1.0], [-INF, INF], [-INF, INF], [-2.0, 2.0], [-1.0, INF]])
    return band_of(intervals, np.array([0.0, 9.0, -3.0, 2.5, -1.5]))


def test_infinite_stretches_reach_from_edge_to_edge(some_infinite):
    _, (axes,) = draw(some_infinite)
    band, infinite = stairs(axes)
    low, high = axes.get_ylim()
    assert low < -3.0
    assert high > 9.0
    np.testing.assert_array_equal(band.get_data().values, [1.0, np.nan, np.nan, 2.0, np.nan])
    np.testing.assert_array_equal(infinite.get_data().values, [np.nan, high, high, np.nan, high])
    np.testing.assert_array_equal(infinite.get_data().baseline, [-1.0, low, low, -2.0, -1.0])
    np.testing.assert_array_equal(infinite.get_data().edges, [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5])


def test_the_legend_counts_the_rows(some_infinite):
    _, (axes,) = draw(some_infinite)
    assert texts(axes) == [
        "90% interval",
        "infinite interval (3)",
        "prediction",
        "covered (3)",
        "missed (2)",
    ]
    dots, crosses = axes.collections
    np.testing.assert_array_equal(dots.get_offsets()[:, 1], [0.0, 9.0, -3.0])
    np.testing.assert_array_equal(crosses.get_offsets()[:, 1], [2.5, -1.5])


def test_counts_are_those_of_random_data(rng):
    y, radius = rng.normal(size=200), np.where(rng.random(200) < 0.2, INF, rng.exponential(size=200))
    intervals = np.stack([-radius, radius], axis=1)
    _, (axes,) = draw(band_of(intervals, y))
    inside = int(covered(y, intervals).sum())
    assert texts(axes)[3:] == [f"covered ({inside})", f"missed ({200 - inside})"]
    assert texts(axes)[1] == f"infinite interval ({np.isinf(radius).sum()})"
    drawn = np.isfinite(stairs(axes)[1].get_data().values)
    np.testing.assert_array_equal(drawn, np.isinf(radius))


def test_panels_share_their_axes_and_keep_their_titles(some_infinite):
    wide = band_of(np.array([[-50.0, 50.0]] * 5), np.zeros(5))
    _, (first, second) = draw(some_infinite, another=wide)
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[1] > 50.0
    assert [axes.get_title() for axes in (first, second)] == ["a method", "another"]
    assert texts(second)[1] == "infinite interval (0)"


def test_a_legend_covers_no_data(some_infinite):
    figure, (axes,) = draw(some_infinite)
    figure.draw_without_rendering()
    assert axes.get_legend().get_window_extent().y1 < axes.get_window_extent().y0
    assert axes.get_legend().get_window_extent().y0 >= 0.0


def width_error(errors, widths):
    _, (axes,) = panels_of(1)
    bands.draw_width_error(axes, errors, widths, split_radius=2.0)
    return axes


def test_infinite_widths_stand_apart_under_their_own_tick():
    axes = width_error(np.array([1.0, 3.0, 4.0, 0.5]), np.array([2.0, 5.0, INF, INF]))
    assert texts(axes) == [
        "error within half the width",
        "infinite interval (2)",
        "split conformal misses all above (2)",
        "covered (3)",
        "missed (1)",
    ]
    (strip,) = [patch for patch in axes.patches if patch.get_hatch()]
    _, dots, crosses = axes.collections
    assert crosses.get_offsets().tolist() == [[5.0, 3.0]]
    left, right = strip.get_x(), strip.get_x() + strip.get_width()
    infinite = dots.get_offsets()[1:, 0]
    assert left > 5.0
    assert ((infinite > left) & (infinite < right)).all()
    assert right == axes.get_xlim()[1]
    assert axes.get_xticklabels()[-1].get_text() == "∞"
    assert axes.get_xticks()[-1] == infinite[0]


def test_widths_that_are_all_infinite_are_drawn_too():
    axes = width_error(np.array([1.0, 3.0]), np.array([INF, INF]))
    assert texts(axes)[1] == "infinite interval (2)"
    assert texts(axes)[3:] == ["covered (2)", "missed (0)"]


def test_saving_replaces_a_file_and_gives_the_same_bytes_again(some_infinite, tmp_path):
    path = tmp_path / "figure.png"
    path.write_text("something older")
    save_figure(draw(some_infinite)[0], path)
    first = path.read_bytes()
    assert first.startswith(b"\x89PNG")
    save_figure(draw(some_infinite)[0], path)
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]
