"""Leaves of the index: made once, kept by update, forget and save, and asked for or not by the switch."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import lvd
from lvd.quantiles import index_search
from lvd.quantiles import leaves
from lvd.quantiles.index import partition
from lvd.conformal.oracle import weighted_quantile

RNG = np.random.default_rng(0)
CLUMPS = 20.0 * RNG.normal(size=(30, 3))


def some_rows(n, seed):
    rng = np.random.default_rng(seed)
    return CLUMPS[rng.integers(30, size=n)] + rng.normal(size=(n, 3)), rng.gamma(1.0, size=n)


ROWS, MORE = some_rows(3000, 1), some_rows(20, 2)
QUERIES = some_rows(300, 3)[0]


def kernel():
    return lvd.MahalanobisKernel.from_components(np.eye(3), mean=np.zeros(3), scale=np.ones(3))


def searched(**options):
    return lvd.LocalConformal(kernel(), search="index", **options).conformalize(*ROWS)


@pytest.fixture
def cut_rows(monkeypatch):
    """The numbers of rows that were cut into leaves."""
    counts = []

    def counted(points, *arguments, **options):
        counts.append(len(points))
        return partition(points, *arguments, **options)

    monkeypatch.setattr(leaves, "partition", counted)
    return counts


def test_the_radius_is_the_quantile_weighted_by_the_kernel():
    conformal = searched()
    expected = [weighted_quantile(ROWS[1], w, 1.0, 0.8) for w in kernel()(QUERIES, ROWS[0])]
    np.testing.assert_array_equal(conformal.radius(QUERIES, 0.8), expected)


class TestWhatIsCut:
    def test_all_rows_once(self, cut_rows):
        conformal = searched()
        assert cut_rows == [3000]
        conformal.radius(QUERIES)
        conformal.interval(QUERIES)
        conformal.rescored(-ROWS[1]).interval(QUERIES)
        assert cut_rows == [3000]

    def test_the_two_ends_of_an_interval_share_their_leaves(self, cut_rows, monkeypatch):
        monkeypatch.setattr(index_search, "INDEX_ROWS", 1000)
        monkeypatch.setattr(index_search, "LEAST_QUERIES", 100)
        conformal = lvd.LocalConformal(kernel()).conformalize(*ROWS)
        assert cut_rows == []
        conformal.interval(QUERIES)
        assert cut_rows == [3000]

    def test_few_rows_when_few_come_and_go(self, cut_rows):
        conformal = searched().update(*MORE).forget(2900)
        conformal.radius(QUERIES)
        assert cut_rows[0] == 3000
        assert max(cut_rows[1:], default=0) < 300
        assert (conformal.calibration_.leaves.numbers >= 0).all()

    def test_a_leaf_that_a_far_row_has_joined(self):
        conformal = searched().update([[900.0, 0.0, 0.0]] * 20, np.ones(20))
        conformal.radius(QUERIES)
        numbers = conformal.calibration_.leaves.numbers
        assert set(numbers[-20:].tolist()).isdisjoint(numbers[:-20].tolist())

    def test_a_leaf_that_has_become_too_large(self, cut_rows):
        conformal = searched().update(np.repeat(CLUMPS[:1], 300, axis=0), np.ones(300))
        conformal.radius(QUERIES)
        assert len(cut_rows) > 1
        assert conformal.calibration_.leaves.numbers.bincount().max() <= leaves.LEAF_ROWS

    @pytest.mark.parametrize("change", ["update", "forget"])
    def test_all_rows_again_when_half_of_them_have_come_or_gone(self, cut_rows, change):
        conformal = searched()
        conformal.update(*some_rows(3100, 4)) if change == "update" else conformal.forget(1900)
        conformal.radius(QUERIES)
        assert cut_rows == [3000, 6100 if change == "update" else 1900]

    def test_many_small_changes_count_together(self, cut_rows):
        conformal = searched()
        for seed in range(10):
            conformal.update(*some_rows(200, seed)).forget(3000)
        conformal.radius(QUERIES)
        assert cut_rows[:2] == [3000, 3000]

    def test_leaves_that_hold_next_to_nothing(self, cut_rows):
        leaves.place(torch.tensor(ROWS[0]), torch.arange(3000, dtype=torch.int32))
        assert cut_rows == [3000]

    def test_rows_that_thin_out_by_magnitudes(self):
        """A cut takes off a share of the rows, not one at a time, which would take minutes here."""
        spread = np.exp(5.0 * RNG.normal(size=(20_000, 1)))
        sizes = leaves.cut(torch.tensor(spread * RNG.normal(size=(20_000, 3))), 240).bincount()
        assert sizes.double().mean() > 40


class TestTheSwitch:
    @pytest.fixture(autouse=True)
    def searches(self, monkeypatch):
        """How often leaves were searched."""
        counts, search = [], index_search.search
        monkeypatch.setattr(index_search, "search", lambda *a: counts.append(len(a[0])) or search(*a))
        return counts

    @pytest.mark.parametrize(("search", "expected"), [("auto", []), ("all", []), ("index", [1])])
    def test_a_small_set(self, search, expected, searches):
        lvd.LocalConformal(kernel(), search=search).conformalize(*ROWS).radius(QUERIES[:1])
        assert searches == expected

    @pytest.mark.parametrize(("search", "expected"), [("auto", [300]), ("all", []), ("index", [300])])
    def test_a_large_set(self, search, expected, searches, monkeypatch):
        monkeypatch.setattr(index_search, "INDEX_ROWS", 1000)
        monkeypatch.setattr(index_search, "LEAST_QUERIES", 200)
        lvd.LocalConformal(kernel(), search=search).conformalize(*ROWS).radius(QUERIES)
        assert searches == expected

    def test_fewer_queries_are_enough_when_the_leaves_are_known(self, searches, monkeypatch, tmp_path):
        monkeypatch.setattr(index_search, "INDEX_ROWS", 1000)
        monkeypatch.setattr(index_search, "LEAST_QUERIES", 200)
        monkeypatch.setattr(index_search, "READY_QUERIES", 100)
        conformal = lvd.LocalConformal(kernel()).conformalize(*ROWS)
        conformal.radius(QUERIES[:150])
        assert searches == []
        conformal.radius(QUERIES)
        conformal.save(tmp_path / "model")
        lvd.load(tmp_path / "model").radius(QUERIES[:150])
        assert searches == [300, 150]

    def test_of_a_regressor(self, searches):
        parts = lvd.NetRegressor(hidden_sizes=(3,), n_batches=5), lvd.MahalanobisKernel(2, max_iter=5)
        reg = lvd.LVDRegressor(parts[0], kernel=parts[1], search="index", random_state=0).fit(
            *some_rows(300, 5)
        )
        reg.predict_interval(QUERIES)
        assert searches == [300]

    @pytest.mark.parametrize("make", [lvd.LocalConformal, lvd.LVDRegressor])
    def test_refused(self, make):
        def use(**options):
            if make is lvd.LocalConformal:
                make(kernel(), **options).conformalize(*ROWS)
            else:
                make(**options).fit(*ROWS)

        with pytest.raises(lvd.InputError, match="search must be one of 'auto', 'all', 'index', got 'tree'"):
            use(search="tree")
        with pytest.raises(
            lvd.InputError, match='search="index" leaves out rows without weight, and with a kernel floor'
        ):
            use(search="index", kernel_floor="auto")


class TestSaved:
    @pytest.fixture
    def folder(self, tmp_path):
        searched().save(tmp_path / "model")
        return tmp_path / "model"

    @staticmethod
    def edit(folder, change):
        """Numbers that are not those that were saved, under digests that are right."""
        path, name = folder / "tensors.safetensors", "calibration_.4"
        tensors, manifest = load_file(path), json.loads((folder / "manifest.json").read_text())
        tensors[name] = change(tensors[name])
        save_file(tensors, path)
        summary = {"dtype": str(tensors[name].dtype)[6:], "shape": list(tensors[name].shape), "finite": True}
        manifest["tensors"][name] = summary
        data = path.read_bytes()
        manifest["files"][path.name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        del manifest["sha256"]
        manifest["sha256"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(manifest))

    def test_nothing_is_cut_again(self, folder, cut_rows):
        loaded = lvd.load(folder)
        np.testing.assert_array_equal(loaded.radius(QUERIES), searched().radius(QUERIES))
        cut_rows.clear()
        loaded.update(*MORE).radius(QUERIES)
        assert max(cut_rows, default=0) < 300

    def test_what_was_not_found_is_not_saved(self, tmp_path):
        lvd.LocalConformal(kernel()).conformalize(*ROWS).save(tmp_path / "model")
        assert "calibration_.4" not in load_file(tmp_path / "model" / "tensors.safetensors")
        assert not lvd.load(tmp_path / "model").calibration_.leaves.found

    def test_before_leaves_were_saved(self, folder):
        manifest = json.loads((folder / "manifest.json").read_text())
        entry = manifest["objects"][-1]
        assert entry["learned"]["calibration_"]["dict"].pop()[0] == "leaves"
        del entry["parameters"]["search"], manifest["sha256"]
        manifest["sha256"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(manifest))
        loaded = lvd.load(folder)
        assert loaded.search == "auto"
        np.testing.assert_array_equal(loaded.radius(QUERIES), searched().radius(QUERIES))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda n: n[:-1].clone(), r"leaves must be int32 numbers, one for each of 3000 rows, got .*\(2999,\)"),
            (lambda n: n.long(), r"leaves must be int32 numbers, .* got torch.int64 of shape \(3000,\)"),
            (lambda n: n - 2, "leaves must be numbered from 0 on, or -1 for none, got -2"),
        ],
        ids=["too few", "too long", "below"],
    )  # fmt: skip
    def test_damaged_numbers(self, folder, change, message):
        self.edit(folder, change)
        with pytest.raises(lvd.InputError, match=message):
            lvd.load(folder)

    @pytest.mark.parametrize(
        "change",
        [
            torch.zeros_like,
            lambda n: n.flip(0),
            lambda n: torch.arange(len(n), dtype=torch.int32),
            lambda n: n + 2_000_000_000,
            lambda n: torch.where(torch.arange(len(n)) % 7 == 0, -1, n),
        ],
        ids=["one leaf", "others", "a leaf for each", "large", "holes"],
    )
    def test_wrong_numbers_change_no_radius(self, folder, change):
        self.edit(folder, change)
        np.testing.assert_array_equal(lvd.load(folder).radius(QUERIES), searched().radius(QUERIES))
