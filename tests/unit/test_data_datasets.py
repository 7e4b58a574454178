"""Datasets: tables on disk become the arrays that the protocols ask for; what is missing is named."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import lvd
from lvd import InputError
from lvd.data import ENTRIES, NAMES, Entry, available, cache_folder, load_dataset
from lvd.data.datasets import design_matrix
from lvd.data.download import WebFile, parse_csv
from lvd.data.registry import check_table, table_checksum
from lvd.molecules.smiles import canonical_smiles, occurs_once

CELLS = {
    "id": ["r1", "r2", "r3"],
    "size": ["1", "2", "4"],
    "hour": ["10", "9", "10"],
    "half": ["3", "4", "5"],
    "total": ["6", "8", "10"],
}
TOY = Entry(
    name="toy",
    rows=(3,),
    columns=tuple(CELLS),
    targets=("total",),
    home="a test",
    source=WebFile("http://127.0.0.1:9/toy.csv", parse_csv, attempts=1),
    license_note="none",
    checksums=("4f5d6b8b0c9e49125a88d72e502218c46c6a03e65a3664e189239901a3fc7a8d",),
    unused=("id",),
    one_hot=("hour",),
    leaking=("half", "total"),
)


@pytest.fixture(autouse=True)
def own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LVD_DATA", raising=False)
    monkeypatch.setenv("LVD_CACHE", str(tmp_path / "cache"))


def write(folder: Path, name: str = "toy.csv", cells: dict[str, list[str]] = CELLS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [",".join(row) for row in [list(cells), *zip(*cells.values(), strict=True)]]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def test_inputs_of_the_two_protocols() -> None:
    X, names = design_matrix(CELLS, TOY, protocol="sound")
    assert names == ("size", "hour_9", "hour_10")
    np.testing.assert_array_equal(X, [[1, 0, 1], [2, 1, 0], [4, 0, 1]])
    X, names = design_matrix(CELLS, TOY, protocol="paper")
    assert names == ("size", "half", "total", "hour_9", "hour_10")
    np.testing.assert_array_equal(X[:, :3], [[1, 3, 6], [2, 4, 8], [4, 5, 10]])


def test_data_dir_comes_first_then_the_environment_then_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = CELLS | {"total": ["6", "8", "11"]}
    in_cache = write(cache_folder() / "data")
    np.testing.assert_array_equal(load_dataset(TOY, download=False).y, [6, 8, 10])
    named = write(tmp_path / "named", cells=broken)
    monkeypatch.setenv("LVD_DATA", str(named.parent))
    with pytest.raises(InputError, match=r"named/toy\.csv: the toy table does not hold the expected values"):
        load_dataset(TOY, download=False)
    given = write(tmp_path / "given")
    in_cache.unlink()
    np.testing.assert_array_equal(load_dataset(TOY, data_dir=given.parent, download=False).y, [6, 8, 10])
    compressed = tmp_path / "compressed" / "toy.csv.gz"
    compressed.parent.mkdir()
    compressed.write_bytes(gzip.compress(given.read_bytes()))
    np.testing.assert_array_equal(load_dataset(TOY, data_dir=compressed.parent, download=False).y, [6, 8, 10])


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("LVD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "lvd"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "lvd"


def test_a_missing_file_is_named_with_its_shape_and_place(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(InputError) as refusal:
        load_dataset("yacht", data_dir=tmp_path / "data", download=False)
    for part in (
        f"yacht.csv or yacht.csv.gz was not found in {tmp_path}/data or {tmp_path}/cache/data",
        "308 rows; a header line with the 7 columns longitudinal_position, ",
        "froude_number, residuary_resistance; published as UCI, Yacht Hydrodynamics",
        "name it in data_dir or in the environment variable LVD_DATA",
    ):
        assert part in str(refusal.value)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({k: v for k, v in CELLS.items() if k not in ("size", "half")}, "lacks the columns size, half"),
        ({k: v[:2] for k, v in CELLS.items()}, "must have 3 rows, got 2"),
        (CELLS | {"size": ["1", "2", "5"]}, "does not hold the expected values"),
        (CELLS | {"size": ["1", "2", "x"]}, "column size must hold numbers only"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, cells: dict[str, list[str]], message: str) -> None:
    path = write(tmp_path, cells=cells)
    with pytest.raises(InputError, match=message) as refusal:
        load_dataset(TOY, data_dir=tmp_path)
    assert str(refusal.value).startswith(f"{path}: ")
    assert str(refusal.value).endswith("; replace or remove this file")


def test_other_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"name must be one of 'synthetic', 'diabetes', 'yacht'.*got 'yaht'"):
        load_dataset("yaht")
    with pytest.raises(InputError, match="protocol must be one of 'paper', 'sound', got 'fair'"):
        load_dataset("yacht", protocol="fair")
    with pytest.raises(InputError, match=r"data_dir must be an existing folder, got '.*nowhere'"):
        load_dataset("yacht", data_dir=tmp_path / "nowhere")
    monkeypatch.setenv("LVD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="LVD_DATA must be an existing folder"):
        available()


def test_synthetic_and_diabetes_need_no_file() -> None:
    data = load_dataset("synthetic", random_state=3)
    assert (data.X.shape, data.y.shape) == ((300, 1), (300,))
    np.testing.assert_array_equal(data.y, load_dataset("synthetic", random_state=3).y)
    assert not np.array_equal(data.y, load_dataset("synthetic").y)
    diabetes = load_dataset("diabetes")
    assert (diabetes.X.shape, diabetes.y.shape) == ((442, 10), (442,))
    assert diabetes.feature_names[:3] == ("age", "sex", "bmi")
    assert diabetes.X[0, 0] == 59.0
    built_in = {row.name: row for row in available() if row.where == "built in"}
    assert (built_in["synthetic"].rows, built_in["synthetic"].columns) == (300, 2)
    assert (built_in["diabetes"].rows, built_in["diabetes"].columns) == (442, 11)


def test_available_says_what_is_where(tmp_path: Path) -> None:
    path = write(tmp_path, "yacht.csv")
    rows = {row.name: row for row in available(tmp_path)}
    assert tuple(rows) == NAMES
    assert rows["yacht"].where == str(path)
    assert rows["bike"].where == "not here"
    assert (rows["bike"].rows, rows["bike"].columns, rows["bike"].targets) == (17379, 17, ("cnt",))
    assert all(row.license_note for row in rows.values())


@pytest.mark.parametrize(
    ("name", "shape", "first"),
    [
        ("yacht", (308, 6), 0.11),
        ("housing", (506, 13), 24.0),
        ("energy", (768, 8), 15.55),
        ("bike", (17379, 45), 16.0),
        ("kin8nm", (8192, 8), 0.53652416),
        ("concrete", (1030, 8), 79.98611076),
    ],
)
def test_real_tables(shared_dir: Path, name: str, shape: tuple[int, int], first: float) -> None:
    data = load_dataset(name, data_dir=shared_dir / "data", download=False)
    assert (data.X.shape, data.y.shape, data.X.dtype, data.y.dtype) == (
        shape,
        shape[:1],
        np.float64,
        np.float64,
    )
    assert data.y[0] == first
    assert len(data.feature_names) == shape[1]
    assert data.target_names == ENTRIES[name].targets
    if name != "bike":
        np.testing.assert_array_equal(
            data.X, load_dataset(name, protocol="paper", data_dir=shared_dir / "data", download=False).X
        )


def test_bike_as_the_paper_had_it_is_what_pandas_gives(shared_dir: Path) -> None:
    import pandas as pd

    frame = pd.read_csv(shared_dir / "data" / "bike.csv.gz")
    frame = frame.drop(columns=["instant", "dteday", "yr", "mnth"])
    expected = pd.get_dummies(frame, columns=["season", "hr", "weekday", "weathersit"], dtype=float)
    data = load_dataset("bike", protocol="paper", data_dir=shared_dir / "data", download=False)
    assert data.feature_names == tuple(expected.columns)
    assert data.X.shape == (17379, 48)
    np.testing.assert_array_equal(data.X, expected.to_numpy(dtype=float))
    np.testing.assert_array_equal(data.X[:, data.feature_names.index("cnt")], data.y)
    sound = load_dataset("bike", data_dir=shared_dir / "data", download=False)
    assert set(data.feature_names) - set(sound.feature_names) == {"casual", "registered", "cnt"}


def test_energy_copies_that_differ_in_one_digit_are_both_known(shared_dir: Path) -> None:
    from lvd.data.cells import read_file

    cells = read_file(shared_dir / "data" / "energy.csv")
    assert table_checksum(cells, ENTRIES["energy"]) == ENTRIES["energy"].checksums[0]
    assert cells["Y1"][30] == "6.366"
    cells["Y1"][30] = "6.37"
    check_table(cells, ENTRIES["energy"])
    assert table_checksum(cells, ENTRIES["energy"]) == ENTRIES["energy"].checksums[1]


def test_qm8_has_its_doubled_targets(shared_dir: Path) -> None:
    data = load_dataset("qm8", data_dir=shared_dir / "data", download=False)
    assert (data.X.shape, data.X.dtype, data.y.shape) == ((21786,), np.dtype(object), (21786, 16))
    assert data.X[0] == "[H]C([H])([H])[H]"
    assert data.feature_names == ("smiles",)
    assert data.target_names[4:12] == (
        *("E1-PBE0", "E2-PBE0", "f1-PBE0", "f2-PBE0"),
        *("E1-PBE0.1", "E2-PBE0.1", "f1-PBE0.1", "f2-PBE0.1"),
    )
    np.testing.assert_array_equal(data.y[:, 4:8], data.y[:, 8:12])


@pytest.mark.slow
def test_qm9_drops_molecules_that_stand_twice(shared_dir: Path) -> None:
    pytest.importorskip("rdkit")
    data = load_dataset("qm9", data_dir=shared_dir / "data", download=False)
    assert (data.X.shape, data.y.shape) == ((130657,), (130657, 12))
    assert data.target_names[:2] == ("mu", "alpha")


def test_the_same_molecule_gives_the_same_string() -> None:
    pytest.importorskip("rdkit")
    assert len(set(canonical_smiles(["OCC", "CCO", "C(O)C"]))) == 1
    with pytest.raises(
        InputError,
        match=r"RDKit cannot read 2 SMILES, first in rows 2 \(C1\), 3 \(x\), counting from 1; correct or remove",
    ):
        canonical_smiles(["C", "C1", "x"])


@pytest.mark.skipif(importlib.util.find_spec("rdkit") is not None, reason="RDKit is installed")
def test_without_rdkit_the_extra_is_named() -> None:
    with pytest.raises(InputError, match=r"needs RDKit: install it with pip install 'lvd\[molecules\]'"):
        canonical_smiles(["C"])


def test_occurs_once() -> None:
    np.testing.assert_array_equal(occurs_once(["a", "b", "a", "c"]), [False, True, False, True])


def test_synthetic_shapes_and_determinism() -> None:
    X, y = lvd.data.make_synthetic(50, random_state=1)
    assert (X.shape, y.shape, X.dtype, y.dtype) == ((50, 1), (50,), np.float64, np.float64)
    again = lvd.data.make_synthetic(50, random_state=1)
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(y, again[1])
    assert not np.array_equal(X, lvd.data.make_synthetic(50, random_state=2)[0])


def test_synthetic_distribution() -> None:
    X, y = lvd.data.make_synthetic(200_000, random_state=0)
    x = X[:, 0]
    rare = x > 1.0
    assert x.min() >= -1.0
    assert rare.mean() == pytest.approx(0.1, abs=0.005)
    assert np.quantile(x[~rare], [0.25, 0.5, 0.75]) == pytest.approx([-0.5, 0.0, 0.5], abs=0.02)
    assert (x[rare] - 1.0).mean() == pytest.approx(np.sqrt(2.0 / np.pi), abs=0.03)  # half-normal, sigma 1
    noise = y - x**3
    assert noise.mean() == pytest.approx(0.0, abs=0.05)
    assert noise.std() == pytest.approx(4.0, abs=0.05)
    assert noise[rare].std() == pytest.approx(4.0, abs=0.1)


def test_no_synthetic_rows_are_refused() -> None:
    with pytest.raises(InputError, match="n must be a positive integer, got 0"):
        lvd.data.make_synthetic(0)
