"""JSON for machines: infinity becomes a string, and undefined numbers become null."""

from __future__ import annotations

import json
import math
from typing import Any


def json_safe(content: Any) -> Any:
    """``"Infinity"`` and ``"-Infinity"`` for infinite numbers, null for undefined ones.

    >>> json_safe({"lower": [1.5, -math.inf, math.nan]})
    {'lower': [1.5, '-Infinity', None]}
    """
    if isinstance(content, dict):
        return {key: json_safe(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [json_safe(value) for value in content]
    if not isinstance(content, float) or math.isfinite(content):
        return content
    return None if math.isnan(content) else f"{'-' if content < 0 else ''}Infinity"


def to_json(content: Any, *, indent: int | None = None) -> str:
    """Standard JSON."""
    return json.dumps(json_safe(content), indent=indent, allow_nan=False)
