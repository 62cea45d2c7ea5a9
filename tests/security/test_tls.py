"""TLS on the ports of a real node: our client, wrong certificates, clients that never finish a handshake, reload."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import warnings
from contextlib import suppress
from dataclasses import replace

import pytest

import sarit
from sarit.cli import dev_ca
from sarit.cli.dev_ca import make_certificates
from sarit.client import aio
from sarit.client.core.connection import ConnectionPool
from sarit.client.core.login import Tls, UserPassword
from sarit.env.real import real_env
from sarit.env.tls import ServerTls, TlsFiles
from sarit.env.tls_server import Handshakes, serve_tls
from sarit.process.security import Security, SecurityConfig
from tests.limits import HANG_SECONDS
from tests.security.running import PASSWORD, secured, write_files
from tests.unit.client.world import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    OLD_TLS = ssl.TLSVersion.TLSv1_1


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return {name: str(path) for name, path in make_certificates(tmp_path_factory.mktemp("ca"), (), 1).items()}


def _with_tls(config, certificates):
    return replace(config, certificate=certificates["server"], key=certificates["server key"], ca=certificates["ca"])


def test_client_writes_and_reads_over_tls(tmp_path, certificates):
    async def main() -> None:
        config = _with_tls(write_files(tmp_path), certificates)
        async with secured(tmp_path, config, certificates["ca"]) as node, node.client("root") as root:
            await root.create_scope("app")
            await root.create_stream("app/s")
            async with root.writer("app/s") as writer:
                writer.write_many([b"%d" % n for n in range(5000)])
            async with root.reader("app/s") as reader:
                events = aiter(reader)
                assert [await anext(events) for _ in range(5000)] == [b"%d" % n for n in range(5000)]

    asyncio.run(main())


def test_client_refuses_a_server_of_another_ca(tmp_path, certificates):
    other = make_certificates(tmp_path / "other", (), 1)

    async def main() -> None:
        config = _with_tls(write_files(tmp_path), certificates)
        async with secured(tmp_path, config) as node:
            with pytest.raises(sarit.Invalid, match=r"certificate of 127.0.0.1:\d+ is not accepted .*SARIT_CA_FILE"):
                await aio.connect(node.address, credentials=UserPassword("root", PASSWORD), tls=Tls(str(other["ca"])))

    asyncio.run(main())


def test_error_says_that_one_side_alone_uses_tls(tmp_path, certificates, monkeypatch):
    monkeypatch.setenv("SARIT_PLAIN_PASSWORDS", "1")
    login = UserPassword("root", PASSWORD)

    async def store(port: int, network=None) -> None:
        connections = ConnectionPool(network or real_env().network)
        try:
            await connections.to(("127.0.0.1", port), "test")
        finally:
            await connections.close()

    async def main() -> None:
        config = write_files(tmp_path)
        async with secured(tmp_path, _with_tls(config, certificates), certificates["ca"]) as node:
            with pytest.raises(sarit.Unavailable, match="no Sarit controller answers .* put tls:// before"):
                await aio.connect(node.address, credentials=login, retry_timeout=0, wait=0)
            with pytest.raises(sarit.Unavailable, match="segment store .* put tls:// before"):
                await store(node.node.store_port)
        async with secured(tmp_path, config) as node:
            with pytest.raises(sarit.Unavailable, match=r"TLS with the controller .* leave tls:// .* away"):
                await aio.connect(node.address, credentials=login, tls=Tls(certificates["ca"]), retry_timeout=0, wait=0)
            tls = ssl.create_default_context(cafile=certificates["ca"])
            with pytest.raises(sarit.Unavailable, match=r"TLS with segment store .* leave tls:// .* away"):
                await store(node.node.store_port, real_env(client_tls=lambda: tls).network)

    asyncio.run(main())


def test_old_tls_and_no_tls_are_refused(tmp_path, certificates):
    def handshake(port: int, version: ssl.TLSVersion) -> str | None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(certificates["ca"])
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = version
        with (
            socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as made,
        ):
            return made.version()

    def plain(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS) as made:
            made.sendall(b"\0" * 64)
            received = b""
            try:
                while piece := made.recv(4096):
                    received += piece
            except ConnectionResetError:
                pass
            return received

    async def main() -> None:
        config = _with_tls(write_files(tmp_path), certificates)
        async with secured(tmp_path, config, certificates["ca"]) as node:
            for port in (node.node.controller_port, node.node.store_port):
                with pytest.raises((ssl.SSLError, ConnectionResetError)):
                    await asyncio.to_thread(handshake, port, OLD_TLS)
                assert await asyncio.to_thread(handshake, port, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
                assert b"Hello" not in await asyncio.to_thread(plain, port)

    asyncio.run(main())


def test_client_without_a_certificate_is_refused_where_one_is_needed(tmp_path, certificates):
    async def main() -> None:
        config = replace(_with_tls(write_files(tmp_path), certificates), client_certificates=True)
        async with secured(tmp_path, config, certificates["ca"]) as node:
            login = UserPassword("root", PASSWORD)
            with pytest.raises(sarit.Unavailable):
                await aio.connect(node.address, credentials=login, tls=Tls(certificates["ca"]), retry_timeout=0)
            ours = Tls(certificates["ca"], certificates["client"], certificates["client key"])
            async with await aio.connect(node.address, credentials=login, tls=ours) as client:
                assert await client.create_scope("app")

    asyncio.run(main())


def test_unfinished_handshakes_are_bounded_and_forgotten(certificates, caplog):
    async def main() -> None:
        made: list[asyncio.BaseProtocol] = []

        class Counted(_Ends):
            def connection_made(self, transport) -> None:
                made.append(self)
                super().connection_made(transport)

        files = TlsFiles(certificates["server"], certificates["server key"])
        handshakes = Handshakes(ServerTls(files), most=2, seconds=0.2)
        server = await serve_tls(Counted, handshakes, "127.0.0.1", 0, 10)
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(HANG_SECONDS):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            # The first gives way to the third; the others wait for their handshakes to time out.
            for reader, _ in silent:
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            await until(lambda: repr(handshakes) == "<Handshakes, 0 under way, 0 wait for a place, 0 silent>")
            context = ssl.create_default_context(cafile=certificates["ca"])
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            assert await reader.read() == b""
        assert len(made) == 1
        for _, other in (*silent, (reader, writer)):
            other.close()
        server.close()

    asyncio.run(main())
    refused, full = sorted(caplog.messages)[::-1]
    assert full == "2 connections wait for TLS, the limit: the oldest of 127.0.0.1, which has most, give way"
    assert refused == "a connection from 127.0.0.1 was refused: TLS handshake: not begun in 0.2 s"


def test_a_client_gets_tls_when_it_has_spoken_and_its_host_has_a_place(certificates, caplog):
    """1,100 silent connections that came back at once cost every other writer a second for each append."""

    async def main() -> None:
        files = TlsFiles(certificates["server"], certificates["server key"])
        handshakes = Handshakes(ServerTls(files), seconds=HANG_SECONDS, of_host=1)
        server = await serve_tls(_Ends, handshakes, "127.0.0.1", 0, 10)
        port = server.sockets[0].getsockname()[1]
        context = ssl.create_default_context(cafile=certificates["ca"])
        async with asyncio.timeout(HANG_SECONDS):
            silent = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: repr(handshakes) == "<Handshakes, 0 under way, 0 wait for a place, 1 silent>")
            begun = await asyncio.open_connection("127.0.0.1", port)
            begun[1].write(b"\x16")
            await until(lambda: repr(handshakes) == "<Handshakes, 1 under way, 0 wait for a place, 1 silent>")
            whole = asyncio.create_task(asyncio.open_connection("127.0.0.1", port, ssl=context))
            await until(lambda: repr(handshakes) == "<Handshakes, 1 under way, 1 wait for a place, 1 silent>")
            begun[1].close()  # and so the third has the place
            reader, writer = await whole
            assert await reader.read() == b""
            silent[1].close()
            await until(lambda: repr(handshakes) == "<Handshakes, 0 under way, 0 wait for a place, 0 silent>")
            left = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: repr(handshakes) == "<Handshakes, 0 under way, 0 wait for a place, 1 silent>")
            server.close()
            with suppress(ConnectionResetError):
                assert await left[0].read() == b""
        writer.close()
        left[1].close()

    asyncio.run(main())
    assert not caplog.messages


class _Ends(asyncio.Protocol):
    """A server's protocol that ends each connection as soon as it has TLS."""

    def connection_made(self, transport) -> None:
        transport.close()


def test_certificates_are_read_again_and_a_wrong_pair_changes_nothing(tmp_path, certificates):
    pair = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(certificates["server"], pair[0])
    shutil.copy(certificates["server key"], pair[1])
    tls = ServerTls(TlsFiles(str(pair[0]), str(pair[1])))
    assert not tls.reload()
    other = make_certificates(tmp_path / "other", (), 1)
    _replace(other["server"], pair[0])
    with pytest.raises(sarit.Invalid, match="cannot be used"):
        tls.reload()
    _replace(other["server key"], pair[1])
    assert tls.reload()
    assert not tls.reload()


def test_reload_replaces_what_clients_and_other_processes_are_trusted_by(tmp_path):
    """A CA that was taken out of the file was trusted until the restart, and processes showed the old certificate."""
    files = {name: tmp_path / f"{name.replace(' ', '-')}.pem" for name in ("ca", "server", "server key")}
    sets = [make_certificates(tmp_path / name, (), 1) for name in ("first", "second")]

    def use(made) -> None:
        for name, path in files.items():
            _replace(made[name], path)

    use(sets[0])
    ca, certificate, key = (str(files[name]) for name in ("ca", "server", "server key"))
    security = Security(SecurityConfig(certificate, key, ca, client_certificates=True))
    client_tls, own = security.client_tls(), security.own_tls().context()

    def connects(context: ssl.SSLContext, name: str | None = "localhost") -> bool:
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(down, up, server_hostname=name)
        server = security.server_tls.context.wrap_bio(up, down, server_side=True)
        try:
            for side in (client, server, client, server):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
        except ssl.SSLError:
            return False
        return True

    outside = [Tls(*(str(made[name]) for name in ("ca", "client", "client key"))).context() for made in sets]
    assert [connects(each) for each in (*outside, client_tls(), own)] == [True, False, True, True]
    use(sets[1])
    assert security.reload() == ["certificates"]
    assert [connects(each) for each in (*outside, client_tls(), own)] == [False, True, True, True]


@pytest.mark.parametrize(("names", "checked", "taken"), [("other", False, True), ("other", True, False),
                                                         ("here", True, True)])  # fmt: skip
def test_processes_check_names_of_each_other_where_that_is_asked_for(tmp_path, monkeypatch, names, checked, taken):
    if names == "other":
        monkeypatch.setattr(dev_ca, "_LOCAL", ())
    made = make_certificates(tmp_path, ("node1.example.com",), 1)
    certificate, key, ca = (str(made[name]) for name in ("server", "server key", "ca"))
    security = Security(SecurityConfig(certificate, key, ca, check_names=checked))
    client_tls = security.client_tls()
    assert client_tls is not None
    assert not security.own_tls().context().check_hostname  # to itself: its own certificate is known

    async def main() -> bool:
        env = real_env(security.server_tls, client_tls)
        server = await env.network.serve(lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            transport, _ = await env.network.connect(asyncio.Protocol, "127.0.0.1", port)
        except ssl.SSLCertVerificationError:
            return False
        else:
            transport.abort()
            return True
        finally:
            server.close()

    assert asyncio.run(main()) == taken


def test_check_of_names_needs_tls():
    with pytest.raises(sarit.Invalid, match="--tls-check-names needs TLS"):
        SecurityConfig(check_names=True).check()


def _replace(source, target) -> None:
    copy = target.with_suffix(".new")
    shutil.copy(source, copy)
    os.replace(copy, target)


def test_bytes_that_come_with_the_end_of_the_handshake_are_not_lost(certificates):
    """A client may send its first request in one packet with the end of its handshake."""

    class Echo(asyncio.Protocol):
        def connection_made(self, transport) -> None:
            self.transport = transport

        def data_received(self, data) -> None:
            self.transport.write(data)

        def eof_received(self) -> None:
            self.transport.close()

    async def main() -> bytes:
        tls = ServerTls(TlsFiles(certificates["server"], certificates["server key"]))
        server = await serve_tls(Echo, Handshakes(tls), "127.0.0.1", 0, 10)
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = ssl.create_default_context(cafile=certificates["ca"]).wrap_bio(down, up, server_hostname="localhost")
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        received = b""
        async with asyncio.timeout(HANG_SECONDS):
            for step in (client.do_handshake, lambda: client.read(100)):
                while True:
                    try:
                        received = step() or b""
                        break
                    except ssl.SSLWantReadError:
                        writer.write(up.read())
                        down.write(await reader.read(65536))
                if step == client.do_handshake:
                    client.write(b"early")
                    writer.write(up.read())  # with the end of the handshake
        writer.close()
        server.close()
        return received

    assert asyncio.run(main()) == b"early"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("missing", "server key", None), "does not exist"),
        (("server", "client key", None), "cannot be used"),
        (("server key", "server key", None), "cannot be used"),
        (("server", "server key", "server key"), "cannot be read"),
    ],
)
def test_files_that_cannot_be_used_refuse_the_start(certificates, files, message):
    chosen = [None if name is None else certificates.get(name, "/nowhere/cert.pem") for name in files]
    with pytest.raises(sarit.Invalid, match=message):
        ServerTls(TlsFiles(*chosen))
