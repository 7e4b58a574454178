"""A graph of standard ONNX operators, written like numpy formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lvd._typing import NDArray
from lvd._validation import MissingExtraError

OPSET, TREE_OPSET, FORMAT = 18, 3, 9
"""The versions of the standard operators, of the tree operators (ai.onnx.ml), and of the file format."""
TREES = "ai.onnx.ml"
DOUBLE, SINGLE, INTEGER, FLAG = (np.dtype(one) for one in (np.float64, np.float32, np.int64, np.bool_))


def onnx_library() -> Any:
    """Import onnx, which is only needed to write a graph."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise MissingExtraError(
            'graphs are written with onnx, which is not installed; run: pip install "lvd[onnx]"'
        ) from None
    return onnx


class Graph:
    """Collects nodes and constants, storing equal constants once."""

    def __init__(self) -> None:
        self.onnx = onnx_library()
        self.nodes: list[Any] = []
        self.constants: dict[Any, Any] = {}
        self.levels: dict[int, tuple[str, ...]] = {}  # stand in for the non-numeric columns of X

    def input(self, name: str, dtype: np.dtype[Any] = DOUBLE) -> Node:
        """A graph input."""
        return Node(self, name, dtype)

    def constant(self, value: Any, dtype: np.dtype[Any]) -> Node:
        """A constant of the graph."""
        array = np.asarray(value, dtype=dtype, order="C")
        key = (array.tobytes(), array.shape, array.dtype.str)
        if key not in self.constants:
            self.constants[key] = self.onnx.numpy_helper.from_array(array, f"c{len(self.constants)}")
        return Node(self, self.constants[key].name, dtype)

    def apply(
        self,
        operator: str,
        *operands: Any,
        dtype: np.dtype[Any] | None = None,
        domain: str = "",
        unused: Sequence[str] = (),
        **attributes: Any,
    ) -> Node:
        """Apply one operator; plain numbers take the type of the first node, and so does the result by default.

        `unused` holds name suffixes for results that nothing reads."""
        first = next(one for one in operands if isinstance(one, Node))
        given = [one if isinstance(one, Node) else self.constant(one, first.dtype) for one in operands]
        name = f"n{len(self.nodes)}"
        names = [one.name for one in given]
        made = self.onnx.helper.make_node(
            operator, names, [name, *(name + one for one in unused)], name=name, domain=domain, **attributes
        )
        self.nodes.append(made)
        return Node(self, name, dtype or first.dtype)

    def column_of(self, value: float, rows: Node) -> Node:
        """The same number for every row."""
        return rows.columns([0]).is_nan().cast(DOUBLE) * 0.0 + value

    def amend(self, answer: Node, doubtful: Node, again: Callable[[Callable[[Node], Node]], Node]) -> Node:
        """The answer with its `doubtful` rows (n, 1) recomputed: `again` gets a function that selects these
        rows of a node."""
        places = doubtful.shaped(-1).then("NonZero").shaped(-1, 1)
        found = again(lambda node: node.then("GatherND", places))
        return answer.then("ScatterND", places, found)

    def join(self, parts: Sequence[Node]) -> Node:
        """Concatenate columns."""
        return parts[0] if len(parts) == 1 else self.apply("Concat", *parts, axis=1)

    def model(
        self,
        inputs: Mapping[str, tuple[Node, Sequence[Any]]],
        outputs: Mapping[str, tuple[Node, Sequence[Any]]],
        *,
        text: str,
        facts: Mapping[str, str],
    ) -> Any:
        """The complete, checked model: nodes and shapes under the user's names for inputs and outputs."""
        helper = self.onnx.helper
        for name, (node, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [node.name], [name], name=name))

        def info(name: str, node: Node, shape: Sequence[Any]) -> Any:
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(node.dtype), shape)

        graph = helper.make_graph(
            self.nodes,
            "lvd",
            [info(name, *one) for name, one in inputs.items()],
            [info(name, *one) for name, one in outputs.items()],
            list(self.constants.values()),
            doc_string=text,
        )
        versions = [("", OPSET)] + [(TREES, TREE_OPSET)] * any(one.domain == TREES for one in self.nodes)
        model = helper.make_model(
            graph,
            producer_name="lvd",
            ir_version=FORMAT,
            opset_imports=[helper.make_opsetid(*one) for one in versions],
        )
        helper.set_model_props(model, dict(facts))
        self.onnx.checker.check_model(model)
        return model


@dataclass(frozen=True, eq=False)
class Node:
    """The result of an operator, rows first; plain numbers in formulas become constants."""

    __array_ufunc__: ClassVar[None] = None  # makes numpy leave formulas with nodes to Node

    graph: Graph
    name: str
    dtype: np.dtype[Any]

    def _and(self, operator: str, other: Any, *, swapped: bool = False, flag: bool = False) -> Node:
        pair = (other, self) if swapped else (self, other)
        return self.graph.apply(operator, *pair, dtype=FLAG if flag else None)

    def __add__(self, other: Any) -> Node:
        return self._and("Add", other)

    def __sub__(self, other: Any) -> Node:
        return self._and("Sub", other)

    def __rsub__(self, other: Any) -> Node:
        return self._and("Sub", other, swapped=True)

    def __mul__(self, other: Any) -> Node:
        return self._and("Mul", other)

    def __truediv__(self, other: Any) -> Node:
        return self._and("Div", other)

    def __rtruediv__(self, other: Any) -> Node:
        return self._and("Div", other, swapped=True)

    def __matmul__(self, other: Any) -> Node:
        return self._and("MatMul", other)

    def __le__(self, other: Any) -> Node:
        return self._and("LessOrEqual", other, flag=True)

    def __ge__(self, other: Any) -> Node:
        return self._and("GreaterOrEqual", other, flag=True)

    def __lt__(self, other: Any) -> Node:
        return self._and("Less", other, flag=True)

    def __gt__(self, other: Any) -> Node:
        return self._and("Greater", other, flag=True)

    def __and__(self, other: Any) -> Node:
        return self._and("And", other)

    def __neg__(self) -> Node:
        return self.then("Neg")

    def __invert__(self) -> Node:
        return self.then("Not")

    def then(self, operator: str, *others: Any, **attributes: Any) -> Node:
        """Apply another operator to this result."""
        return self.graph.apply(operator, self, *others, **attributes)

    def equals(self, other: Any) -> Node:
        """Whether both are equal, elementwise."""
        return self._and("Equal", other, flag=True)

    def is_nan(self) -> Node:
        """Whether each value is NaN."""
        return self.then("IsNaN", dtype=FLAG)

    def where(self, yes: Any, no: Any) -> Node:
        """`yes` where this is true, else `no`; at least one of them is a node."""
        dtype = next(one.dtype for one in (yes, no) if isinstance(one, Node))
        pair = [one if isinstance(one, Node) else self.graph.constant(one, dtype) for one in (yes, no)]
        return self.graph.apply("Where", self, *pair, dtype=dtype)

    def cast(self, dtype: np.dtype[Any]) -> Node:
        """Convert to another type."""
        if dtype == self.dtype:
            return self
        to = self.graph.onnx.helper.np_dtype_to_tensor_dtype(dtype)
        return self.graph.apply("Cast", self, dtype=dtype, to=to)

    def at_least(self, other: Any) -> Node:
        """The elementwise maximum of both."""
        return self._and("Max", other)

    def at_most(self, other: Any) -> Node:
        """The elementwise minimum of both."""
        return self._and("Min", other)

    def within(self, bound: float) -> Node:
        """Clip to ``[-bound, bound]``."""
        return self.then("Clip", -bound, bound)

    def reduce(self, how: str, axis: int = 1, *, keep: bool = True) -> Node:
        """Reduce along an axis by ``Sum``, ``SumSquare``, ``Max``..."""
        return self.graph.apply(
            f"Reduce{how}", self, self.graph.constant([axis], INTEGER), keepdims=int(keep)
        )

    def shaped(self, *shape: int) -> Node:
        """Reshape; 0 keeps a dimension, and -1 is inferred."""
        return self.graph.apply("Reshape", self, self.graph.constant(shape, INTEGER))

    def columns(self, indices: NDArray | Sequence[int]) -> Node:
        """Select columns, in this order."""
        return self.graph.apply("Gather", self, self.graph.constant(indices, INTEGER), axis=1)

    def looked_up(self, table: NDArray) -> Node:
        """The entries of a table at these indices, an integer node."""
        return self.graph.apply("Gather", self.graph.constant(table, table.dtype), self, axis=0)
