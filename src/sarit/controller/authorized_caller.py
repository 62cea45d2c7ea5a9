"""The authorized caller of the current call, for calls that decide by more than the access table."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sarit.security.permissions import Permission


@dataclass(frozen=True, slots=True)
class Authorized:
    """A user, the permission that the user has on what the call is about, and the user's roles."""

    user: str
    permission: Permission
    roles: frozenset[str] = frozenset()


# The log-in of the current call, as its header has it; None: access is not checked, or nobody logged in.
current_login: Final[ContextVar[str | None]] = ContextVar("current_login", default=None)
# The caller of the current call; None: access is not checked.  Each call runs in its own task, hence context.
current_authorized: Final[ContextVar[Authorized | None]] = ContextVar("current_authorized", default=None)
