"""Data structures that many processes share: `client.structures`.

Each is opened by its name, and created when there is none; its scope must exist.  Counters, maps and sets are streams
of one segment: every process that opens one has all of it in memory.  Lists and queues are key-value tables of one
partition: their items are not in memory.

They stand beside `client.coordination`, in a property of their own: a room that is imported when it is first used, and
whose blocking classes are generated as all others are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.session.guard import guarded
from sarit.client.structures.counter import SharedCounter
from sarit.client.structures.shared_list import SharedList
from sarit.client.structures.shared_map import SharedMap
from sarit.client.structures.shared_queue import SharedQueue
from sarit.client.structures.shared_set import SharedSet
from sarit.client.structures.values import Values
from sarit.core.names import StreamName

if TYPE_CHECKING:
    from sarit.client.core.typed import V
    from sarit.client.session.session import Session
    from sarit.serializers.protocols import Deserializer, Serializer


@guarded("_session")
class Structures:
    """The shared data structures of one client.

    `serializer` and `deserializer` encode and decode values (`sarit.serializers`, without a registry); without both,
    values are bytes.  All methods raise NotFound (the scope), Invalid (the name is that of something else), Corrupt and
    Unavailable."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Structures({self._session.controller.address}, {self._session.state()})"

    async def counter(self, name: str | StreamName) -> SharedCounter:
        """Return the counter of that name, `scope/name`; a new one is 0."""
        return await SharedCounter.open(self._session, _name(name))

    async def map(
        self,
        name: str | StreamName,
        *,
        serializer: Serializer[V] | None = None,
        deserializer: Deserializer[V] | None = None,
    ) -> SharedMap[V]:
        """Return the map of that name, `scope/name`, from texts to values; a new one is empty."""
        return await SharedMap.open(self._session, _name(name), Values(serializer, deserializer))

    async def set(
        self,
        name: str | StreamName,
        *,
        serializer: Serializer[V] | None = None,
        deserializer: Deserializer[V] | None = None,
    ) -> SharedSet[V]:
        """Return the set of that name, `scope/name`; a new one is empty."""
        return await SharedSet.open(self._session, _name(name), Values(serializer, deserializer))

    async def list(
        self,
        name: str | StreamName,
        *,
        serializer: Serializer[V] | None = None,
        deserializer: Deserializer[V] | None = None,
    ) -> SharedList[V]:
        """Return the list of that name, `scope/name`; a new one is empty."""
        return await SharedList.open(self._session, _name(name), Values(serializer, deserializer))

    async def queue(
        self,
        name: str | StreamName,
        *,
        lease_seconds: float | None = None,
        serializer: Serializer[V] | None = None,
        deserializer: Deserializer[V] | None = None,
    ) -> SharedQueue[V]:
        """Return the priority queue of that name, `scope/name`; a new one is empty.

        `lease_seconds`: an item that was taken so long ago, and neither done nor renewed, is handed out again; the same
        for all processes of the queue.  None: that of the queue; a new one has 30 seconds."""
        return await SharedQueue.open(self._session, _name(name), Values(serializer, deserializer), lease_seconds)


def _name(name: str | StreamName) -> StreamName:
    return name if isinstance(name, StreamName) else StreamName.parse(name)
