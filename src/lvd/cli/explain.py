"""``lvd explain``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lvd.cli import console
from lvd.cli.shared import Data, Json, Level, Model, Trust, load_model

if TYPE_CHECKING:
    from lvd.methods.evidence import Explanation
    from lvd.tables.table_model import TableModel

EXAMPLES = console.examples(
    "lvd explain homes-model new-homes.csv --row 17",
    "lvd explain homes-model new-homes.csv --row 17 --level 0.5 --neighbors 3",
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
    trust: Trust = None,
    json: Json = False,
) -> None:
    """Say why one row's interval is as wide as it is, or infinite.

    Lists the calibration rows that carry the most weight for this row: their number in the table of lvd fit (1 is
    the first row below the header; rows that lvd update has added are counted apart), their share of the weight,
    their similarity (1 is the same as this row), the error made on them, how many times the expected error that is,
    and their true value. The rest of the weight represents what is not known; where that is too much for the level,
    the interval is infinite, and the number of missing rows is given. A row that is unlike all training rows, or
    with a text that none of them has, is unknown, however wide its interval is. Where the model reads a single
    column, rows are shown with its cell.
    """
    from lvd.tables.reading import read_rows

    fitted = load_model(model, trust)
    explanations = fitted.explain(read_rows(data), row, level, n_neighbors=neighbors)
    by_target = dict(zip(fitted.encoder.targets, explanations, strict=True))
    if json:
        console.show_json([asdict(e) | {"target": t, "sentence": e.sentence} for t, e in by_target.items()])
    else:
        for target, explanation in by_target.items():
            _show_explanation(explanation, target, fitted)


def _show_explanation(explanation: Explanation, target: str, model: TableModel) -> None:
    evidence, named = explanation.evidence, explanation.label is not None
    score = explanation.score_name
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
            for neighbor in evidence.neighbors
        ],
        text_columns=int(named),
    )
