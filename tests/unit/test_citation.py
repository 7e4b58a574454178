"""What is cited is what is used."""

from __future__ import annotations

import re

import pytest

import lvd
from lvd.methods import ALL_METHODS
from lvd.methods.citation import _LEVELS, _METHODS, _SCORES, REFERENCES


def keys(*given, **named):
    return re.findall(r"^@\w+\{(\w+),$", lvd.citation(*given, **named), re.MULTILINE)


def test_the_paper_and_the_software_always_come_first():
    assert keys() == keys(lvd.LVDRegressor(preset="paper")) == ["lin2021", "lvd"]
    assert f"Version {lvd.__version__}" in lvd.citation()


@pytest.mark.parametrize("method", [method for method in ALL_METHODS if method is not lvd.LVDRegressor])
def test_every_rival_names_its_paper(method):
    assert len(keys(method())) > 2


def test_score_calibration_guarantee_and_level_are_named():
    assert keys(lvd.LVDRegressor())[2:] == ["chernozhukov2021"]
    assert keys(lvd.LVDRegressor(conformity_score=lvd.scores.QuantileResidual()))[2:] == ["romano2019"]
    assert keys(lvd.LVDRegressor(preset="paper", calibration="cross"))[2:] == ["barber2021"]
    assert keys(lvd.LVDRegressor(preset="paper", calibration="ensemble"))[2:] == ["barber2021", "krogh1995"]
    assert keys(lvd.LVDRegressor(preset="paper"), guarantee="randomized")[2:] == ["hore2023"]


def test_a_network_of_chemprop_is_named():
    pytest.importorskip("chemprop")
    assert "heid2024" in keys(lvd.SplitConformalRegressor(lvd.ChempropEstimator()))


def test_over_time(rng):
    X = rng.normal(size=(80, 2))
    reg = lvd.LVDRegressor("trees", calibration="split", random_state=0).fit(X, X[:, 0])
    assert keys(lvd.OnlineIntervals(reg, level="pid"))[2:] == [
        *("chernozhukov2021", "barber2023", "gibbs2021", "angelopoulos2023")
    ]


def test_cross_calibration_cites_the_jackknife(rng):
    X = rng.normal(size=(80, 2))
    reg = lvd.LVDRegressor("trees", random_state=0)
    assert "barber2021" not in keys(reg)
    assert "barber2021" in keys(reg.fit(X, X[:, 0]))


def test_all_references_are_used_and_whole():
    used = {key for group in (_METHODS, _SCORES, _LEVELS) for names in group.values() for key in names}
    assert used | {"lin2021", "lvd", "hore2023", "barber2023", "barber2021", "krogh1995", "heid2024"} == set(
        REFERENCES
    )
    for key, reference in REFERENCES.items():
        text = reference.bibtex(key)
        assert text.count("{") == text.count("}")
        assert str(reference.year) in key or key == "lvd"


def test_what_is_not_ours_is_refused():
    with pytest.raises(lvd.InputError, match="model must be one of lvd's regressors, or None, got dict"):
        lvd.citation({})
    with pytest.raises(lvd.InputError, match="guarantee must be one of"):
        lvd.citation(guarantee="sure")
