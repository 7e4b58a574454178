"""Scores in the graph: the units of errors at each row, and interval ends from radii."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lvd._validation import InputError
from lvd.onnx.forests import of_ensembles, of_quantiles, predict_trees
from lvd.onnx.graph import DOUBLE, FLAG, INTEGER, SINGLE, Node
from lvd.onnx.networks import run_stack, softplus
from lvd.onnx.predictors import Outputs, run_model
from lvd.onnx.weights import kernel_means, place_rows
from lvd.scores import (
    AbsoluteResidual,
    DistributionalResidual,
    NormalizedResidual,
    ScaledResidual,
    SignedResidual,
)
from lvd.scores.distributional import (
    CARRIED,
    FARTHEST,
    GRID,
    MIDDLE,
    TAIL,
    BoostedQuantiles,
    ErrorShape,
    NetworkQuantiles,
)
from lvd.scores.residuals import ERROR_OFFSET
from lvd.scores.scaled import BoostedScale, KernelScale, NetworkScale

SCORES_OF_GRAPHS = "'distributional', 'scaled', 'absolute', 'normalized' or 'signed'"


@dataclass(frozen=True, eq=False)
class MeasuredTarget:
    """A target's predictions (n, 1), the units of its errors, and the quantiles of errors in these units."""

    y_pred: Node
    unit: Node | None = None
    quantiles: Node | None = None
    signed: bool = False

    def ends(self, radii: Sequence[Node]) -> tuple[Node, Node]:
        """The lower and upper ends (n, l) for radii (n, l) of the score's columns."""
        if self.signed:
            below, above = -radii[0], radii[1]
            empty = below > above
            return self.y_pred + empty.where(0.0, below), self.y_pred + empty.where(0.0, above)
        depth = radii[0].at_least(0.0)
        if self.quantiles is None:
            reach = depth if self.unit is None else depth * self.unit
            return self.y_pred - reach, self.y_pred + reach
        below, above = errors_at(depth, self.quantiles)
        assert self.unit is not None
        lower, upper = (self.y_pred + z * self.unit for z in (below, above))
        return lower.at_most(self.y_pred), upper.at_least(self.y_pred)


def measure(
    score: Any, outputs: Outputs, X: Node, kernels: Sequence[Any], n_targets: int
) -> list[MeasuredTarget]:
    """Bind a fitted score to the rows, for each target."""
    kind, columns = type(score), split_columns(outputs.y_pred, n_targets)
    if kind in (AbsoluteResidual, SignedResidual):
        return [MeasuredTarget(one, signed=kind is SignedResidual) for one in columns]
    if kind is NormalizedResidual:
        learned = score.error_model_
        expected = run_model(learned.model, outputs.embeddings if learned.on_embeddings else X).y_pred
        units = split_columns(expected.then("Abs") + ERROR_OFFSET, n_targets)
        return list(map(MeasuredTarget, columns, units))
    if kind not in (ScaledResidual, DistributionalResidual):
        raise InputError(
            f"the score {kind.__name__} cannot be exported to ONNX; fit with conformity_score {SCORES_OF_GRAPHS}"
        )
    features = X.graph.join([outputs.y_pred, outputs.inputs or outputs.embeddings])
    scaled = score.residual_ if kind is DistributionalResidual else score
    shapes = score.shapes_ if kind is DistributionalResidual else [None] * n_targets
    measured = []
    for target, (y_pred, shape) in enumerate(zip(columns, shapes, strict=True)):
        kernel = kernels[0 if len(kernels) == 1 else target] if kernels else None
        unit = _expected_error(scaled, target, features, outputs.embeddings, kernel)
        quantiles = (
            None if shape is None else _quantiles(shape, X.graph.join([features, *[unit.then("Log")] * 2]))
        )
        measured.append(MeasuredTarget(y_pred, unit, quantiles))
    return measured


def _expected_error(
    score: ScaledResidual, target: int, features: Node, embeddings: Node, kernel: Any
) -> Node:
    """The scale of each row (n, 1), as in :class:`ScaledResidual`."""
    graph, typical, found = features.graph, score.typical_[target], score.scales_[target]
    if not found:
        return graph.column_of(typical, features)
    total = graph.column_of(score.weights_[target].get("constant", 0.0) * float(np.log(typical)), features)
    for name, scale in found.items():
        if isinstance(scale, KernelScale):
            log = _kernel_scale(scale, place_rows(kernel, embeddings)).then("Log")
        elif isinstance(scale, BoostedScale):
            trees = graph.join(
                [predict_trees(features, one, exact=False) for one in of_ensembles(scale.models_)]
            )
            log = trees.at_least(scale.least_).then("Log").reduce("Mean")
        else:
            log = _network_scale(scale, features)
        total = total + log * score.weights_[target][name]
    return total.then("Exp").at_least(score.least_[target])


def _kernel_scale(scale: KernelScale, points: Node) -> Node:
    columns = np.stack([scale.errors_, np.ones(len(scale.errors_))], axis=1)
    sums = kernel_means(points, scale.points_, columns, scale.bandwidth_)
    return (sums.columns([0]) + scale.strength_ * scale.mean_) / (sums.columns([1]) + scale.strength_)


def _network_scale(scale: NetworkScale, features: Node) -> Node:
    """The logarithm of the networks' mean."""
    inputs = ((features - scale.x_mean_) / scale.x_scale_).within(10.0).cast(SINGLE)
    outputs = softplus(run_stack(scale.parameters_, inputs).cast(DOUBLE)) + 1e-3
    return outputs.then("Log").reduce("Mean", 0, keep=False) + float(np.log(scale.unit_))


def _quantiles(shape: ErrorShape, features: Node) -> Node:
    """The quantiles (n, k) of scaled errors, as in :class:`ErrorShape`."""
    graph = features.graph
    known = sum(
        weight * vars(shape)[f"{name}_"]
        for name, weight in shape.weights_.items()
        if name in ("constant", "symmetric")
    )
    total = graph.column_of(0.0, features) + np.broadcast_to(known, len(GRID))[None]
    for name, learner in shape.learners_.items():
        if isinstance(learner, BoostedQuantiles):
            own = (
                predict_trees(features, of_quantiles(learner.trees_), exact=False) @ CARRIED
                + learner.constant_
            )
        else:
            own = _network_quantiles(learner, features)
        total = total + own * shape.weights_[name]
    return _kept_apart(total, shape.least_)


def _network_quantiles(learner: NetworkQuantiles, features: Node) -> Node:
    inputs = ((features - learner.x_mean_) / learner.x_scale_).within(FARTHEST).cast(SINGLE).cast(DOUBLE)
    outputs = run_stack(learner.parameters_, inputs)
    rising = np.triu(np.ones((len(GRID), len(GRID))), k=1)[:-1]
    gaps = softplus(_last_axis(outputs, np.arange(1, len(GRID)))) @ (rising - rising[:, [MIDDLE]])
    return (_last_axis(outputs, [0]) + gaps).reduce("Mean", 0, keep=False) * learner.unit_


def _last_axis(node: Node, places: Any) -> Node:
    return node.then("Gather", node.graph.constant(places, INTEGER), axis=2)


def _kept_apart(quantiles: Node, least: float) -> Node:
    """:func:`lvd.scores.distributional.kept_apart`: running maxima up from the median, minima down from it."""
    graph, places = quantiles.graph, np.arange(len(GRID))
    count = graph.constant([len(GRID)], INTEGER)
    ordered = quantiles.then("TopK", count, axis=1, largest=0, sorted=1, unused=["i"])
    steps = least * places
    rest = (ordered - steps).shaped(0, 1, len(GRID))
    up = (places >= MIDDLE) & (places <= places[MIDDLE:, None])
    down = (places <= MIDDLE) & (places >= places[:MIDDLE, None])
    above = graph.constant(up[None], FLAG).where(rest, -np.inf).reduce("Max", 2, keep=False)
    below = graph.constant(down[None], FLAG).where(rest, np.inf).reduce("Min", 2, keep=False)
    return graph.join([below, above]) + steps


def split_columns(node: Node, n: int) -> list[Node]:
    """Split into single columns."""
    return [node] if n == 1 else [node.columns([place]) for place in range(n)]


def errors_at(depth: Node, quantiles: Node) -> tuple[Node, Node]:
    """Both z at these depths, as in :func:`lvd.scores.distributional.error_at`."""
    last, outer = len(GRID) - 1, float(np.log2(2.0 * GRID[0]))
    graph = depth.graph
    tail = (depth.at_most(-outer) * -float(np.log(2.0))).then("Exp") * 0.5
    ranked = tail.then("Unsqueeze", graph.constant([2], INTEGER)) >= GRID[: MIDDLE + 1]
    cell = ranked.cast(INTEGER).reduce("Sum", 2, keep=False).at_least(1).at_most(MIDDLE)
    tau_low, tau_high = (cell - 1).looked_up(GRID), cell.looked_up(GRID)
    share = (tail - tau_low) / (tau_high - tau_low)

    def inside(low: Node, high: Node) -> Node:
        first, second = (graph.apply("GatherElements", quantiles, one, axis=1) for one in (low, high))
        return first + share * (second - first)

    falls, beyond = float(np.log2(GRID[TAIL] / GRID[0])), depth + outer
    at = [quantiles.columns([place]) for place in (0, TAIL, last - TAIL, last)]
    far_below = at[0] - beyond * ((at[1] - at[0]) / falls)
    far_above = at[3] + beyond * ((at[3] - at[2]) / falls)
    outside = depth > -outer
    mirrored = last - cell
    return (
        outside.where(far_below, inside(cell - 1, cell)),
        outside.where(far_above, inside(mirrored + 1, mirrored)),
    )
