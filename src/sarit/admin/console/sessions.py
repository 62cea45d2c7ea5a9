"""Log-ins of browsers: a cookie names a session, whose log-in stays in the memory of this process.

The password is never in the browser after it was sent.  The cookie is for this console alone (HttpOnly,
SameSite=Strict, Secure under TLS).  A session ends with a log-out, after CONSOLE_SESSION_SECONDS, after
CONSOLE_SESSION_IDLE_SECONDS without a request, and with the process.  Its log-in is checked at every request: a user
whose password was changed logs in again.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, OrderedDict
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

from sarit.admin.console.limits import (
    CONSOLE_MAX_SESSIONS,
    CONSOLE_MAX_SESSIONS_OF_USER,
    CONSOLE_SESSION_IDLE_SECONDS,
    CONSOLE_SESSION_SECONDS,
    CONSOLE_TOKEN_BYTES,
)

if TYPE_CHECKING:
    from sarit.env.ports import Env


@dataclass(slots=True)
class Session:
    """The session of a browser.  `authorization`: the value of that header.  `token`: required for changes."""

    authorization: str
    user: str
    token: str
    began: float
    used: float
    ended: bool = False


class Sessions:
    """The sessions of one console."""

    def __init__(self, env: Env, most: int = CONSOLE_MAX_SESSIONS) -> None:
        self._env = env
        self._most = most
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()  # by the hash of the cookie; last used last

    def __repr__(self) -> str:
        return f"<Sessions, {len(self._sessions)} open>"

    def begin(self, authorization: str, user: str) -> str:
        """Begin a session, and return the value of its cookie.

        When there are too many, the least recently used one ends: of this user, or of the user with most sessions."""
        now, cookie = self._env.clock.monotonic(), random_text(self._env)
        self._sessions[_key(cookie)] = Session(authorization, user, random_text(self._env), now, now)
        counts = Counter(session.user for session in self._sessions.values())
        if counts[user] > CONSOLE_MAX_SESSIONS_OF_USER:
            self._end_oldest(user)
        elif len(self._sessions) > self._most:
            self._end_oldest(counts.most_common(1)[0][0])
        return cookie

    def _end_oldest(self, user: str) -> None:
        key = next(key for key, session in self._sessions.items() if session.user == user)
        self._sessions.pop(key).ended = True

    def find(self, cookie: str) -> Session | None:
        """Return the session of a cookie, if it has not ended."""
        key, now = _key(cookie), self._env.clock.monotonic()
        found = self._sessions.get(key)
        if found is None:
            return None
        if not self.lives(found):
            self.end(cookie)
            return None
        found.used = now
        self._sessions.move_to_end(key)
        return found

    def lives(self, session: Session) -> bool:
        """Return whether a session has not ended."""
        now = self._env.clock.monotonic()
        old = now - session.began >= CONSOLE_SESSION_SECONDS or now - session.used >= CONSOLE_SESSION_IDLE_SECONDS
        return not (session.ended or old)

    def end(self, cookie: str) -> None:
        """End the session of a cookie."""
        found = self._sessions.pop(_key(cookie), None)
        if found is not None:
            found.ended = True


def random_text(env: Env) -> str:
    """Return a random text for a secret."""
    return base64.urlsafe_b64encode(env.random.bytes(CONSOLE_TOKEN_BYTES)).decode().rstrip("=")


def cookie_name(port: int) -> str:
    """Return the name of the cookie, with the port, because browsers send cookies to all ports of a host."""
    return f"sarit-session-{port}"


def cookie_of(header: str, port: int) -> str:
    """Return the value of the console's cookie in a header, or "" without one."""
    try:
        found = SimpleCookie(header).get(cookie_name(port))
    except CookieError:
        return ""
    return "" if found is None else found.value


def set_cookie(port: int, value: str, *, secure: bool) -> str:
    """Return the header that sets the cookie.  An empty value removes it."""
    age = int(CONSOLE_SESSION_SECONDS) if value else 0
    more = "; Secure" if secure else ""
    return f"{cookie_name(port)}={value}; Path=/console/api; Max-Age={age}; HttpOnly; SameSite=Strict{more}"


def _key(cookie: str) -> bytes:
    # Look up the hash, not the value, so that the time of a look-up reveals nothing about the value.
    return hashlib.sha256(cookie.encode(errors="replace")).digest()
