"""The application: its paths, the checks before each, and the counters after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lvd._json import to_json
from lvd._version import __version__
from lvd.page.render import asset, policy_hash
from lvd.serve.answers import JSON, answer_all, failure_of
from lvd.serve.batches import MOST_TOGETHER, Lane
from lvd.serve.bodies import Asked
from lvd.serve.current import CurrentModel
from lvd.serve.gauges import Gauges
from lvd.serve.openapi import describe_service
from lvd.serve.refusals import RefusedError
from lvd.serve.requests import RequestLimits, check_host, check_token, read_request
from lvd.tables.reading import read_table

SMALL_BODY = 32_768
"""Longer bodies get their own thread, so that single rows do not wait for them."""
Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
Log: TypeAlias = Callable[[str], None]


def create_app(
    folder: str | PathLike[str],
    *,
    limits: RequestLimits | None = None,
    token: str | None = None,
    trusted: Sequence[type[Any] | str] = (),
    fitted_on: str | PathLike[str] | None = None,
    hosts: Sequence[str] | None = None,
    reload_seconds: float = 1.0,
    log: Log | None = None,
) -> FastAPI:
    """An ASGI application that serves the model in `folder`, for uvicorn or any other ASGI server.

    Parameters
    ----------
    folder : written by ``lvd fit``, ``lvd online init`` or a method's `save`.
    limits : how much a request may ask for.
    token : required from every request except for the empty page and ``/health``.
    trusted : your own classes in the model, as for :func:`lvd.load`.
    fitted_on : the table that the model was fitted on, used to show the cells of similar calibration rows.
    hosts : the host names it answers to; None for any.
    reload_seconds : how often to check the folder for a new model.
    log : called with a line for each request: path, status, rows and time, but no request data.

    Examples
    --------
    >>> import lvd.serve
    >>> lvd.serve.create_app("homes-model")  # doctest: +SKIP
    """
    table = None if fitted_on is None else read_table(fitted_on, as_text=True)
    server = Server(CurrentModel(Path(folder), trusted, table), limits or RequestLimits(), token, hosts, log)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watch = asyncio.create_task(server.watch(reload_seconds))
        yield
        watch.cancel()
        server.close()

    app = FastAPI(
        title="lvd", version=__version__, openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    for path in ("/predict", "/explain", "/observe"):
        app.add_route(path, server.guarded(server.ask), methods=["POST"])
    shown = {"/metrics": server.metrics, "/openapi.json": server.openapi, "/model": server.model}
    for path, handler in shown.items():
        app.add_route(path, server.guarded(handler), methods=["GET"])
    app.add_route("/health", server.guarded(server.health, free=True), methods=["GET"])
    app.add_route("/", server.guarded(server.page, free=True), methods=["GET"])
    app.add_exception_handler(HTTPException, server.refuse_path)  # type: ignore[arg-type]
    return app


class Server:
    """The handlers and their shared state."""

    def __init__(
        self,
        current: CurrentModel,
        limits: RequestLimits,
        token: str | None,
        hosts: Sequence[str] | None,
        log: Log | None,
    ) -> None:
        self.current, self.limits = current, limits
        self._token, self._hosts, self._log = token, hosts, log
        self.gauges = Gauges()
        self._note_model()
        self._lanes = [
            Lane(self._answer_all, limits.most_waiting, together) for together in (MOST_TOGETHER, 1)
        ]

    def _answer_all(self, requests: Sequence[Asked]) -> list[Any]:
        self.gauges.calls.inc()
        return answer_all(self.current.served, requests, self.limits.max_rows)

    def _note_model(self) -> None:
        current = self.current
        self.gauges.note_model(current.served.version, current.loaded_at, current.n_failures)

    async def watch(self, seconds: float) -> None:
        """Check for a new model periodically."""
        while True:
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self.current.refresh)
            self._note_model()

    def close(self) -> None:
        """Finish the requests in progress."""
        for lane in self._lanes:
            lane.close()

    def guarded(self, handler: Handler, *, free: bool = False) -> Handler:
        """Wrap a handler: enforce limits and access, count the request, and turn any failure into a refusal."""

        async def answer(request: Request) -> Response:
            start = time.perf_counter()
            try:
                check_host(request, self._hosts)
                if not free:
                    check_token(request, self._token)
                response = await handler(request)
            except RefusedError as refusal:
                response = _refused(refusal)
            except ClientDisconnect:
                response = Response(status_code=400)
            except Exception as error:
                response = _refused(failure_of(error))
            self._note(request.url.path, response, time.perf_counter() - start)
            return response

        return answer

    def _note(self, path: str, response: Response, seconds: float) -> None:
        self.gauges.note_request(path, response.status_code, seconds)
        if self._log is not None:
            rows = response.headers.get("lvd-rows", "0")
            self._log(f"{path} {response.status_code}, {rows} rows, {1000.0 * seconds:.1f} ms")

    async def refuse_path(self, request: Request, error: HTTPException) -> Response:
        """Refuse an unknown path or method."""
        self.gauges.note_request("other", error.status_code, 0.0)
        path, status = request.url.path[:80], error.status_code
        if status == 405:
            asked = f"{path} does not take {request.method[:20]}"
            allowed = "POST rows to /predict, /explain and /observe; GET all else"
            return _refused(RefusedError(405, asked, "method", allowed))
        return _refused(
            RefusedError(status, f"there is no {path!r} here", "path", "see /openapi.json for what there is")
        )

    async def ask(self, request: Request) -> Response:
        """Return predictions or explanations, or take labels."""
        asked = await read_request(request, self.limits)
        alone = len(asked.body) > SMALL_BODY or asked.path == "/explain"
        lane = self._lanes[alone and not self.current.served.keeps_rows]
        try:
            async with asyncio.timeout(self.limits.seconds):
                answer = await lane.ask(asked)
        except TimeoutError:
            raise RefusedError(
                *(504, f"there was no answer within {self.limits.seconds:g} s", "server"),
                "send fewer rows, or try again later",
            ) from None
        self.gauges.note_rows(asked.path, answer)
        headers = {"lvd-model": answer.version, "lvd-rows": str(answer.n_rows)}
        return Response(answer.body, media_type=answer.media_type, headers=headers)

    async def health(self, request: Request) -> Response:
        """Whether the current model is the one in the folder."""
        current = self.current
        content: dict[str, Any] = {
            "status": "ok" if current.problem is None else "old model in force",
            "model": current.served.version,
            "loaded": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(current.loaded_at)),
        }
        try:
            check_token(request, self._token)
            content |= {"problem": current.problem, **current.served.status()}
        except RefusedError:
            pass  # details of files and rows are only for authorised clients
        return _json(content)

    async def model(self, request: Request) -> Response:
        """What the page needs to know about the model."""
        served = self.current.served
        content = {
            "model": served.version,
            "targets": served.targets,
            "levels": served.levels,
            "promise": served.promise,
            "keeps_rows": served.keeps_rows,
            "columns": [asdict(column) for column in served.columns],
        }
        return _json(content)

    async def metrics(self, request: Request) -> Response:
        """The metrics for Prometheus."""
        return Response(self.gauges.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, request: Request) -> Response:
        """The OpenAPI document."""
        return _json(describe_service(self.current.served, self.limits, with_token=self._token is not None))

    async def page(self, request: Request) -> Response:
        """The web page; it contains nothing about the model until it asks the server."""
        text, policy = form_page()
        headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
        return Response(text, media_type="text/html; charset=utf-8", headers=headers)


@cache
def form_page() -> tuple[str, str]:
    """The page and its content security policy: only this style and script, which only contact this server."""
    html, more_style, more_script = (
        (files("lvd.serve") / name).read_text(encoding="utf-8")
        for name in ("form.html", "form.css", "form.js")
    )
    style, script = asset("page.css") + more_style, asset("elements.js") + more_script
    policy = (
        f"default-src 'none'; img-src data:; connect-src 'self'; style-src {policy_hash(style)}; "
        f"script-src {policy_hash(script)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html.replace("STYLE", style).replace("SCRIPT", script), policy


def _json(content: Any) -> Response:
    return Response(to_json(content) + "\n", media_type=JSON)


def _refused(refusal: RefusedError) -> Response:
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(refusal.status)
    return Response(refusal.body, refusal.status, headers=headers, media_type=JSON)
