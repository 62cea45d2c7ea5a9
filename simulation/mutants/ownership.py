"""Mutants of ownership: who may open a container, answer for it, and change the container map."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sarit.cluster.map_watch import MapWatch
from sarit.cluster.member import Member
from sarit.coordination.assign import _Plan
from sarit.coordination.container_map import ContainerMap
from sarit.coordination.limits import STORE_LEASE_MARGIN_SECONDS
from sarit.coordination.memory import MemoryCoordination
from sarit.coordination.port import MemberState
from sarit.store.hosting.states import Event, Hosting
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWNER = "one owner answers"
_MEMBER = "tests/unit/cluster/test_member.py::test"
_HOSTING = "tests/unit/store/test_hosting.py::test"


@mutant(_OWNER, stores=3)
@contextmanager
def lease_always_valid() -> Iterator[None]:
    """A store that is cut off from coordination answers without a proof that it still owns its containers."""

    def wrong(self: Any) -> bool:
        return True

    with patched(Member, Member.valid, wrong):
        yield


@mutant(_OWNER, found_by=f"{_MEMBER}_lease_is_not_trusted_without_a_connection")
@contextmanager
def suspended_lease_is_trusted() -> Iterator[None]:
    """A store that has lost its connection answers without a proof until its lease ends by its own reckoning."""

    # Found by seed 1421372 with drawn stores.
    def wrong(self: Any) -> bool:
        membership = self._membership
        if membership is None or membership.state is MemberState.LOST:
            return False
        term = self._lease_seconds - STORE_LEASE_MARGIN_SECONDS
        until = min(membership.valid_until, self.watch.read_at + term)
        return bool(max(self._standstill.now(), self._standstill.ended_at + term) < until)

    with patched(Member, Member.valid, wrong):
        yield


@mutant(_OWNER, stores=3)
@contextmanager
def owner_to_be_opens_at_once() -> Iterator[None]:
    """A store opens a container that moves to it before its old owner has released it."""

    def wrong(self: Any, container: int, store: str, incarnation: int) -> bool:
        known = self.stores.get(store)
        return known is not None and known.incarnation == incarnation and self.owners[container] == store

    with patched(ContainerMap, ContainerMap.named, wrong):
        yield


@mutant(_OWNER, stores=3)
@contextmanager
def revoked_container_given_at_once() -> Iterator[None]:
    """A revoked container gets its next owner without a release and without waiting for a lease."""
    right = _Plan.end_moves

    def wrong(self: Any, recent: Any, now: float, lease_seconds: float) -> None:
        right(self, recent, now, 0.0)

    with patched(_Plan, _Plan.end_moves, wrong):
        yield


@mutant(
    "a container that is fenced waits for a newer map",
    found_by=f"{_HOSTING}_fenced_container_opens_on_a_newer_map_only",
)
@contextmanager
def fenced_container_opens_under_the_same_map() -> Iterator[None]:
    """A container that another store has fenced opens again under the same map, and fences that store."""

    def wrong(self: Any, map_version: int) -> Any:
        self.map_version = max(self.map_version, map_version)
        return self.on(Event.OWN)

    with patched(Hosting, Hosting.own, wrong):
        yield


@mutant(_OWNER, found_by=f"{_MEMBER}_lease_that_ends_closes_everything_at_once")
@contextmanager
def lost_lease_ignored() -> Iterator[None]:
    """A store whose lease was lost goes on as if nothing had happened."""

    def wrong(self: Any, state: Any) -> None:
        self._lease_changed.set()

    with patched(Member, Member._on_state, wrong):
        yield


@mutant("the map is changed by compare-and-set", stores=3)
@contextmanager
def map_written_without_comparison() -> Iterator[None]:
    """Of two leaders that act at once, the later write wins."""

    def wrong(self: Any, name: str, value: bytes, expected: int) -> int:
        stored: int = self._store(name, value)
        return stored

    with patched(MemoryCoordination, MemoryCoordination.set, wrong):
        yield


@mutant("the newest map counts", found_by=f"{_MEMBER}_router_names_the_store_that_serves_a_moving_container")
@contextmanager
def older_map_followed() -> Iterator[None]:
    """A map that was read late replaces a newer one."""

    def wrong(self: Any, record: ContainerMap) -> None:
        self.map = record
        self._on_map(record)

    with patched(MapWatch, MapWatch.learn, wrong):
        yield


@mutant("no needless fencing", found_by=f"{_MEMBER}_opener_that_the_newest_map_does_not_name_gives_up")
@contextmanager
def opener_does_not_confirm() -> Iterator[None]:
    """A store opens a container without reading the map once more, and fences its right owner."""

    async def wrong(self: Any, number: int) -> None:
        return

    with patched(Member, Member.confirm, wrong):
        yield
