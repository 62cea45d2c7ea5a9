"""From which pages the console may be asked, and what browsers may do with its answers.

Without users, whoever reaches its port may use it; with users, who has logged in (`sessions.py`).  But a browser that
may use it also shows pages of others, and none of those may.  Three checks, each before a handler runs:

1. `Host` is an address, localhost or a name of the node (`admin/hosts.py`).
2. `Sec-Fetch-Site` and `Origin`, where a browser sends them, say that the request comes from a page of ours.
3. A request that may change something has a token, which only a page of ours could read, in a header, which only a
   script can set.  Browsers send no such request of another site without asking first, and nobody answers that.

Every answer forbids to run or show anything of another origin, to be framed, and to be cached where it is data.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from sarit.admin.hosts import host_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER: Final = "x-sarit-token"
_SAFE_METHODS: Final = frozenset(("GET", "HEAD"))
_OWN_SITE: Final = frozenset(("same-origin", "none"))  # none: typed by a person

POLICY: Final = "; ".join((
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
    "manifest-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    "require-trusted-types-for 'script'", "trusted-types 'none'",
))  # fmt: skip

_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def refusal(method: str, headers: Headers, names: frozenset[str], token: str, writes: bool) -> tuple[int, str] | None:
    """Return status and reason to refuse a request with, or None to serve it."""
    host = headers.get("host", "")
    if (wrong := host_refusal(host, names)) is not None:
        return 421, wrong
    site = headers.get("sec-fetch-site", "same-origin")
    mode = headers.get("sec-fetch-mode", "")
    if site not in _OWN_SITE and mode != "navigate":
        return 403, "the console answers its own page only: this request comes from another site"
    if method in _SAFE_METHODS:
        return None
    origin = headers.get("origin")
    if site not in _OWN_SITE or (origin is not None and urlsplit(origin).netloc != host):
        return 403, "a change must come from the console's own page: this request comes from another site"
    if not hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), token.encode()):
        return 403, "a change needs the token of /console/api/session in the header X-Sarit-Token: load the page again"
    if not writes:
        return 403, "the console of this node is read-only"
    return None


class Guard:
    """An application behind the checks.  `cached`: its answers may be kept, if asked about again each time.

    `rules`: of a request, the token that a change must have, and whether there may be changes."""

    def __init__(
        self, app: ASGIApp, names: frozenset[str], rules: Callable[[Scope], tuple[str, bool]], *,
        cached: bool = False,
    ) -> None:  # fmt: skip
        self._app = app
        self._names = names
        self._rules = rules
        self._cache = "no-cache" if cached else "no-store"

    def __repr__(self) -> str:
        return f"<Guard of {self._app!r}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers["cache-control"] = self._cache
            await send(message)

        found = refusal(scope["method"], Headers(scope=scope), self._names, *self._rules(scope))
        if found is None:
            await self._app(scope, receive, with_headers)
        else:
            status, reason = found
            await JSONResponse({"error": reason}, status)(scope, receive, with_headers)
