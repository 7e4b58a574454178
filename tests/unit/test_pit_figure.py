"""The PIT histogram."""

from __future__ import annotations

import numpy as np

from lvd.reproduction.figures import pit_figure, save_figure


def test_counts_and_the_range_of_luck(tmp_path):
    pit = np.concatenate([np.full(30, 0.05), np.full(70, 0.95)])
    figure = pit_figure(pit, n_bins=4)
    (axes,) = figure.axes
    (steps,) = [patch for patch in axes.patches if hasattr(patch, "get_data")]
    np.testing.assert_array_equal(steps.get_data().values, [30, 0, 0, 70])
    assert axes.get_ylabel() == "rows (of 100)"
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert 15 < band.y0 < 25 < band.y1 < 35
    save_figure(figure, tmp_path / "pit.png")
    assert (tmp_path / "pit.png").stat().st_size > 1000
