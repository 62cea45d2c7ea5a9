"""Who makes the call that is carried out, for calls whose answer depends on more than the table of access."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sarit.security.permissions import Permission


@dataclass(frozen=True, slots=True)
class Authorized:
    """A user, and the permission that the user has on what the call is about."""

    user: str
    permission: Permission


# None: access is not checked.  Each call has a task, and so a context, of its own.
current_authorized: Final[ContextVar[Authorized | None]] = ContextVar("current_authorized", default=None)
