"""The OpenAPI description of a served model, with its own columns and their types."""

from __future__ import annotations

from typing import Any

from lvd._version import __version__
from lvd.serve.columns import ColumnFacts
from lvd.serve.requests import RequestLimits
from lvd.serve.served import Served

TYPES = {"number": "number", "boolean": "boolean", "category": "string", "date": "string"}
END = "A number, or the string -Infinity or Infinity where nothing bounds the interval."
REFUSED = {
    "400": "the body is not JSON", "401": "the token is missing", "409": "not with this model",
    "413": "too long, or too many rows", "415": "neither JSON nor CSV", "422": "rows or options cannot be used",
    "503": "too many requests wait", "504": "no answer in time",
}  # fmt: skip


def describe_service(served: Served, limits: RequestLimits, *, with_token: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    number = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    level = "Confidence level; that of the fit by default."
    count = {"type": "integer", "minimum": 1, "maximum": 1000}
    paths = {
        "/predict": _post(
            *("Predictions and intervals.", "Predicted", _option("level", _array_of(number), level)),
            _option(
                "guarantee",
                {"type": "string", "enum": list(served.guarantees)},
                "What the intervals promise.",
            ),
        ),
        "/explain": _post(
            *("Explanations of intervals.", "Explained", _option("level", number, level)),
            _option("neighbors", count, "Calibration rows to list."),
        ),
    }
    if served.keeps_rows:
        paths = {
            "/predict": _post(
                "Predictions and intervals of rows whose labels are not known yet.", "Predicted"
            )
        }
        paths["/observe"] = _post("Take labels by the rows' keys.", "Observed", body="Labels")
    shown: dict[str, str] = {"/health": "Whether the model in force is that of its folder.",
             "/metrics": "For Prometheus.",
             "/model": "Columns with usual values."}  # fmt: skip
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": f"Intervals for {', '.join(served.targets)}", "version": served.version,
                 "description": f"lvd {__version__}. {served.promise} A body has at most {limits.max_bytes:,} "
                                f"bytes and {limits.max_rows:,} rows."},
        "paths": paths | {path: {"get": {"summary": text, "responses": {"200": {"description": text}}}}
                          for path, text in shown.items()},
        "components": {"schemas": _schemas(served)},
    }  # fmt: skip
    if with_token:
        document["components"] |= {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        document["security"] = [{"token": []}]
    return document


def _schemas(served: Served) -> dict[str, Any]:
    row = {column.name: _value(column) for column in served.columns}
    suffixes = [f"_{name}" for name in served.targets] if len(served.targets) > 1 else [""]
    predicted: dict[str, Any] = {}
    for suffix in suffixes:
        predicted[f"y_pred{suffix}"] = {"type": "number"}
        for level in served.levels:
            for end in ("lower", "upper"):
                predicted[f"{end}_{100 * level:.15g}{suffix}"] = {
                    "type": ["number", "string"],
                    "description": END,
                }
        predicted[f"n_effective{suffix}"] = {"type": "number"}
    predicted["known"] = {"type": ["boolean", "null"], "description": "Whether a training row is similar."}
    labels = {name: {"type": "string"} for name in served.label_columns}
    labels |= {name: {"type": "number"} for name in served.targets}
    texts = {name: {"type": "string"} for name in ("error", "where", "what_to_do")}
    return {
        "Row": _object(row),
        "Labels": _object(labels),
        "Predicted": _object({"model": {"type": "string"}, "rows": _array_of(_object(predicted, more=True))}),
        "Explained": _object({"model": {"type": "string"}, "rows": _array_of(_array_of({"type": "object"}))}),
        "Observed": {"type": "object"},
        "Refused": _object(texts),
    }


def _value(column: ColumnFacts) -> dict[str, Any]:
    """The schema of a column's values; null for missing cells."""
    schema: dict[str, Any] = {"type": [TYPES[column.kind], "null"]}
    if column.usual is not None:
        schema["example"] = column.usual
    if column.low is not None and column.high is not None:
        schema["description"] = f"training rows: {column.low:g} to {column.high:g}"
    if column.levels:
        schema["description"] = "training rows: " + ", ".join(column.levels[:20])
    if column.kind == "date":
        schema["description"] = "a date or time in ISO 8601"
    return schema


def _object(properties: dict[str, Any], *, more: bool = False) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [] if more else list(properties)}
    return schema | {"additionalProperties": True}


def _array_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _post(summary: str, answer: str, *options: dict[str, Any], body: str = "Row") -> dict[str, Any]:
    rows = {"application/json": {"schema": {"oneOf": [{**_array_of(_ref(body)), "minItems": 1}, _ref(body)]}},
            "text/csv": {"schema": {"type": "string"}}}  # fmt: skip
    refused = {"content": {"application/json": {"schema": _ref("Refused")}}}
    answers: dict[str, Any] = {code: {"description": text} | refused for code, text in REFUSED.items()}
    answers["200"] = {"description": summary, "content": {"application/json": {"schema": _ref(answer)}}}
    return {"post": {"summary": summary, "parameters": list(options),
                     "requestBody": {"required": True, "content": rows}, "responses": answers}}  # fmt: skip


def _option(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}
