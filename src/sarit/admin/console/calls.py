"""What all calls of the console share: handlers that return documents, errors as statuses, bodies, pages."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.responses import JSONResponse
from starlette.routing import Route

from sarit.admin.console.limits import CONSOLE_ASKED_AT_ONCE, CONSOLE_MAX_PAGE_ROWS, CONSOLE_PAGE_ROWS
from sarit.admin.console.names import Wanted
from sarit.core.bounded_json import parse_json
from sarit.core.errors import (
    Conflict,
    Corrupt,
    Exists,
    Forbidden,
    Invalid,
    Moved,
    NotFound,
    SaritError,
    Sealed,
    Truncated,
    Unauthenticated,
    Unavailable,
)
from sarit.core.names import StreamName
from sarit.env.background import gather

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from sarit.admin.console.names import NameLists

    Handler = Callable[[Request], Awaitable[Any]]

T = TypeVar("T")
A = TypeVar("A")

_log = logging.getLogger("sarit.admin.console")

_STATUSES: Final[tuple[tuple[type[SaritError], int], ...]] = (
    (Invalid, 400), (Unauthenticated, 401), (Forbidden, 403), (NotFound, 404), (Exists, 409), (Conflict, 409),
    (Sealed, 409), (Truncated, 410), (Unavailable, 503), (Moved, 503), (Corrupt, 500),
)  # fmt: skip


def call(path: str, handler: Handler, method: str = "GET") -> Route:
    """Return a route whose handler returns a document, or a response; errors become statuses."""

    async def answer(request: Request) -> Response:
        try:
            found = await handler(request)
        except SaritError as error:
            status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
            return JSONResponse({"error": str(error)}, status)
        except Exception:
            _log.exception("a call of the console failed: %s %s", method, path)
            return JSONResponse({"error": "an unexpected error; see the log of the node"}, 500)
        return found if hasattr(found, "status_code") else JSONResponse(found)

    return Route(path, answer, methods=[method])


async def body_of(request: Request) -> dict[str, Any]:
    """Return the body, which is a JSON object.  Raises Invalid."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Invalid("send the body as application/json")
    try:
        found = parse_json(await request.body() or b"{}")
    except ValueError:
        raise Invalid("the body is no JSON") from None
    if not isinstance(found, dict):
        raise Invalid("the body is no JSON object")
    return found


def check_confirmed(body: dict[str, Any], name: str) -> None:
    """Check that a body names what is to be deleted.  Raises Invalid."""
    if body.get("confirm") != name:
        raise Invalid(f'to delete it for good, confirm with its name: {{"confirm": "{name}"}}')


def whole_number(request: Request, name: str, default: int, low: int, high: int) -> int:
    """Return a parameter that is a whole number from `low` to `high`.  Raises Invalid."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise Invalid(f"{name}={text[:20]!r}: give a number from {low} to {high}")
    return int(text)


async def page_of(
    request: Request, lists: NameLists, kind: str, row: Callable[[str], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    """Return a page of a list with a row for each name.

    Parameters: `scope`, `q` (searched text), `offset`, `limit`, and `counted=1`: with the number of all.  Raises
    Invalid."""
    given = request.query_params
    wanted = Wanted(
        given.get("scope", ""),
        given.get("q", ""),
        whole_number(request, "offset", 0, 0, 10**8),
        whole_number(request, "limit", CONSOLE_PAGE_ROWS, 1, CONSOLE_MAX_PAGE_ROWS),
        counted=whole_number(request, "counted", 0, 0, 1) == 1,
    )
    page = await lists.page(kind, wanted)
    rows = await for_all(page.names, row)
    return {"total": page.total, "counted": page.counted, "complete": page.complete, "offset": wanted.offset,
            "rows": rows}  # fmt: skip


def stream_of(request: Request) -> StreamName:
    """Return the stream in the path.  Raises Invalid."""
    return StreamName.parse(f"{request.path_params['scope']}/{request.path_params['stream']}")


async def for_all(items: Iterable[A], ask: Callable[[A], Awaitable[T]]) -> list[T]:
    """Return the answers for all items, in order; some are asked for at the same time."""
    slots = asyncio.Semaphore(CONSOLE_ASKED_AT_ONCE)

    async def one(item: A) -> T:
        async with slots:
            return await ask(item)

    return await gather(*(one(item) for item in items))
