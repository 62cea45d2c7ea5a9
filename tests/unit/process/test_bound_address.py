"""A node listens at one address of its host, with both its ports, and advertises that address."""

import asyncio
import socket

import pytest

from sarit.env.real import real_env
from sarit.process.addresses import Advertised, warn_of_addresses
from sarit.process.security import SecurityConfig
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node


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
            assert [listener.getsockname()[0] for listener in node.controller_role._server.sockets] == ["127.0.0.1"]
            assert node.controller.advertised[0] == node.stores.segments.endpoint("s/t/0")[0] == "127.0.0.1"
        finally:
            await node.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("host", "users", "reached_by_all"),
    [
        ("127.0.0.1", False, False), ("::1", False, False), ("localhost", False, False),
        ("0.0.0.0", False, True), ("", False, True), ("::", False, True), ("192.0.2.7", False, True),
        ("0.0.0.0", True, False),
    ],
)  # fmt: skip
def test_warns_when_whoever_reaches_the_ports_may_do_everything(host, users, reached_by_all, caplog) -> None:
    """The console deletes streams: an operator must learn that there is no log-in."""
    security = SecurityConfig(users="/users", token_keys="/keys") if users else SecurityConfig()
    warn_of_addresses(NodeConfig("/data", host=host, advertised=Advertised("node1"), security=security))
    found = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(found) == reached_by_all
    assert all("without --users: whoever reaches the ports may" in record.getMessage() for record in found)


def test_warns_when_clients_of_other_machines_get_the_address_of_this_one(caplog) -> None:
    for advertised, warns in ((None, True), (Advertised("node1"), False)):
        caplog.clear()
        warn_of_addresses(NodeConfig("/data", host="0.0.0.0", advertised=advertised))
        assert ("name the address that others use with --advertise" in caplog.text) == warns
