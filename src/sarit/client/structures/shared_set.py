"""A set that many processes share.  Two items are the same if they are encoded as the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic

from sarit.client.core.typed import V
from sarit.client.session.guard import guarded
from sarit.client.structures import keyed_state
from sarit.client.structures.formats import SET
from sarit.client.structures.shared_copy import SharedCopy, open_copy
from sarit.core.public import public

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from sarit.client.session.session import Session
    from sarit.client.structures.keyed_state import KeyedState
    from sarit.client.structures.values import Values
    from sarit.core.names import StreamName


@public
@dataclass(frozen=True, slots=True)
class SetChange(Generic[V]):
    """A change of a shared set.  `present`: whether the item is in the set since then."""

    item: V
    present: bool


@guarded("_session")
class SharedSet(Generic[V]):
    """A set that many processes share.  Open one with `await client.structures.set("scope/name")`.

    Two items are the same if their bytes are.  Changes are linearizable, each done once or not at all.  Each process
    holds the whole set in memory, at most 4 MiB of items.  All methods raise NotFound (its stream was deleted), Invalid
    and Unavailable (of a change: it may be done or not)."""

    def __init__(self, session: Session, name: StreamName, values: Values[V], copy: SharedCopy[KeyedState]) -> None:
        self.name = name
        self._session = session
        self._values = values
        self._copy = copy

    @classmethod
    async def open(cls, session: Session, name: StreamName, values: Values[V]) -> SharedSet[V]:
        """Return the set of that name, an empty one when there was none."""
        decode, encode = partial(keyed_state.decode, SET), partial(keyed_state.encode, SET)
        empty = encode(keyed_state.EMPTY)
        return cls(session, name, values, await open_copy(session, name, empty, decode, keyed_state.apply, encode))

    def __repr__(self) -> str:
        return f"SharedSet({self.name}, {self._session.state()})"

    # -- changes --------------------------------------------------------------------------------

    async def add(self, item: V) -> bool:
        """Add an item.  Returns whether it was absent: of many processes that add it, one gets True."""
        return await self._add([self._encoded(item)]) == 1

    async def add_many(self, items: Iterable[V]) -> int:
        """Add many items, all of them or none.  Returns how many of them were absent."""
        return await self._add([self._encoded(item) for item in items])

    async def _add(self, items: list[bytes]) -> int:
        wanted = list(dict.fromkeys(items))
        absent: list[bytes] = []

        def decide(state: KeyedState) -> list[bytes]:
            absent[:] = [item for item in wanted if state.get(item) is None]
            keyed_state.check_size(state, [(item, b"") for item in absent], "the set")
            return [keyed_state.put(item, b"") for item in absent]

        await self._copy.change(decide)
        return len(absent)

    async def discard(self, item: V) -> bool:
        """Remove an item.  Returns whether it was there."""
        encoded = self._encoded(item)
        found = False

        def decide(state: KeyedState) -> list[bytes]:
            nonlocal found
            found = state.get(encoded) is not None
            return [keyed_state.remove(encoded)] if found else []

        await self._copy.change(decide)
        return found

    # -- reads ----------------------------------------------------------------------------------

    async def contains(self, item: V, *, fresh: bool = True) -> bool:
        """Return whether an item is in the set, with all that was changed before this call.

        `fresh` False: as this process knows it from its last call, without a request."""
        encoded = self._encoded(item)
        return (await self._copy.read(fresh=fresh)).get(encoded) is not None

    async def items(self, *, fresh: bool = True) -> list[V]:
        """Return all items at one moment, in the order of their bytes; `fresh` as of `contains`."""
        return [self._decoded(item) for item, _ in (await self._copy.read(fresh=fresh)).items()]

    async def size(self, *, fresh: bool = True) -> int:
        """Return the number of items; `fresh` as of `contains`."""
        return (await self._copy.read(fresh=fresh)).count

    def watch(self) -> AsyncIterator[SetChange[V]]:
        """Return every item there is now, and then every change, so that a copy can follow.

        Changes of one item in quick succession may be seen as one."""

        def difference(before: KeyedState | None, now: KeyedState) -> list[SetChange[V]]:
            return [SetChange(self._decoded(key), stored is not None) for key, stored in now.differences(before)]

        return self._copy.watch(difference)

    def _encoded(self, item: V) -> bytes:
        return keyed_state.check_key(self._values.encode(item, "item"), "the item of a set")

    def _decoded(self, data: bytes) -> V:
        return self._values.decode(data, "an item of the set")
