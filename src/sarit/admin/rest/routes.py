"""The routes of the REST API: a request is checked by the table, handled, and its outcome becomes a JSON answer."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sarit.admin.callers import peer_of
from sarit.admin.rest.api import CONTINUOUS, HEALTH, LINKS, OPERATIONS, READER_GROUPS, SCOPES, SEARCH, STREAMS
from sarit.admin.rest.asked import Asked
from sarit.admin.rest.handlers import HANDLERS, Raw
from sarit.admin.rest.health import handlers
from sarit.admin.rest.limits import MAX_REST_BODY_BYTES, REST_ANSWER_SECONDS
from sarit.admin.rest.models import MODELS
from sarit.admin.rest.openapi import document
from sarit.admin.rest.schema import check
from sarit.core.bounded_json import read_json
from sarit.core.errors import (
    Conflict,
    Corrupt,
    Exists,
    Forbidden,
    Invalid,
    NotFound,
    SaritError,
    Sealed,
    Unauthenticated,
)
from sarit.security.login import CHALLENGE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from sarit.admin.callers import Callers
    from sarit.admin.reasons import HealthPort
    from sarit.admin.rest.api import Operation
    from sarit.admin.rest.asked import Handler

    Bound = Callable[[Asked], Awaitable[Any]]

_log = logging.getLogger("sarit.admin.rest")

# Everything else is Unavailable, or for a caller the same.
_STATUS: Final[dict[type[SaritError], int]] = {
    Invalid: 400, Unauthenticated: 401, Forbidden: 403,
    NotFound: 404, Exists: 409, Sealed: 409, Conflict: 412, Corrupt: 500,
}  # fmt: skip
_UNAVAILABLE: Final = 503
_WHOLE: Final = re.compile(r"-?\d{1,19}")


def routes(callers: Callers) -> list[BaseRoute]:
    """Return the routes under /v1 that need a controller, which use the client of their caller, and /openapi.json."""
    description = json.dumps(document(OPERATIONS, version("sarit"))).encode()

    async def show_document(_: Request) -> Response:
        return _response(200, Raw(description))

    return [
        *_resources((*SCOPES, *STREAMS, *SEARCH, *CONTINUOUS, *READER_GROUPS, *LINKS), HANDLERS, callers),
        Route("/openapi.json", show_document, methods=["GET"]),
        Route("/v1/{rest:path}", _NothingHere()),
    ]


def health_routes(health: HealthPort) -> list[BaseRoute]:
    """Return the routes under /v1/health, which work while the process starts, too."""
    return _resources(HEALTH, {name: _without_client(each) for name, each in handlers(health).items()})


def _without_client(handler: Bound) -> Handler:
    return lambda _, asked: handler(asked)


def _resources(
    operations: Iterable[Operation], by_name: Mapping[str, Handler], callers: Callers | None = None
) -> list[BaseRoute]:
    by_path: dict[str, dict[str, tuple[Operation, Handler]]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = (operation, by_name[operation.name])
    return [Route(path, _Resource(methods, callers)) for path, methods in by_path.items()]


class _Refused(Exception):
    """A request that gets an answer without being handled."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class _Resource:
    """One path with its methods, as an ASGI application; `callers`: None where no client is needed."""

    def __init__(self, methods: Mapping[str, tuple[Operation, Handler]], callers: Callers | None) -> None:
        self._methods = methods
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            if self._callers is None:
                response = await self._answer(request, None)
            else:
                async with self._callers.asking(request.headers.get("authorization"), peer_of(request)) as asker:
                    response = await self._answer(request, asker.client)
        except ClientDisconnect:
            return
        except _Refused as refused:
            response = _error(refused.status, str(refused), refused.headers)
        except SaritError as error:
            status = next((s for kind, s in _STATUS.items() if isinstance(error, kind)), _UNAVAILABLE)
            response = _error(status, str(error), CHALLENGE if status == 401 else None)
        except Exception:
            _log.exception("a request failed: %s %s", request.method, ascii(request.url.path))
            response = _error(500, "the request failed by a mistake of the node: its log says more")
        await response(scope, receive, send)

    async def _answer(self, request: Request, client: Any) -> Response:
        # As HTTP has it: HEAD is GET, of which the server sends no body.
        method = "GET" if request.method == "HEAD" else request.method
        if method not in self._methods:
            allowed = ", ".join(sorted({*self._methods, *(["HEAD"] if "GET" in self._methods else [])}))
            raise _Refused(405, f"{request.method} is not possible here, but {allowed}", {"Allow": allowed})
        operation, handler = self._methods[method]
        asked = Asked(
            _checked_path(operation, request.path_params),
            _checked_query(operation, request.query_params.multi_items()),
            await _checked_body(operation, request),
        )
        try:
            async with asyncio.timeout(REST_ANSWER_SECONDS):
                found = await handler(client, asked)
        except SaritError:  # also one that is a TimeoutError
            raise
        except TimeoutError:
            raise _Refused(
                _UNAVAILABLE, f"no outcome within {REST_ANSWER_SECONDS:g} s: a change may still be made",
                {"Retry-After": "1"},
            ) from None  # fmt: skip
        status = next(status for status in operation.answers if status < 300)
        if method != "GET":
            _log.info("%s %s: %d", method, request.url.path, status)
        return _response(status, found)


def _checked_path(operation: Operation, found: Mapping[str, str]) -> dict[str, str]:
    return {name: check(schema, found[name], MODELS, name) for name, schema in operation.path_parameters.items()}


def _checked_query(operation: Operation, found: Iterable[tuple[str, str]]) -> dict[str, Any]:
    known = {parameter.name: parameter for parameter in operation.query}
    out: dict[str, Any] = {}
    for name, text in found:
        if name not in known:
            names = f"its parameters are {', '.join(known)}" if known else "it has none"
            raise Invalid(f"{operation.method} {operation.path} has no parameter {json.dumps(name)}: {names}")
        if name in out:
            raise Invalid(f"the parameter {name} is given twice")
        schema = known[name].schema
        whole = schema["type"] == "integer" and _WHOLE.fullmatch(text)
        out[name] = check(schema, int(text) if whole else text, MODELS, f"the parameter {name}")
    for parameter in operation.query:
        if parameter.required and parameter.name not in out:
            raise Invalid(f"the parameter {parameter.name} is missing: {parameter.description}")
    return out


async def _checked_body(operation: Operation, request: Request) -> Any:
    if operation.body is None:
        return None
    # A browser sends this type to another site only after asking, which no page of another site may.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise _Refused(415, f"the body is {kind or 'of no type'}: send it with Content-Type: application/json")
    raw = bytearray()
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > MAX_REST_BODY_BYTES:
        raise _Refused(413, f"a body has at most {MAX_REST_BODY_BYTES} bytes")
    async for piece in request.stream():
        raw += piece
        if len(raw) > MAX_REST_BODY_BYTES:
            raise _Refused(413, f"a body has at most {MAX_REST_BODY_BYTES} bytes")
    return check(MODELS[operation.body], read_json(bytes(raw)), MODELS)


class _NothingHere:
    """Every other path, whatever the method."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = Request(scope).url.path
        await _error(404, f"there is nothing at {path}: /openapi.json shows what there is")(scope, receive, send)


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    more = {"Retry-After": "1"} if status == _UNAVAILABLE else {}
    return _response(status, {"error": message}, {**more, **(headers or {})})


def _response(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Response:
    if body is None:
        return Response(status_code=status, headers=headers)
    content = body if isinstance(body, Raw) else json.dumps(body).encode()
    return Response(bytes(content), status, headers, "application/json")
