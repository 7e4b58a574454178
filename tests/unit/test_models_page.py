"""The page of the built-in models is what its command writes."""

from __future__ import annotations

from benchmarks import models
from experiments.paper.result_store import read_dataclasses


def test_the_page_holds_the_results():
    text = models.PAGE.read_text(encoding="utf-8")
    found = text.partition(models.BEGIN)[2].partition(models.END)[0]
    assert found.strip() == models.page(read_dataclasses(models.RESULTS, models.ModelFit))


def test_every_cell_has_all_seeds():
    fits = read_dataclasses(models.RESULTS, models.ModelFit)
    cells = {(fit.table, fit.seed, fit.model) for fit in fits}
    names = (*models.MODELS, "auto")
    assert len(fits) == len(cells)
    assert cells == {
        (table, seed, name) for table in models.TABLES for seed in models.SEEDS for name in names
    }
