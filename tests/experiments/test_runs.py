"""Runs: their keys, the plan, and how the command line's words are read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.paper import protocols
from experiments.paper.methods import METHODS, REGRESSORS, REPRODUCED, VARIANTS
from experiments.paper.runner import plan
from experiments.paper.runs import BenchRun, group_by_split, parse_levels, parse_names, parse_seeds
from lvd._validation import InputError
from lvd.methods import ALL_METHODS

RUN = BenchRun("paper", "yacht", "split", 0)


def test_a_key_is_made_of_the_content():
    others = [
        replace(RUN, protocol="sound"),
        replace(RUN, dataset="bike"),
        replace(RUN, method="CQR"),
        replace(RUN, seed=1),
        replace(RUN, levels=(0.9,)),
    ]
    assert len({run.key for run in (RUN, *others)}) == 6
    assert BenchRun("paper", "yacht", "split", 0, (0.5, 0.9)).key == RUN.key
    assert RUN.key.startswith("paper-yacht-split-0-")


def test_a_changed_choice_of_the_protocol_changes_the_key(monkeypatch):
    before = RUN.key
    monkeypatch.setitem(protocols.PROTOCOLS, "paper", replace(protocols.PAPER, n_batches=999))
    assert RUN.key != before


def test_how_intervals_are_judged_does_not_change_the_key(monkeypatch):
    before = RUN.key
    monkeypatch.setitem(protocols.PROTOCOLS, "paper", replace(protocols.PAPER, interval_ends="closed"))
    assert RUN.key == before


def test_the_plan_goes_split_by_split():
    runs = plan(
        protocol="sound", datasets=["yacht", "bike"], methods=["split", "CQR"], seeds=[0, 1], levels=[0.8]
    )
    assert len(runs) == 8
    assert runs[:2] == [BenchRun("sound", "yacht", m, 0, (0.8,)) for m in ("split", "CQR")]
    jobs = group_by_split(reversed(runs))
    assert [(job.table, job.seed, len(job.runs)) for job in jobs] == [
        ("bike", 1, 2), ("bike", 0, 2), ("yacht", 1, 2), ("yacht", 0, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": "honest"}, "protocol must be one of paper, sound, scaffold, got 'honest'"),
        ({"protocol": "scaffold"}, "protocol scaffold is for molecules, qm8 and qm9; yacht has no scaffolds"),
        ({"datasets": ["boats"]}, "unknown name 'boats' in datasets; choose from all, yacht"),
        (
            {"methods": ["magic"]},
            "unknown name 'magic' in methods for yacht; choose from all, LVD-KR-nosmooth-MN",
        ),
        ({"levels": [90.0]}, "did you mean 0.9?"),
    ],
)
def test_a_plan_with_unknown_words_is_refused(change, message):
    wanted = {"protocol": "paper", "datasets": ["yacht"], "methods": ["split"], "seeds": [0]} | change
    with pytest.raises(InputError) as refusal:
        plan(**wanted)
    assert message in str(refusal.value)


def test_words_of_the_command_line():
    assert parse_seeds("0:3") == [0, 1, 2]
    assert parse_seeds("4") == [4]
    assert parse_seeds("0,3,7") == [0, 3, 7]
    assert parse_levels("0.5,0.9") == [0.5, 0.9]
    assert parse_names("b, c") == ["b", "c"]
    for text in ("ten", "3:1", "-1", "1:2:3", ""):
        with pytest.raises(InputError, match="seeds must"):
            parse_seeds(text)
    with pytest.raises(InputError, match="levels must look like"):
        parse_levels("half")


def test_every_method_of_the_tables_is_there():
    from experiments.paper.printed import printed_cells

    small = {"Yacht", "Housing", "Energy", "Bike", "Kin8nm", "Concrete"}
    ours = {"split", "JackknifePlus"}  # which the paper does not show
    assert {cell.method for cell in printed_cells() if cell.dataset in small} == set(METHODS) - ours
    assert set(REGRESSORS) == set(METHODS)
    assert set(REGRESSORS.values()) == set(ALL_METHODS)
    assert len(VARIANTS) == 8
    assert set(METHODS) - set(REPRODUCED) == {*ours, "DJ", "DE", "MCDP", "PBP"}
