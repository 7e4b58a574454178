"""A method as a graph of standard ONNX operators, which runs without lvd."""

from __future__ import annotations

from typing import NamedTuple

MOST_ROWS = 20_000
"""So many calibration rows enter a graph by default."""


class ExportedGraph(NamedTuple):
    """What was written: the file's size in bytes, the version of the standard operators, how many calibration rows
    are in the graph and how many there are, the names of what goes in and comes out; and of columns of categories,
    by their numbers, the levels: in X the place of a level stands for it, and -1 for any other."""

    n_bytes: int
    opset: int
    n_rows: int
    n_calib: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    levels: dict[int, tuple[str, ...]]
