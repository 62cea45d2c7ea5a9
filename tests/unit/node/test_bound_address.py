"""A node listens at one address of its host, with both its ports, and advertises that address."""

import asyncio
import socket

import pytest

from sarit.env.real import real_env
from sarit.node.settings import NodeConfig
from sarit.node.standalone import open_node


@pytest.mark.parametrize("order", [(socket.AF_INET6, socket.AF_INET), (socket.AF_INET, socket.AF_INET6)])
def test_localhost_resolves_to_one_address(order, tmp_path, monkeypatch) -> None:
    """The API listened at ::1, too, but the store did not: clients that tried ::1 first failed at the store."""
    real = socket.getaddrinfo
    addresses = {socket.AF_INET6: ("::1", 0, 0, 0), socket.AF_INET: ("127.0.0.1", 0)}

    def both(host, *arguments, **options):
        if host != "localhost":
            return real(host, *arguments, **options)
        return [(family, socket.SOCK_STREAM, 6, "", addresses[family]) for family in order]

    monkeypatch.setattr(socket, "getaddrinfo", both)

    async def main() -> None:
        config = NodeConfig(str(tmp_path), host="localhost", controller_port=0, store_port=0, containers=1)
        node = await open_node(config.validated(), real_env())
        await node.start()
        try:
            assert [listener.getsockname()[0] for listener in node._api.sockets] == ["127.0.0.1"]
            assert node.controller.advertised[0] == node.segments.endpoint("s/t/0")[0] == "127.0.0.1"
        finally:
            await node.stop()

    asyncio.run(main())
