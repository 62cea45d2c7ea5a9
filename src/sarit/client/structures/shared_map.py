"""A map that many processes share: texts to values with versions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Generic

from sarit.client.core.typed import V
from sarit.client.session.guard import guarded
from sarit.client.structures import keyed_state
from sarit.client.structures.formats import MAP
from sarit.client.structures.limits import SHOWN_VALUE_CHARS
from sarit.client.structures.shared_copy import SharedCopy, open_copy
from sarit.core.errors import Conflict, Invalid
from sarit.core.public import public
from sarit.core.texts import cut_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from sarit.client.session.session import Session
    from sarit.client.structures.keyed_state import KeyedState, Stored
    from sarit.client.structures.values import Values
    from sarit.core.names import StreamName

ABSENT: Final = 0  # the version of a key that is not there


@public
@dataclass(frozen=True, slots=True)
class MapEntry(Generic[V]):
    """An entry of a shared map.  `version`: rises with every change of the map, and never repeats."""

    key: str
    value: V
    version: int


@public
@dataclass(frozen=True, slots=True)
class MapChange(Generic[V]):
    """A change of a shared map: the key, and its entry since then; None: it was removed."""

    key: str
    entry: MapEntry[V] | None


@guarded("_session")
class SharedMap(Generic[V]):
    """A map that many processes share.  Open one with `await client.structures.map("scope/name")`.

    Changes are linearizable, each done once or not at all.  Each process holds the whole map in memory, at most 4 MiB
    of keys and values; a larger one is a table (`client.table`).  All methods raise NotFound (its stream was deleted),
    Invalid and Unavailable (of a change: it may be done or not)."""

    def __init__(self, session: Session, name: StreamName, values: Values[V], copy: SharedCopy[KeyedState]) -> None:
        self.name = name
        self._session = session
        self._values = values
        self._copy = copy

    @classmethod
    async def open(cls, session: Session, name: StreamName, values: Values[V]) -> SharedMap[V]:
        """Return the map of that name, an empty one when there was none."""
        decode, encode = partial(keyed_state.decode, MAP), partial(keyed_state.encode, MAP)
        empty = encode(keyed_state.EMPTY)
        return cls(session, name, values, await open_copy(session, name, empty, decode, keyed_state.apply, encode))

    def __repr__(self) -> str:
        return f"SharedMap({self.name}, {self._session.state()})"

    # -- changes --------------------------------------------------------------------------------

    async def put(self, key: str, value: V, version: int | None = None) -> int:
        """Set the value of a key.  Returns its new version.

        With `version` only if the key has it; 0: only if the key is absent.  Raises Conflict: it has another one."""
        encoded, data = _key(key), self._values.encode(value)
        _check_version(version)
        written = 0

        def decide(state: KeyedState) -> list[bytes]:
            nonlocal written
            _expect(key, version, state.get(encoded))
            keyed_state.check_size(state, [(encoded, data)], "the map")
            written = state.changes + 1
            return [keyed_state.put(encoded, data)]

        await self._copy.change(decide)
        return written

    async def put_many(self, values: Mapping[str, V]) -> None:
        """Set the values of many keys, all of them or none."""
        puts = [(_key(key), self._values.encode(value)) for key, value in values.items()]

        def decide(state: KeyedState) -> list[bytes]:
            keyed_state.check_size(state, puts, "the map")
            return [keyed_state.put(key, data) for key, data in puts]

        await self._copy.change(decide)

    async def remove(self, key: str, version: int | None = None) -> bool:
        """Remove a key.  Returns whether it was there.

        With `version` only if the key has it.  Raises Conflict: it has another one, or is absent."""
        encoded = _key(key)
        _check_version(version)
        found = False

        def decide(state: KeyedState) -> list[bytes]:
            nonlocal found
            present = state.get(encoded)
            _expect(key, version, present)
            found = present is not None
            return [keyed_state.remove(encoded)] if found else []

        await self._copy.change(decide)
        return found

    # -- reads ----------------------------------------------------------------------------------

    async def get(self, key: str, *, fresh: bool = True) -> MapEntry[V] | None:
        """Return the entry of a key, None when it is absent; it includes all that was changed before this call.

        `fresh` False: as this process knows it from its last call, without a request."""
        encoded = _key(key)
        stored = (await self._copy.read(fresh=fresh)).get(encoded)
        return None if stored is None else self._entry(encoded, stored)

    async def items(self, *, fresh: bool = True) -> list[MapEntry[V]]:
        """Return all entries at one moment, in the order of their keys; `fresh` as of `get`."""
        state = await self._copy.read(fresh=fresh)
        return [self._entry(key, stored) for key, stored in state.items()]

    async def size(self, *, fresh: bool = True) -> int:
        """Return the number of entries; `fresh` as of `get`."""
        return (await self._copy.read(fresh=fresh)).count

    def watch(self) -> AsyncIterator[MapChange[V]]:
        """Return every entry there is now, and then every change, so that a copy can follow.

        Changes of one key in quick succession may be seen as one."""

        def difference(before: KeyedState | None, now: KeyedState) -> list[MapChange[V]]:
            return [self._change(key, stored) for key, stored in now.differences(before)]

        return self._copy.watch(difference)

    def _change(self, key: bytes, stored: Stored | None) -> MapChange[V]:
        return MapChange(_text(key), None if stored is None else self._entry(key, stored))

    def _entry(self, key: bytes, stored: Stored) -> MapEntry[V]:
        text = _text(key)
        return MapEntry(text, self._values.decode(stored.value, f"the value of key {_shown(text)}"), stored.version)


def _key(key: str) -> bytes:
    return keyed_state.check_key(key.encode(), "the key of a map")


def _text(key: bytes) -> str:
    # What another program wrote may be no UTF-8: such a key is shown, and does not make the map unreadable.
    return key.decode(errors="backslashreplace")


def _shown(key: str) -> str:
    return cut_text(ascii(key), SHOWN_VALUE_CHARS)


def _check_version(version: int | None) -> None:
    if version is not None and version < ABSENT:
        raise Invalid(f"{version} is no version of a key: give {ABSENT} for an absent one")


def _expect(key: str, version: int | None, present: Stored | None) -> None:
    """Raise Conflict unless the key has the version, if one is given."""
    actual = ABSENT if present is None else present.version
    if version is not None and version != actual:
        has = "is absent" if present is None else f"has version {actual}"
        wanted = "to be absent" if version == ABSENT else f"to have version {version}"
        raise Conflict(f"key {_shown(key)} {has}, and was {wanted}: read it and decide again", actual=actual)
