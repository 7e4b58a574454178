"""A calibrated method as one ONNX graph, from rows of numbers to predictions and intervals."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lvd._files import atomic_path, refusing
from lvd._typing import Float, NDArray
from lvd._validation import InputError, Parameter, check_positive, percent_name
from lvd.calibration import CalibrationWarning, GlobalConformal, LocalConformal
from lvd.engine.quantiles import wanted_weight
from lvd.kernels import MahalanobisKernel
from lvd.models.coding import NEW_LEVEL
from lvd.onnx import MOST_ROWS, ExportedGraph
from lvd.onnx.graph import DOUBLE, OPSET, Graph, Node
from lvd.onnx.known_rows import known_rows
from lvd.onnx.measures import MeasuredTarget, measure
from lvd.onnx.predictors import known_levels, run_model
from lvd.onnx.weights import adaptive_precisions, local_radii, place_rows


def write_graph(
    method: Any,
    path: str | os.PathLike[str],
    levels: Float[NDArray, "l"],
    *,
    max_rows: int | None = MOST_ROWS,
    targets: Sequence[str] | None = None,
    level_groups: Sequence[Sequence[int]] = (),
) -> ExportedGraph:
    """Write the graph of a :class:`ConformalMethod` at these levels; `targets` name the outputs if there are
    several.

    Rows with only zeros in the columns of one of the `level_groups` are unknown.
    """
    if max_rows is not None:
        check_positive(max_rows, "max_rows", integer=True)
    if method.score_.joint:
        raise InputError(
            "joint regions cannot be exported to ONNX; fit without ", Parameter("joint", named=True)
        )
    graph = Graph()
    graph.levels = known_levels(method)
    X = graph.input("X")
    rows, new = _without_marks(method, X)
    new += [rows.columns(group).reduce("Max").equals(0.0) for group in level_groups]
    found, n_rows = _outputs(method, rows, new, levels, max_rows)
    names = [""] if method.n_targets_ == 1 else [f"_{one}" for one in targets or range(method.n_targets_)]
    outputs = _named(found, levels, names)
    shape = ["rows", method.n_features_in_]
    model = graph.model(
        {"X": (X, shape)},
        {name: (node.shaped(-1), ["rows"]) for name, node in outputs.items()},
        text=f"Predictions and prediction intervals. {method.promise}",
        facts={"confidence_level": ", ".join(f"{level:g}" for level in levels), "promise": method.promise},
    )
    data = model.SerializeToString()
    with refusing(path), atomic_path(path) as part:
        part.write_bytes(data)
    return ExportedGraph(len(data), OPSET, n_rows, method.n_calib_, ("X",), tuple(outputs), graph.levels)


class _Found(NamedTuple):
    """Nodes for each target, (n, 1) or for the ends (n, l), and which rows are known, if decided."""

    y_pred: list[Node]
    ends: list[tuple[Node, Node]]
    n_effective: list[Node]
    known: Node | None


def _without_marks(method: Any, X: Node) -> tuple[Node, list[Node]]:
    """The rows with :data:`NEW_LEVEL` cleared, if their features may have it, and which rows had it."""
    places = vars(method).get("level_places_")
    if places is None or not len(places):
        return X, []
    of_levels = np.isin(np.arange(method.n_features_in_), places)
    marked = X.equals(NEW_LEVEL) & of_levels[None]
    return marked.where(0.0, X), [marked.cast(DOUBLE).reduce("Max") > 0.0]


def _outputs(
    method: Any, X: Node, new: Sequence[Node], levels: Float[NDArray, "l"], max_rows: int | None
) -> tuple[_Found, int]:
    """Everything computed for the rows, with `new` ones unknown, and how many calibration rows the graph holds."""
    outputs = run_model(method.model_, X)
    measured = measure(method.score_, outputs, X, method.kernels_, method.n_targets_)
    known = None if method.support_ is None else known_rows(method.support_, outputs, X)
    for mask in new:
        known = None if known is None else known & ~mask
    ends, sizes, n_rows = [], [], 0
    shares = vars(method).get("error_share_", np.ones(len(measured)))
    for target, calibrator, share in zip(measured, method.calibrators_, shares.tolist(), strict=True):
        radii, size, kept = _radii(method, calibrator, target, outputs.embeddings, levels, max_rows)
        if known is not None and method._infinite_when_unknown:
            radii = [known.where(radius, np.inf) for radius in radii]
        low, high = method._bounds
        pair, y_pred = target.ends(radii), target.y_pred
        narrowed = pair if share == 1.0 else [y_pred + (end - y_pred) * share for end in pair]
        lower, upper = (end.then("Clip", low, high) for end in narrowed)
        ends.append((lower, upper))
        sizes += [] if size is None else [size]
        n_rows = max(n_rows, kept)
    return _Found([one.y_pred for one in measured], ends, sizes, known), n_rows


def _radii(  # noqa: PLR0917
    method: Any,
    calibrator: Any,
    target: MeasuredTarget,
    embeddings: Node,
    levels: Float[NDArray, "l"],
    max_rows: int | None,
) -> tuple[list[Node], Node | None, int]:
    """The radii (n, l) of the score columns that the levels need, the effective sample size, and the number of
    calibration rows in the graph."""
    plans = [method.score_.plan(level) for level in levels.tolist()]
    columns, at = plans[0].columns, np.array([plan.level for plan in plans])
    if type(calibrator) is GlobalConformal:
        fixed = calibrator.radii(np.empty((1, 0)), [(plan.columns, plan.level) for plan in plans])
        zeros = target.y_pred.graph.column_of(0.0, target.y_pred)
        return [zeros + fixed[:, column] for column in range(len(columns))], None, len(calibrator.scores_)
    settings, rows = _checked(calibrator), calibrator.calibration_.rows
    queries = place_rows(settings.kernel, embeddings)
    precision = None
    if settings.bandwidth == "adaptive":
        sample = calibrator.training_sample().points.cpu().numpy()
        level = float(np.max(settings.confidence_level))
        wanted = wanted_weight(
            len(sample), n_calib=calibrator.rows_expected_, level=level, mass=settings.mass
        )
        precision = adaptive_precisions(queries, sample, wanted)
    elif settings.bandwidth != 1.0:
        queries = queries / float(settings.bandwidth)
    radii, size, kept = [], None, len(rows.points)
    for column in columns:
        known = calibrator.calibration_.of_group(None, column)
        points, scores = known.points.cpu().numpy(), known.scores.cpu().numpy()
        kept = len(scores) if max_rows is None else min(max_rows, len(scores))
        radius, size = local_radii(queries, *worst_rows(points, scores, kept), at, precision)
        radii.append(radius)
    return radii, size, kept


def _checked(calibrator: Any) -> Any:
    """The settings of a local calibration, checked to be exportable."""
    if type(calibrator) is not LocalConformal or type(calibrator._settings.kernel) is not MahalanobisKernel:
        raise InputError(
            "kernels and calibrations of your own cannot be exported to ONNX; fit with lvd's MahalanobisKernel"
        )
    rows = calibrator.calibration_.rows
    if rows.groups is not None or rows.weights is not None:
        raise InputError(
            "a model that was calibrated with groups or weights cannot be exported to ONNX; conformalize without "
            "them"
        )
    return calibrator._settings


def worst_rows(
    points: Float[NDArray, "m k"], scores: Float[NDArray, "m"], n_kept: int
) -> tuple[Float[NDArray, "r k"], Float[NDArray, "r"]]:
    """The rows with the largest scores, from sorted rows; dropping the others never lowers a quantile.

    Let F(s) be the weight of rows with scores up to s, T the total weight, D the weight dropped, and l the
    level. Every kept score s is at least the dropped ones, and ``F(s) - D >= l (T - D + 1)`` implies
    ``F(s) >= l (T + 1)``.
    """
    n_left = len(scores) - n_kept
    if n_left:
        warnings.warn(
            f"{n_left:,} of {len(scores):,} calibration rows, those of the smallest errors, are left out of the "
            f"graph, so its intervals are wider: at level 0.9 about as wide as at "
            f"{1.0 - 0.1 * n_kept / len(scores):.3g}; to keep all rows, give a larger max_rows",
            CalibrationWarning,
            stacklevel=6,
        )
    return points[n_left:], scores[n_left:]


def _named(found: _Found, levels: Float[NDArray, "l"], names: Sequence[str]) -> dict[str, Node]:
    """The outputs by name, one column each."""
    columns: dict[str, Node] = {}
    for target, suffix in enumerate(names):
        columns[f"y_pred{suffix}"] = found.y_pred[target]
        for number, level in enumerate(levels.tolist()):
            for side, name in zip(found.ends[target], ("lower", "upper"), strict=True):
                columns[f"{name}_{percent_name(level)}{suffix}"] = side.columns([number])
        if found.n_effective:
            columns[f"n_effective{suffix}"] = found.n_effective[target]
    return columns if found.known is None else columns | {"known": found.known}
