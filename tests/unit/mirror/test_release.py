"""The source of a deleted link that pulled keeps nothing for it any more, or the one who deleted it is warned."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sarit.controller.holds import Holds
from sarit.controller.service import handlers
from sarit.core.links import Link, LinkDirection, LinkRole, LinkSettings, LinkState
from sarit.core.names import StreamName
from sarit.core.policies import StreamConfig
from sarit.env.real import real_env
from sarit.mirror import link_service
from sarit.mirror.attached_calls import AttachedCalls
from sarit.mirror.calls import MirrorCalls
from sarit.mirror.link_service import release_at_peer
from sarit.mirror.source import LocalSource
from sarit.rpc.mirror_methods import MIRROR
from sarit.rpc.request_limiter import RequestLimiter
from tests.rpc_calls import listen
from tests.unit.mirror.installations import LINK, OTHER_LINK, installation

if TYPE_CHECKING:
    import pytest

    from sarit.mirror.values import LinkIdentity

A, B = StreamName("app", "a"), StreamName("other", "b")


@dataclass
class Sides:
    source: Any
    target: Any = None


def link_to(address: str) -> Link:
    settings = LinkSettings(LinkDirection.PULL, address, hold_bytes=1 << 30)
    return Link(LINK.name, LINK.link_id, 0, LinkRole.ACTIVE, LinkState.PAUSED, settings)


def test_all_scopes_are_released_whatever_the_link_chose() -> None:
    async def main() -> None:
        edge = await installation("edge")
        c = edge.controller
        for name in (A, B):
            await c.scopes.create(name.scope)
            await c.streams.create(name, StreamConfig())
        source = LocalSource(c.catalog, c.streams, c.segments, edge.store.env, "edge", c.growth)
        seen: list[LinkIdentity] = []

        async def passive(link: LinkIdentity, scope: str) -> None:
            seen.append(link)

        sides: Any = Sides(source)
        server, port = await listen(
            handlers(MIRROR, (MirrorCalls(sides, passive), AttachedCalls(sides)), RequestLimiter())
        )
        holds = Holds(c.catalog, c.segments, edge.store.env.clock)
        for link in (LINK, OTHER_LINK):
            for name in (A, B):
                await source.hold(link, name.scope, [(name, {0: 0})])
        for name in (A, B):
            await c.segments.append_at_many([(f"{name}/0.#epoch.0", 0, b"abcde")])
        assert await holds.bytes_of(LINK.link_id) == 10
        assert await release_at_peer(link_to(f"127.0.0.1:{port}"), real_env(), "core") == ""
        assert await holds.bytes_of(LINK.link_id) == 0
        assert await holds.bytes_of(OTHER_LINK.link_id) == 10
        assert seen == []  # a link that holds nothing is not listed again
        server.close()
        await edge.stop()

    asyncio.run(main())


def test_a_source_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_service, "PEER_CHECK_SECONDS", 0.05)

    async def main() -> None:
        silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        for address in (f"127.0.0.1:{port}", "127.0.0.1:1"):
            warning = await release_at_peer(link_to(address), real_env(), "core")
            assert warning.startswith(f"{address} may go on holding for link to-core (")
            assert "`sarit link list` there names it" in warning
        silent.close()

    asyncio.run(main())
