"""Data structures that many processes share: `client.structures`.

Each is opened by its name, and created when there is none; its scope must exist.  A counter is a stream of one
segment: every process that opens it has all of it in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.session.guard import guarded
from sarit.client.structures.counter import SharedCounter
from sarit.core.names import StreamName

if TYPE_CHECKING:
    from sarit.client.session.session import Session


@guarded("_session")
class Structures:
    """The shared data structures of one client.  All methods raise NotFound (the scope), Invalid (the name is that of
    something else), Corrupt and Unavailable."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Structures({self._session.controller.address}, {self._session.state()})"

    async def counter(self, name: str | StreamName) -> SharedCounter:
        """Return the counter of that name, `scope/name`; a new one is 0."""
        return await SharedCounter.open(self._session, _name(name))


def _name(name: str | StreamName) -> StreamName:
    return name if isinstance(name, StreamName) else StreamName.parse(name)
