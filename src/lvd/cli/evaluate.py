"""``lvd evaluate``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from lvd.cli import console
from lvd.cli.console import (
    Data,
    GuaranteeOfFit,
    Json,
    Levels,
    Model,
    SkipInvalid,
    Trust,
    load_fitted,
    option,
    warn_of_training_rows,
)
from lvd.cli.fit_summary import show_metrics, together_lines

EXAMPLES = console.examples(
    "lvd evaluate homes-model sold-homes.csv",
    "lvd evaluate homes-model sold-homes.csv --target price --by district --level 0.5 --level 0.9",
    "lvd evaluate homes-model sold-homes.csv --json > metrics.json",
)


def evaluate_table(
    model: Model,
    data: Data,
    *,
    target: Annotated[
        list[str] | None, option("COLUMN", "Column with the true values.", "all targets of the model")
    ] = None,
    by: Annotated[str | None, option("COLUMN", "Also report the coverage by this column's values.")] = None,
    level: Levels = None,
    guarantee: GuaranteeOfFit = None,
    skip_invalid: SkipInvalid = False,
    trust: Trust = None,
    json: Json = False,
) -> None:
    """Measure the intervals on rows with known true values.

    Coverage is the share of true values inside their interval, and tail coverage the same among the 10% smallest
    and the 10% largest true values. Mean error is the mean absolute error of the predictions, mean width is over
    the finite intervals, and finite is their share. AUROC measures how well the width tells large errors from small
    ones: 50% is chance.

    The verdict compares the intervals with one width for all rows (split conformal, from the same calibration
    errors): "holds, and tells rows apart", "holds, but no better than one width for all", "too many unknown"
    (more than 5% of the rows are unknown or have an infinite interval), "does not hold", or "cannot tell" if
    there are too few rows. It rests on the coverage with its exact binomial band; on the interval score
    (Winkler), the mean width plus a penalty for each miss, where an infinite interval counts as the range of the
    calibration rows; and, from 600 rows on, on the ERT, which measures how far coverage is from the level row by
    row. Lower is better for both.

    Whole distributions are judged on the first 2,000 rows: CRPS, the continuous ranked probability score, is in
    units of the target, and lower is better. Probability integral transforms (PIT), the share of each distribution
    below the true value, are uniform if the distributions are right; the p-value is that of a chi-squared test, and
    a small one comes with what is wrong, such as "are too narrow".

    With several targets it also reports how often all true values of a row are covered at once; only models fitted
    with --joint are calibrated for that.

    Rows without a true value are left out and counted. Rows with a text that no training row has are unknown.

    Use rows that the model has not seen; rows that it was trained or calibrated on cause a warning. lvd fit
    --test-out saves the test rows for this. Rows with the same inputs and targets are copies: metrics include all
    of them, but bands and tests count each row once.

    With --by, coverage is reported for each group, with its exact binomial 95% band. A group is flagged if its
    coverage is below the level by more than chance explains (exact binomial test at 5%, Holm-corrected for the
    number of groups). A numeric column with more than 20 distinct values is cut into ten groups of equal size.
    """
    from lvd.tables.reading import read_rows

    fitted = load_fitted(model, trust, skip_invalid=skip_invalid, guarantee=guarantee)
    with console.working("evaluating"):
        report = fitted.evaluate(read_rows(data), level, targets=target or (), by=by)
    consequence = "its errors are too small; evaluate on rows that it has not seen"
    warn_of_training_rows(
        *(report.n_repeated, report.n_rows, fitted, consequence), n_calibrating=report.n_calibrating
    )
    if json:
        console.show_json(asdict(report))
        return
    console.show_left_out(report.n_skipped, report.n_unlabelled)
    console.show_unknown(report.n_unknown, report.unseen, report.n_rows)
    if n_copies := report.n_rows - report.n_distinct:
        console.show(
            f"{n_copies:,} of {report.n_rows:,} rows repeat an earlier row: bands and tests count each row once"
        )
    for line in together_lines(report.together, fitted.regressor.joint):
        console.show(line)
    show_metrics(report.targets, f"the rows of {data}", report.n_rows, by=by)
