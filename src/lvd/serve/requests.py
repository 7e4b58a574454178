"""What is read before a request's rows: its token, host, options, and body within limits."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from lvd._validation import InputError, check_levels, check_positive
from lvd.serve.bodies import Asked
from lvd.serve.refusals import RefusedError, refusal_of

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TYPES = {"application/json": False, "text/csv": True}
OPTIONS = {"/predict": ("level", "guarantee"), "/explain": ("level", "neighbors"), "/observe": ()}


@dataclass(frozen=True)
class RequestLimits:
    """Limits of a request: bytes and rows of its body, seconds until its answer, and how many may wait."""

    max_bytes: int = 10_000_000
    max_rows: int = 10_000
    seconds: float = 30.0
    most_waiting: int = 500

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_rows", "most_waiting"):
            check_positive(getattr(self, name), name, integer=True)
        check_positive(self.seconds, "seconds")


def check_token(request: Request, token: str | None) -> None:
    """Check the token, if one is required, in constant time."""
    if token is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), token.encode()):
        raise RefusedError(
            *(401, "this server needs a token", "header Authorization"),
            "send 'Authorization: Bearer TOKEN' with the token that it was started with",
        )


def check_host(request: Request, hosts: Sequence[str] | None) -> None:
    """Check the host name, so that a page of another site cannot reach a local server under its own name."""
    if hosts is None:
        return
    given = request.headers.get("host", "")
    name = given.removeprefix("[").partition("]")[0] if given.startswith("[") else given.partition(":")[0]
    if name.lower() not in hosts:
        raise RefusedError(
            *(421, f"this server does not answer for the host {name[:80]!r}", "header Host"),
            f"ask for {hosts[0]}, or start it with --host",
        )


async def read_request(request: Request, limits: RequestLimits) -> Asked:
    """Read a request's options and body within the limits."""
    path = request.url.path
    from_csv = _is_csv(request)
    options = _read_options(request, OPTIONS[path])
    to_csv = path == "/predict" and "text/csv" in request.headers.get("accept", "")
    return Asked(path, await _read_body(request, limits), from_csv, to_csv, **options)


def _is_csv(request: Request) -> bool:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in TYPES:
        raise RefusedError(
            *(415, f"the body has the type {given[:80]!r}", "header Content-Type"),
            "send application/json or text/csv, with curl as -H 'Content-Type: application/json'",
        )
    return TYPES[given]


def _read_options(request: Request, known: Sequence[str]) -> dict[str, Any]:
    """The checked query options; unknown ones are refused instead of being ignored."""
    given = request.query_params
    for name in given:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise RefusedError(
                *(422, f"there is no option {name[:80]!r} here", f"option {name[:80]}"),
                f"leave it out; the options are: {listed}",
            )
    options: dict[str, Any] = {}
    if texts := given.getlist("level"):
        options["levels"] = _read_levels(texts, one="neighbors" in known)
    if "guarantee" in given:
        options["guarantee"] = given["guarantee"]
    if "neighbors" in given:
        options["neighbors"] = _read_count(given["neighbors"])
    return options


def _read_levels(texts: Sequence[str], *, one: bool) -> tuple[float, ...]:
    try:
        levels = tuple(map(float, texts))
        if one and len(levels) > 1:
            raise InputError(f"one level is explained at a time, got {len(levels)}; ask for each")
        check_levels(list(levels))
    except InputError as error:
        raise refusal_of(error, "option level") from None
    except ValueError:
        raise RefusedError(
            *(422, f"level must be a number, got {', '.join(texts)[:80]!r}", "option level"),
            "give one between 0 and 1, such as level=0.9",
        ) from None
    return levels


def _read_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= 1000):
        raise RefusedError(
            *(
                422,
                f"neighbors must be a whole number from 1 to 1,000, got {text[:80]!r}",
                "option neighbors",
            ),
            "send a number in this range",
        )
    return int(text[:9])


async def _read_body(request: Request, limits: RequestLimits) -> bytes:
    stated = request.headers.get("content-length", "")
    if stated.isdigit() and int(stated[:19]) > limits.max_bytes:
        raise _too_long(limits)
    parts, n_bytes = [], 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                parts.append(part)
                n_bytes += len(part)
                if n_bytes > limits.max_bytes:
                    raise _too_long(limits)
    except TimeoutError:
        raise RefusedError(
            *(408, f"the body did not arrive within {limits.seconds:g} s", "body"),
            "send it faster, or in parts",
        ) from None
    return b"".join(parts)


def _too_long(limits: RequestLimits) -> RefusedError:
    return RefusedError(
        *(413, f"the body has more than {limits.max_bytes:,} bytes", "body"),
        "send its rows in several requests, or use lvd predict",
    )
