"""A table as people have them: many cities, holes, dates, an identifier, a leak, copies of rows."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

START = np.datetime64("2021-01-01T00:00")
COLUMNS = ["order_id", "city", "sold", "rooms", "area", "garden", "kind", "currency", "fee", "price"]


def write_messy(
    path: Path,
    n_rows: int,
    *,
    seed: int = 0,
    n_cities: int = 200,
    new_cities: int = 0,
    noise: float = 1.0,
    clean: bool = False,
) -> None:
    """Write the table; `new_cities` rows come from cities that no other table has, `noise` spreads the prices.

    Prices depend on the city, the season and the area; ``fee`` is 3% of the price, which nobody knows before.
    Unless `clean`, cells are missing, some prices too, and some rows are there twice.
    """
    rng = np.random.default_rng(seed)
    worth = np.random.default_rng(99).normal(size=n_cities)  # of the cities, the same in all tables
    chances = 1.0 / np.arange(1, n_cities + 1) ** 0.7
    city = rng.choice(n_cities, n_rows, p=chances / chances.sum())
    minutes = np.sort(rng.integers(0, 3 * 365 * 24 * 60, n_rows))
    sold = (START + minutes.astype("timedelta64[m]")).astype(str)
    area, rooms = rng.gamma(9.0, 10.0, n_rows), rng.integers(1, 7, n_rows)
    garden, kind = rng.random(n_rows) < 0.4, rng.choice(["flat", "house", "loft"], n_rows)
    season = np.sin(2 * np.pi * minutes / (365 * 24 * 60))
    price = 50 + 2 * area + 8 * rooms + 25 * garden + 30 * worth[city] + 20 * season
    price = price + noise * np.where(city % 3 == 0, 20.0, 5.0) * rng.normal(size=n_rows)
    missing = rng.random((n_rows, 3)) < (0.0 if clean else 0.03)
    names = [f"city-{number:03}" for number in city]
    names[:new_cities] = [f"new-town-{number % 7}" for number in range(new_cities)]
    rows = [
        [
            *(f"A{seed}-{row:06}", names[row], sold[row], rooms[row]),
            *("" if missing[row, 0] else f"{area[row]:.2f}", str(bool(garden[row])).lower()),
            *("" if missing[row, 1] else kind[row], "EUR", f"{0.03 * price[row]:.3f}"),
            "" if missing[row, 2] else f"{price[row]:.2f}",
        ]
        for row in range(n_rows)
    ]
    copies = [] if clean else [rows[row] for row in rng.integers(0, n_rows, n_rows // 100)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows, *copies])
