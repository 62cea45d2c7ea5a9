"""The user file: one user a line, `NAME:HASH:ROLE,ROLE`, the hash by argon2id.

    alice:$argon2id$v=19$m=19456,t=2,p=1$...:analyst,writer
    root:$argon2id$v=19$m=19456,t=2,p=1$...:admin

`hash_password` and `matches` take milliseconds of a processor each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Exists, Invalid, NotFound
from sarit.core.extras import require
from sarit.core.nearest_names import nearest
from sarit.security.limits import (
    MAX_PASSWORD_BYTES,
    MIN_PASSWORD_CHARACTERS,
    PASSWORD_HASH_MEMORY_KIB,
    PASSWORD_HASH_PASSES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from argon2 import PasswordHasher

_NAME: Final = re.compile(r"[A-Za-z0-9._@\-]{1,128}")
_HEAD: Final = "# Users of Sarit: NAME:HASH:ROLES.  Change it with `sarit user`.\n"


@dataclass(frozen=True, slots=True)
class User:
    """A user: a line of the user file."""

    name: str
    password_hash: str
    roles: frozenset[str] = frozenset()


def is_user_name(name: str) -> bool:
    """Return whether a user can have this name."""
    return _NAME.fullmatch(name) is not None


def parse_users(text: str, path: str) -> dict[str, User]:
    """Parse a user file.  Returns the users by name.  Raises Invalid, with file and line."""
    users: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        hashed, _, roles = rest.partition(":")
        where = f"{path}, line {number}"
        if not is_user_name(name):
            raise Invalid(f"{where}: {name!r} is not the name of a user (letters, digits, '.', '_', '@' and '-')")
        if not hashed.startswith("$argon2"):
            raise Invalid(f"{where}: user {name} has no argon2 hash of a password: use `sarit user add`")
        if name in users:
            raise Invalid(f"{where}: user {name} is there twice")
        users[name] = User(name, hashed, _roles(roles, where))
    return users


def _roles(text: str, where: str) -> frozenset[str]:
    roles = frozenset(role.strip() for role in text.split(",") if role.strip())
    for role in roles:
        if _NAME.fullmatch(role) is None:
            raise Invalid(f"{where}: {role!r} is not the name of a role")
    return roles


def format_users(users: Iterable[User]) -> str:
    """Return the text of a user file."""
    return _HEAD + "".join(f"{user.name}:{user.password_hash}:{','.join(sorted(user.roles))}\n" for user in users)


def add_user(users: Mapping[str, User], name: str, password: str, roles: Iterable[str] = ()) -> dict[str, User]:
    """Return the users with one more.  Raises Exists, Invalid."""
    if not is_user_name(name):
        raise Invalid(f"{name!r} is not the name of a user: letters, digits, '.', '_', '@' and '-', at most 128")
    if name in users:
        raise Exists(f"user {name} is there already: change the password with `sarit user passwd`")
    return {**users, name: User(name, hash_password(password), _roles(",".join(roles), "--role"))}


def change_password(users: Mapping[str, User], name: str, password: str) -> dict[str, User]:
    """Return the users with another password for one.  Raises NotFound, Invalid."""
    return {**users, name: replace(_require(users, name), password_hash=hash_password(password))}


def delete_user(users: Mapping[str, User], name: str) -> dict[str, User]:
    """Return the users without one.  Raises NotFound."""
    _require(users, name)
    return {known: user for known, user in users.items() if known != name}


def _require(users: Mapping[str, User], name: str) -> User:
    if name not in users:
        raise NotFound(f"there is no user {name}" + (f"; {nearest(name, users)}" if users else ""))
    return users[name]


def hash_password(password: str) -> str:
    """Return the argon2id hash of a password.  Raises Invalid when it is too short or too long."""
    if len(password) < MIN_PASSWORD_CHARACTERS:
        raise Invalid(f"a password has at least {MIN_PASSWORD_CHARACTERS} characters")
    if len(password.encode()) > MAX_PASSWORD_BYTES:
        raise Invalid(f"a password has at most {MAX_PASSWORD_BYTES} bytes")
    require("node", "the hash of a password")
    return _hasher().hash(password)


def matches(user: User, password: str) -> bool:
    """Return whether `password` is the password of a user."""
    from argon2.exceptions import Argon2Error, InvalidHashError

    try:
        return _hasher().verify(user.password_hash, password)
    except (Argon2Error, InvalidHashError):
        return False


def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher  # when it is needed: clients import this package, too

    return PasswordHasher(time_cost=PASSWORD_HASH_PASSES, memory_cost=PASSWORD_HASH_MEMORY_KIB, parallelism=1)
