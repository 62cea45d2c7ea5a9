"""Every public method of the client that asks the node, while one of two controllers dies, ends as if none had died.

Both are proxies before one node.  The first one breaks each connection: before it forwards a byte, as a controller that
is gone; or when the node has answered, as one that carried the call out and died before its answer arrived."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sarit.client import aio
from tests.unit.client.away_cases import CASES, World, wait
from tests.unit.client.nodes import local_node
from tests.unit.client.proxy import Proxy, proxy, reset

pytestmark = pytest.mark.long

AT_ONCE = 8
# Some calls wait for what never happens, with one controller too; reads of a group for a lease of 30 s.
WAITS_SECONDS = 60.0


class LosesAnswers(Proxy):
    """Once `losing`, it forwards what a client asks, and ends the connection when the first call was answered."""

    losing = False

    async def _forward(self, source, sink, client, *, to_node) -> None:
        while data := await source.read(65536):
            # The reply to a call has a header frame; before it only settings and acknowledgements come.
            if self.losing and not to_node and _has_headers(data):
                self.broken += 1
                reset(client)
                raise ConnectionResetError
            sink.write(data)
        raise ConnectionResetError


def _has_headers(data: bytes) -> bool:
    """Whether whole HTTP/2 frames hold one of type HEADERS."""
    at = 0
    while at + 9 <= len(data):
        if data[at + 3] == 1:
            return True
        at += 9 + int.from_bytes(data[at : at + 3], "big")
    return False


async def ending(call: Any) -> str:
    """How a call ends: "" or the kind of its error, and what it says."""
    try:
        async with asyncio.timeout(WAITS_SECONDS):
            await wait(call())
    except TimeoutError:
        return "waits"
    except BaseException as error:
        return repr(error)
    return ""


@pytest.mark.parametrize("how", ["is gone", "loses answers"])
def test_no_method_sees_that_a_controller_dies(tmp_path, how) -> None:
    async def go() -> dict[str, tuple[str, str]]:
        async with local_node(tmp_path / "node") as made, proxy(("127.0.0.1", made.node.controller_port)) as second:
            first = await LosesAnswers(("127.0.0.1", made.node.controller_port)).start()
            few = asyncio.Semaphore(AT_ONCE)
            clients: list[Any] = []

            async def make(name: str, prepare: Any, address: str) -> Any:
                async with few:
                    clients.append(await aio.connect(address, retry_timeout=120))
                    return await prepare(World(clients[-1], name.replace("_", "-")))

            both = f"{first.address},{second.address}"
            with_one = await asyncio.gather(
                *(make(f"one-{name}", prepare, second.address) for name, (prepare, _) in CASES.items())
            )
            with_two = await asyncio.gather(
                *(make(f"two-{name}", prepare, both) for name, (prepare, _) in CASES.items())
            )
            if how == "is gone":
                await first.refuse()
            else:
                first.losing = True
            found = await asyncio.gather(*map(ending, [*with_two, *with_one]))
            assert how == "is gone" or first.broken > len(CASES) / 3
            await asyncio.gather(*(client.close() for client in clients))
            await first.stop()
            return {name: (found[at], found[len(CASES) + at]) for at, name in enumerate(CASES)}

    ended = asyncio.run(go())
    wrong = {name: pair for name, pair in ended.items() if pair[0].partition("(")[0] != pair[1].partition("(")[0]}
    assert not wrong, "\n".join(f"{name}: with a death {two}, without {one}" for name, (two, one) in wrong.items())
