"""A link between two real nodes over a network that breaks: the mirror has what the source has, to the byte."""

from __future__ import annotations

import asyncio
import os

import pytest

from sarit.client.core.rules import change_rules
from sarit.core.errors import Invalid, Unauthenticated
from sarit.core.links import LinkDirection
from sarit.core.names import StreamName
from sarit.security.permissions import Rule
from sarit.security.users import User, format_users, hash_password
from tests import secured
from tests.limits import HANG_SECONDS
from tests.mirror.nodes import SCOPE, Login, two_nodes, until, until_equal

EVENTS = 400


async def write(client, stream, first, count):
    async with client.writer(stream) as writer:
        for number in range(first, first + count):
            writer.write(b"event %08d " % number * 20, key=str(number % 7))


async def events(client, stream):
    """The payloads of all events of a stream."""
    async with client.reader(stream) as reader:
        found = []
        while len(found) < 2 * EVENTS:
            event = await asyncio.wait_for(reader.read(), HANG_SECONDS)
            found.append(event)
        return sorted(found)


@pytest.mark.parametrize(
    ("direction", "core_options"),
    [
        pytest.param(LinkDirection.PUSH, (), marks=pytest.mark.long),
        (LinkDirection.PULL, ("--processes", "2")),
    ],
    ids=["push", "pull"],
)
def test_mirror_is_equal_after_cuts_and_kills(tmp_path, direction, core_options):
    async def main():
        async with two_nodes(tmp_path, core_options=core_options) as (edge, core, proxy):
            await edge.client.create_scope(SCOPE)
            names = [StreamName(SCOPE, "sensors"), StreamName(SCOPE, "alarms")]
            await edge.client.create_stream(str(names[0]), segments=2)
            await edge.client.create_stream(str(names[1]))
            if direction is LinkDirection.PUSH:
                runs = edge
            else:
                runs, proxy.target = core, edge.node.controller
            proxy.delay_seconds = 0.005
            await runs.link("north", direction, proxy.address, registry=False)
            await until_equal(edge, core, names)
            for turn in range(4):
                await write(edge.client, str(names[0]), turn * EVENTS // 4, EVENTS // 4)
                await write(edge.client, str(names[1]), turn * EVENTS // 4, EVENTS // 4)
                assert proxy.cut()
                await until_equal(edge, core, names)
            await edge.client.stream(str(names[0])).scale(3)
            await core.restart(killed=True)
            proxy.go_down()
            await write(edge.client, str(names[0]), EVENTS, EVENTS // 2)
            await write(edge.client, str(names[1]), EVENTS, EVENTS)
            await edge.restart(killed=True)
            proxy.come_up()
            await write(edge.client, str(names[0]), EVENTS * 3 // 2, EVENTS // 2)
            await until_equal(edge, core, names)
            assert proxy.accepted > 4
            assert sum(proxy.carried) > 0
            # Readers of the mirror get what readers of the source get.
            for name in names:
                assert await events(core.client, str(name)) == await events(edge.client, str(name))

            async def shown():
                info = await runs.status("north")
                return info if info.status.up and not info.status.lag_bytes and info.status.streams else None

            info = await until(shown)
            assert (info.status.failing, info.status.lost_bytes) == (0, 0)

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


def _login(path, user):
    file = path / f"{user}.password"
    file.write_text(f"the password of {user}\n")
    return Login(user, f"file:{file}", secured.files()["ca"])


def test_link_logs_in_by_tls_and_may_do_what_its_user_may(tmp_path):
    admin, link = _login(tmp_path, "admin"), _login(tmp_path, "link")
    users, files = tmp_path / "users", secured.files()
    found = [("admin", frozenset({"admin"})), ("link", frozenset())]
    users.write_text(format_users([User(name, hash_password(f"the password of {name}"), to) for name, to in found]))
    options = [
        "--tls-cert", files["server"], "--tls-key", files["server key"], "--users", str(users), "--token-keys",
        files["token keys"], "--advertise", "localhost",
    ]  # fmt: skip

    async def main():
        async with two_nodes(tmp_path, core_options=options, core_login=admin) as (edge, core, proxy):
            await edge.client.create_scope(SCOPE)
            name = StreamName(SCOPE, "sensors")
            await edge.client.create_stream(str(name))
            await write(edge.client, str(name), 0, EVENTS)
            peer = f"tls://localhost:{proxy.port}"
            with pytest.raises(Unauthenticated):
                wrong = f"file:{tmp_path}/admin.password"
                await edge.link("south", LinkDirection.PUSH, peer, user="link", password=wrong, ca=link.ca)
            chosen = {"user": "link", "password": link.password, "ca": link.ca, "registry": False}
            await edge.link("north", LinkDirection.PUSH, peer, **chosen)
            # The user of the link has the right to write into the scope, but none for links.
            scope = [Rule.parse("user:link", f"prn::/scope:{SCOPE}*", "READ_UPDATE")]
            await change_rules(core.client.session.controller, scope)

            async def refused():
                status = (await edge.status("north")).status
                return [text for text in (status.note, *(one.text for one in status.problems)) if "mirror" in text]

            needed = f"prn::/mirror:{SCOPE}"
            assert f"`sarit acl grant user:link {needed} READ_UPDATE`" in (await until(refused))[0]
            assert await core.whole(name) is None
            await change_rules(core.client.session.controller, [Rule.parse("user:link", needed, "READ_UPDATE")])
            await until_equal(edge, core, [name])
            shown = repr(await edge.status("north")) + edge.node.log() + core.node.log()
            assert "the password of link" not in shown

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


def test_link_to_itself_is_refused_and_a_slow_one_copies(tmp_path):
    async def main():
        async with two_nodes(tmp_path) as (edge, core, proxy):
            with pytest.raises(Invalid, match="a link to itself"):
                await edge.link("loop", LinkDirection.PUSH, edge.node.controller)
            await edge.client.create_scope(SCOPE)
            name = StreamName(SCOPE, "sensors")
            await edge.client.create_stream(str(name))
            # Of bytes that nothing compresses.
            async with edge.client.writer(str(name)) as writer:
                for _ in range(40):
                    writer.write(os.urandom(50_000))
            proxy.delay_seconds, proxy.bytes_per_second = 0.1, 400_000
            await edge.link("north", LinkDirection.PUSH, proxy.address, registry=False, tables=False)
            await until_equal(edge, core, [name])
            # All of it went over the link once, and little else.
            assert 2_000_000 < proxy.carried[0] < 2_600_000

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
