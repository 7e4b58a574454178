"""``lvd serve``."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from lvd.cli import console
from lvd.cli.console import Trust, argument, option, own_class

EXAMPLES = console.examples(
    "lvd serve homes-model",
    "lvd serve homes-model --port 8080 --token correct-horse-battery",
    "LVD_TOKEN=correct-horse-battery lvd serve homes-model --host 0.0.0.0",
    "curl -H 'Content-Type: text/csv' --data-binary @new-homes.csv 'http://127.0.0.1:8000/predict?level=0.9'",
)
TOKEN = "LVD_TOKEN"
"""The environment variable that holds the token."""


def _listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections."""
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
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 picks a free one.")] = 8000,
    host: Annotated[
        str,
        option("ADDRESS", "Address to listen on; 0.0.0.0 is open to all who can reach this machine.", True),
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        option(
            "TEXT",
            "Bearer token that requests must carry. Other users of this machine can read it on the command line, "
            f"but not in the variable {TOKEN}.",
            f"the variable {TOKEN}, or none",
        ),
    ] = None,
    fitted_on: Annotated[
        Path | None,
        option("FILE", "The table given to lvd fit, to show the cells of similar calibration rows."),
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=1, help="Maximum bytes per request.")] = 10_000_000,
    max_rows: Annotated[int, typer.Option(min=1, help="Maximum rows per request.")] = 10_000,
    seconds: Annotated[float, typer.Option(min=0.001, help="Seconds until a request times out.")] = 30.0,
    log_requests: Annotated[
        bool,
        typer.Option(
            "--log-requests", help="Print path, status, rows and time of each request, never its content."
        ),
    ] = False,
    trust: Trust = None,
) -> None:
    """Answer requests over HTTP with a fitted model (extra serve).

    POST /predict takes rows as JSON, a list such as [{"area": 85, "district": "north"}], or as CSV, and answers
    with the columns of lvd predict; infinite numbers are the strings "Infinity" and "-Infinity". Options are in the
    query: level, which may be repeated, and guarantee. With Accept: text/csv the answer is a table. POST /explain
    answers like lvd explain. A folder of lvd online init also has POST /observe, which takes labels by their keys;
    everything is saved to disk before it is answered.

    The page at / is a form for the browser. /health says whether the newest model is in use, /metrics is for
    Prometheus, and /openapi.json describes all paths with the columns of this model.

    A refused request gets a message in three parts: error, where, what_to_do. When the folder changes, the new
    model takes over between two requests; if it cannot be loaded, the old one stays in use.

    By default the server is reachable from this machine only. If you open it with --host, set a token, and put it
    behind a proxy for TLS.
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
