"""Metadata of ledgers in ZooKeeper: ids as the Java client draws them, and answers that are lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sarit.core.errors import Conflict, Corrupt, Exists, Invalid, NotFound, Unavailable
from sarit.log.bookkeeper.ledger_store import ZooKeeperLedgers
from sarit.log.bookkeeper.metadata import LedgerMetadata, LedgerState, path_of
from tests.unit.log.bookkeeper.nodes import MemoryNodes

OPEN = LedgerMetadata(1, 1, 1, LedgerState.OPEN, ((0, ("a:1",)),), ctoken=77)
LAYOUT = b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1"


@pytest.fixture
def nodes():
    return MemoryNodes()


@pytest.fixture
def ledgers(nodes):
    return ZooKeeperLedgers(nodes)


def run(work):
    return asyncio.run(work)


def test_ids_are_those_of_sequential_nodes(nodes, ledgers):
    assert [run(ledgers.create(OPEN)) for _ in range(3)] == [(0, 0), (1, 0), (2, 0)]
    assert set(nodes.nodes) == {path_of(ledger) for ledger in range(3)}
    assert nodes.calls[1:3] == ["create /ledgers/idgen/ID-", "delete /ledgers/idgen/ID-0000000000"]


def test_metadata_is_replaced_at_its_version_only(ledgers):
    ledger, version = run(ledgers.create(OPEN))
    closed = replace(OPEN, state=LedgerState.CLOSED, last_entry=5, length=9)
    assert run(ledgers.set(ledger, closed, version)) == 1
    assert run(ledgers.get(ledger)) == (closed, 1)
    with pytest.raises(Conflict):
        run(ledgers.set(ledger, OPEN, version))
    with pytest.raises(Conflict):
        run(ledgers.delete(ledger, 0))
    run(ledgers.delete(ledger, 1))
    with pytest.raises(NotFound, match="ledger 0 has no metadata"):
        run(ledgers.get(ledger))
    with pytest.raises(NotFound):
        run(ledgers.delete(ledger))


def test_damaged_metadata_names_its_ledger(nodes, ledgers):
    nodes.nodes[path_of(5)] = (b"garbage", 0)
    with pytest.raises(Corrupt, match="the metadata of ledger 5 begins with b'garbage'"):
        run(ledgers.get(5))


def test_a_create_whose_answer_is_lost_is_found_by_its_token(nodes, ledgers):
    creates = 0
    original = nodes.create

    async def create(path, value, **options):
        nonlocal creates
        creates += 1
        if creates == 2:
            nodes.fail["create"] = True
        return await original(path, value, **options)

    nodes.create = create
    ledger, version = run(ledgers.create(OPEN))
    assert (creates, version) == (2, 0)
    assert run(ledgers.get(ledger)) == (OPEN, 0)


@pytest.mark.parametrize("token", [78, 0])
def test_a_node_of_another_token_is_not_ours(nodes, ledgers, token):
    other = ZooKeeperLedgers(nodes)
    run(other.create(replace(OPEN, ctoken=token)))
    nodes.numbers.clear()
    with pytest.raises(Exists):
        run(ledgers.create(replace(OPEN, ctoken=77 if token else 0)))


def test_a_create_that_was_not_done_is_unavailable(nodes, ledgers):
    nodes.fail["create"] = False
    with pytest.raises(Unavailable):
        run(ledgers.create(OPEN))
    assert not nodes.nodes


def test_metadata_that_was_not_created_is_unavailable_and_not_missing(nodes, ledgers):
    """A log tries again after Unavailable, and ends with any other error."""
    run(ledgers.create(OPEN))
    original = nodes.create

    async def create(path, value, **options):
        if path == path_of(1):
            nodes.fail["create"] = False
        return await original(path, value, **options)

    nodes.create = create
    with pytest.raises(Unavailable):
        run(ledgers.create(OPEN))


def test_an_id_node_that_cannot_be_deleted_does_not_matter(nodes, ledgers):
    nodes.fail["delete"] = False
    assert run(ledgers.create(OPEN)) == (0, 0)


def test_wrong_metadata_uses_no_id(nodes, ledgers):
    with pytest.raises(Invalid):
        run(ledgers.create(replace(OPEN, ack_quorum=2)))
    assert not nodes.calls


def test_ids_have_an_upper_half_after_the_last_of_31_bits(nodes, ledgers):
    nodes.numbers["/ledgers/idgen/ID-"] = (1 << 31) - 2
    assert run(ledgers.create(OPEN))[0] == (1 << 31) - 2
    assert run(ledgers.create(OPEN))[0] == 1 << 32
    assert run(ledgers.create(OPEN))[0] == (1 << 32) + 1
    assert "/ledgers/idgen-long/HOB-0000000001" in nodes.nodes
    # The short ids are not used again, whatever is there.
    nodes.numbers.clear()
    nodes.numbers["/ledgers/idgen-long/HOB-0000000001/ID-"] = 9
    assert run(ledgers.create(OPEN))[0] == (1 << 32) + 9


def test_an_upper_half_that_is_used_up_is_followed_by_the_next(nodes, ledgers):
    nodes.nodes["/ledgers/idgen-long"] = (b"", 0)
    nodes.nodes["/ledgers/idgen-long/HOB-0000000004"] = (b"", 0)
    nodes.nodes["/ledgers/idgen-long/HOB-0000000009"] = (b"", 0)
    for used in (1 << 31) - 1, 1 << 31:
        nodes.numbers["/ledgers/idgen-long/HOB-0000000009/ID-"] = used
        assert run(ledgers.create(OPEN))[0] >> 32 == 10
        del nodes.nodes["/ledgers/idgen-long/HOB-0000000010"]


def test_the_layout_of_long_hierarchical_ledgers_is_accepted(nodes, ledgers):
    nodes.nodes["/ledgers/LAYOUT"] = (LAYOUT, 0)
    run(ledgers.check_layout())


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (None, "no BookKeeper is set up there"),
        (b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1", "HierarchicalLedgerManagerFactory:1"),
        (b"1\nflat:1", "zk\\+longhierarchical"),
        (b"\xff", "zk\\+longhierarchical"),
    ],
)
def test_another_layout_is_refused_with_the_reason(nodes, ledgers, layout, message):
    if layout is not None:
        nodes.nodes["/ledgers/LAYOUT"] = (layout, 0)
    with pytest.raises(Invalid, match=message):
        run(ledgers.check_layout())
