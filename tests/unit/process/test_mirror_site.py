"""The links of a node: who answers the calls of others, and what they cost a node without links."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from sarit.core.errors import Invalid
from sarit.core.links import LinkDirection, LinkSettings
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.mirror.limits import MIRROR_PROTOCOL
from sarit.mirror.peer import Peer
from sarit.mirror.remote import RemoteSource
from sarit.process.ownership.claims import claim_directory
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from sarit.rpc.generated import sarit_pb2 as pb
from sarit.rpc.link_messages import settings_message
from tests.limits import HANG_SECONDS


def on_node(path, work, *, claimed=True):
    """Run `work(node, the node as the peer of a link, its id)`."""

    async def main():
        env = real_env()
        config = NodeConfig(str(path), controller_port=0, store_port=0, jobs=True).validated()
        claim = claim_directory(config, env) if claimed else None
        node = await open_node(config, env, claim)
        await node.start(claim)
        peer = Peer(LinkSettings(LinkDirection.PULL, f"127.0.0.1:{node.controller_port}"), env, "elsewhere")
        try:
            async with asyncio.timeout(HANG_SECONDS):
                return await work(node, peer, claim.node if claim is not None else "")
        finally:
            await peer.close()
            await node.stop()

    return asyncio.run(main())


def test_node_answers_a_link_of_another_installation(tmp_path):
    async def work(node, peer, installation):
        source = RemoteSource(peer)
        site = await source.site()
        assert (site.installation, site.protocol) == (installation, MIRROR_PROTOCOL)
        assert len(installation) == 32
        assert await source.scopes("") == []
        assert await source.facts("s", [StreamName("s", "t")], 0) == [None]
        # Jobs of this process have the same parts.
        assert node.controller_role.mirror() is node.controller_role.mirror()
        assert node.controller_role.mirror().installation == installation
        itself = Peer(LinkSettings(LinkDirection.PULL, peer._settings.peer), real_env(), installation)
        with pytest.raises(Invalid, match="a link to itself"):
            await itself.site()
        await itself.close()

    on_node(tmp_path / "node", work)


def test_installation_without_an_id_has_no_links(tmp_path):
    async def work(node, peer, _):
        with pytest.raises(Invalid, match="has no id"):
            await peer.site()

    on_node(tmp_path / "node", work, claimed=False)


def test_node_without_links_imports_nothing_of_them():
    program = (
        "import sys, sarit.process.standalone, sarit.process.worker_role, sarit.process.child\n"
        "print(*[one for one in sys.modules if one.startswith(('sarit.mirror', 'zstandard'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_administrators_create_links_on_a_node(tmp_path):
    async def work(node, _, installation):
        client = node.controller_role.listener.handlers
        assert {path.rpartition("/")[2] for path in client} >= {"createLink", "promoteLink"}
        links = node.controller_role.mirror.links()
        settings = settings_message(LinkSettings(LinkDirection.PUSH, f"127.0.0.1:{node.controller_port}"))
        with pytest.raises(Invalid, match="a link to itself"):
            await links.create(pb.CreateLinkRequest(name="plant", linkId=bytes(16), settings=settings))
        settings.peer = "127.0.0.1:1"  # away
        made = await links.create(pb.CreateLinkRequest(name="plant", linkId=bytes(16), settings=settings, paused=True))
        assert (made.state, made.peerInstallation) == ("paused", "")
        assert [link.name for link in (await links.all()).links] == ["plant"]
        await links.delete("plant")
        assert list((await links.all()).links) == []

    on_node(tmp_path / "node", work)
