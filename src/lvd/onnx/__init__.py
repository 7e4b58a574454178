"""Export a method as a graph of standard ONNX operators, which runs without lvd."""

from __future__ import annotations

from typing import NamedTuple

MOST_ROWS = 20_000
"""The default number of calibration rows in a graph."""


class ExportedGraph(NamedTuple):
    """What was written: the file size in bytes, the version of the standard operators, how many of the
    calibration rows are in the graph, the names of inputs and outputs; and for categorical columns, by index,
    the levels: in X a level is encoded by its index, and any other by -1."""

    n_bytes: int
    opset: int
    n_rows: int
    n_calib: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    levels: dict[int, tuple[str, ...]]
