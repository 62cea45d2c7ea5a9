"""One call to a schema registry: the request, its answer within bounds, and the error of a status.

Both clients of registries (`registry_client.py`, `pravega_registry.py`) call through this.  A call blocks, for at most
`REGISTRY_REQUEST_SECONDS`.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from sarit.core.bounded_json import parse_json
from sarit.core.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    SaritError,
    Unauthenticated,
    Unavailable,
    Unreachable,
)
from sarit.core.texts import cut_text
from sarit.env.https import check_url, request
from sarit.env.real import RealClock
from sarit.serializers.limits import MAX_REGISTRY_ANSWER_BYTES, REGISTRY_REQUEST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.env.https import HttpAnswer

_SHOWN_REASONS: Final = 5
_SHOWN_CHARACTERS: Final = 200
_CLOSED: Final = "log in: give the registry's client a user and password, or a token"


class RegistryCalls:
    """Requests to one registry.  `name`: for errors; `token`: a text, or a function that is asked before each call."""

    def __init__(
        self,
        url: str,
        content_type: str,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | Callable[[], str] | None = None,
        ca: str | None = None,
        coded: bool = False,
    ) -> None:
        """`coded`: every error that the registry means has a code of its own, as of Confluent's API."""
        if (user is None) != (password is None):
            raise Invalid("a registry's user has a password: give both, or none of them")
        if user is not None and token is not None:
            raise Invalid("give a user and password, or a token, not both")
        # Passwords and tokens go to another machine over TLS alone.
        check_url(url, plain=user is None and token is None)
        self.url = url.rstrip("/")
        self._content_type = content_type
        self._user = user
        self._password = password
        self._token = token
        self._ca = ca
        self._coded = coded

    def __repr__(self) -> str:
        return f"RegistryCalls({self.url})"

    def call(
        self, method: str, path: tuple[str, ...], query: Mapping[str, object] | None = None, body: object = None
    ) -> Any:
        """Return the JSON that a call answers.  Raises the error of its status.

        `path`: the parts of the path, each of which may have any character.  `query`: without those that are None."""
        asked = {name: _query_value(value) for name, value in (query or {}).items() if value is not None}
        url = "/".join([self.url, *(quote(part, safe="") for part in path)])
        url += f"?{urlencode(asked)}" if asked else ""
        sent = None if body is None else json.dumps(body).encode()
        headers = {"Accept": f"{self._content_type}, application/json;q=0.9"}
        if sent is not None:
            headers["Content-Type"] = self._content_type
        if (authorization := self._authorization()) is not None:
            headers["Authorization"] = authorization
        try:
            answer = request(
                method, url, headers, sent,
                ca=self._ca, seconds=REGISTRY_REQUEST_SECONDS, max_bytes=MAX_REGISTRY_ANSWER_BYTES,
                now=RealClock.monotonic,
            )  # fmt: skip
        except Unavailable as error:
            raise Unreachable(
                f"the schema registry at {self.url} does not answer: {error}; is it running (a node serves one with "
                "--registry on), and is this its URL?"
            ) from None
        if not 200 <= answer.status < 300:
            raise _error(self.url, answer, coded=self._coded)
        if not answer.body:
            return None
        try:
            return parse_json(answer.body)
        except ValueError as error:
            raise Unavailable(
                f"{self.url} answers with something that is no JSON ({_printable(str(error))}): is it a registry?"
            ) from None

    def _authorization(self) -> str | None:
        if self._token is not None:
            return f"Bearer {self._token if isinstance(self._token, str) else self._token()}"
        if self._user is None:
            return None
        return "Basic " + base64.b64encode(f"{self._user}:{self._password}".encode()).decode()


def field(answer: Any, name: str, kind: type) -> Any:
    """Return a field of a registry's answer.  Raises Unavailable for an answer without it, or with another type."""
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise Unavailable(f"the registry's answer has no {name}: is it a schema registry?")
    return found


def list_of(answer: Any, kind: type) -> list[Any]:
    """Return an answer that is a list of one kind of values.  Raises Unavailable for another."""
    if not isinstance(answer, list) or not all(isinstance(one, kind) for one in answer):
        raise Unavailable("the registry's answer is not the list that was asked for: is it a schema registry?")
    return answer


def _query_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _error(url: str, answer: HttpAnswer, *, coded: bool) -> SaritError:
    """Return the error for an answer that is no success."""
    code, message = answer.status, answer.reason
    try:
        reported = parse_json(answer.body)
    except ValueError:
        reported = None
    if isinstance(reported, dict):
        code = reported["error_code"] if isinstance(reported.get("error_code"), int) else code
        texts = (reported.get(name) for name in ("message", "error"))  # of Confluent's API, and of Pravega's
        message = next((text for text in texts if isinstance(text, str)), message)
    said = f"{_printable(message)} ({code})"
    match answer.status:
        case 401:
            return Unauthenticated(f"the registry at {url} asks who you are: {said}; {_CLOSED}")
        case 403:
            return Forbidden(f"the registry at {url} refuses: {said}; ask its administrator for the permission")
        case 404 if coded and code == 404:
            # Another server's answer, or another path's: no reader may take it for an unknown id, and skip the event.
            return Invalid(f"{url} has no such call: {said}; is it the URL of a schema registry?")
        case 404:
            return NotFound(f"the registry at {url} has no such thing: {said}")
        case 409 if code == 409 or not isinstance(reported, dict):
            return Conflict(
                f"the registry refuses the schema, which is incompatible with earlier ones: {_long(message)}"
            )
        case 409:
            return Conflict(f"the registry at {url} refuses: {said}")
        case 408 | 429:
            return Unavailable(f"the registry at {url} is busy: {said}; try again later")
        case status if status >= 500:
            return Unavailable(f"the registry at {url} fails: {said}; try again later")
        case _:
            return Invalid(f"the registry at {url} refuses the request: {said}")


def _long(message: str) -> str:
    """Return a message with reasons: each of its first lines short, in ASCII."""
    lines = [line for line in message.splitlines() if line.strip()]
    more = [f"and {len(lines) - _SHOWN_REASONS} more"] if len(lines) > _SHOWN_REASONS else []
    return "; ".join([*map(_printable, lines[:_SHOWN_REASONS]), *more])


def _printable(text: str) -> str:
    """Return a text of a registry as an error shows it: short, and without control characters."""
    short = cut_text(text, _SHOWN_CHARACTERS)
    return "".join(one if one.isprintable() else " " for one in short)
