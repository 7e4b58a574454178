"""A model behind HTTP: predictions, explanations and labels for programs, and one page for people (extra serve)."""

from lvd.serve.application import create_app
from lvd.serve.requests import RequestLimits

__all__ = ["RequestLimits", "create_app"]
