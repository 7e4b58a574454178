"""The card of a model, ``card.md`` in its folder: what it was made of, how, and how good it was found to be."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lvd._validation import InputError
from lvd._version import __version__
from lvd.tables.verdict import percent

if TYPE_CHECKING:
    from lvd.tables.reports import FitReport

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pyarrow")


@dataclass(frozen=True)
class Source:
    """A table as a file: its name, shape and sha256."""

    name: str
    n_rows: int
    n_columns: int
    sha256: str

    @classmethod
    def of(cls, path: str | os.PathLike[str], n_rows: int, n_columns: int) -> Source:
        """That of this file."""
        with Path(path).open("rb") as file:
            return cls(Path(path).name, n_rows, n_columns, hashlib.file_digest(file, "sha256").hexdigest())


@dataclass(frozen=True)
class TestedLevel:
    """How the intervals did on the test rows."""

    target: str
    confidence_level: float
    coverage: float
    lower: float
    upper: float
    interval_score: float
    split_interval_score: float
    verdict: str


@dataclass(frozen=True)
class ModelCard:
    """What `card.md` tells. `updates` are the tables whose rows joined the calibration rows later, with the day."""

    source: Source
    split: str
    settings: dict[str, str]
    notes: tuple[str, ...]
    results: tuple[TestedLevel, ...]
    date: str
    versions: dict[str, str]
    updates: tuple[tuple[str, Source], ...] = ()

    @classmethod
    def of(
        cls, source: Source, report: FitReport, settings: dict[str, str], notes: Sequence[str]
    ) -> ModelCard:
        """The card of a model that was fitted today."""
        n_test = report.n_test
        results = tuple(
            TestedLevel(
                one.target,
                verdict.confidence_level,
                verdict.coverage,
                verdict.lower,
                verdict.upper,
                verdict.interval_score,
                verdict.split_interval_score,
                verdict.kind,
            )
            for one in report.targets
            for verdict in one.verdicts
        )
        split = f"{report.split}: {report.n_train:,} training, {report.n_calib:,} calibration, {n_test:,} test rows"
        versions = {"lvd": __version__, "Python": platform.python_version()}
        versions |= {name: version(name) for name in PACKAGES}
        return cls(source, split, settings, tuple(notes), results, _today(), versions)

    def updated(self, source: Source) -> ModelCard:
        """The card after rows of this table have joined the calibration rows today."""
        return replace(self, updates=(*self.updates, (_today(), source)))

    def to_dict(self) -> dict[str, Any]:
        """All there is to know, in types that JSON has."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Any) -> ModelCard:
        """The card that `to_dict` described; anything else is refused."""
        try:
            card = cls(
                source=Source(**content["source"]),
                split=content["split"],
                settings=dict(content["settings"]),
                notes=tuple(content["notes"]),
                results=tuple(TestedLevel(**one) for one in content["results"]),
                date=content["date"],
                versions=dict(content["versions"]),
                updates=tuple((day, Source(**source)) for day, source in content["updates"]),
            )
            card.text()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the model's card is damaged ({error!r}); save the model again") from None
        return card

    def text(self, facts: Sequence[str] = ()) -> str:
        """The card as Markdown, with `facts` about the model as it is now."""
        lines = [
            "# Model card",
            "",
            f"Fitted on {self.date} by lvd {self.versions['lvd']}.",
            "",
            "## Data",
            "",
        ]
        lines += [_source_line(self.source), f"- split: {self.split}"]
        lines += [f"- updated on {day} with {_source_line(source)[2:]}" for day, source in self.updates]
        lines += [f"- {fact}" for fact in facts]
        lines += [f"- {note}" for note in self.notes]
        lines += ["", "## Settings", "", *(f"- {name}: {value}" for name, value in self.settings.items())]
        lines += ["", "## On the test rows, which no step had seen", "", *_result_table(self.results), ""]
        lines += [
            "The interval score is the mean width plus a penalty for each miss; lower is better. One width"
        ]
        lines += ["for all is split conformal prediction with the same model and calibration rows.", ""]
        lines += [
            "## Versions",
            "",
            ", ".join(f"{name} {number}" for name, number in self.versions.items()),
            "",
        ]
        return "\n".join(lines)


def _source_line(source: Source) -> str:
    return f"- {source.name}: {source.n_rows:,} rows, {source.n_columns:,} columns, sha256 {source.sha256}"


def _result_table(results: Sequence[TestedLevel]) -> list[str]:
    lines = [
        "| target | level | coverage | exact 95% band | interval score | one width for all | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in results:
        band = f"{percent(one.lower, 1)} to {percent(one.upper, 1)}"
        target = one.target.replace("|", "\\|")
        lines.append(
            f"| {target} | {percent(one.confidence_level)} | {percent(one.coverage, 1)} | {band} "
            f"| {one.interval_score:.4g} | {one.split_interval_score:.4g} | {one.verdict} |"
        )
    return lines


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
