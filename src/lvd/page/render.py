"""From the report to one HTML file that asks nothing of any network."""

from __future__ import annotations

import base64
import datetime
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from lvd._files import check_output, refusing, write_text
from lvd._version import __version__
from lvd.page.charts import axis_floor
from lvd.page.content import ReportContent
from lvd.page.row_details import cut, to_script_json
from lvd.tables.verdict import percent

N_STATIC_ROWS = 20
"""How many rows are in the page itself, for readers without JavaScript."""


@dataclass(frozen=True)
class Origin:
    """What the page was made from, and when, as it says at its top."""

    model: str
    data: str
    date: str

    @classmethod
    def today(cls, model: str, data: str) -> Origin:
        """Made on this day."""
        return cls(model, data, datetime.datetime.now(datetime.UTC).date().isoformat())


def render_report(report: ReportContent, origin: Origin) -> str:
    """The page; whatever comes from the user is escaped."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_asset),
    )
    environment.filters["axis_floor"] = axis_floor
    environment.filters["cut"] = cut
    environment.filters["percent"] = percent
    environment.filters["thousands"] = "{:,}".format
    environment.filters["number"] = report.digits.text
    style, script = _asset("page.css"), _asset("page.js")
    return environment.get_template("page.html.jinja").render(
        report=report,
        origin=origin,
        version=__version__,
        style=Markup(style),
        script=Markup(script),
        # Only this very style and this very script are in force, and nothing is ever loaded.
        policy=f"default-src 'none'; img-src data:; style-src {_policy_hash(style)}; "
        f"script-src {_policy_hash(script)}; base-uri 'none'; form-action 'none'",
        # The rows with the largest errors, as the script sorts them first.
        static_rows=sorted(report.rows["rows"], key=lambda row: (-abs(row[1] - row[2]), row[0]))[
            :N_STATIC_ROWS
        ],
        data=to_script_json(
            {
                "target": report.evaluated.target,
                "level": report.evaluated.confidence_level,
                "decimals": report.digits.decimals,
                "nRows": report.n_rows,
                "explained": report.evaluated.model is not None,
                **report.rows,
            }
        ),
    )


def write_report(report: ReportContent, origin: Origin, out: Path) -> None:
    """Write the page, whole or not at all."""
    text = render_report(report, origin)
    check_output(out)
    with refusing(out):
        write_text(out, text)


def _asset(name: str) -> str:
    return (files("lvd.page") / name).read_text(encoding="utf-8")


def _policy_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
