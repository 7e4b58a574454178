"""Serve a model over HTTP: predictions, explanations and labels for programs, and a web page (extra serve)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lvd._validation import MissingExtraError

if TYPE_CHECKING:
    from lvd.serve.application import create_app
    from lvd.serve.requests import RequestLimits

_HOMES = {"create_app": "application", "RequestLimits": "requests"}

__all__ = ["RequestLimits", "create_app"]


def __getattr__(name: str) -> Any:
    """Import the web framework on first use: MLflow serves the same models without it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lvd.serve' has no attribute {name!r}")
    try:
        return getattr(import_module(f"lvd.serve.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"serving needs {error.name}, which is not installed; run: pip install 'lvd[serve]'"
        ) from None
