"""``lvd explain``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lvd.cli import console
from lvd.cli.console import Data, Json, Level, Model, Trust, load_fitted, option

if TYPE_CHECKING:
    import pyarrow as pa

    from lvd.methods.evidence import Explanation
    from lvd.tables.table_model import TableModel

MOST_OTHERS, MOST_BESIDE, MOST_COLUMNS = 1000, 3, 20
"""The most rows to compare with, neighbours to show with their cells, and columns to show."""
EXAMPLES = console.examples(
    "lvd explain homes-model new-homes.csv --row 17",
    "lvd explain homes-model new-homes.csv --row 17 --level 0.5 --neighbors 3",
    "lvd explain homes-model new-homes.csv --row 17 --fitted-on homes.csv",
    "lvd explain homes-model new-homes.csv --row 17 --json",
)


def explain_row(
    model: Model,
    data: Data,
    row: Annotated[
        int,
        typer.Option(
            min=1, show_default=False, help="Number of the row: 1 is the first one below the header."
        ),
    ],
    *,
    level: Level = None,
    neighbors: Annotated[int, typer.Option(min=1, help="How many calibration rows to list.")] = 10,
    fitted_on: Annotated[
        Path | None,
        option("FILE", "The table given to lvd fit, to show the neighbours' cells next to the row's."),
    ] = None,
    trust: Trust = None,
    json: Json = False,
) -> None:
    """Explain why one row's interval is as wide as it is, or infinite.

    Lists the calibration rows that carry the most weight for this row: their number in the table of lvd fit (1 is
    the first row below the header; rows added by lvd update are counted separately), their share of the weight,
    their similarity (1 means the same as this row), the error made on them, that error as a multiple of the
    expected one, and their true value. The remaining weight stands for what is unknown; if it is too large for the
    level, the interval is infinite, and the number of missing rows is reported. A row that is unlike all training
    rows, or has a text that none of them has, is unknown, however wide its interval is. If the model reads a single
    column, its cell is shown for each row.

    If the table has at least ten rows, the columns are listed too: by what factor the row's own value widens its
    interval, compared with the first 1,000 rows of the table, largest effects first.
    """
    from lvd.page.row_details import read_neighbors
    from lvd.tables.reading import find_row, read_rows, read_table

    fitted, cells = load_fitted(model, trust), None
    if fitted_on is not None:
        cells = read_neighbors(fitted, fitted.encoder.targets[0], read_table(fitted_on, as_text=True))
    others = _rows_to_compare_with(fitted, data)
    explanations = fitted.explain(read_rows(data), row, level, n_neighbors=neighbors, background=others)
    by_target = dict(zip(fitted.encoder.targets, explanations, strict=True))
    if json:
        console.show_json([asdict(e) | {"target": t, "sentence": e.sentence} for t, e in by_target.items()])
        return
    own = find_row(read_rows(data), row)
    for target, explanation in by_target.items():
        _show_explanation(explanation, target)
        _show_columns(explanation, own, cells, fitted)
        _show_neighbors(explanation, target, fitted)


def _rows_to_compare_with(model: TableModel, data: Path) -> pa.Table | None:
    """The first rows of the table; None if the model reads no columns, or cannot read one of these rows."""
    from lvd._validation import InputError
    from lvd.tables.reading import read_rows

    first = next(iter(read_rows(data, batch_rows=MOST_OTHERS)), None)
    if first is None or not model.encoder.column_places:
        return None
    try:
        model.inputs(first)
    except InputError:  # the row to explain may still be valid
        return None
    return first


def _show_columns(explanation: Explanation, own: pa.Table, cells: pa.Table | None, model: TableModel) -> None:
    """The row's cells, how each affects the width, and the cells of the nearest neighbours."""
    from lvd.tables.column_values import to_texts

    shares = {share.column: share.times for share in explanation.shares}
    if not shares and cells is None:
        return
    places = {number: place for place, number in enumerate(model.calibration_rows.tolist())}
    nearest = [one.index for one in explanation.evidence.neighbors if one.index <= model.n_rows]
    shown = [] if cells is None else nearest[:MOST_BESIDE]
    taken = [] if cells is None else [cells.slice(places[number], 1) for number in shown]
    names = [*shares, *(name for name in model.encoder.inputs if name not in shares)][:MOST_COLUMNS]
    console.show_table(
        [
            "column",
            f"row {explanation.row}",
            *(["times as wide"] if shares else []),
            *(f"row {n} of fit" for n in shown),
        ],
        [
            [
                *(name, str(to_texts(own[name])[0])),
                *([f"{shares[name]:.2g}"] if shares else []),
                *(str(to_texts(one[name])[0]) for one in taken),
            ]
            for name in names
        ],
    )
    console.show("")


def _show_explanation(explanation: Explanation, target: str) -> None:
    evidence, named = explanation.evidence, explanation.label is not None
    row = f"row {explanation.row} ({explanation.label})" if named else f"row {explanation.row}"
    console.show(f"{row}, {target}: prediction {explanation.y_pred:.6g}")
    console.show(
        f"at level {evidence.confidence_level:g} from {explanation.lower:.6g} to {explanation.upper:.6g}"
    )
    console.show(explanation.sentence)
    console.show(f"known: {'yes' if explanation.known else f'no, {explanation.reason}'}")
    console.show(
        f"effective calibration rows {evidence.n_effective:.4g}, weight at infinity "
        f"{evidence.weight_at_infinity:.1%}\n"
    )


def _show_neighbors(explanation: Explanation, target: str, model: TableModel) -> None:
    named, score = explanation.label is not None, explanation.score_name
    console.show_table(
        [
            *([model.encoder.inputs[0]] if named else []),
            "calibration row",
            "weight",
            "similarity",
            "error",
            *([] if score is None else [score]),
            target,
        ],
        [
            [
                *([str(neighbor.label)] if named else []),
                str(neighbor.index)
                if neighbor.index <= model.n_rows
                else f"update {neighbor.index - model.n_rows}",
                f"{neighbor.weight:.2%}",
                f"{neighbor.similarity:.3f}",
                f"{neighbor.score if neighbor.error is None else neighbor.error:.4g}",
                *([] if score is None else [f"{neighbor.score:.3g}"]),
                f"{neighbor.target:.6g}",
            ]
            for neighbor in explanation.evidence.neighbors
        ],
        text_columns=int(named),
    )
