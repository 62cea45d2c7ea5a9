"""The cut that a stream had reached at a time, on a real node."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from sarit.client import aio
from sarit.core.errors import Invalid, NotFound
from sarit.rpc.generated import controller_pb2 as pb
from tests.unit.client.nodes import create_shrinkable, on_node


async def write(made, text: str) -> None:
    async with made.client.writer("s/t") as writer:
        for number in range(20):
            writer.write(f"{text}:{number}", key=str(number))


@on_node
async def test_cut_at_has_every_later_event_behind_it(made) -> None:
    clock, timeline = made.node.env.clock, made.node.controller.timeline
    await create_shrinkable(made.client, "s/t", 2)
    stream = made.client.stream("s/t")
    times = [clock.wall_ms()]
    for step in range(4):
        await write(made, str(step))
        await timeline.run_round()
        # The record is of the next whole millisecond.
        while clock.wall_ms() <= times[-1] + 1:
            await asyncio.sleep(0)
        times.append(clock.wall_ms())
        if step == 1:
            await stream.scale(3)
    head = await made.client.stream_cut_head("s/t")
    assert await stream.cut_at(0) == await stream.cut_at(times[0]) == head
    for step in range(4):
        cut = await stream.cut_at(times[step + 1] + 1)
        later = {event.partition(b":")[0] async for event in await stream.batch(cut)}
        assert later == {b"%d" % after for after in range(step + 1, 4)}
    middle = await stream.cut_at(times[2] + 1)
    await made.client.truncate_stream("s/t", cut=middle)
    assert await stream.cut_at(times[1]) == await stream.cut_at(times[2] + 1) == middle
    with pytest.raises(Invalid, match="time_ms=-1"):
        await stream.cut_at(-1)
    with pytest.raises(NotFound, match="stream s/none does not exist"):
        await made.client.stream("s/none").cut_at(5)


@on_node
async def test_growth_is_found_in_memory_and_after_a_restart_of_the_controller(made) -> None:
    await made.client.create_stream("s/t", segments=2)
    await made.client.create_stream("s/idle")
    segments = made.node.stores.segments
    assert "s/t/0.#epoch.0" not in await segments.grown()
    async with made.client.writer("s/t") as writer:
        for number in range(100):
            writer.write("x", key=str(number))
    async with made.client.transactional_writer("s/t") as writer:
        transaction = await writer.begin()
        transaction.write("y", key="1")
        await transaction.flush()
        assert {name for name in await segments.grown() if name.startswith("s/")} == {
            "s/t/0.#epoch.0", "s/t/1.#epoch.0",
        }  # fmt: skip
        await transaction.commit()
    # The merge of the transaction.
    assert len([name for name in await segments.grown() if name.startswith("s/t/")]) == 1
    assert [name for name in await segments.grown() if name.startswith("s/")] == []


def test_cut_at_on_a_server_without_the_call_is_invalid() -> None:
    """Pravega's own controller has its service alone."""
    server = grpc.server(ThreadPoolExecutor(2))
    exists = grpc.unary_unary_rpc_method_handler(
        lambda request, context: pb.ExistsResponse(exists=True),
        pb.ScopeInfo.FromString,
        pb.ExistsResponse.SerializeToString,
    )
    service = pb.DESCRIPTOR.services_by_name["ControllerService"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"checkScopeExists": exists}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    async def main() -> None:
        async with await aio.connect(f"127.0.0.1:{port}") as client:
            with pytest.raises(Invalid, match=r"has no call /sarit\.v1\.SaritService/cutAt: it is no Sarit"):
                await client.stream("s/t").cut_at(1_700_000_000_000)

    try:
        asyncio.run(main())
    finally:
        server.stop(None).wait()
