"""The paper's result tables as data: which figures, where, with how many digits, and what is emphasised."""

from __future__ import annotations

from dataclasses import dataclass

from lvd.reproduction import significance as emphasis
from lvd.reproduction.paper_methods import MAIN_VARIANT, VARIANTS
from lvd.reproduction.runs import has_tasks, table_of
from lvd.reproduction.significance import Rule

CONFORMAL = (MAIN_VARIANT, "MADSplit", "CQR")
RIVALS = ("MADSplit", "CQR", "DJ", "DE", "MCDP", "PBP")
MAIN = (MAIN_VARIANT, *RIVALS)
EIGHT = tuple(VARIANTS)
ALL_VARIANTS = "all"
"""Instead of a method's name: what is counted over the rows where all eight variants are finite."""
SUB_TASKS = (*EIGHT, "MADSplit", "CQR")
DATASETS = ("Yacht", "Housing", "Energy", "Bike", "Kin8nm", "Concrete", "QM8", "QM9")
"""The paper's datasets, in its order."""


@dataclass(frozen=True)
class Block:
    """One metric at one level for several methods; `field` is its name among the metrics of a run."""

    metric: str
    confidence_level: float
    field: str
    methods: tuple[str, ...]
    decimals: int
    rule: Rule

    @property
    def heading(self) -> str:
        """What the figures are, in a few words."""
        percent = f"{100 * self.confidence_level:g}%"
        return {"width": f"Width @ {percent}", "finite_count": f"# finite @ {percent}"}.get(
            self.metric, self.metric
        )


@dataclass(frozen=True)
class Layout:
    """A table: panels one below the other, each of blocks side by side. `name` is that of the printed cells."""

    name: str
    title: str
    caption: str
    panels: tuple[tuple[Block, ...], ...]
    of_tasks: bool = False
    """Whether its rows are single tasks."""


def _rates(methods: tuple[str, ...]) -> tuple[tuple[Block, ...], ...]:
    return tuple((Block(name, 0.9, name, methods, 1, emphasis.not_below_level),) for name in ("MCR", "TCR"))


def _widths(
    field: str, methods: tuple[str, ...], level: float, rule: Rule, decimals: int = 2
) -> tuple[Block, ...]:
    return (Block("width", level, field, methods, decimals, rule),)


def _counts(methods: tuple[str, ...], level: float, rule: Rule, decimals: int) -> tuple[Block, ...]:
    return (Block("finite_count", level, "finite_count", methods, decimals, rule),)


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
        (
            (Block("AUROC", 0.5, "AUROC", MAIN, 1, emphasis.above_chance),),
            (Block("MAD", 0.9, "MAD", MAIN, 2, emphasis.lowest_if_significant),),
        ),
    ),
    Layout(
        "width",
        "Width",
        "Rows on which LVD is finite, and mean width on these rows, which it knows most about: on the others its "
        "width is infinite, so the comparison flatters it. "
        "Bold: significantly below the second-best (p = 0.05).",
        tuple(
            _counts((MAIN_VARIANT,), level, emphasis.nothing, 2)
            + _widths("width_lvd", CONFORMAL, level, emphasis.lowest_if_significant)
            for level in (0.5, 0.9)
        ),
    ),
    Layout(
        "width_all",
        "Width without restriction",
        "Mean width over all rows with a finite interval.",
        tuple(_widths("width", RIVALS, level, emphasis.nothing) for level in (0.5, 0.9)),
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
        (
            (Block("AUROC", 0.5, "AUROC", EIGHT, 1, emphasis.highest),),
            (Block("MAD", 0.9, "MAD", EIGHT, 2, emphasis.lowest_if_significant),),
        ),
    ),
    Layout(
        "width_variants",
        "Width of the eight variants",
        "Rows with a finite interval, the lowest count underlined, and mean width on the rows where all eight "
        "variants are finite, the lowest in bold.",
        (
            _counts(EIGHT, 0.5, emphasis.lowest_count, 1),
            _widths("width_variants", EIGHT, 0.5, emphasis.lowest, decimals=1),
            _counts(EIGHT, 0.9, emphasis.lowest_count, 1),
            _widths("width_variants", EIGHT, 0.9, emphasis.lowest),
        ),
    ),
    Layout("qm_coverage", "Coverage by task", "As the table of coverage.", _rates(SUB_TASKS), of_tasks=True),
    Layout(
        "qm_discrimination",
        "Discrimination by task",
        "As the table of discrimination.",
        (
            (Block("AUROC", 0.5, "AUROC", SUB_TASKS, 1, emphasis.above_chance),),
            (Block("MAD", 0.9, "MAD", SUB_TASKS, 4, emphasis.lowest_if_significant),),
        ),
        of_tasks=True,
    ),
    Layout(
        "qm_width",
        "Width by task",
        "Rows on which all eight variants are finite, and mean width on these rows, the lowest in bold.",
        tuple(
            (
                Block("finite_count", level, "finite_variants", (ALL_VARIANTS,), 1, emphasis.nothing),
                *_widths("width_variants", SUB_TASKS, level, emphasis.lowest, decimals=4),
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
            tuple(
                Block(metric, level, metric, ("split",), decimals, rule)
                for metric, level, decimals, rule in (
                    ("MCR", 0.9, 1, emphasis.not_below_level),
                    ("TCR", 0.9, 1, emphasis.not_below_level),
                    ("AUROC", 0.5, 1, emphasis.above_chance),
                    ("MAD", 0.9, 2, emphasis.nothing),
                    ("width", 0.5, 2, emphasis.nothing),
                    ("width", 0.9, 2, emphasis.nothing),
                )
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
    """A key to sort datasets by: the paper's order, tasks behind their table, then the rest by name."""
    table = table_of(title)
    return (DATASETS.index(table), title) if table in DATASETS else (len(DATASETS), title)


def method_title(method: str, layout: str) -> str:
    """A method's name as a heading: the main variant is LVD where no other variant is shown."""
    if layout.endswith("_variants"):
        return method.removeprefix("LVD-").replace("-", " ")
    return "LVD" if method == MAIN_VARIANT else method
