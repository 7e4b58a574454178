"""Requests per second of ``lvd serve`` on this machine: ``python -m benchmarks.serve``.

Fits a model, serves it in a separate process, and requests one row at a time from many clients over loopback,
in this process. Prints requests per second, request times, errors, the server's memory, and who used the
processors: on two cores the clients take their share too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

COMMAND = Path(sys.executable).with_name("lvd")
TICKS = 100.0


@dataclass
class Tally:
    """Counts of what the clients received."""

    seconds: list[float] = field(default_factory=list)
    errors: int = 0


@dataclass(frozen=True)
class Figures:
    """The printed figures."""

    clients: int
    seconds: float
    requests: int
    per_second: float
    p50_ms: float
    p99_ms: float
    longest_ms: float
    errors: int
    memory_mb_start: float
    memory_mb_end: float
    requests_per_call: float
    server_cpu: float
    clients_cpu: float


def make_model(folder: Path, n_rows: int) -> Path:
    """A table of homes with numbers, a text and a boolean, and the model that ``lvd fit`` makes of it."""
    rng = np.random.default_rng(0)
    area, rooms = rng.uniform(30, 200, n_rows), rng.integers(1, 7, n_rows)
    district, garden = rng.choice(["north", "south", "old town"], n_rows), rng.random(n_rows) < 0.5
    price = (
        2 * area + 10 * rooms + 40 * garden + np.where(district == "north", 30, 5) * rng.normal(size=n_rows)
    )
    table = {
        "area": area.round(1),
        "rooms": rooms,
        "district": district,
        "garden": garden,
        "price": price.round(2),
    }
    pa_csv.write_csv(pa.table(table), folder / "homes.csv")
    fit = ("fit", folder / "homes.csv", "--target", "price", "--epochs", 30, "--out", folder / "model")
    subprocess.run([COMMAND, *map(str, fit)], check=True, stdout=subprocess.DEVNULL)
    return folder / "model"


@cache
def some_rows(n: int) -> list[dict[str, Any]]:
    """Rows to request."""
    rng = np.random.default_rng(1)
    return [
        {
            "area": round(float(rng.uniform(30, 200)), 1),
            "rooms": int(rng.integers(1, 7)),
            "district": str(rng.choice(["north", "south", "old town"])),
            "garden": bool(rng.random() < 0.5),
        }
        for _ in range(n)
    ]


def requests_of(n: int) -> list[bytes]:
    """Requests of one row each."""
    found = []
    for body in (json.dumps(row).encode() for row in some_rows(n)):
        head = "POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        found.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return found


async def ask(port: int, asked: Sequence[bytes], end: float, tally: Tally) -> None:
    """One client, which sends request after request on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while (start := time.perf_counter()) < end:
        writer.write(asked[number % len(asked)])
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head)[1])
        body = await reader.readexactly(length)
        tally.seconds.append(time.perf_counter() - start)
        tally.errors += not (head.startswith(b"HTTP/1.1 200") and b'"y_pred"' in body)
        number += 1
    writer.close()


async def ask_all(port: int, clients: int, seconds: float) -> Tally:
    tally, asked = Tally(), requests_of(1000)
    end = time.perf_counter() + seconds
    await asyncio.gather(
        *(ask(port, asked[50 * one :] + asked[: 50 * one], end, tally) for one in range(clients))
    )
    return tally


def memory_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


def cpu_seconds(pid: int | str) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def calls_of(port: int) -> float:
    from urllib.request import urlopen

    text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    return float(re.search(r"^lvd_model_calls_total (\S+)", text, re.MULTILINE)[1])


def measure(model: Path, clients: int, seconds: float) -> Figures:
    """Serve the model and send it requests."""
    with subprocess.Popen([COMMAND, "serve", model, "--port", "0"], stdout=subprocess.PIPE) as server:
        try:
            port = int(re.search(rb":(\d+)/", server.stdout.readline())[1])
            asyncio.run(ask_all(port, clients, 1.0))
            before = memory_mb(server.pid), cpu_seconds(server.pid), cpu_seconds("self"), calls_of(port)
            start = time.perf_counter()
            tally = asyncio.run(ask_all(port, clients, seconds))
            wall = time.perf_counter() - start
            after = memory_mb(server.pid), cpu_seconds(server.pid), cpu_seconds("self"), calls_of(port)
        finally:
            server.terminate()
    times = 1000.0 * np.array(tally.seconds)
    return Figures(
        clients=clients,
        seconds=round(wall, 1),
        requests=len(times),
        per_second=round(len(times) / wall, 1),
        p50_ms=round(float(np.quantile(times, 0.5)), 1),
        p99_ms=round(float(np.quantile(times, 0.99)), 1),
        longest_ms=round(float(times.max()), 1),
        errors=tally.errors,
        memory_mb_start=round(before[0], 1),
        memory_mb_end=round(after[0], 1),
        requests_per_call=round(len(times) / max(1.0, after[3] - before[3]), 1),
        server_cpu=round((after[1] - before[1]) / wall, 2),
        clients_cpu=round((after[2] - before[2]) / wall, 2),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.serve", description=__doc__)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rows", type=int, default=5000, help="rows of the table that is fitted")
    parser.add_argument("--model", type=Path, help="a model of such a table that is there already")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or make_model(Path(folder), options.rows)
        for name, value in asdict(measure(model, options.clients, options.seconds)).items():
            print(f"{name.replace('_', ' '):18} {value:,}")


if __name__ == "__main__":
    main()
