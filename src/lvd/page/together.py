"""Several targets together: how often all are covered, and the regions of a few rows for pairs of targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lvd._typing import Bool, Float, NDArray
from lvd.intervals import Boxes, Region
from lvd.page.charts import Chart, outcome_dot, polyline, x_axis, y_axis
from lvd.page.evaluation import Evaluated
from lvd.tables.reports import Together, report_together
from lvd.tables.splits import row_ids
from lvd.tables.table_encoder import read_targets

MOST_REGIONS, MOST_PAIRS, CORNERS = 12, 3, 72


@dataclass(frozen=True)
class TogetherView:
    """The shape of the regions, their targets, the joint coverage, and charts of pairs that include the page's
    target."""

    shape: str
    targets: tuple[str, ...]
    together: Together
    charts: tuple[Chart, ...]


def view_together(evaluated: Evaluated) -> TogetherView | None:
    """What a joint model shows on the page's rows; None for other models, or if targets are missing."""
    if evaluated.model is None or evaluated.region is None:
        return None
    table, targets, place = evaluated.table, evaluated.model.encoder.targets, evaluated.place
    if any(name not in table.column_names for name in targets):
        return None
    all_targets = read_targets(table, targets).reshape(table.num_rows, -1)
    complete = np.flatnonzero(~np.isnan(all_targets).any(axis=1))
    if not len(complete):
        return None
    y, region = all_targets[complete], evaluated.region[complete]
    hits, ids = region.contains(y), row_ids(evaluated.X, all_targets)[complete]
    (together,) = report_together(hits[:, None], ids, np.array([evaluated.confidence_level]))
    finite = np.flatnonzero(np.isfinite(region.log_volume()))
    shown = np.random.default_rng(0).permutation(finite)[:MOST_REGIONS]
    others = [number for number in range(len(targets)) if number != place][:MOST_PAIRS]
    charts = tuple(
        pair_chart(
            (targets[place], targets[other]),
            region.onto([place, other])[shown],
            y[shown][:, [place, other]],
            hits[shown],
            evaluated.row_numbers[complete][shown].tolist(),
        )
        for other in others
        if len(shown)
    )
    return TogetherView(str(evaluated.model.regressor.joint), tuple(targets), together, charts)


def outline(region: Region) -> Float[NDArray, "n k 2"]:
    """The outlines of regions of two targets, each as a closed line."""
    if isinstance(region, Boxes):
        corners = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]])
    else:
        angles = np.linspace(0.0, 2.0 * np.pi, CORNERS + 1)
        corners = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    steps = corners[None] * region.radii[:, None]
    return region.centers[:, None] + steps @ np.swapaxes(region.axes, 1, 2)


def pair_chart(
    names: tuple[str, str],
    region: Region,
    y: Float[NDArray, "n 2"],
    hits: Bool[NDArray, "n"],
    rows: list[int],
) -> Chart:
    """The regions of a few rows in the plane of two targets, with the true values."""
    borders = outline(region)
    points = np.concatenate([borders.reshape(-1, 2), y])
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.where(high > low, 0.04 * (high - low), 1.0)
    (x_low, y_low), (x_high, y_high) = (low - room).tolist(), (high + room).tolist()
    across, up = x_axis(names[0], x_low, x_high), y_axis(names[1], y_low, y_high)
    shapes = [polyline("curve s0 thin", across, up, *border.T) for border in borders]
    for row, hit, (first, second) in zip(rows, hits.tolist(), y.tolist(), strict=True):
        tip = f"row {row}: {names[0]} {first:.4g}, {names[1]} {second:.4g}"
        shapes.append(outcome_dot(across(first), up(second), 3.2, tip, hit=hit))
    label = (
        f"The regions of {len(rows)} rows for {names[0]} and {names[1]}, with the true values; "
        f"{int(hits.sum())} of them hold all targets."
    )
    return Chart(label, across, up, shapes)
