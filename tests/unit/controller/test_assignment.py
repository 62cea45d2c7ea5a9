"""Several controllers share the background work of one set of tables."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sarit.controller import keys
from sarit.controller.assignment import BUCKETS, Assignment, bucket_of, owner_of
from sarit.controller.calls.scopes import ScopeCalls
from sarit.controller.keys import RETENTION_INDEX, WATERMARK_INDEX
from sarit.controller.ports import TableUpdate
from sarit.core.metering import ScaleAdvice
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import StreamConfig
from sarit.rpc.generated import controller_pb2 as pb
from sarit.wire.limits import NO_VERSION
from tests.unit.controller.world import World, run

A, B, C = ("10.0.0.1", 9090), ("10.0.0.2", 9090), ("10.0.0.1", 9091)
addresses = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 9))


def test_bucket_of_a_name_never_changes():
    assert [bucket_of(name) for name in ("s/t", "s/u", "s", "")] == [11, 4, 30, 20]


@given(st.sets(addresses, min_size=2, max_size=9), st.data())
def test_only_the_buckets_of_a_member_that_leaves_move(members, data):
    left = data.draw(st.sampled_from(sorted(members)))
    after = sorted(members - {left})
    for bucket in range(BUCKETS):
        before = owner_of(bucket, sorted(members))
        assert before in members
        assert owner_of(bucket, after) == before or before == left


@given(st.lists(addresses, unique=True, min_size=1, max_size=9), st.text(max_size=9))
def test_each_name_belongs_to_one_member_whatever_the_order(members, name):
    assignments = [Assignment(lambda me=me: me, lambda: members[::-1]) for me in members]
    assert sum(assignment.is_mine(name) for assignment in assignments) == 1


def test_three_members_have_about_a_third_each():
    counts = [sum(owner_of(bucket, [A, B, C]) == member for bucket in range(BUCKETS)) for member in (A, B, C)]
    assert sum(counts) == BUCKETS
    assert min(counts) >= BUCKETS // 6


def test_controller_alone_does_everything_and_membership_is_followed():
    assert Assignment(lambda: A).is_mine("s/t")
    assert Assignment(lambda: A, lambda: []).is_mine("s/t")
    known = [A, B]
    assignment = Assignment(lambda: A, lambda: known)
    names = [f"s/t{number}" for number in range(100)]
    mine = sum(map(assignment.is_mine, names))
    assert 0 < mine < 100
    known.remove(B)
    assert all(map(assignment.is_mine, names))
    assert assignment.members() == (A,)


NAMES = [StreamName("s", f"t{number}") for number in range(8)]


async def two_controllers(world):
    """Two controllers on one set of tables, each with the names that are its own."""
    both = [await world.controller(address=address, members=lambda: [A, B]) for address in (A, B)]
    mine = [{str(name) for name in NAMES if controller.assignment.is_mine(str(name))} for controller in both]
    assert all(mine)
    return list(zip(both, mine, strict=True))


def test_requests_to_scale_are_evaluated_by_one_of_two_controllers():
    async def main():
        for controller, mine in await two_controllers(World()):
            for name in NAMES:
                controller.autoscale.request(f"{name}/0.#epoch.0", ScaleAdvice.SPLIT)
            assert {request.rpartition("/")[0] for request in controller.autoscale._requests} == mine

    run(main())


def test_streams_are_maintained_by_one_of_two_controllers():
    async def main():
        both = await two_controllers(World())
        for name in NAMES:
            await both[0][0].catalog.index_for_maintenance(RETENTION_INDEX, name)
            await both[0][0].catalog.index_for_maintenance(WATERMARK_INDEX, name)
        for controller, mine in both:
            for kind in (RETENTION_INDEX, WATERMARK_INDEX):
                assert {str(name) for name, _ in await controller.maintenance._entries(kind)} == mine

    run(main())


def test_cuts_are_recorded_by_one_of_two_controllers():
    async def main():
        world = World()
        both = await two_controllers(world)
        first = both[0][0]
        await first.scopes.create("s")
        for name in NAMES:
            await first.streams.create(name, StreamConfig())
            world.segments.append(name.segment(SegmentId(0, 0)), "x", 10)

        async def grown():
            return [name.segment(SegmentId(0, 0)) for name in NAMES]

        world.segments.grown = grown
        done = set()
        for controller, mine in both:
            await controller.timeline.run_round()
            done |= mine
            recorded = {str(name) for name in NAMES if await controller.timeline._stored(name)}
            assert recorded == done

    run(main())


def test_pending_work_is_recovered_by_one_of_two_controllers():
    async def main():
        world = World()
        both = await two_controllers(world)
        pending = {keys.pending_stream_key(name): str(name) for name in NAMES}
        pending |= {keys.pending_transaction_key(name, 7): str(name) for name in NAMES}
        pending[keys.pending_scope_key("s")] = "s"
        await world.tables.update(keys.WORK_TABLE, [TableUpdate(key, b"", NO_VERSION) for key in pending])
        seen = []
        for controller, _ in both:
            await controller.recovery_sweeper.sweep()
            seen.append(set(controller.recovery_sweeper._seen))
            assert seen[-1] == {key for key, name in pending.items() if controller.assignment.is_mine(name)}
        assert seen[0] | seen[1] == set(pending)

    run(main())


def test_every_controller_names_all_members():
    async def main():
        (controller, _), *_ = await two_controllers(World())
        calls = ScopeCalls(controller.catalog, controller.scopes, controller.assignment.members)
        found = (await calls.getControllerServerList(pb.ServerRequest())).nodeURI
        assert [(server.endpoint, server.port) for server in found] == [A, B]

    run(main())
