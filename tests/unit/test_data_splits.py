"""Splits: the paper's, by hand-made cases, by groups, and with every type that comes in going out again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lvd._validation import InputError
from lvd.data import split_indices, three_way_split


@pytest.mark.parametrize("seed", [0, 1])
def test_split_is_the_papers(shared_dir: Path, seed: int) -> None:
    with np.load(shared_dir / "golden" / f"yacht_seed{seed}.npz") as golden:
        train, calib, test = split_indices(308, seed)
        np.testing.assert_array_equal(train, golden["index_train"])
        np.testing.assert_array_equal(calib, golden["index_val"])
        np.testing.assert_array_equal(test, golden["index_test"])


def test_split_is_a_permutation_of_the_legacy_generator_cut_at_rounded_shares() -> None:
    parts = split_indices(308, 3)
    assert [len(part) for part in parts] == [185, 61, 62]
    np.testing.assert_array_equal(np.concatenate(parts), np.random.RandomState(3).permutation(308))


def test_three_way_split_with_an_integer_seed_is_the_papers() -> None:
    rows = np.arange(50)
    X_train, X_calib, X_test, y_train, y_calib, y_test = three_way_split(rows[:, None], -rows, random_state=4)
    for X, y, part in zip(
        (X_train, X_calib, X_test), (y_train, y_calib, y_test), split_indices(50, 4), strict=True
    ):
        np.testing.assert_array_equal(X[:, 0], part)
        np.testing.assert_array_equal(y, -part)


@pytest.mark.parametrize(
    "X",
    [
        np.arange(20.0).reshape(10, 2),
        pd.DataFrame({"a": range(10), "b": list("abcdefghij")}, index=range(100, 110)),
        torch.arange(20).reshape(10, 2),
        ["C" * i for i in range(1, 11)],
    ],
    ids=["numpy", "pandas", "torch", "list"],
)
def test_types_are_kept(X: Any) -> None:
    y = pd.Series(range(10), index=range(100, 110))
    X_train, X_calib, X_test, y_train, y_calib, y_test = three_way_split(X, y, random_state=0)
    for part in (X_train, X_calib, X_test):
        assert type(part) is type(X)
    for part in (y_train, y_calib, y_test):
        assert type(part) is pd.Series
    assert [len(part) for part in (X_train, X_calib, X_test)] == [6, 2, 2]
    row = int(y_calib.iloc[1])
    if isinstance(X, pd.DataFrame):
        pd.testing.assert_series_equal(X_calib.iloc[1], X.iloc[row])
    else:
        assert np.array_equal(X_calib[1], X[row])


def test_generators_are_taken_and_left_moved_on() -> None:
    rows = np.arange(30)
    same = [three_way_split(rows, rows, random_state=np.random.default_rng(5))[0] for _ in range(2)]
    np.testing.assert_array_equal(*same)
    rng = np.random.default_rng(5)
    first, second = (three_way_split(rows, rows, random_state=rng)[0] for _ in range(2))
    assert not np.array_equal(first, second)
    three_way_split(rows, rows, random_state=None)


def test_groups_stay_together() -> None:
    groups = np.repeat(list("abcdefghij"), 10)
    rows = np.arange(100)
    parts = three_way_split(rows, rows, groups=groups, random_state=0)[:3]
    assert [len(part) for part in parts] == [60, 20, 20]
    labels = [set(groups[part]) for part in parts]
    assert set.union(*labels) == set("abcdefghij")
    assert sum(map(len, labels)) == 10
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows)
    again = three_way_split(rows, rows, groups=list(groups), random_state=1)[:3]
    assert {groups[i] for i in again[0]} != labels[0]


def test_every_part_gets_a_group_however_large_one_is() -> None:
    groups = [0] * 98 + [1, 2]
    for seed in range(20):
        parts = three_way_split(range(100), range(100), groups=groups, random_state=seed)[:3]
        assert all(len(part) for part in parts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [1] * 9}, "X has 10 rows and y has 9; they must describe the same rows"),
        ({"X": 3.0}, "X must be an array, frame, tensor or list, got float"),
        ({"sizes": (0.5, 0.5)}, r"sizes must be three positive shares that add up to 1, got \(0.5, 0.5\)"),
        ({"sizes": (60.0, 20.0, 20.0)}, "sizes must be three positive shares that add up to 1"),
        ({"sizes": (0.8, 0.2, 0.0)}, "sizes must be three positive shares that add up to 1"),
        (
            {"X": [1, 2], "y": [1, 2]},
            "2 rows cannot be split into parts of 0.6, 0.2, 0.2: one would be empty",
        ),
        ({"groups": [1] * 9}, r"groups must hold one label for each of the 10 rows, got shape \(9,\)"),
        ({"groups": [1, 2] * 5}, "groups must hold at least 3 different labels, one for each part, got 2"),
        ({"groups": np.array([1, "a"] * 5, dtype=object)}, "groups must hold labels of one kind"),
        ({"random_state": -1}, "random_state must be None, a non-negative integer"),
        (
            {"random_state": 2**32},
            r"random_state must be None, .* below 2\*\*32, .* got 4294967296",
        ),
    ],
)
def test_refusals(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        three_way_split(**{"X": list(range(10)), "y": list(range(10)), "random_state": 0, **arguments})
