"""What ``lvd fit`` prints at its end, and the card that it writes next to the model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lvd.cli import console

if TYPE_CHECKING:
    import pyarrow as pa

    from lvd.methods import LVDRegressor
    from lvd.tables.reports import FitReport, TargetReport, Together, Verdict
    from lvd.tables.table_model import TableModel

MODELS = {"net": ("NetRegressor", "the network"), "trees": ("TreesRegressor", "boosted trees")}
NAMED = 5
"""A note names at most this many rows."""
FEW = 0.5
"""Below this share of finite intervals, a note suggests what to do."""


_COLUMNS = {
    "level": ("confidence_level", "g"),
    "coverage": ("marginal_coverage_rate", ".1%"),
    "tail coverage": ("tail_coverage_rate", ".1%"),
    "mean error": ("mean_absolute_deviation", ".4g"),
    "mean width": ("mean_finite_width", ".4g"),
    "finite": ("finite_fraction", ".1%"),
    "AUROC": ("residual_auroc", ".1%"),
}


def model_class(regressor: LVDRegressor) -> str:
    """The name of the model's class, without its wrappers."""
    model = regressor.model_.unwrapped
    return type(getattr(model, "model", model)).__name__


def model_text(regressor: LVDRegressor) -> str:
    """The kind of the model, and how it was chosen."""
    kind = model_class(regressor)
    name = next((name for name, (cls, _) in MODELS.items() if cls == kind), None)
    errors: dict[str, float] = getattr(regressor, "choice_", {})
    n_more = len(getattr(regressor.model_, "fold_models", ()))
    text = (MODELS[name][1] if name else kind) + (f" (mean of {1 + n_more} models)" if n_more else "")
    if name is None or not errors:
        return text
    others = ", ".join(f"{MODELS[one][1]} {error:.3g}" for one, error in errors.items() if one != name)
    return (
        f"{text}, chosen by cross-validation: error {errors[name]:.3g} of the target's standard "
        f"deviation, {others}"
    )


def show_fit(
    report: FitReport, data: Path, out: Path, seed: int, *, page: Path | None, model: TableModel
) -> None:
    """Five lines for a single target, then notes on possible problems, and the figures."""
    regressor = model.regressor
    crossed = regressor.is_crossed
    n_calib = 0 if crossed else report.n_calib + report.n_spared
    n_rows = report.n_train + n_calib + report.n_test + report.n_skipped + report.n_unlabelled
    inputs = f"{len(report.inputs)} input columns, {report.n_features} features"
    if not report.n_features:
        inputs = f"{report.case}s of column {report.inputs[0]}"
    columns = [_column_text(name, report) for name in report.left_out]
    rows = console.left_out(report.n_skipped, report.n_unlabelled)
    console.show(f"{data}: {n_rows:,} rows, {inputs}")
    of_more = f" (drawn from {report.n_calib + report.n_spared:,})" if report.n_spared else ""
    parts = f"{report.n_train:,} training, {report.n_calib:,} calibration{of_more}"
    if crossed:
        some = f"{report.n_calib:,} of " if report.n_spared else ""
        how = f"which also calibrate by out-of-fold errors ({regressor.calibrated_by}),"
        parts = f"{report.n_train:,} training rows, {some}{how}"
    console.show(
        f"split ({'' if report.split == 'random' else f'{report.split}, '}seed {seed}): {parts} and "
        f"{report.n_test:,} test rows"
    )
    if crossed:
        console.show(f"promise: {regressor.promise}")
    named = f"the column{'s' * (len(columns) > 1)} {', '.join(columns)}" if columns else "no column"
    console.show(f"left out: {rows}, {named}")
    for line in (*_verdict_lines(report), *together_lines(report.together, regressor.joint)):
        console.show(line)
    written = f"model written to {out}{'' if page is None else f', page to {page}'}"
    console.show(f"{written}; it uses {model_text(regressor)}")
    for note in notes(report, model):
        console.show(f"note: {note}")
    console.show_unknown(report.n_unknown, report.unseen, report.n_test)
    show_metrics(report.targets, f"the {report.n_test:,} test rows, which no step has seen", report.n_test)


def with_card(
    model: TableModel, report: FitReport, data: Path, table: pa.Table, settings: dict[str, str | None]
) -> TableModel:
    """The model with its card."""
    from lvd.tables.model_card import ModelCard, Source

    regressor = model.regressor
    chosen: dict[str, object] = {
        "model": model_text(regressor),
        "preset": regressor.preset,
        **{name: value for name, value in vars(regressor.settings).items() if name != "estimator"},
        "joint": regressor.joint,
        "guarantee": model.guarantee,
        "promise": model.promise,
        "calibration": regressor.calibrated_by,
        "max calibration rows": regressor.max_calibration_rows,
        "groups": model.groups,
        "confidence level": regressor.confidence_level,
        "range of y": regressor.y_range,
        **settings,
        "seed": model.seed,
    }
    source = Source.of(data, table.num_rows, table.num_columns)
    texts = {name.replace("_", " "): str(value) for name, value in chosen.items() if value not in (None, "")}
    together = together_lines(report.together, regressor.joint)
    left_out = [f"left out: {console.left_out(report.n_skipped, report.n_unlabelled)}"]
    left_out += [f"left out: column {_column_text(name, report)}" for name in report.left_out]
    card = ModelCard.of(source, report, texts, [*left_out, *together, *notes(report, model)])
    return replace(model, card=card.to_dict())


def notes(report: FitReport, model: TableModel) -> Iterator[str]:
    """What the user should look at."""
    from lvd.tables.column_coding import PLAIN_NUMBERS

    if report.read_from:
        columns = ", ".join(f"{name!r} (such as {text})" for name, text in report.read_from.items())
        yield f"read as numbers, without their signs: {columns}; 5% is 5"
    if report.ordered:
        first = {"dmy": "day", "mdy": "month"}
        columns = ", ".join(f"{name!r} ({first[order]} first)" for name, order in report.ordered.items())
        yield f"read as dates: {columns}"
    for column, share in report.leaks.items():
        yield (
            f"column {column!r} alone explains {share:.1%} of the target's variance: if it becomes known only with "
            f"the target, the model is worthless in use; leave it out with --drop {column}"
        )
    for column, (n_frequent, n_rare) in report.pooled.items():
        yield (
            f"column {column!r} has {n_frequent + n_rare:,} texts: {n_frequent:,} frequent ones have a feature "
            f"each, {n_rare:,} others share one, and another holds the frequency"
        )
    for column in report.dated:
        yield (
            f"column {column!r} holds dates: rows much later than the training rows will be unknown; to predict "
            f"future rows, fit with --split time:{column}"
        )
    for column, example in report.formatted.items():
        yield (
            f"the texts of column {column!r}, such as {example!r}, are categories, not numbers; if they are "
            f"numbers, {PLAIN_NUMBERS}, and fit again"
        )
    if report.n_repeated:
        yield (
            f"{report.n_repeated:,} calibration and test rows repeat the inputs of a training row; if they "
            "are copies of one record, keep one of each and fit again"
        )
    if report.n_duplicates:
        yield (
            f"{report.n_duplicates:,} rows repeat the {report.case} of an earlier row; all rows of a {report.case} "
            f"are in the same part of the split, so training, calibration and test rows share none"
        )
    if report.mixtures:
        named = [str(row) for row in report.mixtures[:NAMED]] + ["..."] * (len(report.mixtures) > NAMED)
        yield (
            f"{len(report.mixtures):,} rows hold salts or mixtures (rows {', '.join(named)}): all of their parts "
            f"are read as one {report.case}; if only one part matters, keep it alone, and fit again"
        )
    yield from _notes_on_few_rows(report, model)
    if _many_infinite(report):
        more = "" if report.groups is None else " in each group"
        apart = " of other scaffolds" if report.split == "scaffold" else ""
        yield (
            f"many intervals are infinite: there are too few similar calibration rows{apart}{more}. More rows"
            f"{'' if report.groups is None else ', fewer groups'} or a lower --level help; if --bandwidth is a "
            "number, so does adaptive, which looks as far as needed for similar rows"
        )
    if _many_infinite(report) and report.split.startswith("time") and not model.regressor.is_crossed:
        yield (
            "all calibration rows are from one period, so few are similar to rows of another season; with "
            "--calibration cross, rows of all periods calibrate"
        )


def _notes_on_few_rows(report: FitReport, model: TableModel) -> Iterator[str]:
    from lvd.methods.lvd import SMALL_TABLE
    from lvd.models.candidates import MANY_ROWS
    from lvd.tables.reports import percent, rows_to_tell

    verdicts = [verdict for one in report.targets for verdict in one.verdicts]
    level = max((one.confidence_level for one in verdicts if one.kind == "cannot tell"), default=None)
    if level is not None and report.n_test < rows_to_tell(level):
        yield (
            f"{report.n_test:,} test rows are too few to tell whether {percent(level)} are covered, which takes "
            f"about {rows_to_tell(level):,}: run lvd evaluate on rows that come later"
        )
    regressor, few = model.regressor, SMALL_TABLE[0] <= report.n_train + report.n_calib < MANY_ROWS
    as_measured = report.case == "row" and not report.pooled and regressor.joint is None
    if few and as_measured and model.guarantee == "local" and not regressor.is_crossed:
        yield (
            f"only {report.n_train:,} rows train and {report.n_calib:,} calibrate; with --calibration cross all "
            f"{report.n_train + report.n_calib:,} do both: sharper, but coverage is then measured, not proved"
        )


def _verdict_lines(report: FitReport) -> Iterator[str]:
    from lvd.tables.reports import percent

    for one, median_error in zip(report.targets, report.median_errors, strict=True):
        for verdict, row in zip(one.verdicts, one.summary.rows, strict=True):
            yield (
                f"{one.target}: {verdict.coverage:.1%} of the true values are inside their "
                f"{percent(verdict.confidence_level)} interval, {verdict.kind} (exact 95% band of the coverage "
                f"{percent(verdict.lower, 1)} to {percent(verdict.upper, 1)}); mean error "
                f"{row['mean_absolute_deviation']:.4g} (always predicting the median: {median_error:.4g})"
            )


def _column_text(name: str, report: FitReport) -> str:
    return f"{name} ({report.useless[name]})" if name in report.useless else name


def _many_infinite(report: FitReport) -> bool:
    """Whether few intervals are finite although there are enough rows for the level."""
    from lvd.methods.conformal import rows_needed

    metrics = [row for one in report.targets for row in one.summary.rows]
    return any(
        row["finite_fraction"] < FEW and report.n_calib >= rows_needed(row["confidence_level"])
        for row in metrics
    )


def show_metrics(reports: Sequence[TargetReport], rows: str, n_rows: int, *, by: str | None = None) -> None:
    """For each target a table of metrics on these `rows`, and for each level the coverage `by` a column."""
    for report in reports:
        some = "" if report.n_rows == n_rows else f"; {report.n_rows:,} of {n_rows:,} have a value"
        console.show(f"\n{report.target}, on {rows}{some}")
        console.show_table(
            list(_COLUMNS),
            [
                [_metric_text(metrics[name], spec) for name, spec in _COLUMNS.values()]
                for metrics in report.summary.rows
            ],
            text_columns=0,
        )
        for verdict in report.verdicts:
            console.show(f"level {verdict.confidence_level:g}: {verdict_line(verdict)}")
        if report.distribution is not None:
            whole, pit = report.distribution, report.distribution.pit
            console.show(
                f"whole distributions: CRPS {whole.crps:.4g}; they {pit.finding} (PIT test on {pit.n_rows:,} rows: "
                f"p = {pit.p_value:.2g})"
            )
        for strata in report.by:
            console.show(f"\n{report.target}, coverage by {by} at level {strata.confidence_level:g}")
            console.show_table(
                ["group", "rows", "coverage", "95% band", "p", ""],
                [
                    [
                        f"{group.group:g}" if isinstance(group.group, float) else str(group.group),
                        f"{group.count:,}",
                        f"{group.coverage:.1%}",
                        f"{group.lower:.1%} to {group.upper:.1%}",
                        f"{group.p_value:.2g}",
                        "BELOW THE LEVEL" if group.below_level else "",
                    ]
                    for group in strata.groups
                ],
            )


def together_lines(together: Sequence[Together], joint: str | None) -> Iterator[str]:
    """Sentences on how often all targets are covered at once, and whether the intervals are made for that."""
    from lvd.tables.reports import percent

    made = (
        "each interval is made for its target alone; lvd fit --joint box makes them hold together"
        if joint is None
        else f"the intervals are made to hold together (joint {joint}), so each alone covers more"
    )
    for one in together:
        yield (
            f"all targets together: {percent(one.coverage, 1)} of {one.n_rows:,} rows have every true value inside "
            f"at level {one.confidence_level:g} (band {percent(one.lower, 1)} to {percent(one.upper, 1)}); {made}"
        )


def verdict_line(verdict: Verdict) -> str:
    """The verdict and the figures behind it, with those of one width for all rows in brackets."""
    figures = [
        f"interval score {verdict.interval_score:.4g} (one width for all: {verdict.split_interval_score:.4g})"
    ]
    if verdict.ert is not None and verdict.split_ert is not None:
        figures.append(f"ERT {verdict.ert:.3f} ({verdict.split_ert:.3f})")
    if verdict.unknown:
        figures.append(f"{verdict.unknown:.1%} unknown or infinite")
    return f"{verdict.kind}; {', '.join(figures)}"


def _metric_text(value: float, spec: str) -> str:
    return "-" if math.isnan(value) else format(value, spec)
