"""Log-ins: cached, bounded, and refused without a hint."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sarit.core.errors import Unauthenticated, Unavailable
from sarit.env.real import real_env
from sarit.security import login
from sarit.security.limits import (
    FAILED_LOGIN_SECONDS,
    MAX_FAILED_LOGINS,
    MAX_FAILED_LOGINS_OF_HOST,
    MAX_PASSWORD_CHECKS,
)
from sarit.security.login import Logins, basic
from sarit.security.users import User


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


@pytest.fixture
def checks(monkeypatch):
    """How often a password was checked; the right one is `right`."""
    found: list[str] = []

    def matches(user: User, password: str) -> bool:
        found.append(user.name)
        return password == "right"

    monkeypatch.setattr(login, "matches", matches)
    return found


def _run(main, clock=None):
    async def inner():
        env = replace(real_env(), clock=clock or Clock())
        logins = Logins(env, {name: User(name, "$argon2id$", frozenset({"r"})) for name in ("alice", "bob")})
        try:
            return await main(logins)
        finally:
            await logins.close()

    return asyncio.run(inner())


def test_right_and_wrong_passwords_are_checked_once(checks):
    async def main(logins):
        for _ in range(3):
            caller = await logins.caller(basic("alice", "right"), "1.2.3.4:5")
            with pytest.raises(Unauthenticated):
                await logins.caller(basic("alice", "wrong"), "1.2.3.4:5")
        return caller

    caller = _run(main)
    assert (caller.name, caller.roles) == ("alice", {"r"})
    assert checks == ["alice", "alice"]


def test_unknown_user_costs_a_check_and_gets_the_same_answer(checks):
    async def main(logins):
        texts = []
        for header in (basic("alice", "wrong"), basic("nobody", "right")):
            with pytest.raises(Unauthenticated) as refused:
                await logins.caller(header, "1.2.3.4:5")
            texts.append(str(refused.value))
        return texts

    assert len(set(_run(main))) == 1
    assert checks == ["alice", ""]


def test_new_user_file_ends_what_was_cached(checks):
    async def main(logins):
        await logins.caller(basic("alice", "right"), "p")
        logins.replace_users({"bob": User("bob", "$argon2id$")})
        with pytest.raises(Unauthenticated):
            await logins.caller(basic("alice", "right"), "p")

    _run(main)


def test_guesses_of_one_user_are_bounded_and_others_log_in(checks):
    clock = Clock()

    async def main(logins):
        await logins.caller(basic("alice", "right"), "p")
        for number in range(MAX_FAILED_LOGINS):
            with pytest.raises(Unauthenticated, match="wrong"):
                await logins.caller(basic("alice", f"guess {number}"), "p")
        spent = len(checks)
        for number in range(1000):
            with pytest.raises(Unauthenticated, match="too many wrong passwords"):
                await logins.caller(basic("alice", f"more {number}"), "p")
        assert len(checks) == spent
        await logins.caller(basic("alice", "right"), "p")  # logged in before
        await logins.caller(basic("bob", "right"), "p")
        clock.now += FAILED_LOGIN_SECONDS
        with pytest.raises(Unauthenticated, match="user or password"):
            await logins.caller(basic("alice", "later"), "p")

    _run(main, clock)


def test_ten_thousand_guesses_of_a_host_cost_bounded_work_and_memory_and_one_line(checks, caplog):
    clock = Clock()

    async def main(logins):
        await logins.caller(basic("alice", "right"), "1.1.1.1:1")
        for number in range(10_000):
            clock.now = number * 0.005  # within a minute
            with pytest.raises(Unauthenticated):
                await logins.caller(basic(f"user{number}", "guess"), f"1.1.1.1:{number}")
        assert len(checks) == 1 + MAX_FAILED_LOGINS_OF_HOST
        await logins.caller(basic("alice", "right"), "1.1.1.1:2")  # logged in before
        await logins.caller(basic("bob", "right"), "2.2.2.2:1")  # from another host
        assert len(logins._cached) <= MAX_FAILED_LOGINS_OF_HOST + 2
        assert len(logins._failed) <= MAX_FAILED_LOGINS_OF_HOST

    with caplog.at_level("WARNING"):
        _run(main, clock)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2, lines
    assert not any("guess" in line for line in lines)


def test_user_who_logged_in_from_a_host_is_not_locked_out_by_others(checks):
    """Behind a proxy all are one host; and whoever knows a name could lock its user out from anywhere."""
    clock = Clock()

    async def main(logins):
        await logins.caller(basic("alice", "right"), "proxy:1")
        for number in range(2 * MAX_FAILED_LOGINS_OF_HOST):
            with pytest.raises(Unauthenticated):
                await logins.caller(basic(f"user{number}", "guess"), "proxy:2")
        for number in range(2 * MAX_FAILED_LOGINS):
            with pytest.raises(Unauthenticated):
                await logins.caller(basic("alice", f"guess {number}"), "elsewhere:1")
        logins.replace_users(dict(logins._users))  # nothing is cached any more
        for number in range(MAX_FAILED_LOGINS_OF_HOST):
            with pytest.raises(Unauthenticated):
                await logins.caller(basic(f"more{number}", "guess"), "proxy:2")
        await logins.caller(basic("alice", "right"), "proxy:3")
        with pytest.raises(Unauthenticated, match="too many wrong passwords"):
            await logins.caller(basic("bob", "right"), "proxy:3")  # he never was here before
        # Guesses at her from the proxy itself are bounded, too.
        logins.replace_users(dict(logins._users))
        for number in range(MAX_FAILED_LOGINS):
            with pytest.raises(Unauthenticated, match="user or password"):
                await logins.caller(basic("alice", f"other {number}"), "proxy:3")
        spent = len(checks)
        with pytest.raises(Unauthenticated, match="too many wrong passwords"):
            await logins.caller(basic("alice", "right"), "proxy:3")
        assert len(checks) == spent

    _run(main, clock)


def test_checks_at_once_are_bounded(checks):
    async def main(logins):
        answers = await asyncio.gather(
            *(logins.caller(basic(f"u{number}", "x"), "p") for number in range(MAX_PASSWORD_CHECKS + 5)),
            return_exceptions=True,
        )
        assert sum(type(answer) is Unavailable for answer in answers) == 5

    _run(main)


@pytest.mark.parametrize(
    "header", [None, "", "Basic", "Basic ***", "Basic YWxpY2U=", "Bearer abc", "Digest x", "Basic " + "A" * 20_000]
)
def test_header_of_another_form_is_refused_without_a_check(checks, header):
    async def main(logins):
        with pytest.raises(Unauthenticated):
            await logins.caller(header, "p")

    _run(main)
    assert checks == []
