"""The experiments on molecules, on a table small enough for the CPU: networks, tasks, groups."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from experiments.molecules.group_counts import (
    COUNTS,
    GroupCount,
    beside_printed,
    count_groups,
    group_grids,
    pool_seeds,
    shares_valid,
)
from experiments.molecules.groups import GROUPS, group_members
from experiments.molecules.study import STUDY_RESULTS, plan_study, run_study
from experiments.paper import networks, protocols, runner
from experiments.paper import result_store as store
from experiments.paper.collect import collect_folder
from experiments.paper.methods import MAIN_VARIANT, TASK_METHODS
from experiments.paper.protocols import PAPER, SCAFFOLD, SOUND
from experiments.paper.runs import BenchRun, Job, expand, has_tasks, table_of, task_of
from lvd._validation import InputError
from lvd.data import ENTRIES, Dataset
from lvd.kernels import MahalanobisKernel
from lvd.molecules.domain import scaffolds

pytest.importorskip("chemprop", reason="the extra 'molecules' is not installed")

from lvd.molecules import Recipe

QUICK = Recipe(hidden_size=8, n_epochs=2, batch_size=8, warmup_epochs=1)
METHODS = (MAIN_VARIANT, "LVD-NN-smooth-MN", "split", "MADSplit", "CQR", "DE")
TASKS = ("E1-CC2", "f1-CC2")


def small_table(*, rings: bool = False) -> Dataset:
    """Chains with one or two ends out of a few; their length and ends decide sixteen made-up targets."""
    ends = ("O", "N", "F", "C#N", "C=O", "C(=O)O")
    middles = ("C1CC1", "c1ccccc1", "C1NC1", "C1CCC1", "C1CNC1") if rings else ("", "C(C)")
    smiles = ["C" * n + middle + end for n, middle, end in product(range(1, 6), middles, ends)]
    rng = np.random.default_rng(0)
    length = np.array([[one.count("C"), one.count("O")] for one in smiles], dtype=float)
    targets = ENTRIES["qm8"].targets
    y = length @ rng.normal(size=(2, len(targets))) + 0.1 * rng.normal(size=(len(smiles), len(targets)))
    return Dataset(np.array(smiles, dtype=object), y, ("smiles",), targets, "made up", "none")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All methods on two tasks of one split, under both protocols; what was trained, wave by wave."""
    folder, waves = tmp_path_factory.mktemp("results"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "RECIPE", QUICK)
        patch.setattr(networks, "N_MEMBERS", 2)
        patch.setattr(networks, "AT_ONCE", 3)
        patch.setattr(protocols, "MahalanobisKernel", partial(MahalanobisKernel, max_iter=20))
        patch.setattr(runner, "load_dataset", lambda *_, **__: small_table())
        train = networks.train_networks
        patch.setattr(
            networks,
            "train_networks",
            lambda molecules, jobs, recipe: waves.append(len(jobs)) or train(molecules, jobs, recipe),
        )
        for protocol in ("paper", "sound"):
            runs = runner.plan(
                protocol=protocol,
                datasets=[f"qm8({task})" for task in TASKS],
                methods=METHODS,
                seeds=[0],
            )
            runner.execute(runs, folder)
    return folder, waves


def test_networks_are_shared_by_tasks_and_protocols_and_trained_in_waves(results):
    folder, waves = results
    # Paper: base, two quantile networks | two members, errors. Sound: the same without base and errors.
    assert waves == [3, 3, 3, 1]
    files = [path.name for path in (folder / "networks").iterdir()]
    roles = sorted(name.split("-")[2] for name in files)
    assert roles == ["base", "errors", *["member"] * 4, *["quantiles"] * 4]


def test_every_run_has_intervals_of_its_own_task(results):
    stored = {(r.run.protocol, r.run.dataset, r.run.method): r for r in store.read_all(results[0])}
    assert len(stored) == 2 * len(TASKS) * len(METHODS)
    assert not [result.error for result in stored.values() if result.error]
    y = small_table().y
    for (_, dataset, _), result in stored.items():
        column = ENTRIES["qm8"].targets.index(task_of(dataset))
        np.testing.assert_array_equal(result.y, y[result.rows, column])
        assert (result.intervals[:, 0] <= result.intervals[:, 1]).all()


def test_point_predictions_are_those_of_the_networks(results):
    folder, _ = results
    stored = {(r.run.protocol, r.run.dataset, r.run.method): r for r in store.read_all(folder)}
    for task in TASKS:
        plain = stored["paper", f"qm8({task})", "split"]
        for method in (MAIN_VARIANT, "MADSplit"):
            np.testing.assert_array_equal(stored["paper", f"qm8({task})", method].y_pred, plain.y_pred)


def test_metrics_and_groups_come_from_the_same_files(results, tmp_path):
    folder, _ = results
    rows = collect_folder(folder)
    assert len(rows) == 2 * 2 * len(TASKS) * len(METHODS)
    counts = count_groups(folder, lambda name: small_table())
    assert len(counts) == len(rows) * len(GROUPS)
    one = next(c for c in counts if c.rule == "text" and c.group == "formaldehyde" and c.method == "split")
    test_rows = next(r for r in store.read_all(folder)).rows
    assert one.n == sum("C=O" in smiles for smiles in small_table().X[test_rows])
    COUNTS.write(counts, tmp_path / "counts.csv")
    assert COUNTS.read_file(tmp_path / "counts.csv") == counts
    with pytest.raises(InputError, match="no results in"):
        count_groups(tmp_path, lambda name: small_table())


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The methods of today on one task, at random and by scaffold."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "RECIPE", QUICK)
        patch.setattr(networks, "N_MEMBERS", 2)
        patch.setattr(runner, "load_dataset", lambda *_, **__: small_table(rings=True))
        runs = plan_study(tables="qm8(E1-CC2)", methods=",".join(STUDY), seeds="0")
        assert run_study(runs, folder) == 2 * len(STUDY)
        assert run_study(runs, folder) == 0
    return folder


STUDY = ("LVD", "LVD-widen", "split-members", "CQR-members", "split", "MADSplit-held-out")


class TestStudy:
    def test_every_method_has_its_figures(self, study):
        results = STUDY_RESULTS.read(study)
        assert {(one.split, one.method) for one in results} == set(product(("random", "scaffold"), STUDY))
        assert not [one.error for one in results if one.error]
        for one in results:
            assert np.isfinite([one.MCR, one.TCR, one.MAD, one.score, one.ert]).all()
            assert sum(count.n for count in one.group_counts() if count.group == "formaldehyde") > 0

    def test_no_scaffold_is_in_two_parts(self, study):
        table = replace(small_table(rings=True), scaffolds=scaffolds(small_table(rings=True).X))
        parts = networks.parts_of(table, "scaffold", 0, SCAFFOLD.sizes)
        found = [set(table.scaffolds[part]) for part in parts]
        assert len(set.union(*found)) == sum(map(len, found))
        stored = next(r for r in store.read_all(study) if r.run.protocol == "scaffold")
        np.testing.assert_array_equal(stored.rows, parts[2])

    def test_folds_have_not_seen_what_they_predict(self, study):
        table = small_table(rings=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(networks, "RECIPE", QUICK)
            second = networks.network_of("held_out_errors", "qm8", 0, SOUND)
            found = networks.held_out_predictions(second, table, study)
            train = networks.rows_of(second, table)
            assert np.isfinite(found[train]).all()
            assert np.isnan(np.delete(found, train, axis=0)).all()
            for number in range(networks.candidates.N_FOLDS):
                fold = networks.network_of("fold", "qm8", 0, SOUND, member=number)
                left_out = np.setdiff1d(train, networks.rows_of(fold, table))
                stored = networks.read_outputs(fold.path(study)).y_pred
                np.testing.assert_array_equal(found[left_out], stored[left_out])

    def test_a_table_of_it_can_be_read_again(self, study, tmp_path):
        results = STUDY_RESULTS.read(study)
        STUDY_RESULTS.write(results, tmp_path / "study.csv")
        assert [one.groups for one in STUDY_RESULTS.read(tmp_path / "study.csv")] == [
            one.groups for one in results
        ]
        with pytest.raises(InputError, match="no results in"):
            STUDY_RESULTS.read(tmp_path)


def test_a_spoilt_file_of_outputs_is_told(tmp_path):
    path = tmp_path / "outputs.safetensors"
    path.write_bytes(b"nonsense")
    with pytest.raises(InputError, match="does not hold a network's outputs"):
        networks.read_outputs(path)


class TestNames:
    def test_a_table_of_molecules_stands_for_its_tasks(self):
        tasks = expand(["yacht", "qm9"])
        assert tasks[:2] == ["yacht", "qm9(mu)"]
        assert len(tasks) == 13
        assert len(expand(["qm8"])) == 16
        assert (table_of("qm9(mu)"), task_of("qm9(mu)"), task_of("yacht")) == ("qm9", "mu", "")
        assert has_tasks("qm8(E1-CC2)")
        assert not has_tasks("yacht")

    def test_an_unknown_task_is_refused(self):
        with pytest.raises(InputError, match=r"unknown name 'qm9\(taste\)' in datasets"):
            expand(["qm9(taste)"])

    def test_a_method_that_molecules_do_not_have_is_refused(self):
        with pytest.raises(InputError, match=r"unknown name 'PBP' in methods for qm9\(mu\)"):
            runner.plan(protocol="paper", datasets=["qm9(mu)"], methods=["PBP"], seeds=[0])
        runs = runner.plan(protocol="paper", datasets=["qm9(mu)"], seeds=[0])
        assert [run.method for run in runs] == list(TASK_METHODS)


class TestNetworks:
    def test_only_what_the_methods_need(self):
        def roles(*methods: str) -> list[str]:
            runs = tuple(BenchRun("paper", "qm9(mu)", method, 0) for method in methods)
            return [network.role for network in networks.needed(Job("paper", "qm9", 0, runs))]

        assert roles(MAIN_VARIANT, "split") == ["base"]
        assert roles("MADSplit") == ["base", "errors"]
        assert roles("CQR") == ["base", "quantiles", "quantiles"]
        assert roles("DE") == ["base", *["member"] * 5]
        assert roles("LVD", "CQR-members") == ["quantile_member"] * 5
        assert roles("MADSplit-held-out") == [
            "base",
            *["fold"] * networks.candidates.N_FOLDS,
            "held_out_errors",
        ]

    def test_what_the_protocols_share(self):
        def of_both(role: str, **which) -> list[networks.Network]:
            return [networks.network_of(role, "qm9", 0, protocol, **which) for protocol in (PAPER, SOUND)]

        for role in ("base", "errors"):
            paper, sound = of_both(role)
            assert paper == sound
        assert [network.scale_target for network in of_both("quantiles", level=0.9)] == [False, True]
        table = small_table()
        n_rows = len(table.y)
        assert [len(networks.rows_of(network, table)) for network in of_both("member", member=1)] == [
            round(0.6 * n_rows),
            round(0.8 * n_rows),
        ]
        calibrated = of_both("quantile_member", member=1)
        assert [len(networks.rows_of(network, table)) for network in calibrated] == 2 * [round(0.6 * n_rows)]


class TestGroups:
    def test_the_text_depends_on_the_writing_and_the_molecule_does_not(self):
        members = group_members(np.array(["COC", "O(C)C", "CC(=O)O", "CC#CC"], dtype=object))
        assert members["text", "ether"].tolist() == [True, False, False, False]
        assert members["molecule", "ether"].tolist() == [True, True, False, False]
        assert members["molecule", "carboxylic acid"].tolist() == [False, False, True, False]
        assert members["molecule", "2-butyne"].tolist() == [False, False, False, True]

    def test_seeds_are_pooled_and_tested_exactly(self):
        def count(seed: int, n_covered: int, method: str = MAIN_VARIANT) -> GroupCount:
            return GroupCount("paper", "qm9(mu)", method, seed, 0.9, "text", "ester", 500, n_covered)

        counts = [count(0, 450), count(1, 440), count(0, 400, "split")]
        (pooled, _) = pool_seeds(counts)
        assert (pooled.seed, pooled.n, pooled.n_covered) == (2, 1000, 890)
        ours, split, *_ = group_grids(counts, "paper", "qm9")
        entry = next(row[1] for row in ours.rows if row[0].text.startswith("ester"))
        assert (entry.text, entry.emphasis) == ("89.0", "bold")
        broken = next(row[1] for row in split.rows if row[0].text.startswith("ester"))
        assert (broken.text, broken.emphasis) == ("80.0", "")
        beside = next(row[1].text for row in beside_printed(counts).rows if row[0].text == "ester")
        assert beside == "89.0 / 91.9"
        held = [[entry.text for entry in row] for row in shares_valid(counts, "paper", "qm9").rows]
        assert held[0][:3] == ["LVD", "1 of 1", "89.0"]
        assert held[1][:3] == ["split", "0 of 1", "80.0"]
