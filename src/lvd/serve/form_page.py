"""The page for people: a form of the model's columns, and one row's interval with what it rests on."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from lvd.page.render import asset, policy_hash


@cache
def form_page() -> tuple[str, str]:
    """The page and its policy: this style and this script alone, which ask this server alone."""
    style = asset("page.css") + _file("form.css")
    script = _file("form.js")
    policy = (
        f"default-src 'none'; img-src data:; connect-src 'self'; style-src {policy_hash(style)}; "
        f"script-src {policy_hash(script)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return _file("form.html").replace("STYLE", style).replace("SCRIPT", script), policy


def _file(name: str) -> str:
    return (files("lvd.serve") / name).read_text(encoding="utf-8")
