"""Clients of a served model, in this process or against a real one."""

from __future__ import annotations

import json
import random
import re
import socket
import threading
import warnings
from contextlib import contextmanager
from typing import NamedTuple

import uvicorn

from command_line import start

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # which package of that name it is for
    from fastapi.testclient import TestClient

from lvd.serve import create_app

ROW = {"area": 85.5, "rooms": 3, "district": "north", "garden": True}
HEADER = "area,rooms,district,garden"


@contextmanager
def client_of(folder, **choices):
    with TestClient(create_app(folder, **choices)) as client:
        yield client


@contextmanager
def served(*arguments):
    """The real command, and the address that it prints."""
    with start("serve", *arguments, "--port", 0) as process:
        line = process.stdout.readline().decode()
        try:
            yield process, re.search(r"http://\S+/", line)[0]
        finally:
            process.terminate()
            process.communicate(timeout=60)


@contextmanager
def listening(folder, **choices):
    """A server in a thread of this process, for real connections; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(create_app(folder, **choices), log_config=None, lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join(60)


class Malformed(NamedTuple):
    body: bytes
    content_type: str = "application/json"
    query: str = ""


def malformed(seed: int) -> Malformed:
    """A request that nobody could answer; which one, the seed says."""
    rng = random.Random(seed)
    return rng.choice([_broken_json, _no_rows, _wrong_cells, _broken_csv, _wrong_options])(rng)


def _broken_json(rng: random.Random) -> Malformed:
    text = json.dumps([ROW] * rng.randint(1, 3)).encode()
    cut = text[: rng.randrange(len(text) - 1)]
    noise = bytes(rng.randrange(128, 256) for _ in range(rng.randint(1, 40)))
    deep = b"[" * rng.randint(1, 200_000)
    return Malformed(
        rng.choice([cut, noise, text + b"]", deep, b"[{'area': 1}]", text.replace(b"85.5", b"NaN")])
    )


def _no_rows(rng: random.Random) -> Malformed:
    content = rng.choice([[], 3, None, "area", True, [[ROW]], [ROW, 4], [None], {"rows": [ROW]}, {}, [{}]])
    return Malformed(json.dumps(content).encode())


def _wrong_cells(rng: random.Random) -> Malformed:
    name = rng.choice(["area", "rooms"])
    value = rng.choice(["many", [], {}, [1, 2], {"a": 1}, "12 m", None, 10**30, 10**400, 2**53 + 1, "\ud800"])
    row = ROW | {name: value}
    left_out = rng.choice(list(ROW))
    lacking = {key: cell for key, cell in ROW.items() if key != left_out}
    huge = json.dumps([ROW]).replace("85.5", "1e999")
    district = ROW | {"district": rng.choice([[], {}, "\ud800", [["north"]]])}
    found = rng.choice([json.dumps([row]), json.dumps([ROW, lacking]), huge, json.dumps([ROW, district])])
    return Malformed(found.encode())


def _broken_csv(rng: random.Random) -> Malformed:
    row = "85.5,3,north,true"
    texts = [
        "",
        "\n",
        HEADER,
        f"{HEADER}\n",
        f"{HEADER}\n{row},1\n",
        f"{HEADER}\n85.5\n",
        f"{HEADER}\n{row}\n\0",
    ]
    texts += [f"{HEADER},area\n{row},1\n", f'{HEADER}\n85.5,3,"north,true\n', f"{HEADER};x\n{row}\n", row]
    texts += [
        f"{HEADER}\nlarge,3,north,true\n",
        f"{HEADER}\n{row}\n,3,north,true\n",
        f"{HEADER}\n{row}\xff\n",
    ]
    texts += [HEADER.replace(",", ";") + "\n" + row.replace(",", ";") + "\n"]
    return Malformed(rng.choice(texts).encode("latin-1"), "text/csv")


def _wrong_options(rng: random.Random) -> Malformed:
    queries = ["level=90", "level=", "level=0", "level=nan", "level=a&level=0.5", "guarantee=none", "lvl=0.9"]
    queries += ["level=0.5&level=0.5", "neighbors=3", "guarantee=", "level=1e-400"]
    right = json.dumps([ROW]).encode()
    if rng.random() < 0.2:
        return Malformed(right, rng.choice(["", "text/plain", "application/xml", "multipart/form-data"]))
    return Malformed(right, "application/json", rng.choice(queries))
