"""The page on joint regions is what its results say, and they say what is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import joint
from experiments.paper.result_store import read_dataclasses

RESULTS = read_dataclasses(joint.RESULTS, joint.Result)
DATASETS = list(dict.fromkeys(result.dataset for result in RESULTS))


def test_the_page_is_written_from_the_results(tmp_path: Path) -> None:
    joint.write_page(tmp_path / "page.md", RESULTS)
    assert (tmp_path / "page.md").read_text() == joint.PAGE.read_text()


@pytest.mark.parametrize("dataset", DATASETS)
def test_joint_regions_are_smaller_than_bonferronis_and_cover(dataset: str) -> None:
    some = [result for result in RESULTS if result.dataset == dataset]
    assert len({result.seed for result in some}) == (2 if "all targets" in dataset else joint.SEEDS)
    assert joint.relative_volume(some, "box, local", joint.BONFERRONI) < 1.0
    assert joint.relative_volume(some, "ellipsoid, local", "box, local") < 1.0
    for method in ("box, local", "ellipsoid, local"):
        own = [result.coverage for result in some if result.method == method]
        assert sum(own) / len(own) > joint.LEVEL - 0.01  # a split has a few hundred test rows


def test_relative_volume_by_hand() -> None:
    def result(method: str, seed: int, log_volume: float) -> joint.Result:
        return joint.Result("d", method, seed, 2, 0.0, 0.9, 1.0, log_volume, 0.9, 0.0)

    some = [result("a", 0, 1.0), result("b", 0, 0.0), result("a", 1, 2.0), result("b", 1, 3.0)]
    assert joint.relative_volume(some, "a", "b") == pytest.approx(1.0)


def test_synthetic_rows_have_the_noise_that_they_say() -> None:
    data = joint.DATASETS["synthetic, correlated"](Path(), 0)
    assert data.mean is not None
    together = (data.y - data.mean)[data.X[:, 1] > 0]
    assert float((together[:, 0] * together[:, 1] > 0).mean()) > 0.8
