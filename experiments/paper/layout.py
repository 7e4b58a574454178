"""The paper's result tables as data: which figures, where, with how many digits, and what is emphasised."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.paper import significance as emphasis
from experiments.paper.methods import MAIN_VARIANT, VARIANTS
from experiments.paper.runs import has_tasks, table_of
from experiments.paper.significance import Rule

CONFORMAL = (MAIN_VARIANT, "MADSplit", "CQR")
RIVALS = ("MADSplit", "CQR", "DJ", "DE", "MCDP", "PBP")
MAIN = (MAIN_VARIANT, *RIVALS)
EIGHT = tuple(VARIANTS)
ALL_VARIANTS = "all"
"""A placeholder for the method name of counts over rows where all eight variants are finite."""
SUB_TASKS = (*EIGHT, "MADSplit", "CQR")
DATASETS = ("Yacht", "Housing", "Energy", "Bike", "Kin8nm", "Concrete", "QM8", "QM9")
"""The paper's datasets, in its order."""


@dataclass(frozen=True)
class Block:
    """One metric at one level for several methods; `field` is its name in :class:`Measured`, if different."""

    metric: str
    confidence_level: float
    methods: tuple[str, ...]
    decimals: int
    rule: Rule = emphasis.nothing
    field: str = ""

    @property
    def heading(self) -> str:
        """What the figures are, in a few words."""
        name = {"width": "Width", "finite_count": "# finite"}.get(self.metric)
        return f"{name} @ {100 * self.confidence_level:g}%" if name else self.metric


@dataclass(frozen=True)
class Layout:
    """A table: panels stacked vertically, each of blocks side by side. `name` is that of the printed cells."""

    name: str
    title: str
    caption: str
    panels: tuple[tuple[Block, ...], ...]
    of_tasks: bool = False
    """Whether its rows are individual tasks."""


def _rates(methods: tuple[str, ...]) -> tuple[tuple[Block, ...], ...]:
    return tuple((Block(name, 0.9, methods, 1, emphasis.not_below_level),) for name in ("MCR", "TCR"))


def _auroc_and_mad(
    methods: tuple[str, ...], rule: Rule = emphasis.above_chance, decimals: int = 2
) -> tuple[tuple[Block, ...], ...]:
    mad = Block("MAD", 0.9, methods, decimals, emphasis.lowest_if_significant)
    return (Block("AUROC", 0.5, methods, 1, rule),), (mad,)


LAYOUTS = (
    Layout(
        "coverage",
        "Coverage",
        "Marginal (MCR) and tail coverage rate (TCR: the tenths of the test rows with the smallest and the "
        "largest target) in percent at level 90%. Bold: not significantly below 90% (p = 0.05).",
        _rates(MAIN),
    ),
    Layout(
        "discrimination",
        "Discrimination",
        "AUROC in percent of the width at level 50% for errors above their median, and mean absolute deviation "
        "(MAD). Bold: AUROC significantly above 50; MAD significantly below the second-best (p = 0.05).",
        _auroc_and_mad(MAIN),
    ),
    Layout(
        "width",
        "Width",
        "Rows on which LVD is finite, and mean width on these rows, which it knows most about: on the others its "
        "width is infinite, so the comparison flatters it. "
        "Bold: significantly below the second-best (p = 0.05).",
        tuple(
            (
                Block("finite_count", level, (MAIN_VARIANT,), 2),
                Block("width", level, CONFORMAL, 2, emphasis.lowest_if_significant, "width_lvd"),
            )
            for level in (0.5, 0.9)
        ),
    ),
    Layout(
        "width_all",
        "Width without restriction",
        "Mean width over all rows with a finite interval.",
        tuple((Block("width", level, RIVALS, 2),) for level in (0.5, 0.9)),
    ),
    Layout(
        "coverage_variants",
        "Coverage of the eight variants",
        "As the table of coverage, for the variants of LVD: intervals around the kernel regression (KR) or the "
        "network (NN), kernel with or without smoothness term, scores normalized (MN) or plain (base).",
        _rates(EIGHT),
    ),
    Layout(
        "discrimination_variants",
        "Discrimination of the eight variants",
        "AUROC and MAD of the variants. Bold: the best AUROC; MAD significantly below the second-best (p = 0.05).",
        _auroc_and_mad(EIGHT, emphasis.highest),
    ),
    Layout(
        "width_variants",
        "Width of the eight variants",
        "Rows with a finite interval, the lowest count underlined, and mean width on the rows where all eight "
        "variants are finite, the lowest in bold.",
        (
            (Block("finite_count", 0.5, EIGHT, 1, emphasis.lowest_count),),
            (Block("width", 0.5, EIGHT, 1, emphasis.lowest, "width_variants"),),
            (Block("finite_count", 0.9, EIGHT, 1, emphasis.lowest_count),),
            (Block("width", 0.9, EIGHT, 2, emphasis.lowest, "width_variants"),),
        ),
    ),
    Layout("qm_coverage", "Coverage by task", "As the table of coverage.", _rates(SUB_TASKS), of_tasks=True),
    Layout(
        "qm_discrimination",
        "Discrimination by task",
        "As the table of discrimination.",
        _auroc_and_mad(SUB_TASKS, decimals=4),
        of_tasks=True,
    ),
    Layout(
        "qm_width",
        "Width by task",
        "Rows on which all eight variants are finite, and mean width on these rows, the lowest in bold.",
        tuple(
            (
                Block("finite_count", level, (ALL_VARIANTS,), 1, field="finite_variants"),
                Block("width", level, SUB_TASKS, 4, emphasis.lowest, "width_variants"),
            )
            for level in (0.5, 0.9)
        ),
        of_tasks=True,
    ),
    Layout(
        "split",
        "Split conformal",
        "Split conformal prediction on the same networks, which the paper does not show. "
        "Bold as in the tables of coverage and discrimination.",
        (
            (
                Block("MCR", 0.9, ("split",), 1, emphasis.not_below_level),
                Block("TCR", 0.9, ("split",), 1, emphasis.not_below_level),
                Block("AUROC", 0.5, ("split",), 1, emphasis.above_chance),
                Block("MAD", 0.9, ("split",), 2),
                Block("width", 0.5, ("split",), 2),
                Block("width", 0.9, ("split",), 2),
            ),
        ),
    ),
)
"""The paper's tables, and one of our own for split conformal."""


def dataset_title(name: str) -> str:
    """A dataset's name as printed."""
    if not has_tasks(name):
        return name.capitalize()
    return table_of(name).upper() + name.removeprefix(table_of(name))


def dataset_order(title: str) -> tuple[int, str]:
    """A sort key for datasets: the paper's order, tasks after their table, then the rest by name."""
    table = table_of(title)
    return (DATASETS.index(table), title) if table in DATASETS else (len(DATASETS), title)


def method_title(method: str, layout: str) -> str:
    """A method's name as a heading: the main variant is LVD if no other variant is shown."""
    if layout.endswith("_variants"):
        return method.removeprefix("LVD-").replace("-", " ")
    return "LVD" if method == MAIN_VARIANT else method
