"""Predictions into a file, wherever they were made."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from lvd._typing import Float, NDArray
from lvd._validation import InputError
from lvd.tables.writing import TableWriter
from lvd.tables.reports import PredictReport


def write_predictions(
    out: str | os.PathLike[str],
    predicted: Iterable[tuple[pa.RecordBatch | pa.Table, Mapping[str, Float[NDArray, "_"]]]],
    *,
    on_rows: Callable[[int], None] | None = None,
) -> PredictReport:
    """Write rows and the columns predicted for them to the file `out` (see `TableWriter`), part by part.

    A row without a prediction has NaN there, and empty cells in the file.
    """
    n_rows, n_skipped, n_finite = 0, 0, Counter[str]()
    with TableWriter(out) as writer:
        for rows, columns in predicted:
            writer.write(rows, columns)
            n_rows += rows.num_rows
            n_skipped += int(np.isnan(next(iter(columns.values()))).sum())
            n_finite.update(_count_finite(columns))
            if on_rows is not None:
                on_rows(rows.num_rows)
    n_predicted = n_rows - n_skipped
    shares = {name: count / n_predicted if n_predicted else math.nan for name, count in n_finite.items()}
    return PredictReport(n_rows, n_skipped, shares)


def check_names_free(inputs: Sequence[str], targets: Sequence[str]) -> None:
    """No column that is needed has the name of one that :meth:`TableModel.predict` adds, at whatever level."""
    suffix = f"_({'|'.join(map(re.escape, targets))})" if len(targets) > 1 else ""
    added = re.compile(rf"(y_pred|n_effective|(lower|upper)_[\d.]+){suffix}")
    for noun, names in (("target", targets), ("column", inputs)):
        for name in filter(added.fullmatch, names):
            raise InputError(
                f"{noun} {name!r} has the name of a column that predictions are written to; rename it in the table"
                + (f", or leave it out with --drop {shlex.quote(name)}" if noun == "column" else "")
            )


def _count_finite(columns: Mapping[str, Float[NDArray, "n"]]) -> dict[str, int]:
    """The number of finite intervals for what follows ``lower_`` in the names of the columns."""
    names = [name.removeprefix("lower_") for name in columns if name.startswith("lower_")]
    return {
        name: int((np.isfinite(columns[f"lower_{name}"]) & np.isfinite(columns[f"upper_{name}"])).sum())
        for name in names
    }
