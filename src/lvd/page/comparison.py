"""The methods side by side at one level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lvd.intervals import covered
from lvd.metrics import (
    binomial_band,
    finite_fraction,
    finite_rows,
    mean_finite_width,
    residual_auroc,
    tail_coverage_rate,
    winkler_score,
)
from lvd.page.evaluation import Evaluated
from lvd.page.rivals import Method


@dataclass(frozen=True)
class Figures:
    """What one method achieves; `common_width` and `winkler` are over the rows where all methods are finite."""

    name: str
    promise: str
    how: str
    coverage: float
    lower: float
    upper: float
    tail_coverage: float
    finite: float
    width: float
    common_width: float
    winkler: float
    auroc: float


@dataclass(frozen=True)
class Comparison:
    """The methods, the model's own first, and on how many rows all of them are finite."""

    methods: tuple[Figures, ...]
    n_common: int


def compare(methods: Sequence[Method], evaluated: Evaluated) -> Comparison:
    """The figures of each method at the page's level, over all rows."""
    at_level = int(np.searchsorted(evaluated.levels, evaluated.confidence_level))
    intervals = [method.all_intervals[:, :, at_level] for method in methods]
    common = finite_rows(*intervals)
    figures = []
    for method, one in zip(methods, intervals, strict=True):
        hits = covered(evaluated.y, one)
        lower, upper = binomial_band(hits.sum(), len(hits))
        figures.append(
            Figures(
                name=method.name,
                promise=method.promise,
                how=method.how,
                coverage=float(hits.mean()),
                lower=float(lower),
                upper=float(upper),
                tail_coverage=tail_coverage_rate(evaluated.y, one),
                finite=finite_fraction(one),
                width=mean_finite_width(one),
                common_width=mean_finite_width(one[common]) if common.any() else float("nan"),
                winkler=winkler_score(evaluated.y, one, evaluated.confidence_level, where=common),
                auroc=residual_auroc(evaluated.y, evaluated.y_pred, one),
            )
        )
    return Comparison(tuple(figures), int(common.sum()))
