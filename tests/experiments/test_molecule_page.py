"""The page on molecules: what it counts, what it shows beside the printed cells, what it cannot do without."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from experiments.molecules.group_counts import COUNTS, GroupCount
from experiments.molecules.groups import GROUPS
from experiments.molecules.quantum_page import render_quantum_page, write_quantum_page
from experiments.molecules.questions import read_answers
from experiments.molecules.study import STUDY_RESULTS, MoleculeResult
from experiments.molecules.study_page import overview, study_parts
from experiments.paper.collect import METRICS, Measured
from experiments.paper.formats import MISSING
from experiments.paper.layout import dataset_order, dataset_title
from experiments.paper.methods import MAIN_VARIANT
from experiments.paper.pages import Note
from experiments.paper.printed import ComparedCell, printed_cells
from experiments.paper.result_tables import Cell, make_tables
from experiments.paper.significance import Sample
from lvd._validation import InputError

FIELDS = {"width": "width_variants", "finite_count": "finite_variants"}


@pytest.fixture(scope="module")
def as_printed() -> list[Measured]:
    """Runs on two tasks of QM9 whose means are the printed ones; two seeds, both the same."""
    figures: dict[tuple[str, str, float], dict[str, float]] = {}
    for cell in printed_cells():
        if cell.dataset in ("QM9(mu)", "QM9(alpha)") and cell.table.startswith("qm_"):
            method = MAIN_VARIANT if cell.method == "all" else cell.method
            place = (cell.dataset.lower(), method, cell.confidence_level)
            figures.setdefault(place, {})[FIELDS.get(cell.metric, cell.metric)] = cell.mean
    return [
        Measured("paper", dataset, method, seed, level, 26_131, **values, seconds=1.0)
        for (dataset, method, level), values in figures.items()
        for seed in range(2)
    ]


def page_of(rows, counts=(), notes=()):
    return " ".join(render_quantum_page(rows, [], counts, notes).split())


def cells(rows):
    return {cell.place: cell.sample for cell in make_tables(rows).cells}


def test_a_table_of_molecules_pools_its_tasks(as_printed):
    found = cells(as_printed)
    mu, alpha = (found["qm_coverage", "MCR", 0.9, f"QM9({t})", MAIN_VARIANT] for t in ("mu", "alpha"))
    pooled = found["coverage", "MCR", 0.9, "QM9", MAIN_VARIANT]
    assert (mu.n, alpha.n, pooled.n) == (2, 2, 4)
    assert pooled.mean == pytest.approx((mu.mean + alpha.mean) / 2)
    assert ("coverage", "MCR", 0.9, "QM9(mu)", MAIN_VARIANT) not in found


def test_rows_on_which_all_variants_are_finite_are_counted(as_printed):
    printed = next(
        c for c in printed_cells() if c.table == "qm_width" and (c.dataset, c.method) == ("QM9(mu)", "all")
    )
    assert cells(as_printed)["qm_width", "finite_count", 0.5, "QM9(mu)", "all"].mean == printed.mean


def test_names_and_their_order():
    assert [dataset_title(name) for name in ("yacht", "qm9(mu)", "qm8")] == ["Yacht", "QM9(mu)", "QM8"]
    assert sorted(["QM9(mu)", "QM9", "Yacht", "QM8(E1-CC2)"], key=dataset_order) == [
        "Yacht", "QM8(E1-CC2)", "QM9", "QM9(mu)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mean", "agrees", "same"), [(160.0, True, True), (167.0, True, False), (184.0, False, False)]
)
def test_figures_printed_in_tens(mean, agrees, same):
    """Printed 1.6e+02 ± 6.6e+00: any mean from 155 to 165, any deviation up to 6.65."""
    printed = next(
        c
        for c in printed_cells()
        if (c.table, c.dataset, c.method, c.confidence_level)
        == ("qm_width", "QM9(r2)", "LVD-KR-smooth-base", 0.9)
        and c.metric == "width"
    )
    printed = replace(printed, mean=160.0, std=6.6, decimals=-1, std_decimals=1)
    cell = Cell("qm_width", "width", 0.9, "QM9(r2)", printed.method, Sample(mean, 1.0, 3), 4, "")
    comparison = ComparedCell(cell, printed)
    assert (comparison.compatible, comparison.same_mean) == (agrees, same)


def test_the_page_counts_seeds_and_agreement(as_printed):
    failed = replace(as_printed[0], method="DE", error="MemoryError", MCR=math.nan)
    page = page_of([*as_printed, failed], notes=[Note("Fewer molecules.", dataset="QM9")])
    assert "QM9 (26131 test molecules)" in page
    assert "| paper | qm9 | 2 | 2 | 2 | 0 |" in page
    assert "**112 of 112** tested cells agree (100.0%)" in page
    assert "cells, averaged over tasks: the printed deviation is over tasks" in page
    assert "- Fewer molecules." in page
    assert "## Functional groups" not in page


def test_the_page_shows_groups(as_printed):
    counts = [
        GroupCount("paper", "qm9(mu)", method, seed, 0.9, rule, "ester", 300, 270)
        for method in (MAIN_VARIANT, "split")
        for seed in (0, 1)
        for rule in ("text", "molecule")
    ]
    page = page_of(as_printed, counts)
    assert "| ester | 90.0 / 91.9 |" in page
    assert "| LVD | 1 of 1 | 90.0 | 1 of 1 | 90.0 |" in page
    assert "below 90% in 1 of 1 with LVD, 1 of 1 with split, 0 of 0 with MADSplit" in page
    assert "the paper prints 143 of 180 for LVD" in page
    assert "### split within functional groups, by molecule" in page


def test_the_page_is_written_from_files(as_printed, tmp_path):
    METRICS.write(as_printed, tmp_path / "qm9.csv")
    COUNTS.write(
        [GroupCount("paper", "qm9(mu)", MAIN_VARIANT, 0, 0.9, "text", "ester", 300, 270)], tmp_path / "g.csv"
    )
    write_quantum_page([tmp_path / "qm9.csv"], tmp_path / "page.md", groups=tmp_path / "g.csv")
    assert (tmp_path / "page.md").read_text().startswith("# Molecules: QM8 and QM9\n")


def test_without_the_paper_protocol_there_is_nothing_to_compare(as_printed):
    with pytest.raises(InputError, match="needs results of the paper protocol, and there are none"):
        page_of([replace(row, protocol="sound") for row in as_printed])


class TestStudy:
    @staticmethod
    def result(
        method: str, score: float, *, task: str = "mu", seed: int = 0, hits: int = 450
    ) -> MoleculeResult:
        groups = " ".join([f"{hits}/500"] * 2 * len(GROUPS))
        return MoleculeResult(
            *("random", f"qm9({task})", seed, method, 1000),
            *(100.0, 90.0, 80.0, 0.1, 1.0, score, 2.0, 1.0, 1.0, 1.0),
            groups=groups,
        )

    def test_scores_are_beside_split_and_the_best_is_counted(self):
        results = [
            *(self.result("LVD", 1.0), self.result("LVD-widen", 0.9), self.result("split", 2.0, hits=400)),
            *(self.result(name, 8.0, task="r2") for name in ("LVD", "LVD-widen")),
            self.result("split", 2.0, task="r2", hits=400),
        ]
        (part,) = study_parts(results)
        assert [part.tasks_won(name) for name in ("LVD", "LVD-widen", "split")] == [1, 1, 1]
        assert part.shares_of_split("LVD") == [0.5, 4.0]
        assert part.groups_held("LVD") == (30, 30)
        assert part.groups_held("split") == (0, 30)
        alone = overview([part])
        assert alone.headings[1:] == tuple(
            f"{what}, split at random" for what in ("score", "best on", "groups held")
        )
        assert [entry.text for entry in alone.rows[0]] == ["LVD", "1.414", "1 of 2", "30 of 30"]
        assert [entry.text for entry in alone.rows[-1]] == ["split conformal", "1.000", "1 of 2", "0 of 30"]
        both = overview(study_parts([*results, *(replace(one, split="scaffold") for one in results)]))
        assert both.headings[-1] == "groups held, both"
        assert [line[-1].text for line in both.rows] == ["60 of 60", "60 of 60", "0 of 60"]
        assert overview([]) is None

    def test_only_what_all_methods_have_is_compared(self):
        results = [self.result("LVD", 1.0), self.result("split", 2.0), self.result("LVD", 0.1, seed=1)]
        (part,) = study_parts([*results, replace(self.result("split", 0.1, seed=1), error="failed")])
        assert (part.n_seeds, part.scores["LVD"]["qm9(mu)"]) == (1, 1.0)

    def test_the_page_has_it_only_with_results(self, as_printed, tmp_path):
        METRICS.write(as_printed, tmp_path / "qm9.csv")
        STUDY_RESULTS.write([self.result("LVD", 1.0), self.result("split", 2.0)], tmp_path / "study.csv")
        for study, shown in ((None, False), (tmp_path / "study.csv", True)):
            write_quantum_page([tmp_path / "qm9.csv"], tmp_path / "page.md", study=study)
            text = (tmp_path / "page.md").read_text()
            assert ("## The methods of today" in text) is shown
        assert "| LVD | 0.500 | 1 | 2.0 | 90.0 | 80.0 | 15 of 15 | 15 of 15 | 100.0% |" in text


class TestQuestions:
    ANSWERS = """question,table,task,seed,steps,MAD,MAD of a constant
isomers-differences,qm9,mu,0,0,2.0,
short-qm9-CQR-500-0.001,qm9,mu,0,500,1.5,1.2
short-qm9-CQR-500-0.001,qm9,mu,1,500,2.5,1.2
short-qm9-DE-500-0.001,qm9,mu,0,500,3.0,1.2
short-qm9-DE-absolute-500-0.001,qm9,mu,0,500,7.0,1.2
"""

    def test_answers_are_shown_beside_the_printed_figures(self, as_printed, tmp_path):
        (tmp_path / "answers.csv").write_text(self.ANSWERS)
        METRICS.write(as_printed, tmp_path / "qm9.csv")
        write_quantum_page([tmp_path / "qm9.csv"], tmp_path / "page.md", questions=tmp_path / "answers.csv")
        text = (tmp_path / "page.md").read_text()
        assert "trained for a few hundred batches" in text
        assert "| mu | 2.01 | 2.01 | 2 |" in text
        share = 3054 / 133_885
        assert f"| mu | 0.48 | 0.48 | {0.48 + share * (2.0 - 0.48):.3g} |" in text
        assert f"| QM9, softplus | 268.32 | {MISSING} | 3 |" in text
        assert f"| QM9, absolute value | 268.32 | {MISSING} | 7 |" in text
        assert "What else was different we do not know" in page_of(as_printed)

    def test_another_file_is_refused(self, as_printed, tmp_path):
        (tmp_path / "answers.csv").write_text("a,b\n1,2\n")
        with pytest.raises(InputError, match="does not hold answers"):
            read_answers(tmp_path / "answers.csv")
