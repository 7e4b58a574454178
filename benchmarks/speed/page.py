"""The speed page, written from files of figures; missing measurements are reported as missing."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path

from jinja2 import FileSystemLoader

from benchmarks.results import MISSING, duration, number, versions_text
from benchmarks.speed.cases import LEVELS, N_COLUMNS, N_COMPONENTS
from benchmarks.speed.figures import Figure, read_figures
from experiments.paper.formats import Grid, render_markdown
from lvd import InputError
from lvd._files import write_text

FILES = {
    "queries,rows,lvd,wanted": "engine",
    "fit,calibrate,intervals": "training",
    "device,": "molecules",
    ",".join(field.name for field in fields(Figure)): "figures",
}
"""The type of a file, by the start of its first line."""
OURS, PLAIN, FLOOR = "lvd", "plain torch", "floor of the exponentials"


def write_page(target: Path, paths: Sequence[Path]) -> None:
    """Write the page from the template next to this file."""
    by_kind: dict[str, list[Path]] = {kind: [] for kind in FILES.values()}
    for path in paths:
        by_kind[_kind_of(path)].append(path)
    figures = read_figures(by_kind["figures"])
    cpu, gpu = (Figures(one for one in figures if one.device == device) for device in ("cpu", "cuda"))
    text = render_markdown(
        "speed.md.jinja",
        FileSystemLoader(Path(__file__).parent),
        files=" ".join(f"results/{path.name}" for path in paths),
        levels=" and ".join(map(str, LEVELS)),
        n_columns=N_COLUMNS,
        n_components=N_COMPONENTS,
        cpu=cpu,
        gpu=gpu,
        engine=_engine(by_kind["engine"]),
        training=_training(by_kind["training"]),
        molecules=[_molecules(path) for path in by_kind["molecules"]],
    )
    write_text(target, text)


class Figures:
    """The figures of one device, as tables; a table without figures is None."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self.figures = list(figures)

    @property
    def setting(self) -> str:
        """Machine, date and versions."""
        one = self.figures[0]
        versions = versions_text(one, ("python", "torch", "numpy", "numba", "triton", "lvd"))
        return f"{one.machine}; {one.date}; {versions}"

    def find(self, section: str, **wanted: object) -> list[Figure]:
        """The figures of a section with these values."""
        return [
            one
            for one in self.figures
            if one.section == section and all(getattr(one, name) == value for name, value in wanted.items())
        ]

    def value(self, section: str, measure: str = "seconds", **wanted: object) -> float:
        """The last such figure, nan if there is none."""
        found = self.find(section, measure=measure, **wanted)
        return found[-1].value if found else float("nan")

    def sizes(self, section: str) -> list[dict[str, object]]:
        """The cases of a section in the order they were measured."""
        keys = dict.fromkeys((one.case, one.queries, one.rows) for one in self.find(section))
        return [dict(zip(("case", "queries", "rows"), key, strict=True)) for key in keys]

    def names(self, section: str, **wanted: object) -> list[str]:
        """The contestants of a section."""
        return list(dict.fromkeys(one.who for one in self.find(section, **wanted)))

    def ratio(self, who: str, base: str, section: str = "radius", **wanted: object) -> float:
        """The time of `who` relative to that of `base`."""
        return self.value(section, who=who, **wanted) / self.value(section, who=base, **wanted)

    @property
    def radii(self) -> Grid | None:
        """Whole calls against plain torch, for each number of threads."""
        counts = sorted({one.threads for one in self.find("radius")})
        headings = ["queries x rows"]
        for count in counts:
            where = "" if len(counts) == 1 else f", {count} thread{'s' if count > 1 else ''}"
            headings += [f"**lvd**{where}", f"plain torch{where}", f"times lvd{where}", f"floor{where}"]
        headings += ["lvd equal to the oracle", "plain torch equal"]
        lines = []
        for size in self.sizes("radius"):
            line = [_size(size)]
            for count in counts:
                wanted = {**size, "threads": count}
                seconds = [self.value("radius", who=who, **wanted) for who in (OURS, PLAIN, FLOOR)]
                times = number(seconds[1] / seconds[0], ".3g")
                line += [duration(seconds[0]), duration(seconds[1]), times, duration(seconds[2])]
            lines.append([*line, self._equal("radius", OURS, size), self._equal("radius", PLAIN, size)])
        return _grid(headings, lines)

    @property
    def slower(self) -> list[str]:
        """The sizes at which plain torch is faster, on a CPU with the number of threads."""
        on_gpu = self.figures[0].device == "cuda"
        return [
            _size(size) if on_gpu else f"{_size(size)} on {count} thread{'s' if count > 1 else ''}"
            for size in self.sizes("radius")
            for count in sorted({one.threads for one in self.find("radius", **size)})
            if self.ratio(PLAIN, OURS, **size, threads=count) < 1.0
        ]

    @property
    def past(self) -> Grid | None:
        """The cost of other choices compared with plain LVD."""
        names = [name for name in self.names("radius") if name not in {OURS, PLAIN, FLOOR}]
        lines = [
            [_size(size), duration(self.value("radius", who=OURS, **size))]
            + [self._beside(name, OURS, "radius", size) for name in names]
            for size in self.sizes("radius")
            if any(self.find("radius", who=name, **size) for name in names)
        ]
        headings = ("queries x rows", "plain LVD", *(f"{name} (times plain LVD)" for name in names))
        return _grid(headings, lines)

    @property
    def settling(self) -> Grid | None:
        """Radii that are not certified, the time float64 takes for them, and that of the call with exact=True."""
        lines = []
        for size in self.sizes("settling"):
            counts = [
                number(self.value("settling", name, **size))
                for name in ("uncertified", "compared", "wider", "narrower")
            ]
            call = self.value("radius", who=OURS, **size)
            for measure in ("seconds", "exact_seconds"):
                seconds = self.value("settling", measure, **size)
                counts += [duration(seconds), number(seconds / call, ".3g")]
            lines.append([_size(size), *counts])
        headings = (
            "queries x rows", "queries not certified", "their radii", "wider than float64", "narrower",
            "these by plain torch in float64", "times the call", "the call with exact=True", "times the call",
        )  # fmt: skip
        return _grid(headings, lines)

    @property
    def guarantees(self) -> Grid | None:
        """The guarantees compared with the local one."""
        lines = [
            [
                who,
                *self._first_and_later("guarantee", who),
                number(self.ratio(who, "local", "guarantee"), ".3g"),
            ]
            for who in self.names("guarantee")
        ]
        return _grid(("guarantee", "first call", "later call", "times local"), lines)

    def size_of(self, section: str) -> str:
        """Queries x rows of a section that has one size."""
        return _size(self.sizes(section)[0])

    @property
    def fits(self) -> Grid | None:
        """Fitting and predicting, compared with the paper's preset."""
        names = self.names("fit")
        if not names:
            return None
        base = names[0]
        asked = sorted({one.queries for one in self.find("predict")}, reverse=True)
        lines = []
        for who in names:
            line = [who, self._beside(who, base, "fit", {"case": ""}), self._megabytes("fit", who=who)]
            for queries in asked:
                line += [self._beside(who, base, "predict", {"queries": queries})]
                line += [self._megabytes("predict", who=who, queries=queries)]
            lines.append(line)
        headings = ["", f"fit (times {base})", "peak MB"]
        for queries in asked:
            headings += [f"predict {queries:,} row{'s' if queries > 1 else ''} (times {base})", "peak MB"]
        return _grid(headings, lines)

    @property
    def stages(self) -> Grid | None:
        """The stages of fitting."""
        names, stages = self.names("fit"), dict.fromkeys(one.case for one in self.find("fit") if one.case)
        lines = [
            [stage, *(duration(self.value("fit", who=who, case=stage)) for who in names)] for stage in stages
        ]
        return _grid(("stage of fit", *names), lines)

    @property
    def company(self) -> Grid | None:
        """The same call on its own and in company."""
        lines = []
        for who in self.names("company"):
            seconds = self.value("company", who=who)
            text = duration(seconds) if seconds != float("inf") else "did not come back"
            lines.append([who, text, self._equal("company", who, {})])
        return _grid(("call", "time", "radii equal to those by itself"), lines)

    @property
    def first_use(self) -> Grid | None:
        """First calls in fresh processes."""
        lines = [[who, *self._first_and_later("first use", who)] for who in self.names("first use")]
        return _grid(("fresh process", "first call", "second call"), lines)

    @property
    def steps(self) -> Grid | None:
        """One training step."""
        lines = [
            [who, duration(self.value("step", who=who)), number(self.ratio(who, OURS, "step"), ".3g"),
             number(self.value("step", "error", who=who), ".1e")]
            for who in self.names("step")
        ]  # fmt: skip
        return _grid(("", "a step", "times lvd", "largest error of the gradient"), lines)

    @property
    def kernel_fits(self) -> Grid | None:
        """Whole trainings of kernels."""
        lines = []
        for size in self.sizes("kernel fit"):
            seconds, batches = self.value("kernel fit", **size), self.value("kernel fit", "batches", **size)
            shares = [
                number(self.value("kernel fit", name, **size), ".2f") for name in ("explained", "explainable")
            ]
            lines.append(
                [f"{size['rows']:,}", duration(seconds), number(batches), duration(seconds / batches),
                 self._megabytes("kernel fit", **size), ", ".join(shares)]
            )  # fmt: skip
        headings = (
            "rows",
            "time",
            "batches",
            "a batch",
            "MB added",
            "R² of its kernel regression, and the best",
        )
        return _grid(headings, lines)

    def _first_and_later(self, section: str, who: str) -> list[str]:
        return [duration(self.value(section, measure, who=who)) for measure in ("first_seconds", "seconds")]

    def _equal(self, section: str, who: str, size: dict[str, object]) -> str:
        equal, checked = (self.value(section, name, who=who, **size) for name in ("equal", "checked"))
        return MISSING if math.isnan(checked) else f"{equal:,.0f} of {checked:,.0f}"

    def _beside(self, who: str, base: str, section: str, size: dict[str, object]) -> str:
        seconds = self.value(section, who=who, **size)
        return f"{duration(seconds)} ({number(self.ratio(who, base, section, **size), '.3g')})"

    def _megabytes(self, section: str, **wanted: object) -> str:
        return number(self.value(section, "peak_mb", **wanted))


def _size(size: dict[str, object]) -> str:
    kind = "" if size["case"] in {"", "near"} else f", {size['case']}"
    return f"{size['queries']:,} x {size['rows']:,}{kind}"


def _kind_of(path: Path) -> str:
    try:
        first = path.read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--page: cannot read {path} ({error}); give a csv file of a benchmark") from error
    for beginning, kind in FILES.items():
        if first.startswith(beginning):
            return kind
    raise InputError(f"--page: {path} holds none of the figures of this page; leave it out")


def _engine(paths: list[Path]) -> Grid | None:
    """The GPU engine alone, in milliseconds, from benchmarks.gpu."""
    columns = ("lvd", "lvd, far apart", "plain torch", "one row at a time", "floor")
    lines = []
    for row in _rows(paths):
        times = (duration(1e-3 * float(row[name] or "nan")) for name in columns)
        lines.append([f"{int(row['queries']):,} x {int(row['rows']):,}", *times])
    return _grid(("queries x rows", *columns), lines)


def _training(paths: list[Path]) -> dict[str, str] | None:
    """Kernels and intervals of several targets, from benchmarks.gpu_training."""
    rows = _rows(paths)
    if not rows:
        return None
    totals = [sum(float(row[name]) for name in ("fit", "calibrate", "intervals")) for row in rows]
    shown = {"n": str(len(rows)), "all": duration(sum(totals))}
    return shown | {"least": duration(min(totals)), "most": duration(max(totals))}


def _molecules(path: Path) -> Grid:
    """The output of benchmarks.molecule_overhead, line by line."""
    with path.open(newline="", encoding="utf-8") as file:
        head, *lines = csv.reader(file)
    return Grid("", "", tuple(head), lines)


def _grid(headings: Iterable[str], lines: list[list[str]]) -> Grid | None:
    """A table below text of the template; None if it has no lines."""
    return Grid("", "", tuple(headings), lines) if lines else None


def _rows(paths: list[Path]) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            rows += list(csv.DictReader(file))
    return rows
