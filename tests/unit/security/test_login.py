"""Log-ins: cached, bounded, and refused without a hint."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sarit.core.errors import Unauthenticated, Unavailable
from sarit.core.networks import network_of_peer
from sarit.env.real import real_env
from sarit.security import guesses, login
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


def _changed(users):
    """Another line for each user, so that no log-in of before is right by itself."""
    return {name: replace(user, password_hash=user.password_hash + "x") for name, user in users.items()}


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
        assert len(logins._wrong) <= MAX_FAILED_LOGINS_OF_HOST
        assert len(logins._guesses._of_user) <= MAX_FAILED_LOGINS_OF_HOST

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
        logins.replace_users(_changed(logins._users))  # nothing is cached any more
        for number in range(MAX_FAILED_LOGINS_OF_HOST):
            with pytest.raises(Unauthenticated):
                await logins.caller(basic(f"more{number}", "guess"), "proxy:2")
        await logins.caller(basic("alice", "right"), "proxy:3")
        with pytest.raises(Unauthenticated, match="too many wrong passwords"):
            await logins.caller(basic("bob", "right"), "proxy:3")  # he never was here before
        # Guesses at her from the proxy itself are bounded, too.
        logins.replace_users(_changed(logins._users))
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
            # One is under way.
            *(logins.caller(basic(f"u{number}", "x"), "p") for number in range(1 + MAX_PASSWORD_CHECKS + 5)),
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


NAMES_OF_NOBODY = ["", " ", "a b", "x" * 129, "\N{SNOWMAN}", "alice\n"]


@pytest.mark.parametrize("name", NAMES_OF_NOBODY)
def test_name_that_no_user_has_costs_no_check_and_is_counted_for_its_network(checks, name):
    async def main(logins):
        for number in range(MAX_FAILED_LOGINS_OF_HOST):
            with pytest.raises(Unauthenticated, match="user or password is wrong"):
                await logins.caller(basic(name, f"guess {number}"), "1.1.1.1:1")
        with pytest.raises(Unauthenticated, match="too many wrong passwords"):
            await logins.caller(basic(name, "one more"), "1.1.1.1:1")

    _run(main)
    assert checks == []


def test_password_that_is_too_long_costs_no_check(checks):
    async def main(logins):
        with pytest.raises(Unauthenticated, match="user or password is wrong"):
            await logins.caller(basic("alice", "x" * 1025), "p")

    _run(main)
    assert checks == []


def test_wrong_passwords_do_not_displace_right_ones(checks, monkeypatch):
    monkeypatch.setattr(login, "MAX_CACHED_LOGINS", 8)

    async def main(logins):
        await logins.caller(basic("alice", "right"), "1.1.1.1:1")
        for number in range(100):
            with pytest.raises(Unauthenticated):
                await logins.caller(basic(f"user{number}", "x"), f"2.2.2.{number}:1")
        spent = len(checks)
        await logins.caller(basic("alice", "right"), "1.1.1.1:1")
        assert len(checks) == spent
        assert (len(logins._right), len(logins._wrong)) == (1, 8)

    _run(main)


def test_same_password_at_once_is_checked_once(checks):
    async def main(logins):
        callers = await asyncio.gather(*(logins.caller(basic("alice", "right"), f"1.1.1.1:{at}") for at in range(200)))
        assert {caller.name for caller in callers} == {"alice"}

    _run(main)
    assert checks == ["alice"]


def test_guesses_that_begin_together_are_bounded_as_those_that_do_not(checks):
    async def main(logins):
        answers = await asyncio.gather(
            *(logins.caller(basic("alice", f"guess {number}"), f"{number}.1.1.1:1") for number in range(30)),
            return_exceptions=True,
        )
        assert all(type(answer) is Unauthenticated for answer in answers)

    _run(main)
    assert len(checks) == MAX_FAILED_LOGINS


def test_cancelled_and_refused_tries_are_not_counted(checks):
    async def main(logins):
        tries = [
            asyncio.ensure_future(logins.caller(basic(f"u{number}", "x"), "p"))
            for number in range(MAX_PASSWORD_CHECKS * 2)
        ]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(type(answer) is Unavailable for answer in answers) == MAX_PASSWORD_CHECKS - 1
        for number in range(MAX_FAILED_LOGINS_OF_HOST - MAX_PASSWORD_CHECKS - 1):
            with pytest.raises(Unauthenticated, match="user or password"):
                await logins.caller(basic(f"more{number}", "x"), "p")
        with pytest.raises(Unauthenticated, match="too many"):
            await logins.caller(basic("last", "x"), "p")

    _run(main)


def test_who_was_right_before_gets_through_many_others_of_other_networks(checks, monkeypatch):
    """All places are taken by others, and each change of the users makes the password be checked again."""

    async def main(logins):
        await logins.caller(basic("alice", "right"), "1.1.1.1:1")
        for turn in range(3):
            logins.replace_users(_changed(logins._users))
            others = [
                asyncio.ensure_future(logins.caller(basic(f"u{number}", "x"), f"2.{turn}.1.{number}:1"))
                for number in range(MAX_PASSWORD_CHECKS * 4)
            ]
            await asyncio.sleep(0)
            spent = len(checks)
            assert (await logins.caller(basic("alice", "right"), "1.1.1.1:2")).name == "alice"
            assert checks[spent:].index("alice") <= 1, "it was the next one"
            answers = await asyncio.gather(*others, return_exceptions=True)
            assert any(type(answer) is Unavailable for answer in answers)

    _run(main)


def test_busy_network_gives_its_places_to_others(checks):
    async def main(logins):
        others = [
            asyncio.ensure_future(logins.caller(basic(f"u{number}", "x"), "2001:db8::1:1"))
            for number in range(MAX_PASSWORD_CHECKS * 2)
        ]
        await asyncio.sleep(0)
        assert (await logins.caller(basic("bob", "right"), "3.3.3.3:1")).name == "bob"
        assert checks.index("bob") <= 3
        await asyncio.gather(*others, return_exceptions=True)

    _run(main)


def test_addresses_of_one_network_share_its_limit(checks):
    async def main(logins):
        for number in range(MAX_FAILED_LOGINS_OF_HOST):
            with pytest.raises(Unauthenticated, match="user or password"):
                await logins.caller(basic(f"u{number}", "x"), f"2001:db8:1:2:{number:x}::1:{number}")
        with pytest.raises(Unauthenticated, match="too many"):
            await logins.caller(basic("bob", "right"), "2001:db8:1:2:ffff::1:1")
        assert (await logins.caller(basic("bob", "right"), "2001:db8:1:3::1:1")).name == "bob"

    _run(main)


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("10.1.2.3:4", "10.1.2.3"), ("::ffff:10.1.2.3:4", "10.1.2.3"), ("[::ffff:10.1.2.3]:4", "10.1.2.3"),
        ("::ffff:a01:203:4", "10.1.2.3"), ("2001:db8::1:4", "2001:db8::/64"), ("[2001:db8::1]:4", "2001:db8::/64"),
        ("2001:db8:0:0:ffff:1:2:3:4", "2001:db8::/64"), ("fe80::1%eth0:4", "fe80::/64"), ("::1:4", "::/64"),
        ("?", "?"), ("p", "p"), ("x" * 1000, "x" * 64),
    ],
)  # fmt: skip
def test_network_of_a_peer(peer, network):
    assert network_of_peer(peer) == network


def test_places_of_a_user_are_displaced_by_that_user_alone(monkeypatch):
    monkeypatch.setattr(guesses, "MAX_KNOWN_NETWORKS_OF_USER", 4)
    monkeypatch.setattr(guesses, "MAX_KNOWN_NETWORKS", 10)
    made = guesses.Guesses(by_name=True)
    made.right("alice", "home")
    for number in range(1000):
        made.right("mallory", f"network {number}")
    assert made._known.has("alice", "home")
    assert made._known._count == 5


def test_user_whose_line_stays_is_not_asked_for_a_new_check(checks):
    async def main(logins):
        await logins.caller(basic("alice", "right"), "p")
        await logins.caller(basic("bob", "right"), "p")
        logins.replace_users({**logins._users, "bob": User("bob", "$argon2id$", frozenset({"admin"}))})
        await logins.caller(basic("alice", "right"), "p")
        assert (await logins.caller(basic("bob", "right"), "p")).roles == {"admin"}

    _run(main)
    assert checks == ["alice", "bob", "bob"]
