"""The model card, ``card.md`` in the model's folder: what it was made of, how, and how good it was found to be."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lvd._validation import InputError
from lvd._version import __version__
from lvd.tables.reports import percent

if TYPE_CHECKING:
    from lvd.tables.reports import FitReport

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pyarrow")
FIGURES = ("confidence_level", "coverage", "lower", "upper", "interval_score", "split_interval_score")
"""The fields kept from a verdict on the test rows."""
MARKUP = re.compile(r"[\\`*\[\]|~$!]|(?<![^\W_])_|_(?![^\W_])|^[#+=-]")
"""Markdown's special characters; an underscore within a word is not one."""
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that break lines, act on a terminal, or change the direction of writing."""
TEXT = """\
# Model card

Fitted on {date} by lvd {lvd}.

## Data

{data}

## Settings

{settings}

## On the test rows, which no step had seen

| target | level | coverage | exact 95% band | interval score | one width for all | verdict |
|---|---|---|---|---|---|---|
{results}

The interval score is the mean width plus a penalty for each miss; lower is better. One width
for all is split conformal prediction with the same model and calibration rows.

## Versions

{versions}
"""


@dataclass(frozen=True)
class Source:
    """A table file: its name, shape and sha256."""

    name: str
    n_rows: int
    n_columns: int
    sha256: str

    @classmethod
    def of(cls, path: str | os.PathLike[str], n_rows: int, n_columns: int) -> Source:
        """Describe this file."""
        with Path(path).open("rb") as file:
            return cls(Path(path).name, n_rows, n_columns, hashlib.file_digest(file, "sha256").hexdigest())

    def __str__(self) -> str:
        return f"{self.name}: {self.n_rows:,} rows, {self.n_columns:,} columns, sha256 {self.sha256}"


@dataclass(frozen=True)
class ModelCard:
    """The content of `card.md`; `updates` are the tables added to the calibration rows later, by day."""

    source: Source
    split: str
    settings: dict[str, str]
    notes: tuple[str, ...]
    results: tuple[dict[str, Any], ...]
    date: str
    versions: dict[str, str]
    updates: tuple[tuple[str, Source], ...] = ()

    @classmethod
    def of(
        cls, source: Source, report: FitReport, settings: dict[str, str], notes: Sequence[str]
    ) -> ModelCard:
        """The card of a model fitted today."""
        n_test = report.n_test
        results = tuple(
            {"target": one.target, "verdict": verdict.kind}
            | {name: getattr(verdict, name) for name in FIGURES}
            for one in report.targets
            for verdict in one.verdicts
        )
        split = f"{report.split}: {report.n_train:,} training, {report.n_calib:,} calibration, {n_test:,} test rows"
        versions = {"lvd": __version__, "Python": platform.python_version()}
        versions |= {name: version(name) for name in PACKAGES}
        return cls(source, split, settings, tuple(notes), results, _today(), versions)

    def updated(self, source: Source) -> ModelCard:
        """The card after rows of this table joined the calibration rows today."""
        return replace(self, updates=(*self.updates, (_today(), source)))

    def to_dict(self) -> dict[str, Any]:
        """The complete card, in JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Any) -> ModelCard:
        """Restore the output of `to_dict`; anything else is an error."""
        try:
            lists = {name: tuple(content[name]) for name in ("notes", "results")}
            updates = tuple((day, Source(**source)) for day, source in content["updates"])
            card = cls(**content | lists | {"source": Source(**content["source"]), "updates": updates})
            card.text()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the model's card is damaged ({error!r}); save the model again") from None
        return card

    def text(self, facts: Sequence[str] = ()) -> str:
        """The card as Markdown, with `facts` about the model's current state."""
        updates = (f"updated on {day} with {source}" for day, source in self.updates)
        data = [str(self.source), f"split: {self.split}", *updates, *facts, *self.notes]
        settings = (f"{name}: {value}" for name, value in self.settings.items())
        return TEXT.format(
            date=_plain(self.date),
            lvd=_plain(self.versions["lvd"]),
            data="\n".join(f"- {_plain(line)}" for line in data),
            settings="\n".join(f"- {_plain(line)}" for line in settings),
            results="\n".join(map(_result_line, self.results)),
            versions=_plain(", ".join(f"{name} {number}" for name, number in self.versions.items())),
        )


def _result_line(one: dict[str, Any]) -> str:
    band = f"{percent(one['lower'], 1)} to {percent(one['upper'], 1)}"
    return (
        f"| {_plain(one['target'])} | {percent(one['confidence_level'])} | {percent(one['coverage'], 1)} | {band} "
        f"| {one['interval_score']:.4g} | {one['split_interval_score']:.4g} | {_plain(one['verdict'])} |"
    )


def _plain(text: str) -> str:
    """The text on one line of Markdown, escaped so that user text never acts as markup or HTML."""
    spelled = CONTROLS.sub(lambda found: repr(found[0])[1:-1], str(text)).strip()
    escaped = re.sub(r"^(\d+)([.)])", r"\1\\\2", MARKUP.sub(r"\\\g<0>", spelled))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
