"""Sessions with a real ZooKeeper under faults: it is killed, cut off, stopped, or not there."""

import asyncio
from contextlib import suppress

import pytest

from sarit.cluster.member import Member
from sarit.cluster.release import check_clock
from sarit.coordination.container_map import StoreAddress, decode_store
from sarit.coordination.map_register import STORES
from sarit.coordination.port import MemberState
from sarit.coordination.zookeeper import ZooKeeper, server_ms
from sarit.coordination.zookeeper_client import ZOOKEEPER_VARIABLE
from sarit.coordination.zookeeper_ports import ZooKeeperMembers, ZooKeeperRegisters
from sarit.core.errors import Invalid, Unavailable
from sarit.env.real import real_env
from tests.components.zookeeper import Gate, ZooKeeperServer
from tests.contract.test_coordination import States

pytestmark = pytest.mark.long

SESSION_SECONDS = 4.0
HANG_SECONDS = 120


def run(main) -> None:
    async def bounded():
        async with asyncio.timeout(HANG_SECONDS):
            await main

    asyncio.run(bounded())


class Hosting:
    """A store that notes its commands."""

    def __init__(self) -> None:
        self.lost_containers = asyncio.Event()

    def own(self, number: int, map_version: int) -> None:
        pass

    def release(self, number: int, *, graceful: bool) -> None:
        pass

    def lost(self) -> None:
        self.lost_containers.set()


def test_sessions_outlive_a_zookeeper_that_is_away_for_longer_than_a_session(tmp_path):
    async def main(server):
        zookeeper = await ZooKeeper.connect(server.hosts, SESSION_SECONDS, real_env())
        members, states = ZooKeeperMembers(zookeeper, "/sarit/t/stores"), States()
        membership = await members.join("s1", b"up", states)
        server.kill()
        await states.reached(MemberState.SUSPENDED)
        await asyncio.sleep(5)
        with pytest.raises(Unavailable):
            await members.list()
        assert real_env().clock.monotonic() > membership.valid_until
        await real_env().threads.worker("start").run(server.start)
        served = real_env().clock.monotonic()
        await states.reached(MemberState.CONNECTED)
        assert real_env().clock.monotonic() < served + SESSION_SECONDS
        assert states.seen == [MemberState.SUSPENDED, MemberState.CONNECTED]
        assert dict(await members.list()) == {"s1": b"up"}
        assert membership.valid_until > served
        await zookeeper.close()

    server = ZooKeeperServer(tmp_path / "zookeeper").start()
    try:
        run(main(server))
    finally:
        server.kill()


def test_store_whose_session_expired_closes_its_containers_and_joins_as_a_new_incarnation(zookeeper_server):
    async def main():
        gate = Gate(zookeeper_server.port)
        await gate.start()
        env = real_env()
        zookeeper = await ZooKeeper.connect(f"127.0.0.1:{gate.port}", SESSION_SECONDS, env)
        other = await ZooKeeper.connect(zookeeper_server.hosts, SESSION_SECONDS, env)
        root = "/sarit/expired"
        seen = ZooKeeperMembers(other, f"{root}/{STORES}")
        hosting = Hosting()
        address = StoreAddress("127.0.0.1", 1, "m", 0)
        member = Member(
            "s1", address, ZooKeeperRegisters(zookeeper, root), ZooKeeperMembers(zookeeper, f"{root}/{STORES}"), env,
            SESSION_SECONDS,
        )  # fmt: skip
        member.start(hosting)
        first = await _member(seen, lambda found: found is not None)
        gate.shut()
        await _member(seen, lambda found: found is None)
        assert not hosting.lost_containers.is_set()  # it cannot know yet, but does not trust its lease any more
        assert not member.valid()
        gate.open()
        await hosting.lost_containers.wait()
        second = await _member(seen, lambda found: found is not None)
        assert decode_store(second).incarnation != decode_store(first).incarnation
        await member.stop()
        await _member(seen, lambda found: found is None)
        await zookeeper.close()
        await other.close()

    run(main())


async def _member(members, holds):
    while not holds(found := (await members.list()).get("s1")):
        await asyncio.sleep(0.05)
    return found


def test_session_goes_on_at_another_server_when_one_stops_answering(zookeeper_server):
    async def main():
        gates = [Gate(zookeeper_server.port) for _ in range(2)]
        for gate in gates:
            await gate.start()
        hosts = ",".join(f"127.0.0.1:{gate.port}" for gate in gates)
        zookeeper = await ZooKeeper.connect(hosts, 6.0, real_env())
        states = States()
        members = ZooKeeperMembers(zookeeper, "/sarit/frozen/stores")
        await members.join("s1", b"up", states)
        used = next(gate for gate in gates if gate.connections)
        used.freeze()  # its connections stay open
        await states.reached(MemberState.SUSPENDED)
        await states.reached(MemberState.CONNECTED)
        assert MemberState.LOST not in states.seen
        assert dict(await members.list()) == {"s1": b"up"}
        used.thaw()
        await zookeeper.close()

    run(main())


def test_session_is_as_long_as_the_server_allows(zookeeper_server):
    async def main():
        zookeeper = await ZooKeeper.connect(zookeeper_server.hosts, 60.0, real_env())
        assert zookeeper.session_seconds == 10.0
        assert zookeeper.certain_until < real_env().clock.monotonic() + 10
        await zookeeper.close()

    run(main())


def test_address_without_a_zookeeper_is_one_error_within_seconds():
    async def main():
        async def greet(reader, writer) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            writer.close()

        other = await asyncio.start_server(greet, "127.0.0.1", 0)
        silent = await asyncio.start_server(lambda reader, writer: asyncio.Event().wait(), "127.0.0.1", 0)
        ports = [each.sockets[0].getsockname()[1] for each in (other, silent)]
        for hosts in ("127.0.0.1:1", "no-such-host.invalid:2181", *(f"127.0.0.1:{port}" for port in ports)):
            clock = real_env().clock
            began = clock.monotonic()
            with pytest.raises(Unavailable, match=f"no ZooKeeper answers at {hosts}"):
                await ZooKeeper.connect(hosts, SESSION_SECONDS, real_env())
            assert clock.monotonic() < began + 15, hosts

    run(main())


def test_clock_a_minute_away_from_zookeepers_is_a_warning(zookeeper_server, caplog):
    async def main():
        env = real_env()
        zookeeper = await ZooKeeper.connect(zookeeper_server.hosts, SESSION_SECONDS, env)
        before = env.clock.wall_ms()
        server = await server_ms(zookeeper, "/clock/one")
        check_clock(before, server, env.clock.wall_ms())
        assert not caplog.records
        check_clock(before + 60_000, server, env.clock.wall_ms() + 60_000)
        assert await zookeeper.children("/clock") == []
        await zookeeper.close()

    run(main())
    assert "the clock of this machine is 60 s ahead of that of ZooKeeper" in caplog.text


@pytest.fixture
def logged_in(tmp_path, monkeypatch):
    """Choose how sessions from then on log in: `USER:PASSWORD`, or None."""
    monkeypatch.delenv(ZOOKEEPER_VARIABLE, raising=False)

    def choose(pair: str | None) -> None:
        monkeypatch.delenv(ZOOKEEPER_VARIABLE, raising=False)
        if pair is not None:
            path = tmp_path / "zookeeper-auth"
            path.write_text(f"{pair}\n")
            path.chmod(0o600)
            monkeypatch.setenv(ZOOKEEPER_VARIABLE, str(path))

    return choose


def test_what_is_made_with_a_log_in_is_for_that_user_alone(zookeeper_server, logged_in):
    root = "/sarit-of-a-user"

    async def ours() -> None:
        zookeeper = await ZooKeeper.connect(zookeeper_server.hosts, SESSION_SECONDS, real_env())
        registers = ZooKeeperRegisters(zookeeper, root)
        assert (await registers.get("secret")).value == b"our secret"
        assert await registers.set("secret", b"our secret", 0) == 1
        await zookeeper.close()

    async def others() -> None:
        zookeeper = await ZooKeeper.connect(zookeeper_server.hosts, SESSION_SECONDS, real_env())
        registers = ZooKeeperRegisters(zookeeper, root)
        with pytest.raises(Invalid, match="NoAuthError; it is of another user than --zookeeper-auth says"):
            await registers.get("secret")
        for change in (
            lambda: registers.create("more", b"x"), lambda: zookeeper.set(f"{root}/secret", b"x", None),
            lambda: zookeeper.delete(f"{root}/secret"), lambda: zookeeper.children(root),
            lambda: zookeeper.get(f"{root}/stores/s1"), lambda: zookeeper.create_ephemeral(f"{root}/stores/s2", b"x"),
        ):  # fmt: skip
            with pytest.raises(Invalid, match="NoAuthError"):
                await change()
        # Nodes of BookKeeper: bookies, which log in as others or not at all, read and change them.
        assert (await zookeeper.get(f"{root}-ledgers/a/ledger")).value == b"metadata"
        await zookeeper.set(f"{root}-ledgers/a/ledger", b"metadata", None)
        await zookeeper.create(f"{root}-ledgers/a/by-others-{len(tried)}", b"")
        await zookeeper.close()

    async def main() -> None:
        logged_in("sarit:first secret")
        zookeeper = await ZooKeeper.connect(zookeeper_server.hosts, SESSION_SECONDS, real_env())
        assert await ZooKeeperRegisters(zookeeper, root).create("secret", b"our secret") == 0
        await zookeeper.create_ephemeral(f"{root}/stores/s1", b"")
        await zookeeper.create(f"{root}-ledgers/a/ledger", b"metadata", parents=True, shared=True)
        for pair in (None, "sarit:another secret", "other:first secret"):
            logged_in(pair)
            await others()
            tried.append(pair)
        logged_in("sarit:first secret")
        await ours()
        await zookeeper.close()

    tried: list[str | None] = []
    run(main())


def test_log_in_holds_after_the_connection_was_lost(zookeeper_server, logged_in):
    async def main() -> None:
        logged_in("sarit:first secret")
        gate = Gate(zookeeper_server.port)
        await gate.start()
        zookeeper = await ZooKeeper.connect(f"127.0.0.1:{gate.port}", 6.0, real_env())
        await zookeeper.create("/sarit-again/a", b"1", parents=True)
        gate.shut()
        gate.open()
        # Unavailable is the answer until the connection is there again.
        while True:
            with suppress(Unavailable):
                assert (await zookeeper.get("/sarit-again/a")).value == b"1"
                break
            await asyncio.sleep(0.05)
        await zookeeper.close()

    run(main())
