"""Connections that end at any byte of an exchange: the calls are tried again, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio

import pytest

from sarit.client import aio
from sarit.core.names import SegmentId
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import local_node
from tests.unit.client.proxy import proxy

NEVER = 100_000
AT_ONCE = 16


class Exchange:
    """What a client does on new connections, in some hundred bytes each way; several run at once, on a stream each."""

    def __init__(self, number: int) -> None:
        self.stream = f"s/t{number}"
        self.written = 0

    async def run(self, address: str, store_port: int) -> None:
        async with await aio.connect(address, wait=10, retry_timeout=10) as client:

            async def endpoint(stream, segment):
                return "127.0.0.1", store_port

            client.session.controller.endpoint = endpoint
            await self.calls(client)

    async def calls(self, client) -> None:
        """Beyond the connect itself, which asks the controller."""


class WriteAndRead(Exchange):
    async def calls(self, client) -> None:
        async with client.writer(self.stream) as writer:
            writer.write(f"{self.written:04}")
        self.written += 1
        (info,) = (await client.segment_infos(self.stream, [SegmentId(0, 0)])).values()
        assert info.end_offset == 12 * self.written, "each event once"
        async with client.byte_reader(self.stream, 12 * (self.written - 1)) as reader:
            assert (await reader.read_exactly(12))[8:] == b"%04d" % (self.written - 1)


async def break_at_every_byte(made, exchange: Exchange, first: int, to_node: bool, resets: bool) -> int:
    """At byte `first`, and every `AT_ONCE` bytes from there; the position that the exchange does not reach."""
    ports = made.node.controller_port, made.node.store_port
    stores = isinstance(exchange, WriteAndRead)
    async with proxy(("127.0.0.1", ports[stores])) as broken:
        broken.resets = resets
        for position in range(first, NEVER, AT_ONCE):
            broken.break_after = (to_node, position)
            async with asyncio.timeout(HANG_SECONDS):
                await (exchange.run(made.address, broken.port) if stores else exchange.run(broken.address, ports[1]))
            if broken.break_after is not None:
                return position
    raise AssertionError("the exchange has no end")


# In the default suite each exchange is broken at each byte in each direction, once by a reset and once by an end.
WAYS = [
    pytest.param(True, True, id="to-node-reset"),
    pytest.param(False, False, id="from-node-closed"),
    pytest.param(True, False, id="to-node-closed", marks=pytest.mark.long),  # in `make prove`
    pytest.param(False, True, id="from-node-reset", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("to_node", "resets"), WAYS)
@pytest.mark.parametrize("exchange", [Exchange, WriteAndRead], ids=["controller", "store"])
def test_connection_broken_at_any_byte_is_replaced(tmp_path, exchange, to_node, resets) -> None:
    async def go() -> list[int]:
        async with local_node(tmp_path / "node") as made:
            exchanges = [exchange(number) for number in range(AT_ONCE)]
            for each in exchanges:
                await made.client.create_stream(each.stream)
            return await asyncio.gather(
                *(break_at_every_byte(made, each, first, to_node, resets) for first, each in enumerate(exchanges))
            )

    assert min(asyncio.run(go())) > 50
