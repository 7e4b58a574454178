"""Trees in the graph: those of lvd, scikit-learn and LightGBM, as one operator each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError
from lvd.models.trees import TreeEnsemble
from lvd.onnx.graph import DOUBLE, SINGLE, TREES, Node


class FlatTrees(NamedTuple):
    """Trees with k values per leaf, as in :class:`TreeEnsemble`: each tree's nodes are contiguous, its root first.

    In `single` precision, rows are rounded to float32 before comparison, as some libraries do; with logarithms,
    the sum of all trees is the exponent.
    """

    baseline: Float[NDArray, "k"]
    roots: Int[NDArray, "r"]
    features: Int[NDArray, "m"]
    thresholds: Float[NDArray, "m"]
    left: Int[NDArray, "m"]
    right: Int[NDArray, "m"]
    missing_left: Bool[NDArray, "m"]
    leaves: Bool[NDArray, "m"]
    values: Float[NDArray, "m k"]
    categories: Mapping[int, NDArray] = MappingProxyType({})
    """The categories that go left at each categorical split."""
    single: bool = False
    logarithms: bool = False


def predict_trees(rows: Node, trees: FlatTrees, *, exact: bool = True) -> Node:
    """The sums of leaves (n, k).

    The operator returns its sums in float32. `exact` sums are computed in two parts: multiples of a power of
    two large enough for float32 to hold all their sums, and each leaf's remainder.
    """
    if not len(trees.roots):
        return rows.graph.column_of(0.0, rows) + trees.baseline[None]
    if trees.single:
        rows = rows.cast(SINGLE).cast(DOUBLE)
    n_values, parts = trees.values.shape[1], [trees.values]
    if exact:
        most = len(trees.roots) * float(np.abs(trees.values[trees.leaves]).max()) or 1.0
        unit = 2.0 ** (np.ceil(np.log2(most)) - 22.0)
        large = np.round(trees.values / unit) * unit
        parts = [large, trees.values - large]
    sums = _sum_leaves(rows, trees, np.concatenate(parts, axis=1)).cast(DOUBLE)
    if exact:
        sums = sums.columns(np.arange(n_values)) + sums.columns(np.arange(n_values) + n_values)
    total = sums + trees.baseline[None]
    return total.then("Exp") if trees.logarithms else total


def _sum_leaves(rows: Node, trees: FlatTrees, values: Float[NDArray, "m k"]) -> Node:
    """Apply the operator, with a chain of equality tests for each categorical split."""
    graph, n_nodes = rows.graph, len(trees.leaves)
    tree = np.searchsorted(trees.roots, np.arange(n_nodes), side="right") - 1
    own = np.arange(n_nodes) - trees.roots[tree]
    modes = np.where(trees.leaves, "LEAF", "BRANCH_LEQ").astype(object)
    yes, no = (
        np.where(trees.leaves, 0, side - trees.roots[tree]).tolist() for side in (trees.left, trees.right)
    )
    columns: dict[str, list[Any]] = {
        "treeids": tree.tolist(),
        "nodeids": own.tolist(),
        "featureids": np.where(trees.leaves, 0, trees.features).tolist(),
        "values": np.where(trees.leaves, 0.0, trees.thresholds).tolist(),
        "modes": modes.tolist(),
        "truenodeids": yes,
        "falsenodeids": no,
        "missing_value_tracks_true": trees.missing_left.astype(int).tolist(),
    }
    _chain_categories(columns, trees)
    order = np.lexsort([columns["nodeids"], columns["treeids"]])
    ordered = {f"nodes_{name}": [column[place] for place in order] for name, column in columns.items()}
    numbers, leaves = graph.onnx.numpy_helper.from_array, np.flatnonzero(trees.leaves)
    ordered["nodes_values_as_tensor"] = numbers(np.array(ordered.pop("nodes_values"), np.float64))
    return graph.apply(
        "TreeEnsembleRegressor",
        rows,
        dtype=SINGLE,
        domain=TREES,
        n_targets=values.shape[1],
        post_transform="NONE",
        aggregate_function="SUM",
        target_treeids=np.repeat(tree[leaves], values.shape[1]).tolist(),
        target_nodeids=np.repeat(own[leaves], values.shape[1]).tolist(),
        target_ids=np.tile(np.arange(values.shape[1]), len(leaves)).tolist(),
        target_weights_as_tensor=numbers(np.ascontiguousarray(values[leaves]).ravel()),
        **ordered,
    )


def _chain_categories(columns: dict[str, list[Any]], trees: FlatTrees) -> None:
    """Replace each categorical split by nodes that test one category after the other."""
    sizes = np.bincount(columns["treeids"])
    for node, lefts in trees.categories.items():
        tree, number = columns["treeids"][node], columns["nodeids"][node]
        yes, no = columns["truenodeids"][node], columns["falsenodeids"][node]
        asked = [*lefts.tolist()] or [-2.0]  # a value that no row has
        numbers = [number, *range(sizes[tree], sizes[tree] + len(asked) - 1)]
        sizes[tree] += len(asked) - 1
        for place, (own, category) in enumerate(zip(numbers, asked, strict=True)):
            entry = {
                "treeids": tree,
                "nodeids": own,
                "featureids": columns["featureids"][node],
                "values": float(category),
                "modes": "BRANCH_EQ",
                "truenodeids": yes,
                "falsenodeids": numbers[place + 1] if place + 1 < len(numbers) else no,
                "missing_value_tracks_true": int(trees.missing_left[node]),
            }
            for name, value in entry.items():
                if place:
                    columns[name].append(value)
                else:
                    columns[name][node] = value


def of_ensembles(ensembles: Sequence[TreeEnsemble]) -> Iterator[FlatTrees]:
    """The trees of lvd's own boosted ensembles, one per target."""
    for one in ensembles:
        lefts = {}
        if one.cuts is not None and one.lefts is not None:
            cut = np.flatnonzero(one.cuts >= 0).tolist()
            lefts = {node: np.flatnonzero(one.lefts[one.cuts[node]]) for node in cut}
        yield FlatTrees(
            np.array([one.baseline]),
            one.roots,
            one.features,
            one.thresholds,
            one.left,
            one.right,
            one.missing_left,
            one.leaves,
            one.values[:, None],
            lefts,
        )


def of_quantiles(trees: Any) -> FlatTrees:
    """The trees of :class:`lvd.models.trees.QuantileTrees`."""
    leaves = trees.left == np.arange(len(trees.left))
    return FlatTrees(
        trees.baseline,
        trees.roots,
        trees.features,
        trees.thresholds,
        trees.left,
        trees.right,
        np.zeros(len(leaves), bool),
        leaves,
        trees.values,
    )


def of_histograms(model: Any) -> FlatTrees:
    """The trees of scikit-learn's HistGradientBoostingRegressor."""
    (trees,) = of_ensembles([TreeEnsemble.of(model)])
    return trees._replace(logarithms=model.loss in {"poisson", "gamma"})


def of_forest(model: Any) -> FlatTrees:
    """The trees of scikit-learn's forests and single trees, which are averaged."""
    trees = getattr(model, "estimators_", [model])
    return _of_sklearn([one.tree_ for one in trees], 1.0 / len(trees), 0.0)


def of_boosting(model: Any) -> FlatTrees:
    """The trees of scikit-learn's GradientBoostingRegressor."""
    start = 0.0 if model.init_ == "zero" else getattr(model.init_, "constant_", None)
    if start is None:
        raise InputError(
            "GradientBoostingRegressor with init= a model of its own cannot be exported to ONNX; leave init out"
        )
    return _of_sklearn([one.tree_ for one in model.estimators_[:, 0]], model.learning_rate, np.ravel(start))


def _of_sklearn(trees: Sequence[Any], factor: float, baseline: Any) -> FlatTrees:
    sizes = [tree.node_count for tree in trees]
    roots = np.cumsum([0, *sizes])[:-1]
    offsets = np.repeat(roots, sizes)
    left, right = (
        np.concatenate([getattr(tree, f"children_{side}") for tree in trees]) for side in ("left", "right")
    )
    values = factor * np.concatenate([tree.value[:, :, 0] for tree in trees])
    return FlatTrees(
        np.broadcast_to(np.asarray(baseline, np.float64), values.shape[1:]),
        roots,
        np.concatenate([tree.feature for tree in trees]).astype(np.int64),
        np.concatenate([tree.threshold for tree in trees]),
        left + offsets,
        right + offsets,
        np.concatenate([tree.missing_go_to_left for tree in trees]).astype(bool),
        left < 0,
        values,
        single=True,
    )


def of_lightgbm(model: Any) -> FlatTrees:
    """The trees of an LGBMRegressor or a LightGBM Booster."""
    dump = getattr(model, "booster_", model).dump_model()
    objective = str(dump.get("objective", "")).split()
    plain = {"regression", "regression_l1", "huber", "fair", "quantile", "mape"}
    logarithms = objective[:1] in (["poisson"], ["gamma"], ["tweedie"])
    if (
        dump["num_class"] != 1
        or len(objective) > 1 + ("alpha" in str(objective))
        or not (logarithms or set(objective[:1]) <= plain)
    ):
        raise InputError(f"LightGBM with objective {' '.join(objective)!r} cannot be exported to ONNX")
    nodes: list[dict[str, Any]] = []
    roots = []
    for tree in dump["tree_info"]:
        roots.append(len(nodes))
        _flatten(tree["tree_structure"], nodes)
    share = 1.0 / len(roots) if dump.get("average_output") else 1.0
    leaves = np.array(["leaf_value" in node for node in nodes])
    cut = [node.get("decision_type") == "==" for node in nodes]

    def column(read: Callable[[dict[str, Any]], Any], of_leaves: Any) -> NDArray:
        return np.array([of_leaves if "leaf_value" in node else read(node) for node in nodes])

    thresholds = column(lambda node: 0.0 if node["decision_type"] == "==" else node["threshold"], 0.0)
    return FlatTrees(
        np.zeros(1),
        np.array(roots, np.int64),
        column(lambda node: node["split_feature"], 0),
        thresholds.astype(np.float64),
        column(lambda node: node["left"], 0),
        column(lambda node: node["right"], 0),
        column(_missing_left, False),
        leaves,
        share * np.array([[node.get("leaf_value", 0.0)] for node in nodes], dtype=np.float64),
        {
            number: np.array(nodes[number]["threshold"].split("||"), dtype=np.float64)
            for number in np.flatnonzero(cut).tolist()
        },
        logarithms=logarithms,
    )


def _flatten(tree: dict[str, Any], nodes: list[dict[str, Any]]) -> int:
    """Append a tree's nodes, parents first; return its root's index."""
    if "leaf_coeff" in tree or tree.get("missing_type") == "Zero":
        raise InputError(
            "LightGBM with linear_tree or zero_as_missing cannot be exported to ONNX; train without them"
        )
    number, node = len(nodes), dict(tree)
    nodes.append(node)
    if "leaf_value" not in node:
        node["left"] = _flatten(node.pop("left_child"), nodes)
        node["right"] = _flatten(node.pop("right_child"), nodes)
    return number


def _missing_left(node: dict[str, Any]) -> bool:
    """Whether NaN goes left: where 0 goes, if no number was missing in training."""
    if node["decision_type"] == "==":
        return False
    return bool(node["default_left"] if node["missing_type"] == "NaN" else node["threshold"] >= 0.0)
