"""The figures of the experiments: what they show, not how it looks."""

from __future__ import annotations

import numpy as np
import pytest

import lvd
from experiments.paper import figures
from experiments.paper.collect import measure_results
from experiments.paper.figures import (
    coverage_level_figure,
    illustration,
    synthetic_band,
    thought_experiment,
)
from experiments.paper.methods import MAIN_VARIANT
from experiments.paper.result_store import Result, write_result
from experiments.paper.runs import BenchRun
from lvd._validation import InputError
from lvd.intervals import covered, widths


def result(method: str, radius: float, *, dataset: str = "yacht", seed: int = 0) -> Result:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=40)
    intervals = np.tile([[-radius / 2, -radius], [radius / 2, radius]], (40, 1, 1))
    return Result(
        BenchRun("paper", dataset, method, seed), np.arange(40), y, np.zeros((40, 2)), intervals, 1.0
    )


def test_the_three_bands_are_what_their_titles_say():
    bands, cluster = illustration()
    (constant, constant_in_cluster), (narrow, _), (local, local_in_cluster) = (
        (band.covered.mean(), band.covered[cluster].mean()) for band in bands.values()
    )
    assert constant > 0.85
    assert constant_in_cluster < 0.2
    assert narrow < 0.7
    assert local > 0.85
    assert local_in_cluster > 0.8
    for name in ("Discriminative, not valid", "Locally valid"):
        width = widths(bands[name].row_intervals)
        assert width[cluster].min() > 2 * np.median(width[~cluster])


def test_a_band_on_the_synthetic_data():
    band = synthetic_band(lvd.SplitConformalRegressor)
    assert len(band.x_rows) == 100
    assert np.all(np.diff(band.x) > 0)
    assert np.ptp(widths(band.intervals)) == pytest.approx(0.0, abs=1e-9)
    assert 0.8 < covered(band.y_rows, band.row_intervals).mean() <= 1.0


def test_the_thought_experiment_gives_every_row_the_same_interval():
    band = thought_experiment()
    np.testing.assert_allclose(band.intervals, np.tile([-9.0, 9.0], (21, 1)), atol=0.15)
    errors = np.abs(band.y_rows - band.y_pred)
    np.testing.assert_allclose(errors, np.abs(band.x), atol=1e-9)
    assert np.ptp(widths(band.intervals)) < 0.02 * np.ptp(errors)


def test_width_against_error_shows_the_first_split_of_every_dataset():
    results = [
        result(method, radius, dataset=dataset, seed=seed)
        for method, radius in ((MAIN_VARIANT, 1.0), ("split", 3.0))
        for dataset in ("concrete", "yacht")
        for seed in (1, 0)
    ]
    figure = figures.width_error(results)
    assert [axes.get_title() for axes in figure.axes] == ["Yacht, LVD at 90%", "Concrete, LVD at 90%"]
    missed = int((np.abs(results[1].y) > 1.0).sum())
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert f"missed ({missed})" in legend
    with pytest.raises(InputError, match=r"needs runs of LVD-NN-smooth-base and split at level 0\.9"):
        figures.width_error(results[:4])


def test_coverage_against_level():
    figure = coverage_level_figure(
        measure_results([result("split", 1.0), result("split", 1.0, seed=1), result("CQR", 9.0)])
    )
    (axes,) = figure.axes
    lines = {container.get_label(): container.lines[0].get_xydata() for container in axes.containers}
    assert list(lines) == ["CQR", "split"]
    np.testing.assert_allclose(lines["CQR"], [[50.0, 100.0], [90.0, 100.0]])
    assert lines["split"][0, 1] < lines["split"][1, 1] < 100.0


def test_figures_are_drawn_from_one_protocol(tmp_path):
    paper = result("split", 1.0)
    sound = Result(
        BenchRun("sound", "yacht", "split", 0), paper.rows, paper.y, paper.y_pred, paper.intervals, 1.0
    )
    for one in (paper, sound):
        write_result(tmp_path, one)
    rows, results = figures.read_source(tmp_path, "sound")
    assert ({row.protocol for row in rows}, [one.run for one in results]) == ({"sound"}, [sound.run])
    for wrong in (None, "honest"):
        with pytest.raises(InputError, match="protocol must be one of those the results have, paper, sound"):
            figures.read_source(tmp_path, wrong)


def test_titles_of_the_synthetic_figure_tell_the_coverage(monkeypatch):
    band = illustration()[0]["Marginally valid"]
    monkeypatch.setattr(figures, "synthetic_band", lambda regressor: band)
    share = covered(band.y_rows, band.row_intervals).mean()
    titles = [axes.get_title() for axes in figures.synthetic().axes]
    assert titles[0] == f"LVD: {share:.0%} covered"
    assert len(titles) == 8
    assert len(figures.jackknife().axes) == 3
