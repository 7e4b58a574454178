"""Everything that the page shows, computed from a model and a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from lvd import metrics
from lvd._typing import Float, NDArray
from lvd._validation import InputError, Parameter
from lvd.intervals import covered
from lvd.molecules.domain import scaffolds
from lvd.page.charts import (
    Chart,
    calibration_chart,
    finite_chart,
    intervals_along,
    pit_chart,
    sorted_intervals,
    width_error_chart,
)
from lvd.page.evaluation import Evaluated, evaluate_rows
from lvd.page.groups import (
    MOST_SLABS,
    Group,
    JointSlab,
    column_numbers,
    draw_worst,
    feature_slabs,
    group_rows,
    group_scaffolds,
    joint_slab,
    judged_together,
    measure_groups,
    most_infinite_first,
    worst_first,
)
from lvd.page.numbers import Digits, digits_for
from lvd.page.over_time import OverTimeView, view_over_time
from lvd.page.rivals import (
    Method,
    MethodFigures,
    check_rivals,
    compare_methods,
    make_methods,
)
from lvd.page.row_details import (
    KNOWN,
    ROWS_MISSING,
    STATUS,
    Pictures,
    choose_rows,
    embed_rows,
    read_neighbors,
)
from lvd.page.together import TogetherView, view_together
from lvd.tables.column_values import check_columns
from lvd.tables.reports import Verdict, judge, says_nothing, tolerated
from lvd.tables.table_encoder import Unseen
from lvd.tables.table_model import TableModel

MOST_GROUPS = 60
"""At most this many groups of a column, or slabs of all features, are listed."""
MOST_CONCENTRATED = 12
"""At most this many groups with many infinite intervals are listed."""
FEW_ROWS = 20
"""Groups of fewer rows are collapsed: their coverage tells little."""


@dataclass(frozen=True)
class GroupList:
    """Groups of a column, or slabs of all features (None), worst first.

    The listed groups, the total number, and how many are below the level. The `n_few` groups of at most
    `FEW_ROWS` rows that are not below the level are listed separately.
    """

    column: str | None
    groups: tuple[Group, ...]
    n_groups: int
    n_below: int
    few: tuple[Group, ...] = ()
    n_few: int = 0


@dataclass(frozen=True)
class Infinite:
    """Where intervals are infinite, and what is missing there; `n_unknown` of the rows with one are unknown.

    `n_effective` are the median effective sample sizes of the infinite and of the finite intervals.
    `missing_rows` are quartiles of the number of further calibration rows, identical to the row, that would make
    an infinite interval finite, over a random sample: the `n_explained` known rows with infinite intervals on the
    page.
    """

    count: int
    n_unknown: int
    share: float
    clipped_to: tuple[float, float] | None
    n_effective: tuple[float, float]
    missing_rows: list[int] | None
    n_explained: int
    chart: Chart
    groups: tuple[Group, ...]


@dataclass(frozen=True, eq=False)
class ReportContent:
    """The content of the page.

    `n_skipped` rows of the table cannot be read by the model or have no target. `n_unknown` rows are similar to
    no training row, or hold a level of `unseen`.
    """

    evaluated: Evaluated
    n_rows: int
    n_unknown: int
    digits: Digits
    mean_error: float
    verdict: Verdict
    methods: tuple[MethodFigures, ...]
    n_common: int
    curves: tuple[tuple[str, metrics.CalibrationCurve], ...]
    calibration: Chart
    by: tuple[GroupList, ...]
    slabs: GroupList | None
    joint: JointSlab | None
    intervals: Chart
    along: tuple[tuple[str, Chart], ...]
    width_error: Chart | None
    width_error_correlation: float
    sizes: tuple[metrics.GroupCoverage, ...]
    infinite: Infinite
    rows: dict[str, Any]
    pit: Chart | None = None
    together: TogetherView | None = None
    unseen: Unseen = field(default_factory=Unseen)
    n_skipped: int = 0
    over_time: OverTimeView | None = None

    @property
    def tolerated(self) -> float:
        """The lowest coverage that passes."""
        return tolerated(self.evaluated.confidence_level)

    @property
    def below(self) -> list[GroupList]:
        """The lists with groups whose coverage is below the level by more than chance."""
        return [one for one in (*self.by, self.slabs) if one is not None and one.n_below]

    @property
    def levels_below(self) -> list[float]:
        """The levels at which the model's whole band is below the level."""
        own = self.curves[0][1]
        return own.levels[own.upper < own.levels].tolist()


def make_report(
    model: TableModel,
    table: pa.Table,
    *,
    target: str,
    by: Sequence[str] = (),
    rivals: Sequence[str] = ("split",),
    confidence_level: float | None = None,
    fitted_on: pa.Table | None = None,
    pictures: Pictures | None = None,
    over_time: str | None = None,
) -> ReportContent:
    """Evaluate the model on the rows of a table whose true values are known.

    `fitted_on` is the table of the fit, for the neighbours' cells; without it they are shown if the model keeps
    them. `pictures` names the column to draw, and `over_time` the column of dates for the picture over time.
    """
    check_columns(table, [*by, *([over_time] if over_time else [])])
    rivals = check_rivals(rivals, fitted_on)
    neighbors = read_neighbors(model, target, fitted_on)
    if pictures is not None:
        check_columns(table, [pictures.column])
        pictures.draw("")  # fails early if something is missing
    evaluated = evaluate_rows(model, table, target, confidence_level)
    more: list[Group] = []
    if pictures is not None and pictures.column == model.encoder.smiles:
        grouping = group_scaffolds(scaffolds(model.encoder.transform(evaluated.table)))
        more = draw_worst(measure_groups(grouping, evaluated), pictures.draw)
    content = assemble(
        evaluated,
        make_methods(rivals, evaluated, fitted_on),
        by=by,
        more_groups=more,
        neighbors=neighbors,
        pictures=pictures,
    )
    return replace(
        content,
        unseen=model.unseen(evaluated.table),
        n_skipped=table.num_rows - len(evaluated.y),
        over_time=view_over_time(evaluated, over_time) if over_time else None,
    )


def assemble(
    evaluated: Evaluated,
    methods: Sequence[Method],
    *,
    by: Sequence[str] = (),
    more_groups: Sequence[Group] = (),
    neighbors: pa.Table | None = None,
    pictures: Pictures | None = None,
) -> ReportContent:
    """The page's content for evaluated rows, with these methods side by side."""
    table, distinct = evaluated.table, evaluated.judged.distinct
    level, y, intervals = evaluated.confidence_level, evaluated.y, evaluated.intervals
    figures, n_common = compare_methods(methods, evaluated)
    curves = tuple(
        (
            method.name,
            metrics.calibration_curve(y, method.all_intervals, evaluated.levels, n_distinct=len(distinct)),
        )
        for method in methods
    )
    by_groups = {
        name: measure_groups(group_rows(name, table[name], n_bins=MOST_SLABS), evaluated) for name in by
    }
    if more_groups:
        by_groups[more_groups[0].column] = list(more_groups)
    features = [feature_slabs(name, table[name]) for name in evaluated.columns if name not in by]
    slabs = judged_together(
        [*chain(*(measure_groups(grouping, evaluated) for grouping in features if len(grouping.labels) > 1))]
    )
    rows = embed_rows(
        evaluated,
        choose_rows(evaluated),
        first_columns=by,
        neighbors=neighbors,
        pictures=pictures,
    )
    names = evaluated.feature_names
    found = {name: column_numbers(table[name]) for name in evaluated.columns}
    numbers = {name: values for name, values in found.items() if values is not None}
    return ReportContent(
        evaluated=evaluated,
        n_rows=len(y),
        n_unknown=int((~evaluated.known).sum()),
        digits=digits_for(y),
        mean_error=metrics.mean_absolute_deviation(y, evaluated.y_pred),
        verdict=judge(evaluated.judged, intervals, level),
        methods=figures,
        n_common=n_common,
        curves=curves,
        calibration=calibration_chart(curves, level),
        by=tuple(_list(name, groups) for name, groups in by_groups.items()),
        slabs=_list(None, slabs) if slabs else None,
        joint=joint_slab(evaluated.judged.features[distinct], names, y[distinct], intervals[distinct])
        if names
        else None,
        intervals=sorted_intervals(evaluated, digits_for(y)),
        along=intervals_along(evaluated, numbers, digits_for(y)),
        width_error=width_error_chart(evaluated, covered(y, intervals), digits_for(y)),
        width_error_correlation=metrics.width_error_correlation(y, evaluated.y_pred, intervals),
        sizes=metrics.size_stratified_coverage(y, intervals, level, row_ids=evaluated.row_ids),
        infinite=_infinite(evaluated, methods, [*chain(*by_groups.values()), *slabs], rows),
        rows=rows,
        pit=None if evaluated.distribution is None else pit_chart(evaluated.distribution.pit),
        together=view_together(evaluated),
    )


def only_target(targets: Sequence[str]) -> str:
    """The one target of a page."""
    if len(targets) != 1:
        raise InputError(
            f"a page shows one target, but there are {len(targets)}: {', '.join(targets)}; name one with ",
            Parameter("target", named=True),
        )
    return targets[0]


def _list(column: str | None, groups: Sequence[Group]) -> GroupList:
    n_below = sum(group.below_level for group in groups)
    small = [group.count < FEW_ROWS and not group.below_level for group in groups]
    few, others = (
        worst_first([group for group, is_few in zip(groups, small, strict=True) if is_few == wanted])
        for wanted in (True, False)
    )
    listed, folded = tuple(others[:MOST_GROUPS]), tuple(few[:MOST_GROUPS])
    return GroupList(column, listed, len(groups), n_below, folded, len(few))


def _infinite(
    evaluated: Evaluated, methods: Sequence[Method], groups: Sequence[Group], rows: dict[str, Any]
) -> Infinite:
    unlimited, y_range = evaluated.unlimited, evaluated.judged.y_range
    missing = [row[ROWS_MISSING] for row in rows["rows"] if row[STATUS] == "infinite" and row[KNOWN]]
    quartiles = np.quantile(missing, [0.25, 0.5, 0.75], method="higher").tolist() if missing else None
    shares = [(one.name, 1.0 - says_nothing(one.all_intervals, y_range).mean(axis=0)) for one in methods]
    return Infinite(
        count=int(unlimited.sum()),
        n_unknown=int((unlimited & ~evaluated.known).sum()),
        share=float(unlimited.mean()),
        clipped_to=y_range if any(np.isfinite(y_range)) else None,
        n_effective=(_median(evaluated.n_effective[unlimited]), _median(evaluated.n_effective[~unlimited])),
        missing_rows=quartiles,
        n_explained=len(missing),
        chart=finite_chart(evaluated.levels, shares, evaluated.confidence_level),
        groups=tuple(most_infinite_first(groups, float(unlimited.mean())))[:MOST_CONCENTRATED],
    )


def _median(values: Float[NDArray, "n"]) -> float:
    return float(np.median(values)) if values.size else math.nan
