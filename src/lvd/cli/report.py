"""``lvd report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lvd.cli import console
from lvd.cli.console import (
    Data,
    GuaranteeOfFit,
    Level,
    Model,
    SkipInvalid,
    Trust,
    check_files,
    check_new,
    load_fitted,
    option,
    warn_of_training_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from lvd.page.content import ReportContent
    from lvd.tables.table_model import TableModel

EXAMPLES = console.examples(
    "lvd report homes-model sold-homes.csv --out report.html",
    "lvd report homes-model sold-homes.csv --by district --compare split,madsplit --out report.html",
    "lvd report demand-model measured.csv --over-time hour --out report.html",
    "lvd report molecules-model test.csv --target mu --out report.html  # fitted with --smiles: drawn",
)


def report_table(
    model: Model,
    data: Data,
    out: Annotated[Path, option("FILE", "The .html file to write.")],
    *,
    target: Annotated[
        list[str] | None,
        option(
            "COLUMN", "Column with the true values; one per page.", "the model's target, if it has only one"
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        option("COLUMN", "Also show the coverage by this column's values; repeat for several."),
    ] = None,
    compare: Annotated[
        str,
        option(
            "NAMES",
            "Rival methods to show, separated by commas: split, or none; with --fitted-on also madsplit, cqr, "
            "jackknifeplus, discriminativejackknife, deepensemble, mcdropout, pbp.",
            True,
        ),
    ] = "split",
    over_time: Annotated[
        str | None,
        option(
            "COLUMN",
            "Also show coverage, width and the share of unknown rows over time, in the order of this column's "
            "dates or numbers.",
            "no charts over time",
        ),
    ] = None,
    level: Level = None,
    guarantee: GuaranteeOfFit = None,
    fitted_on: Annotated[
        Path | None,
        option("FILE", "The table given to lvd fit, to show the cells of the neighbours and to fit rivals."),
    ] = None,
    smiles: Annotated[
        str | None, option("COLUMN", "Column of SMILES to draw (needs RDKit).", "as in lvd fit")
    ] = None,
    skip_invalid: SkipInvalid = False,
    trust: Trust = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the page at --out.")] = False,
) -> None:
    """Write one HTML page that shows whether the intervals hold, for whom, and why one is wide.

    The page is one file: it opens offline, loads nothing from any network, and can be sent by email. It shows the
    verdict of lvd evaluate, compared with one width for all rows; coverage and width; the calibration curve; the
    coverage by group and by feature, worst first; width against error; where intervals are infinite; and rows that
    can be sorted, filtered and opened, each with its neighbours and the sentence of lvd explain.

    All figures are computed from all rows. The table on the page holds at most 1,000 rows: the worst misses,
    infinite and widest intervals, and others at random.

    Use rows that the model has not seen, with their true values. The rivals of --compare learn from the same rows
    as the model; all but split are fitted again, on the table of --fitted-on.

    If the model was fitted with --smiles, the page draws the molecules and their neighbours, which are stored in
    the model. For other models, --smiles draws the rows, and with --fitted-on also the neighbours.
    """
    from lvd.tables.reading import read_table

    check_files({"--out": out}, model, data, fitted_on)
    check_new(out, force=force or out.is_dir())  # a folder is refused when it is written to
    fitted = load_fitted(model, trust, skip_invalid=skip_invalid, guarantee=guarantee)
    content = write_page(
        fitted,
        read_table(data, as_text=True),
        out,
        (model.resolve().name, data.name),
        target=target,
        by=by or (),
        rivals=() if compare.strip().lower() == "none" else compare.split(","),
        level=level,
        over_time=over_time,
        fitted_on=None if fitted_on is None else read_table(fitted_on, as_text=True),
        smiles=smiles,
    )
    if content.n_skipped:
        rows = f"{content.n_skipped:,} row{'' if content.n_skipped == 1 else 's'}"
        console.show(f"left out: {rows} that the model cannot read or that have no true value")
    console.show_unknown(content.n_unknown, content.unseen, content.n_rows)
    console.show(content.verdict.sentence)
    console.show(f"page written to {out}")


def write_page(
    fitted: TableModel,
    table: pa.Table,
    out: Path,
    names: tuple[str, str],
    *,
    target: Sequence[str] | None = None,
    by: Sequence[str] = (),
    rivals: Sequence[str] = ("split",),
    level: float | None = None,
    over_time: str | None = None,
    fitted_on: pa.Table | None = None,
    smiles: str | None = None,
) -> ReportContent:
    """Write the page of a model and warn of rows that it was trained on; `names` are those of model and table."""
    from lvd.molecules.drawing import draw_molecule
    from lvd.page.content import make_report, only_target
    from lvd.page.render import Origin, write_report
    from lvd.page.row_details import Pictures

    (table,) = fitted.as_rows([table])
    (fitted_on,) = (None,) if fitted_on is None else fitted.as_rows([fitted_on])
    drawn = smiles or fitted.encoder.smiles
    one_target = only_target(target or fitted.encoder.targets)
    with console.working("evaluating"):
        content = make_report(
            *(fitted, table),
            target=one_target,
            by=tuple(dict.fromkeys(by)),
            rivals=rivals,
            confidence_level=level,
            over_time=over_time,
            fitted_on=fitted_on,
            pictures=None if drawn is None else Pictures(drawn, draw_molecule),
        )
        write_report(content, Origin.today(*names), out)
    consequence = "its errors are too small; report on rows that it has not seen"
    evaluated = content.evaluated
    warn_of_training_rows(
        *(evaluated.n_repeated, content.n_rows, fitted, consequence), n_calibrating=evaluated.n_calibrating
    )
    return content
