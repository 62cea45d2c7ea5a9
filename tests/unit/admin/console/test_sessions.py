"""Log-ins of browsers end in time, and are bounded."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sarit.admin.console.limits import (
    CONSOLE_MAX_SESSIONS_OF_USER,
    CONSOLE_SESSION_IDLE_SECONDS,
    CONSOLE_SESSION_SECONDS,
)
from sarit.admin.console.sessions import Sessions, cookie_name, cookie_of, set_cookie


class Env:
    """Time as the test sets it, and bytes that never repeat."""

    def __init__(self) -> None:
        self.now, self.drawn = 0.0, 0
        self.clock = SimpleNamespace(monotonic=lambda: self.now)
        self.random = SimpleNamespace(bytes=self._bytes)

    def _bytes(self, size: int) -> bytes:
        self.drawn += 1
        return self.drawn.to_bytes(size, "big")


def test_session_ends_with_a_log_out():
    sessions = Sessions(Env())
    cookie = sessions.begin("Basic a", "a")
    found = sessions.find(cookie)
    assert found is not None
    assert (found.authorization, found.token != cookie) == ("Basic a", True)
    assert sessions.find("another") is None
    sessions.end(cookie)
    assert sessions.find(cookie) is None
    assert not sessions.lives(found)


@pytest.mark.parametrize(("step", "steps"), [(CONSOLE_SESSION_IDLE_SECONDS, 1), (CONSOLE_SESSION_SECONDS / 24, 24)])
def test_session_ends_when_idle_and_when_old(step, steps):
    env = Env()
    sessions = Sessions(env)
    cookie = sessions.begin("Basic a", "a")
    for _ in range(steps - 1):
        env.now += step
        assert sessions.find(cookie) is not None
    env.now += step
    assert sessions.find(cookie) is None


def test_session_that_was_used_least_ends_when_there_are_too_many():
    sessions = Sessions(Env(), most=2)
    first, second = sessions.begin("Basic a", "a"), sessions.begin("Basic a", "a")
    assert sessions.find(first) is not None
    third = sessions.begin("Basic c", "c")
    assert [sessions.find(each) is not None for each in (first, second, third)] == [True, False, True]


def test_sessions_of_one_user_end_none_of_another():
    sessions = Sessions(Env(), most=4)
    other = sessions.begin("Basic b", "b")
    own = [sessions.begin("Basic a", "a") for _ in range(10)]
    assert sessions.find(other) is not None
    assert [sessions.find(each) is not None for each in own] == [False] * 7 + [True] * 3


def test_user_has_a_bounded_number_of_sessions():
    sessions = Sessions(Env())
    own = [sessions.begin("Basic a", "a") for _ in range(CONSOLE_MAX_SESSIONS_OF_USER + 1)]
    assert [sessions.find(each) is not None for each in own] == [False] + [True] * CONSOLE_MAX_SESSIONS_OF_USER


def test_cookie_is_for_one_port_and_no_script():
    header = set_cookie(9091, "value", secure=True)
    assert header.startswith(f"{cookie_name(9091)}=value; Path=/console/api; Max-Age=43200; HttpOnly; SameSite=Strict")
    assert header.endswith("; Secure")
    assert "Secure" not in set_cookie(9091, "value", secure=False)
    assert "Max-Age=0" in set_cookie(9091, "", secure=False)
    assert cookie_of(f"other=1; {cookie_name(9091)}=value", 9091) == "value"
    assert cookie_of(f"{cookie_name(9092)}=value", 9091) == ""
