"""The interface to a coordination service: registers with versions, and members with leases.

A register holds a few kilobytes under a name, and every change of it is a compare-and-set.  A member is a process that
sends heartbeats.  Appends use neither: the service says who should own a container, but the logs decide who does.  All
calls raise Unavailable; the outcome of a change is unknown then, so read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Versioned:
    """The value of a register, and the version that a change must expect."""

    value: bytes
    version: int


class Watch(Protocol):
    """A watch, until it is closed."""

    def close(self) -> None:
        """End the watch: it is not called any more."""


class Registers(Protocol):
    """Values under names like `map` or `log/3`, each with a version that rises with every change."""

    async def get(self, name: str) -> Versioned | None:
        """Return the present value of a register; None: it does not exist."""

    async def create(self, name: str, value: bytes) -> int:
        """Create a register.  Returns its version.  Raises Exists."""

    async def set(self, name: str, value: bytes, expected: int) -> int:
        """Replace the value of a register that has the version `expected`.  Returns its new version.  Raises Conflict,
        NotFound."""

    async def delete(self, name: str, expected: int) -> None:
        """Delete a register that has the version `expected`.  Raises Conflict, NotFound."""

    async def children(self, name: str) -> list[str]:
        """Return the last parts of the names of the registers directly below `name`, sorted."""

    def watch(self, name: str, changed: Callable[[], None]) -> Watch:
        """Call `changed` on the event loop after the register was created, set or deleted.

        A call may be late, stand for several changes, or be lost with a connection: read the register after each call,
        and poll it, too."""


class MemberState(Enum):
    """The state of a member's lease, as the member knows it.

    SUSPENDED: the last heartbeat was not answered, so the lease may end.  LOST: the lease ended, or the member left."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Membership(Protocol):
    """One membership, from its join to its loss or leave."""

    @property
    def state(self) -> MemberState:
        """The present state of the lease."""

    @property
    def valid_until(self) -> float:
        """Until when the service cannot have ended the lease, in seconds of this process's monotonic clock.

        That is when the last answered heartbeat was sent, plus the lease, minus a margin."""

    async def update(self, value: bytes) -> None:
        """Replace the value of this member.  Raises NotFound (the lease has ended)."""

    async def leave(self) -> None:
        """End the membership.  Its state is LOST from now on, even if the service does not answer."""


class Members(Protocol):
    """The living members of one kind."""

    async def join(self, member: str, value: bytes, on_state: Callable[[MemberState], None]) -> Membership:
        """Become a member.  `on_state`: called on the event loop with every new state.

        A member of the same id, as that of this process before a restart, is replaced: its state becomes LOST."""

    async def list(self) -> Mapping[str, bytes]:
        """Return the values of the members by id."""

    def watch(self, changed: Callable[[], None]) -> Watch:
        """Call `changed` after a member has joined, changed or gone, with the limits of `Registers.watch`."""
