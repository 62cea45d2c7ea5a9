"""TLS on the ports of a real node: our client, wrong certificates, clients that never finish a handshake, reload."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import warnings
from dataclasses import replace

import pytest

import sarit
from sarit.cli.dev_ca import make_certificates
from sarit.client import aio
from sarit.client.core.login import Tls, UserPassword
from sarit.env.tls import Handshakes, ServerTls, TlsFiles
from tests.limits import HANG_SECONDS
from tests.security.running import PASSWORD, secured, write_files

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


def test_unfinished_handshakes_are_bounded_and_forgotten(certificates):
    async def main() -> None:
        made: list[asyncio.BaseProtocol] = []

        class Counted(asyncio.Protocol):
            def connection_made(self, transport) -> None:
                made.append(self)
                transport.close()

        files = TlsFiles(certificates["server"], certificates["server key"])
        handshakes = Handshakes(most=2, seconds=0.3)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            handshakes.before(Counted), "127.0.0.1", 0, ssl=ServerTls(files).context, ssl_handshake_timeout=0.2
        )
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(HANG_SECONDS):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            # The first two wait for their handshakes to time out, and the third is closed.
            for reader, _ in silent:
                assert await reader.read() == b""
            while handshakes.under_way(loop.time()):
                await asyncio.sleep(0.01)
            context = ssl.create_default_context(cafile=certificates["ca"])
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            assert await reader.read() == b""
        assert len(made) == 1
        for _, other in (*silent, (reader, writer)):
            other.close()
        server.close()

    asyncio.run(main())


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


def _replace(source, target) -> None:
    copy = target.with_suffix(".new")
    shutil.copy(source, copy)
    os.replace(copy, target)


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
