"""The user file: what is read, what is refused with its line, changes."""

from __future__ import annotations

import pytest

from sarit.core.errors import Exists, Invalid, NotFound
from sarit.security.users import (
    User,
    add_user,
    change_password,
    delete_user,
    format_users,
    hash_password,
    matches,
    parse_users,
)

HASH = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$aGFzaA"


def test_file_is_read_as_it_was_written():
    users = [User("alice", HASH, frozenset({"a", "b"})), User("bob", HASH)]
    assert list(parse_users(format_users(users), "users").values()) == users


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"alice:{HASH}\nbo b:{HASH}\n", "users, line 2: 'bo b' is not the name of a user"),
        ("alice:plain text\n", "users, line 1: user alice has no argon2 hash"),
        (f"alice:{HASH}\n\nalice:{HASH}\n", "users, line 3: user alice is there twice"),
        (f"alice:{HASH}:a role\n", "users, line 1: 'a role' is not the name of a role"),
    ],
)
def test_wrong_line_is_named(text, message):
    with pytest.raises(Invalid, match=message):
        parse_users(text, "users")


def test_users_are_added_changed_and_deleted():
    users = add_user({}, "alice", "first password", ["writer"])
    assert matches(users["alice"], "first password")
    assert not matches(users["alice"], "First password")
    with pytest.raises(Exists):
        add_user(users, "alice", "another one")
    changed = change_password(users, "alice", "second password")
    assert matches(changed["alice"], "second password")
    assert changed["alice"].roles == {"writer"}
    assert delete_user(users, "alice") == {}
    with pytest.raises(NotFound, match="there is no user bob; there is alice"):
        delete_user(users, "bob")


@pytest.mark.parametrize("password", ["", "short", "x" * 2000])
def test_password_that_is_too_short_or_long_is_refused(password):
    with pytest.raises(Invalid, match="a password has at"):
        hash_password(password)


def test_damaged_hash_matches_nothing():
    assert not matches(User("alice", "$argon2id$damaged"), "password")
