"""``lvd serve``."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from lvd.cli import console
from lvd.cli.console import argument, option
from lvd.cli.shared import Trust, own_class

EXAMPLES = console.examples(
    "lvd serve homes-model",
    "lvd serve homes-model --port 8080 --token correct-horse-battery",
    "LVD_TOKEN=correct-horse-battery lvd serve homes-model --host 0.0.0.0",
    "curl -H 'Content-Type: text/csv' --data-binary @new-homes.csv 'http://127.0.0.1:8000/predict?level=0.9'",
)
TOKEN = "LVD_TOKEN"
"""The environment variable of the token."""


def _listen(host: str, port: int) -> socket.socket:
    """A socket that others can connect to from now on."""
    from lvd._validation import InputError

    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        raise InputError(
            f"cannot listen on {host}:{port}: {reason}; choose another --port or --host"
        ) from None


def serve_model(
    model: Annotated[Path, argument("MODEL", "The folder that lvd fit, lvd online init or save() wrote.")],
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    host: Annotated[
        str,
        option("ADDRESS", "Where to listen; 0.0.0.0 for whoever can reach this machine.", True),
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        option(
            "TEXT",
            f"What requests must carry; others can read it here, unlike that in {TOKEN}.",
            f"that in {TOKEN}, or none",
        ),
    ] = None,
    fitted_on: Annotated[
        Path | None,
        option("FILE", "The table that lvd fit was given, to show the cells of similar calibration rows."),
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=1, help="The longest body of a request.")] = 10_000_000,
    max_rows: Annotated[int, typer.Option(min=1, help="The most rows of a request.")] = 10_000,
    seconds: Annotated[float, typer.Option(min=0.001, help="How long an answer may take.")] = 30.0,
    log_requests: Annotated[
        bool,
        typer.Option(
            "--log-requests", help="Print path, status, rows and time of each; never what was asked."
        ),
    ] = False,
    trust: Trust = None,
) -> None:
    """Answer requests over HTTP with a fitted model (extra serve).

    POST /predict takes rows as JSON, a list such as [{"area": 85, "district": "north"}], or as CSV, and answers
    with the columns of lvd predict; infinite numbers are the strings "Infinity" and "-Infinity". Options are in the
    query: level, which may be repeated, and guarantee. With Accept: text/csv the answer is a table. POST /explain
    says why, as lvd explain does. A folder of lvd online init also has POST /observe, which takes labels by their
    keys; what has been answered is on disk.

    The page at / has a form for people. /health says whether the model is the newest, /metrics is for Prometheus,
    /openapi.json describes all of it, with the columns of this model.

    What is refused is answered with a sentence in three parts: error, where, what_to_do. When the folder changes,
    the new model is taken between two requests; one that cannot be loaded leaves the old one in force.

    It listens on this machine alone, unless --host says otherwise; then give a token, and let a proxy add TLS.
    """
    from lvd.serve import RequestLimits, create_app

    limits = RequestLimits(max_bytes, max_rows, seconds)
    import uvicorn

    from lvd.serve.requests import LOOPBACK

    token = token or os.environ.get(TOKEN)
    own = [own_class(name) for name in trust or ()]
    with _listen(host, port) as listening:
        with console.working("loading the model"):
            app = create_app(
                model,
                limits=limits,
                token=token,
                trusted=own,
                fitted_on=fitted_on,
                hosts=LOOPBACK if host in LOOPBACK else None,
                log=typer.echo if log_requests else None,
            )
        shown = f"[{host}]" if ":" in host else host
        console.show(f"serving {model} at http://{shown}:{listening.getsockname()[1]}/ (end with Ctrl-C)")
        quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
        config = uvicorn.Config(app, lifespan="on", timeout_graceful_shutdown=30, **quiet)
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])
