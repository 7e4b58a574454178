"""A table model as an ONNX graph of its coded columns, with the coding next to it as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lvd._files import atomic_path, refusing
from lvd._typing import Levels
from lvd._validation import InputError, Parameter
from lvd._version import __version__
from lvd.onnx import ExportedGraph
from lvd.onnx.exporting import write_graph
from lvd.tables.column_coding import Column, column_to_dict, features_of_missing
from lvd.tables.frame_encoder import FrameEncoder
from lvd.tables.table_encoder import TableEncoder
from lvd.tables.table_model import TableModel


def coding_beside(path: str | os.PathLike[str]) -> Path:
    """The path of the file with the coding of the columns."""
    return Path(f"{os.fspath(path)}.json")


def export_model(
    model: TableModel,
    path: str | os.PathLike[str],
    confidence_level: Levels | None = None,
    *,
    max_rows: int | None,
) -> ExportedGraph:
    """Write the graph and the coding, both or neither."""
    if model.guarantee != "local":
        raise InputError(
            Parameter("guarantee"),
            f" {model.guarantee!r} cannot be exported to ONNX; fit the model with 'local', the default",
        )
    if not isinstance(model.encoder, TableEncoder | FrameEncoder):
        raise InputError("models of SMILES cannot be exported to ONNX; those of tables can")
    groups = model.encoder.level_groups if isinstance(model.encoder, TableEncoder) else []
    with refusing(path), atomic_path(coding_beside(path)) as beside, atomic_path(path) as part:
        written = write_graph(
            model.regressor,
            part,
            model.resolve_levels(confidence_level),
            max_rows=max_rows,
            targets=model.encoder.targets,
            level_groups=groups,
        )
        coding = describe_coding(model.encoder, written.levels)
        whole = {"lvd": __version__, "targets": list(model.encoder.targets), "input": written.inputs[0]}
        text = json.dumps({**whole, "outputs": list(written.outputs), "columns": coding}, indent=1)
        beside.write_text(text + "\n", encoding="utf-8")
    return written


def describe_coding(
    encoder: TableEncoder | FrameEncoder, levels: Mapping[int, tuple[str, ...]]
) -> list[dict[str, Any]]:
    """How each column becomes features, in JSON types.

    A missing cell has the features ``missing``, with null for NaN; without them it is an error. For a frame
    that a method was fitted on in Python, a text is coded by its index among its column's ``codes``, the
    `levels`.
    """
    if isinstance(encoder, TableEncoder):
        return [_entry(column, fills=encoder.fills) for column in encoder.columns]
    entries: list[dict[str, Any]] = []
    for number, (name, kind) in enumerate(zip(encoder.frame.names, encoder.frame.kinds, strict=True)):
        if kind == "date":
            raise InputError(
                f"the model was fitted in Python on a frame whose column {name!r} holds dates, so it cannot be "
                "exported to ONNX; fit it with lvd fit, which codes dates itself"
            )
        coded = number in levels
        more: dict[str, Any] = {"codes": list(levels[number])} if coded else {"missing": [None]}
        entries.append({"name": name, "kind": "category" if coded else kind} | more)
    return entries


def _entry(column: Column, *, fills: bool) -> dict[str, Any]:
    entry = {name: value for name, value in column_to_dict(column).items() if value != []}
    if entry.pop("median") is not None:
        own = features_of_missing(column)
        entry["missing"] = own if fills else [None] * len(own)
    return entry
