"""The web layer that both faces of the registry share: from a request to a handler, and from its outcome to an answer.

A face is a table of calls (`Call`), a handler for each, and the form of its errors (`Face`).  `routes` makes one route
of it, which finds a call by the path as the client wrote it: the name of a group may contain an escaped slash.  Per
request: the caller is known, the query is read (parameters that the call does not have are ignored, as those of newer
clients), the body is read within MAX_REGISTRY_BODY_BYTES and must be JSON, and the handler has REGISTRY_ANSWER_SECONDS.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound

from sarit.core.bounded_json import read_json
from sarit.core.errors import Invalid, SaritError, Unauthenticated
from sarit.core.texts import cut_text
from sarit.registry.limits import (
    MAX_LOGGED_PATH_CHARS,
    MAX_REGISTRY_BODIES_BYTES,
    MAX_REGISTRY_BODY_BYTES,
    REGISTRY_ANSWER_SECONDS,
)
from sarit.security.login import CHALLENGE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from starlette.datastructures import URLPath
    from starlette.types import Receive, Scope, Send

    from sarit.registry.statistics import Statistics
    from sarit.security.permissions import Caller

    Identify = Callable[[Request], Awaitable[Caller | None]]
    Handler = Callable[["Asked"], Awaitable["Answer"]]

_log = logging.getLogger("sarit.registry")

_RETRY: Final = {"Retry-After": "1"}
_LATER: Final = {**_RETRY, "Connection": "close"}  # the rest of the body is not read


@dataclass(frozen=True, slots=True)
class Call:
    """One method at one path.  `name` is unique in its face, and a label of the metrics.

    `path`: segments of a path, as `/groups/{group}/schemas`; a segment in braces is a name.  `query`: the names of its
    parameters.  `body`: it has one, in JSON.  `changes`: the log tells of each time that it succeeded."""

    method: str
    path: str
    name: str
    query: tuple[str, ...] = ()
    body: bool = False
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A request whose form is right.

    `path`, `query`: decoded; only the parameters that were given.  `body`: the value of its JSON; None: it has none.
    `caller`: None where nobody logs in.  `peer`: address and port of the client, for the audit log."""

    call: Call
    caller: Caller | None = None
    peer: str = ""
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request.  `media_type`: None: the first of the face that the client accepts."""

    content: bytes = b""
    status: int = 200
    media_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def json_answer(value: Any, status: int = 200) -> Answer:
    """Return an answer whose body is a value in JSON."""
    return Answer(json.dumps(value, separators=(",", ":")).encode(), status)


class Face(Protocol):
    """The properties in which the two APIs differ, besides their calls."""

    @property
    def name(self) -> str:
        """Return its name in metrics and in the log."""

    @property
    def media_types(self) -> tuple[str, ...]:
        """Return the content types of bodies, the usual one first."""

    def refusal(self, error: SaritError) -> Answer:
        """Return the answer to a request that raised an error."""

    def failure(self, status: int, message: str) -> Answer:
        """Return the answer with this status: the request never reached its handler, or its time was over."""


class _Refused(Exception):
    """A request whose form is wrong."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


def routes(
    face: Face, calls: Iterable[Call], handlers: Mapping[str, Handler], identify: Identify, statistics: Statistics,
    prefix: str = "", *, whole: bool = False,
) -> list[BaseRoute]:  # fmt: skip
    """Return the route of a face under a path.

    `handlers`: by the name of a call.  `identify`: returns who asks, None where nobody logs in; raises Unauthenticated
    and Unavailable.  `prefix`: as `/registry/confluent`.  `whole`: the face answers 404 to all other paths below."""
    found = [(call, handlers[call.name]) for call in calls]
    return [_FaceRoute(face, found, identify, statistics, prefix, whole=whole)]


class _Node:
    """A segment of paths: what may follow it, and the calls that end here, by method."""

    __slots__ = ("calls", "children", "name", "named")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}  # by literal segments, which win over a name
        self.named: _Node | None = None
        self.name = ""  # of `named`; the same for all calls that have a name there
        self.calls: dict[str, tuple[Call, Handler]] = {}

    def add(self, path: str) -> _Node:
        """Return the node of a path below this one, made if need be."""
        node = self
        for segment in path.strip("/").split("/") if path.strip("/") else ():
            if segment.startswith("{"):
                assert node.name in ("", segment[1:-1]), f"{path}: {node.name} is the name there"
                node.name = segment[1:-1]
                node.named = node = node.named or _Node()
            else:
                node = node.children.setdefault(segment.encode(), _Node())
        return node

    def find(self, raw: bytes) -> tuple[_Node, dict[str, bytes]] | None:
        """Return the node of a path as it was sent, with its names, still escaped; None: there is no such path."""
        node: _Node | None = self
        names: dict[str, bytes] = {}
        for segment in raw.split(b"/"):
            assert node is not None
            child = node.children.get(segment)
            if child is None and segment and node.named is not None:
                names[node.name] = segment
                child = node.named
            if child is None:
                return None
            node = child
        return None if node is None or not node.calls else (node, names)


class _FaceRoute(BaseRoute):
    """All paths of a face, as one route of starlette."""

    def __init__(
        self, face: Face, calls: Iterable[tuple[Call, Handler]], identify: Identify, statistics: Statistics,
        prefix: str, *, whole: bool,
    ) -> None:  # fmt: skip
        self._face = face
        self._identify = identify
        self._statistics = statistics
        self._prefix = prefix.encode() + b"/"
        self._nowhere = (_Node(), dict[str, bytes]()) if whole else None
        self._root = _Node()
        for call, handler in calls:
            node = self._root.add(call.path)
            assert call.method not in node.calls, f"{call.method} {call.path} is there twice"
            node.calls[call.method] = (call, handler)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for a path of the face, whatever its method."""
        if scope["type"] != "http":
            return Match.NONE, {}
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        if not raw.startswith(self._prefix):
            return Match.NONE, {}
        rest = raw[len(self._prefix) :].removesuffix(b"/")
        found = (self._root, {}) if not rest and self._root.calls else self._root.find(rest)
        found = found or self._nowhere
        return (Match.NONE, {}) if found is None else (Match.FULL, {"sarit.registry": found})

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """Raises NoMatchFound: no URL is made from these routes."""
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that `matches` has found."""
        request = Request(scope, receive)
        node, names = scope["sarit.registry"]
        method = "GET" if request.method == "HEAD" else request.method  # the server sends no body for HEAD
        call, handler = node.calls.get(method, (None, None))
        began = self._statistics.now()
        answer = await self._answer(request, call, handler, node, names)
        if answer is None:  # the client is gone
            return
        label = "other" if call is None else call.name
        self._statistics.answered(self._face.name, label, answer.status, self._statistics.now() - began)
        if call is not None and call.changes and answer.status < 300:
            _log.info("%s %s: %d", method, _shown(request), answer.status)
        media_type = answer.media_type or self._media_type(request)
        await Response(answer.content, answer.status, answer.headers, media_type)(scope, receive, send)

    async def _answer(
        self, request: Request, call: Call | None, handler: Handler | None, node: _Node, names: Mapping[str, bytes]
    ) -> Answer | None:
        try:
            async with asyncio.timeout(REGISTRY_ANSWER_SECONDS):
                return await self._handled(request, call, handler, node, names)
        except ClientDisconnect:
            return None
        except _Refused as refused:
            return _with(self._face.failure(refused.status, str(refused)), refused.headers)
        except SaritError as error:
            answer = self._face.refusal(error)
            if isinstance(error, Unauthenticated):
                return _with(answer, CHALLENGE)
            return _with(answer, _RETRY) if answer.status == 503 else answer
        except TimeoutError:
            text = f"no outcome within {REGISTRY_ANSWER_SECONDS:g} s: a change may still be made"
            return _with(self._face.failure(503, text), _RETRY)
        except Exception:
            _log.exception("a request failed: %s %s", request.method, _shown(request))
            return self._face.failure(500, "the request failed by a mistake of the node: its log says more")

    async def _handled(
        self, request: Request, call: Call | None, handler: Handler | None, node: _Node, names: Mapping[str, bytes]
    ) -> Answer:
        caller = await self._identify(request)
        if not node.calls:
            raise _Refused(404, "HTTP 404 Not Found: there is nothing at this path")
        if call is None or handler is None:
            allowed = ", ".join(sorted({*node.calls, *(["HEAD"] if "GET" in node.calls else [])}))
            raise _Refused(405, f"{request.method} is not possible here, but {allowed}", {"Allow": allowed})
        client = request.client
        asked = Asked(
            call, caller, "?" if client is None else f"{client.host}:{client.port}",
            {name: _decoded(raw) for name, raw in names.items()},
            _read_query(call, request.scope.get("query_string", b"")),
        )  # fmt: skip
        if not call.body:
            return await handler(asked)
        held = _Held(self._statistics)
        try:
            return await handler(replace(asked, body=await _read_body(request, self._face.media_types, held)))
        finally:
            held.release()

    def _media_type(self, request: Request) -> str:
        accepted = request.headers.get("accept", "")
        if not accepted:
            return self._face.media_types[0]
        wanted = [part.partition(";")[0].strip().lower() for part in accepted.split(",")]
        return next((each for each in wanted if each in self._face.media_types), self._face.media_types[0])


def _with(answer: Answer, headers: Mapping[str, str]) -> Answer:
    return Answer(answer.content, answer.status, answer.media_type, {**answer.headers, **headers})


def _shown(request: Request) -> str:
    return cut_text(ascii(request.scope["path"]), MAX_LOGGED_PATH_CHARS)


def _decoded(raw: bytes) -> str:
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise _Refused(400, "a name in the path is not UTF-8, escaped with percent signs") from None


def _read_query(call: Call, raw: bytes) -> dict[str, str]:
    if not raw or not call.query:
        return {}
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise _Refused(400, "the query is not UTF-8, escaped with percent signs") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in call.query:
            if name in found:
                raise _Refused(400, f"the parameter {name} is given twice")
            found[name] = value
    return found


class _Held:
    """The bytes of one request's body, which count until it is answered."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._size = 0

    def take(self, size: int) -> None:
        """Count so many more.  Raises _Refused: the requests under way have MAX_REGISTRY_BODIES_BYTES."""
        if self._statistics.body_bytes + size > MAX_REGISTRY_BODIES_BYTES:
            raise _Refused(503, "the bodies of the requests under way are too large together: try again", _LATER)
        self._statistics.body_bytes += size
        self._size += size

    def release(self) -> None:
        """End the count of this body: the request is answered."""
        self._statistics.body_bytes -= self._size


async def _read_body(request: Request, media_types: tuple[str, ...], held: _Held) -> Any:
    # A page of another site can have a browser send other types without asking, and no type at all.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in media_types:
        shown = cut_text(ascii(kind), 100) if kind else "of no type"
        raise _Refused(415, f"the body is {shown}: send it with Content-Type: {media_types[0]}")
    too_large = _Refused(413, f"a body has at most {MAX_REGISTRY_BODY_BYTES} bytes", {"Connection": "close"})
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or len(announced) > 19 or int(announced) > MAX_REGISTRY_BODY_BYTES:
        raise too_large
    raw = bytearray()
    async for piece in request.stream():
        held.take(len(piece))
        raw += piece
        if len(raw) > MAX_REGISTRY_BODY_BYTES:
            raise too_large
    try:
        return read_json(bytes(raw))
    except Invalid as error:
        raise _Refused(400, str(error)) from None
