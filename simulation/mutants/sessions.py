"""Mutants of coordination by ZooKeeper, of the leader, and of what a fence keeps out."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sarit.coordination import zookeeper
from sarit.coordination.assign import _Plan
from sarit.coordination.container_map import ContainerMap
from sarit.coordination.port import MemberState
from sarit.coordination.zookeeper import ZooKeeper
from sarit.coordination.zookeeper_client import get_after_sync
from sarit.coordination.zookeeper_ports import ZooKeeperMembership
from sarit.core.errors import Exists, Unavailable
from sarit.index.memory import MemoryIndex
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWNER = "one owner answers"
_ZOOKEEPER = "tests/unit/simulation/test_zookeeper.py::test"
_MAP = "tests/unit/coordination/test_container_map.py::test"


@mutant(
    "changes are compare-and-set",
    found_by="tests/contract/test_coordination.py::test_set_needs_the_version_that_is_there",
)
@contextmanager
def zookeeper_node_set_at_any_version() -> Iterator[None]:
    """A node of ZooKeeper is replaced whatever its version."""
    right = ZooKeeper.set

    async def wrong(self: Any, path: str, value: bytes, expected: int | None) -> int:
        return await right(self, path, value, None)

    with patched(ZooKeeper, ZooKeeper.set, wrong):
        yield


@mutant(
    "changes are compare-and-set",
    found_by=f"{_ZOOKEEPER}_change_whose_connection_is_lost_has_an_unknown_outcome_and_may_be_done",
)
@contextmanager
def unknown_outcome_at_zookeeper_called_done() -> Iterator[None]:
    """A change of a node counts as done when the connection was lost before its answer."""
    right = ZooKeeper.set

    async def wrong(self: Any, path: str, value: bytes, expected: int | None) -> int:
        try:
            return await right(self, path, value, expected)
        except Unavailable:
            if expected is None:
                raise
            return expected + 1

    with patched(ZooKeeper, ZooKeeper.set, wrong):
        yield


@mutant(
    _OWNER,
    found_by=f"{_ZOOKEEPER}_register_is_not_read_old_at_a_server_that_is_behind",
)
@contextmanager
def registers_read_at_a_server_that_is_behind() -> Iterator[None]:
    """The container map is read as the server has it that a store is connected to (found by the simulation)."""

    def wrong(client: Any, path: str) -> Any:
        return client.get_async(path)

    with patched(zookeeper, get_after_sync, wrong):
        yield


@mutant(
    "every container has a store",
    found_by=f"{_ZOOKEEPER}_session_that_is_silent_ends_with_its_member_and_learns_it_when_it_is_back",
)
@contextmanager
def end_of_session_not_reported() -> Iterator[None]:
    """A store does not learn that its session has ended, and that its node is gone."""
    right = ZooKeeperMembership.on_session_state

    def wrong(self: Any, state: MemberState) -> None:
        if state is not MemberState.LOST:
            right(self, state)

    with patched(ZooKeeperMembership, ZooKeeperMembership.on_session_state, wrong):
        yield


@mutant("every container has a store", stores=3, on_bookies=True)
@contextmanager
def node_of_an_earlier_session_taken_over() -> Iterator[None]:
    """A store that starts again takes the node of its earlier session for its own, which goes with that session."""
    right = ZooKeeper.create_ephemeral

    async def wrong(self: Any, path: str, value: bytes) -> int:
        try:
            return await right(self, path, value)
        except Exists:
            found = await self.creation(path)
            if found is None:
                raise
            return int(found[0])

    with patched(ZooKeeper, ZooKeeper.create_ephemeral, wrong):
        yield


@mutant("every container has a store", stores=3)
@contextmanager
def containers_of_lost_stores_not_placed() -> Iterator[None]:
    """The leader places the containers that nobody has had, and not those of a store that is gone."""
    right = _Plan._give

    def wrong(self: Any, container: int, store: str | None) -> None:
        if self._owners[container] is None or self._owners[container] in self._members:
            right(self, container, store)

    with patched(_Plan, _Plan._give, wrong):
        yield


@mutant(
    "every container has a store",
    found_by=f"{_MAP}_fenced_owner_gets_a_newer_version",
)
@contextmanager
def fenced_owner_gets_no_newer_map() -> Iterator[None]:
    """The report of an owner that it was fenced does not change the map: it waits for a newer one."""

    def wrong(self: Any, container: int, store: str, opened_version: int) -> ContainerMap:
        moved: ContainerMap = self if self.moving.get(container) != store else self.released(container, store)
        return moved

    with patched(ContainerMap, ContainerMap.fenced, wrong):
        yield


@mutant("a replaced owner changes nothing", found_by="tests/contract/test_index.py::test_opening_fences_earlier_owner")
@contextmanager
def index_takes_commits_of_replaced_owners() -> Iterator[None]:
    """The index takes a commit of an owner after another one has opened it."""
    right = MemoryIndex.commit

    async def wrong(self: Any, batch: Any) -> None:
        self._table, before = _NeverFenced(self._table, self._epoch), self._table
        try:
            await right(self, batch)
        finally:
            self._table = before

    with patched(MemoryIndex, MemoryIndex.commit, wrong):
        yield


class _NeverFenced:
    """A table whose epoch is that of the handle."""

    def __init__(self, table: Any, epoch: int) -> None:
        self._table = table
        self.epoch = epoch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)
