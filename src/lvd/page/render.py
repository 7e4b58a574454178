"""From the report to one HTML file that loads nothing from any network."""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from lvd._files import check_output, refusing, write_text
from lvd._version import __version__
from lvd.methods.online_intervals import OnlineStatus
from lvd.page.charts import axis_floor
from lvd.page.content import ReportContent
from lvd.page.numbers import digits_for
from lvd.page.over_time import OverTimeView
from lvd.page.row_details import cut, to_script_json
from lvd.tables.online_table import OnlineTable
from lvd.tables.reports import percent

N_STATIC_ROWS = 20
"""How many rows are in the HTML itself, for readers without JavaScript."""


@dataclass(frozen=True)
class Origin:
    """What the page was made from, and when, as shown at its top."""

    model: str
    data: str
    date: str

    @classmethod
    def today(cls, model: str, data: str) -> Origin:
        """Made on this day."""
        return cls(model, data, datetime.datetime.now(datetime.UTC).date().isoformat())


@dataclass(frozen=True)
class OnlineTarget:
    """What the page shows of a target; there is no picture before the first labels."""

    name: str
    status: OnlineStatus
    number: Callable[[float], str]
    view: OverTimeView | None


def environment() -> Environment:
    """The templates with their filters; all user input is escaped."""
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(asset),
    )
    made.filters |= {"axis_floor": axis_floor, "cut": cut, "percent": percent, "thousands": "{:,}".format}
    return made


def page_parts() -> dict[str, str]:
    """The style and script of a page, and the policy that allows only these and loads nothing."""
    style, script = asset("page.css"), asset("elements.js") + asset("page.js")
    return {
        "version": __version__,
        "style": Markup(style),
        "script": Markup(script),
        "policy": f"default-src 'none'; img-src data:; style-src {policy_hash(style)}; "
        f"script-src {policy_hash(script)}; base-uri 'none'; form-action 'none'",
    }


def render_report(report: ReportContent, origin: Origin) -> str:
    """The page of a model on a table."""
    made = environment()
    made.filters["number"] = report.digits.text
    return made.get_template("page.html.jinja").render(
        report=report,
        origin=origin,
        **page_parts(),
        # The rows with the largest errors, as in the script's initial order.
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
    write_page_text(render_report(report, origin), out)


def write_online_page(table: OnlineTable, origin: Origin, out: Path) -> None:
    """Write the page, whole or not at all."""
    online, targets = table.online, []
    parts = zip(table.encoder.targets, online.status(), online.history_, strict=True)
    for place, (name, status, blocks) in enumerate(parts):
        digits, view = digits_for(online.regressor_.y_calib_[:, place]), None
        if len(blocks.sums):
            view = OverTimeView.of(blocks, status.confidence_level, digits, dated=online.dated_)
        targets.append(OnlineTarget(name, status, digits.text, view))
    page = environment().get_template("online.html.jinja")
    write_page_text(page.render(targets=targets, origin=origin, **page_parts()), out)


def write_page_text(text: str, out: Path) -> None:
    """Write a page, whole or not at all."""
    check_output(out)
    with refusing(out):
        write_text(out, text)


def asset(name: str) -> str:
    """A file of this folder."""
    return (files("lvd.page") / name).read_text(encoding="utf-8")


def policy_hash(text: str) -> str:
    """The hash of a style or a script for a page's policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
