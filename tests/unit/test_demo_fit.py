"""The demo's computation, with a short training: the homes, progress to the end, figures that are computed."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from lvd.demo import homes as demo
from lvd.demo.homes import LVD, MANSIONS, NOISE_RATIO, NOISY, SPLIT


@pytest.fixture(scope="module")
def announced():
    return {}


@pytest.fixture(scope="module")
def outcome(announced):
    @contextmanager
    def progress(what, total):
        announced[what] = [0, total]

        def advance(n):
            announced[what][0] += n

        yield advance

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "N_BATCHES", 30)
        patch.setattr(demo, "SIZES", {"train": 300, "calib": 200, "test": 240, "mansions": 20})
        return demo.fit_and_ask(progress=progress)


def test_the_noisy_town_differs_in_its_noise_alone(rng):
    homes = demo.make_homes(60_000, rng)
    design = np.column_stack([homes.X, np.sin(homes.X[:, 0] / 25.0)])
    residuals = homes.y - design @ np.linalg.lstsq(design, homes.y, rcond=None)[0]
    noisy, others = residuals[homes.place == NOISY], residuals[homes.place != NOISY]
    assert noisy.std() / others.std() == pytest.approx(NOISE_RATIO, rel=0.03)
    means = [homes.y[homes.place == one].mean() for one in demo.TOWNS]
    assert np.ptp(means) < 8.0  # four standard errors; prices spread by about 100


def test_progress_comes_to_its_end(outcome, announced):
    assert announced == {"training the network": [30, 30], "calibrating the intervals": [2, 2]}


def test_both_methods_hold_the_same_prediction_and_one_is_centred_at_it(outcome):
    for intervals in outcome.intervals.values():
        assert (intervals[:, 0] <= outcome.y_pred).all()
        assert (outcome.y_pred <= intervals[:, 1]).all()
    np.testing.assert_allclose(outcome.intervals[SPLIT].mean(1), outcome.y_pred, rtol=1e-9)
    widths = np.diff(outcome.intervals[SPLIT])
    np.testing.assert_allclose(widths, np.full_like(widths, widths[0, 0]), rtol=1e-12)


def test_what_is_unknown_is_infinite(outcome):
    unknown = ~outcome.known[LVD]
    assert np.isinf(outcome.intervals[LVD][unknown]).all()
    assert unknown[outcome.homes.place == MANSIONS].all()


def test_places_share_no_home_and_leave_none_out(outcome):
    assert (np.sum([*outcome.places().values()], axis=0) == 1).all()


def test_what_is_said_of_some_homes_follows_from_their_intervals(outcome):
    intervals = np.full((len(outcome.y_pred), 2), [-np.inf, np.inf])
    intervals[:3] = outcome.homes.y[:3, None] + np.array([[-1.0, 2.0], [1.0, 2.0], [-2.0, 2.0]])
    known = np.arange(len(intervals)) < 3
    toy = replace(outcome, intervals={LVD: intervals}, known={LVD: known})
    among = toy.among(np.arange(len(intervals)) < 4, LVD)
    assert (among.n_rows, among.coverage, among.median_width, among.n_unknown) == (4, 0.75, 3.5, 1)


def test_the_table_holds_every_interval(outcome):
    table = demo.interval_table(outcome)
    for number, name in enumerate((LVD, SPLIT)):
        part = table.slice(number * len(outcome.y_pred), len(outcome.y_pred))
        assert set(part.column("method").to_pylist()) == {name}
        np.testing.assert_array_equal(part.column("upper").to_numpy(), outcome.intervals[name][:, 1])


def test_the_picture_shows_the_coverage_of_every_place(outcome):
    figure = demo.homes_figure(outcome)
    for axes, name in zip(figure.axes, (LVD, SPLIT), strict=True):
        written = [text.get_text() for text in axes.texts]
        places = (*demo.TOWNS, MANSIONS)
        expected = [outcome.among(outcome.homes.place == one, name).coverage for one in places]
        assert written == [f"{coverage:.0%}" for coverage in expected]
