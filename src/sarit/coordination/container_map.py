"""The container map, which says which store should own which container, and its encoding.

The map is one register.  Every change of it is a compare-and-set on the version that it was computed from, and raises
`version` by one.  The map is advice to stores and routers: the epoch of a container's log decides who may write.

A container that moves has its next owner in `owners`, and the store that still serves it in `moving`.  If its owner is
None it is revoked: the store in `moving` must close it at once.

Bytes: docs/formats/container-map.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from sarit.coordination.limits import MAX_CONTAINERS, MAX_STORE_TEXT_BYTES, MAX_STORE_WEIGHT, MAX_STORES
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMAT: Final = 1
_HEAD: Final = struct.Struct(">BQH")
_STORE: Final = struct.Struct(">HQHB")
_COUNT: Final = struct.Struct(">H")
_MOVE: Final = struct.Struct(">HH")
_NOBODY: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store as a member: its address for clients, and its share of the containers.

    `machine`: the failure domain.  `incarnation`: a random number of this join.  `weight`: its share of the containers
    in relation to the weights of other stores; 0: none.  `leaving`: it stops soon.  `opening`: how many containers it
    opens now or is about to open; only members have this, not maps."""

    host: str
    port: int
    machine: str
    incarnation: int
    weight: int = 1
    leaving: bool = False
    opening: int = 0

    @property
    def usable(self) -> bool:
        """Whether the store may be given containers."""
        return self.weight > 0 and not self.leaving


@dataclass(frozen=True, slots=True)
class ContainerMap:
    """One version of the map.

    `owners`: by container, the id of the store that owns it or is about to; None: no store.
    `moving`: by container that moves, the store that has it open until it releases it."""

    version: int
    stores: Mapping[str, StoreAddress]
    owners: tuple[str | None, ...]
    moving: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def empty(cls, containers: int) -> ContainerMap:
        """Return a map of version 0, in which no container has an owner."""
        return cls(0, {}, (None,) * containers)

    def serving(self, container: int) -> str | None:
        """Return the store that serves a container: while it moves, its old owner; None: no store."""
        owner = self.owners[container]
        return None if owner is None else self.moving.get(container, owner)

    def address(self, container: int) -> StoreAddress | None:
        """Return the address of the store that serves a container; None: no store."""
        store = self.serving(container)
        return None if store is None else self.stores.get(store)

    def leaves(self, container: int, store: str) -> bool:
        """Return whether a store should release a container gracefully."""
        return self.owners[container] is not None and self.moving.get(container) == store

    def named(self, container: int, store: str, incarnation: int) -> bool:
        """Return whether this start of a store may open a container now."""
        known = self.stores.get(store)
        return (
            known is not None
            and known.incarnation == incarnation
            and self.owners[container] == store
            and container not in self.moving
        )

    def released(self, container: int, store: str) -> ContainerMap:
        """Return the next map when a store has closed a container that moves away from it; else the same map."""
        if self.moving.get(container) != store:
            return self
        moving = {number: source for number, source in self.moving.items() if number != container}
        return replace(self, version=self.version + 1, moving=moving)

    def fenced(self, container: int, store: str, opened_version: int) -> ContainerMap:
        """Return the next map when a store was fenced that had opened a container under version `opened_version`.

        If the store is still the owner, the map gets a new version, under which the store may open the container again:
        another store that opened it late, under an old map, must not leave it without an owner that has it open."""
        if self.moving.get(container) == store:
            return self.released(container, store)
        if self.owners[container] != store or self.version > opened_version:
            return self
        return replace(self, version=self.version + 1)


def encode_store(store: StoreAddress) -> bytes:
    """Encode the value of a member.  Raises Invalid: a text is too long, or a number does not fit."""
    return bytes([_FORMAT]) + _pack_store(store) + _COUNT.pack(min(store.opening, MAX_CONTAINERS))


def decode_store(data: bytes) -> StoreAddress:
    """Decode the value of a member.  Raises Invalid: it has a newer format, or is damaged."""
    cursor = _Cursor(data, "a store's address")
    _check_format(cursor.take(1)[0], "a store's address")
    store = replace(cursor.store(), opening=cursor.count())
    cursor.end()
    return store


def encode_map(record: ContainerMap) -> bytes:
    """Encode a map.  Raises Invalid: it exceeds a bound, or names a store that it does not have."""
    if len(record.owners) > MAX_CONTAINERS or len(record.stores) > MAX_STORES:
        raise Invalid(f"a map of {len(record.owners)} containers and {len(record.stores)} stores is too large")
    ids = sorted(record.stores)
    numbers = {store: number for number, store in enumerate(ids)}
    parts = [_HEAD.pack(_FORMAT, record.version, len(ids))]
    for store in ids:
        parts += (_pack_text(store), _pack_store(record.stores[store]))
    try:
        owners = [_NOBODY if owner is None else numbers[owner] for owner in record.owners]
        moves = [_MOVE.pack(container, numbers[source]) for container, source in sorted(record.moving.items())]
    except KeyError as error:
        raise Invalid(f"the map names the store {error}, whose address it has not") from None
    parts += (_COUNT.pack(len(owners)), struct.pack(f">{len(owners)}H", *owners), _COUNT.pack(len(moves)), *moves)
    return b"".join(parts)


def decode_map(data: bytes) -> ContainerMap:
    """Decode a map.  Raises Invalid: it has a newer format, or is damaged."""
    what = "a container map"
    cursor = _Cursor(data, what)
    _check_format(data[0] if data else 0, what)
    _, version, count = _HEAD.unpack(cursor.take(_HEAD.size))
    if count > MAX_STORES:
        raise Invalid(f"{what} of {count} stores; the most is {MAX_STORES}")
    stores: dict[str, StoreAddress] = {}
    for _ in range(count):
        name = cursor.text()
        if name in stores:
            raise Invalid(f"{what} names the store {name!r} twice")
        stores[name] = cursor.store()
    ids = list(stores)
    containers = cursor.count()
    if containers > MAX_CONTAINERS:
        raise Invalid(f"{what} of {containers} containers; the most is {MAX_CONTAINERS}")
    numbers = struct.unpack(f">{containers}H", cursor.take(2 * containers))
    moves = [_MOVE.unpack(cursor.take(_MOVE.size)) for _ in range(cursor.count())]
    cursor.end()
    if any(n != _NOBODY and n >= count for n in numbers) or any(c >= containers or s >= count for c, s in moves):
        raise Invalid(f"{what} names a store or a container that it has not")
    owners = tuple(None if number == _NOBODY else ids[number] for number in numbers)
    return ContainerMap(version, stores, owners, {container: ids[source] for container, source in moves})


def _pack_store(store: StoreAddress) -> bytes:
    if not 0 <= store.weight <= MAX_STORE_WEIGHT:
        raise Invalid(f"a store has a weight of 0 to {MAX_STORE_WEIGHT}, not {store.weight}")
    try:
        numbers = _STORE.pack(store.port, store.incarnation, store.weight, store.leaving)
    except struct.error as error:
        raise Invalid(f"{store} cannot be stored: {error}") from None
    return _pack_text(store.host) + _pack_text(store.machine) + numbers


def _pack_text(text: str) -> bytes:
    raw = text.encode()
    if not 1 <= len(raw) <= MAX_STORE_TEXT_BYTES:
        raise Invalid(f"a name or host of 1 to {MAX_STORE_TEXT_BYTES} bytes is needed, not of {len(raw)}")
    return bytes([len(raw)]) + raw


def _check_format(version: int, what: str) -> None:
    if version != _FORMAT:
        newer = "; it is of a newer version of Sarit: start that one" if version > _FORMAT else ""
        raise Invalid(f"{what} has the format {version}, and this version of Sarit reads {_FORMAT}{newer}")


class _Cursor:
    """Takes values from bytes one after the other.  Raises Invalid when they end too early."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise Invalid(f"{self._what} ends after {len(self._data)} bytes, before {end}")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def count(self) -> int:
        (number,) = _COUNT.unpack(self.take(_COUNT.size))
        return int(number)

    def text(self) -> str:
        try:
            text = self.take(self.take(1)[0]).decode()
        except UnicodeDecodeError as error:
            raise Invalid(f"{self._what} holds a text that is not UTF-8: {error}") from None
        if not text:
            raise Invalid(f"{self._what} holds an empty name or host")
        return text

    def store(self) -> StoreAddress:
        host, machine = self.text(), self.text()
        port, incarnation, weight, leaving = _STORE.unpack(self.take(_STORE.size))
        if leaving > 1 or weight > MAX_STORE_WEIGHT:
            raise Invalid(f"{self._what} holds a store of weight {weight} and state {leaving}")
        return StoreAddress(host, port, machine, incarnation, weight, bool(leaving))

    def end(self) -> None:
        if self._at != len(self._data):
            raise Invalid(f"{self._what} has {len(self._data) - self._at} bytes too many")
