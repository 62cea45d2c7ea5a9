"""Attacks on the ports of a running node with users, tokens and TLS: each is refused, and the log has a line."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

import sarit
from sarit.client import aio
from sarit.client.core.login import BearerToken
from sarit.rpc.limits import MAX_API_REQUEST_BYTES
from sarit.rpc.methods import PRAVEGA, SARIT
from sarit.security import login
from sarit.security.limits import MAX_FAILED_LOGINS_OF_HOST
from sarit.security.permissions import Permission
from sarit.security.tokens import TokenKeys
from sarit.wire import commands as wire
from tests.limits import HANG_SECONDS
from tests.security.attackers import ATTACKS, Target, make_things
from tests.security.http_serving import serving
from tests.security.running import PASSWORD
from tests.unit.store.server.test_connection import Client

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

PORTS = ("controller", "store", "HTTP")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    OLD = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def http(runner, tmp_path_factory):
    made = serving(tmp_path_factory.mktemp("attacked"))
    yield runner.run(made.__aenter__())
    runner.run(made.__aexit__(None, None, None))


def _port(http, name: str) -> int:
    node = http.secured.node
    return {"controller": node.controller_port, "store": node.store_port, "HTTP": http.admin.port}[name]


def _greet(port: int, context: ssl.SSLContext) -> tuple[str, str]:
    """Version and cipher of a connection.  Raises OSError."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as made,
    ):
        made.settimeout(HANG_SECONDS)
        return made.version(), made.cipher()[0]


def _careless(*, newest=None, ciphers: str = "ALL:@SECLEVEL=0") -> ssl.SSLContext:
    """A client that takes whatever there is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        if newest is not None:
            context.maximum_version = newest
    context.set_ciphers(ciphers)
    return context


@pytest.mark.parametrize("name", PORTS)
def test_old_versions_and_weak_ciphers_are_refused(runner, http, name, caplog):
    weak = ("AES128-SHA", "AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "aNULL", "DHE")

    async def main() -> None:
        port = _port(http, name)
        for context in (
            *(_careless(newest=version) for version in OLD),
            *(_careless(newest=ssl.TLSVersion.TLSv1_2, ciphers=f"{each}:@SECLEVEL=0") for each in weak),
        ):
            with pytest.raises(OSError, match=r"ALERT|alert|EOF|reset"):
                await asyncio.to_thread(_greet, port, context)
        version, cipher = await asyncio.to_thread(_greet, port, _careless(newest=ssl.TLSVersion.TLSv1_2))
        assert (version, cipher[:6], "GCM" in cipher or "CHACHA20" in cipher) == ("TLSv1.2", "ECDHE-", True)
        assert (await asyncio.to_thread(_greet, port, _careless()))[0] == "TLSv1.3"

    runner.run(main())
    _one_line(caplog, "a connection from 127.0.0.1 was refused: TLS handshake:")


def _one_line(caplog, begin: str) -> None:
    """At most one line in this minute, which an earlier test may have had; nothing else that warns."""
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) <= 1, lines
    assert all(line.startswith(begin) for line in lines)


@pytest.mark.parametrize("name", PORTS)
@pytest.mark.parametrize(
    "said", [b"GET /v1/scopes HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\xff" * 64]
)
def test_port_of_tls_says_nothing_without_it(runner, http, name, said):
    async def main() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", _port(http, name))
        writer.write(said)
        received = b""
        with suppress(ConnectionResetError):
            received = await asyncio.wait_for(reader.read(), HANG_SECONDS)
        writer.close()
        return received

    # At most an alert of TLS: type 21, and seven bytes.
    received = runner.run(main())
    assert received[:1] in (b"", b"\x15")
    assert len(received) <= 7


async def _make_streams(http) -> None:
    async with http.secured.client("root") as root:
        for scope in ("app", "other"):
            if await root.create_scope(scope):
                await root.create_stream(f"{scope}/s")
                async with root.writer(f"{scope}/s") as writer:
                    writer.write(b"something to read")


async def _ask(http, request) -> str:
    """What the store says to a request of an attacker."""
    client = Client(*await asyncio.open_connection("localhost", _port(http, "store"), ssl=http.context))
    try:
        await client.ask(wire.Hello(17, 5))
        reply = await client.ask(request)
    finally:
        client.writer.close()
    return "refused" if isinstance(reply, wire.AuthTokenCheckFailed) else type(reply).__name__


def test_wire_takes_no_token_that_is_expired_foreign_for_another_stream_or_replayed(runner, http):
    """Over a connection of the wire protocol itself, as an attacker would hold it."""
    keys = http.secured.node.security._keys
    stream, other = "prn::/scope:app/stream:s", "prn::/scope:other/stream:s"
    now = int(time.time())
    good = keys.sign({stream: Permission.READ}, now, 60)
    refused = {
        "none": "",
        "no token": "x.y.z",
        "expired": keys.sign({stream: Permission.READ_UPDATE}, now - 120, 60),
        "of another key": TokenKeys([b"x" * 64]).sign({stream: Permission.READ_UPDATE}, now, 60),
        "of another stream": keys.sign({other: Permission.READ_UPDATE}, now, 60),
        "of a stream whose name begins so": keys.sign({f"{stream}s": Permission.READ_UPDATE}, now, 60),
    }

    async def main() -> None:
        await _make_streams(http)
        for why, token in refused.items():
            assert await _ask(http, wire.ReadSegment("app/s/0.#epoch.0", 0, 100, token, 1)) == "refused", why
        assert await _ask(http, wire.ReadSegment("app/s/0.#epoch.0", 0, 100, good, 1)) == "SegmentRead"
        # Replayed: from another connection it reads what its bearer might read, and nothing else, until it expires.
        assert await _ask(http, wire.SetupAppend(1, b"w" * 16, "app/s/0.#epoch.0", good)) == "refused"
        assert await _ask(http, wire.ReadSegment("other/s/0.#epoch.0", 0, 100, good, 1)) == "refused"
        for name in (
            "app/s/../../other/s/0.#epoch.0",
            "app/s/0.#epoch.0/../../../other/s/0.#epoch.0",
            "../../etc/passwd",
        ):
            assert await _ask(http, wire.ReadSegment(name, 0, 100, good, 1)) == "refused", name

    runner.run(main())


def _target(http) -> Target:
    return Target(http.secured.address, http.context, http.secured._tls.ca_file)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__.removeprefix("attack_"))
def test_attacker_with_a_log_in_gets_what_the_rules_say(runner, http, attack):
    async def main() -> None:
        await make_things(_target(http))
        await attack(_target(http))

    runner.run(main())


def test_names_that_are_paths_are_refused(runner, http):
    names = ("../etc", "a/../b", "/etc/passwd", "%2e%2e%2fetc", "a\0b", "a" * 300)

    async def main() -> None:
        await _make_streams(http)
        async with http.secured.client("root") as root:
            for name in names:
                with pytest.raises(sarit.Invalid):
                    await root.create_scope(name)
                with pytest.raises(sarit.Invalid):
                    await root.create_stream(f"app/{name}")
        async with http.as_user(("root", PASSWORD)) as client:
            for name in ("..%2f..%2fetc%2fpasswd", "%2e%2e", "a%00b", "....//"):
                for path in (f"/v1/scopes/{name}", f"/v1/scopes/app/streams/{name}", f"/console/{name}", f"/{name}"):
                    found = await client.get(path)
                    assert found.status_code in (400, 404), path
                    assert "root:" not in found.text

    runner.run(main())


def test_bearer_that_no_provider_gave_and_a_delegation_token_are_no_log_in(runner, http):
    token = http.secured.node.security._keys.sign({"prn::/": Permission.READ_UPDATE}, int(time.time()), 60)

    async def main() -> None:
        for each in (token, "x"):
            with pytest.raises(sarit.Unauthenticated):
                await aio.connect(http.secured.address, credentials=BearerToken(each), tls=http.secured._tls)
            found = await _get(http, "/metrics", {"Authorization": f"Bearer {each}"})
            assert found.status_code == 401

    runner.run(main())


async def _get(http, path, headers):
    async with http.as_user() as client:
        return await client.get(path, headers=headers)


def test_large_headers_end_their_connection(runner, http, caplog):
    async def main() -> None:
        async with http.as_user(("root", PASSWORD)) as client:
            # It is refused before all of it was sent: the client may see the answer, or the end of the connection.
            with suppress(httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                assert (await client.get("/livez", headers={"More": "x" * 2_000_000})).status_code == 400
        with pytest.raises((sarit.Unauthenticated, sarit.Unavailable)):
            large = BearerToken("x" * 120_000)  # compressed to 105,000 bytes, which are too many
            await aio.connect(http.secured.address, credentials=large, tls=http.secured._tls, retry_timeout=0, wait=0)
        assert (await _get(http, "/livez", {})).status_code == 200

    runner.run(main())
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len({line.partition(" closed: ")[0].split(" ")[1] for line in lines}) == len(lines) <= 2


async def _scopes(client) -> list[str]:
    return [name async for name in client.list_scopes()]


def _full_of(message: Any, text: str) -> Any:
    """The request with this text in each of its texts."""
    for field in message.DESCRIPTOR.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            if field.is_repeated:
                getattr(message, field.name).append(text)
            else:
                setattr(message, field.name, text)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not field.message_type.GetOptions().map_entry:
            part = getattr(message, field.name)
            _full_of(part.add() if field.is_repeated else part, text)
    return message


def _has_text(kind: Descriptor) -> bool:
    return any(
        field.type == FieldDescriptor.TYPE_STRING
        or (field.type == FieldDescriptor.TYPE_MESSAGE and _has_text(field.message_type))
        for field in kind.fields
    )


@pytest.mark.parametrize("size", [80_000, 1_000_000])
def test_texts_of_every_call_are_bounded_and_none_comes_back(runner, http, size, caplog):
    """One such call stopped the node: a refusal repeated the name, in a header that took the square of its length."""
    methods = [
        method
        for service in (PRAVEGA.service, SARIT.service)
        for method in service.methods
        if _has_text(method.input_type)
    ]
    assert len(methods) > 45

    async def main() -> None:
        async with http.secured.client("root") as root:
            controller = root.session.controller
            for method in methods:
                stub = controller.stub if method.containing_service is PRAVEGA.service else controller.sarit_stub
                request = _full_of(GetMessageClass(method.input_type)(), "\u1234" * (size // 3))
                if request.ByteSize() > MAX_API_REQUEST_BYTES:
                    continue
                with pytest.raises(sarit.Invalid) as error:
                    await controller.call(getattr(stub, method.name), request, HANG_SECONDS)
                assert len(str(error.value)) < 200, method.name
                assert "\u1234" not in str(error.value)
            await _scopes(root)

    runner.run(main())
    assert "\u1234" not in caplog.text


def _frame(kind: int, payload: bytes = b"", stream: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, 0)) + stream.to_bytes(4, "big") + payload


@pytest.mark.parametrize("frame", [_frame(6, bytes(8)), _frame(4), _frame(8, b"\0\0\0\1"), _frame(0x77)])
def test_floods_of_frames_before_a_log_in_are_ended_and_calls_go_on(runner, http, frame, caplog):
    """A call beside one such connection waited for as long as the flood went on."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4)

    async def flood() -> None:
        reader, writer = await asyncio.open_connection("localhost", _port(http, "controller"), ssl=http.context)
        writer.write(preface)
        try:
            while True:
                writer.write(frame * 1000)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def main() -> None:
        async with http.secured.client("root") as root:
            await _scopes(root)
            floods = [asyncio.ensure_future(flood()) for _ in range(4)]
            calls = 0
            while not all(each.done() for each in floods):
                await _scopes(root)
                calls += 1
            assert calls
            await asyncio.gather(*floods)

    runner.run(asyncio.wait_for(main(), 4 * HANG_SECONDS))
    assert len([line for line in caplog.messages if "sent more control frames" in line]) <= 1
    assert not [record for record in caplog.records if record.exc_info]


def test_thousands_of_failed_log_ins_cost_a_hundred_checks_and_one_line(runner, http, caplog, monkeypatch):
    """Last: the host has to wait for a minute after it, but for users who were here before."""
    checked = []
    monkeypatch.setattr(login, "matches", lambda user, password: checked.append(password) and False)

    async def main() -> None:
        logins = http.secured.node.security.logins(http.secured.node.env)
        async with http.secured.client("root") as root:
            for number in range(10_000):
                with pytest.raises((sarit.Unauthenticated, sarit.Unavailable)):
                    await logins.caller(login.basic(f"user{number}", "a guess"), f"127.0.0.1:{number}")
            assert len(checked) == MAX_FAILED_LOGINS_OF_HOST
            with pytest.raises(sarit.Unauthenticated, match="too many wrong passwords"):
                async with http.secured.client("scrape", "a guess"):  # who was not here before
                    pass
            found = await _get(http, "/v1/scopes", {"Authorization": login.basic("carol", "a guess")})
            assert found.status_code == 401
            assert "too many wrong passwords" in found.text
            assert [name async for name in root.list_scopes()]  # who is logged in does not notice
        assert len(checked) == MAX_FAILED_LOGINS_OF_HOST

    runner.run(main())
    assert len([r for r in caplog.records if "was refused: user or password" in r.getMessage()]) <= 1
    assert len([r for r in caplog.records if r.getMessage().endswith("refused: too many wrong passwords")]) == 1
