"""Assigns containers to stores: a pure function from a map and the living members to the next map.

1. A move ends when its target is gone (the source keeps the container) or when its source is gone.  After MOVE_SECONDS
   the container is *revoked*: no store owns it, and the source must close it at once.  It is assigned again when the
   source has released it, or after a lease: a source that has not read the map by then treats its lease as ended.
2. Containers whose owner is gone go at once to the stores with the fewest containers per weight; among these to
   another machine, and then by rendezvous hash, so that the result does not depend on the order of members.
3. A store that leaves, or has weight 0, gives its containers away by graceful moves, a few at a time.
4. Containers move from the fullest to the emptiest store while that balances the load: two at a time, no container that
   moved within the last minute, and none shortly after a store has left or joined (it may just restart).

A graceful move counts until its target has opened the container, and each target gets two at a time: a store opens
containers one after the other, and the writers of the last one would wait for all.

Steps 2 to 4 make only necessary changes, so that a second call changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from sarit.coordination.container_map import ContainerMap, StoreAddress
from sarit.coordination.limits import (
    BALANCE_QUIET_SECONDS,
    CONTAINER_REST_SECONDS,
    MAX_BALANCE_MOVES,
    MAX_LEAVING_MOVES,
    MAX_MOVES_TO_STORE,
    MOVE_SECONDS,
    STORE_LEASE_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Recent:
    """The recent changes that a leader has seen, on its own monotonic clock.

    `changed_at`: when a store last joined or left.  `moved_at`: when containers got their owners, if that was seen."""

    changed_at: float
    moved_at: Mapping[int, float] = field(default_factory=dict)

    def after(self, before: ContainerMap, now_map: ContainerMap, now: float) -> Recent:
        """Return these changes together with those between two maps."""
        moved = {
            number: now
            for number, owner in enumerate(now_map.owners)
            if before.owners[number] not in (None, owner)
            # A leader that has just started counts the moves that it finds as begun now.
            or (number in now_map.moving and number not in self.moved_at)
        }
        changed = _starts(before.stores) != _starts(now_map.stores)
        return Recent(now if changed else self.changed_at, {**self.moved_at, **moved} if moved else self.moved_at)


def assign(
    current: ContainerMap, members: Mapping[str, StoreAddress], recent: Recent, now: float,
    lease_seconds: float = STORE_LEASE_SECONDS,
) -> ContainerMap:  # fmt: skip
    """Return the next map, or `current` itself if nothing needs to change.  `now`: by the clock of `recent`."""
    plan = _Plan(current, members)
    plan.end_moves(recent, now, lease_seconds)
    plan.place_orphans()
    plan.empty_leaving()
    quiet = _starts(members) == _starts(current.stores) and now >= recent.changed_at + BALANCE_QUIET_SECONDS
    if quiet:
        plan.balance(recent, now)
    return plan.result()


def _starts(stores: Mapping[str, StoreAddress]) -> set[tuple[str, int]]:
    return {(store, address.incarnation) for store, address in stores.items()}


def rendezvous(container: int, store: str) -> bytes:
    """Return the rank of a store for a container; the highest rank wins."""
    return blake2b(f"{container}/{store}".encode(), digest_size=8).digest()


class _Plan:
    """The next map while it is being made."""

    def __init__(self, current: ContainerMap, members: Mapping[str, StoreAddress]) -> None:
        self._current = current
        self._members = {store: replace(members[store], opening=0) for store in sorted(members)}
        self._opening = {store: members[store].opening for store in self._members}
        self._usable = [store for store, address in self._members.items() if address.usable]
        self._owners = list(current.owners)
        self._moving = dict(current.moving)
        self._begun: set[int] = set()
        self._counts = dict.fromkeys(self._members, 0)
        for owner in self._owners:
            if owner in self._counts:
                self._counts[owner] += 1

    def end_moves(self, recent: Recent, now: float, lease_seconds: float) -> None:
        for container, source in list(self._moving.items()):
            target, since = self._owners[container], recent.moved_at.get(container, now)
            if not self._same_start(source) or (target is None and now >= since + lease_seconds):
                del self._moving[container]
            elif target is not None and target not in self._members:
                self._give(container, source)
                del self._moving[container]
            elif target is not None and now >= since + MOVE_SECONDS:
                self._give(container, None)

    def place_orphans(self) -> None:
        for container, owner in enumerate(self._owners):
            if owner not in self._members and container not in self._moving:
                self._give(container, self._emptiest(container, owner) if self._usable else None)

    def empty_leaving(self) -> None:
        if not self._usable:
            return
        for container, owner in enumerate(self._owners):
            if self._under_way() >= MAX_LEAVING_MOVES:
                return
            if owner is not None and not self._members[owner].usable and container not in self._moving:
                target = self._emptiest(container, owner)
                # If the best target has enough moves, wait: another target would have to give the container away again.
                if self._under_way_to(target) < MAX_MOVES_TO_STORE:
                    self._move(container, target)

    def balance(self, recent: Recent, now: float) -> None:
        rested = {
            container
            for container in range(len(self._owners))
            if container not in self._moving
            and now >= recent.moved_at.get(container, now - CONTAINER_REST_SECONDS) + CONTAINER_REST_SECONDS
        }
        while self._under_way() < MAX_BALANCE_MOVES and (found := self._improvement(rested)) is not None:
            container, target = found
            rested.discard(container)
            self._move(container, target)

    def result(self) -> ContainerMap:
        current = self._current
        found = ContainerMap(current.version, self._members, tuple(self._owners), self._moving)
        if found == current:
            return current
        return ContainerMap(current.version + 1, self._members, tuple(self._owners), self._moving)

    def _under_way(self) -> int:
        """Return how many containers move now, or are being opened by the stores that they have moved to."""
        revoked = sum(self._owners[container] is None for container in self._moving)
        return sum(map(self._under_way_to, self._members)) + revoked

    def _under_way_to(self, store: str) -> int:
        """Return how many containers move to a store now.  Its own count of openings includes those it knows of."""
        coming = [container in self._begun for container in self._moving if self._owners[container] == store]
        return max(coming.count(False), self._opening[store]) + coming.count(True)

    # -- the parts of a step ------------------------------------------------------------------------

    def _same_start(self, store: str) -> bool:
        """Return whether a store is a member, and has not restarted since the current map."""
        member, known = self._members.get(store), self._current.stores.get(store)
        return member is not None and known is not None and member.incarnation == known.incarnation

    def _give(self, container: int, store: str | None) -> None:
        before = self._owners[container]
        if before in self._counts:
            self._counts[before] -= 1
        self._owners[container] = store
        if store is not None:
            self._counts[store] += 1

    def _move(self, container: int, target: str) -> None:
        source = self._owners[container]
        assert source is not None, container
        self._give(container, target)
        self._moving[container] = source
        self._begun.add(container)

    def _load_with(self, store: str, more: int) -> float:
        """Return the containers per weight that a store would have with `more` containers."""
        return (self._counts[store] + more) / self._members[store].weight

    def _emptiest(self, container: int, before: str | None) -> str:
        # Use the member's present machine, which the next map will have, so that a second call decides the same.
        known = None if before is None else self._members.get(before) or self._current.stores.get(before)
        machine = None if known is None else known.machine

        def rank(store: str) -> tuple[float, bool, int, str]:
            same = self._members[store].machine == machine
            return self._load_with(store, 1), same, -int.from_bytes(rendezvous(container, store), "big"), store

        return min(self._usable, key=rank)

    def _improvement(self, rested: set[int]) -> tuple[int, str] | None:
        """Return a container to move and its target, the emptiest store; None: no move would balance the load."""
        target = min(self._usable, key=lambda store: (self._load_with(store, 1), store), default=None)
        if target is None:
            return None
        for source in sorted(self._usable, key=lambda store: (-self._load_with(store, 0), store)):
            if self._load_with(source, 0) <= self._load_with(target, 1):
                return None
            movable = [container for container in rested if self._owners[container] == source]
            if movable:
                return max(movable, key=lambda container: (rendezvous(container, target), container)), target
        return None
