"""Our wire of BookKeeper against three real bookies, and beside BookKeeper's own Java client and shell."""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.maven import class_path
from sarit.coordination.zookeeper import ZooKeeper
from sarit.core.errors import Conflict, Invalid, NotFound
from sarit.env.real import real_env
from sarit.log.bookkeeper import connection as connection_module
from sarit.log.bookkeeper.bookies import NetworkBookies
from sarit.log.bookkeeper.digest import EntryDigest, master_key
from sarit.log.bookkeeper.ledger_store import ZooKeeperLedgers
from sarit.log.bookkeeper.limits import BOOKIE_MAX_RETRY_SECONDS
from sarit.log.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState, encode, path_of
from sarit.log.bookkeeper.port import Code
from sarit.log.bookkeeper.wire import add_packet
from tests.components.bookkeeper import java, set_up
from tests.components.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.long

HANG_SECONDS = 240
SOURCE = Path(__file__).parent / "java" / "LedgerPeer.java"
PAYLOADS = [b"entry %d " % number * 1000 for number in range(10)]


class Peer:
    """Our client, below the log: requests that are awaited."""

    def __init__(self, zookeeper: ZooKeeper, digest: EntryDigest, key: bytes) -> None:
        self.zookeeper = zookeeper
        self.ledgers = ZooKeeperLedgers(zookeeper)
        self.bookies = NetworkBookies(real_env(), zookeeper, digest=digest, key=key)

    async def add(self, bookie, ledger, entry, payload=b"x", *, confirmed=None, length=None, recovery=False):
        confirmed = entry - 1 if confirmed is None else confirmed
        packet = add_packet(ledger, entry, confirmed, length or len(payload), [payload], recovery=recovery)
        answer = asyncio.get_running_loop().create_future()
        self.bookies.add(bookie, ledger, entry, packet, answer.set_result)
        return await answer

    async def read(self, bookie, ledger, entry, *, fence=False):
        answer = asyncio.get_running_loop().create_future()
        self.bookies.read(bookie, ledger, entry, fence=fence, done=answer.set_result)
        return await answer

    async def new_ledger(self, **custom):
        """A ledger on all bookies: (id, version, metadata)."""
        ensemble = tuple(sorted(self.bookies.writable()))
        metadata = LedgerMetadata(
            3, 3, 2, LedgerState.OPEN, ((0, ensemble),), created_ms=real_env().clock.wall_ms(),
            custom={"application": b"sarit", **custom}, ctoken=5,
        )  # fmt: skip
        return *await self.ledgers.create(metadata), metadata

    async def write(self, ledger, metadata, payloads=PAYLOADS):
        """All payloads on all bookies; their length."""
        length = 0
        for entry, payload in enumerate(payloads):
            length += len(payload)
            codes = await asyncio.gather(
                *(self.add(bookie, ledger, entry, payload, length=length) for bookie in metadata.ensemble_at(entry))
            )
            assert set(codes) == {Code.OK}
        return length


def run(bookkeeper, test, *, digest=DigestType.CRC32C, password=b""):
    async def main():
        zookeeper = await ZooKeeper.connect(bookkeeper.zookeeper.hosts, 6.0, real_env())
        peer = Peer(zookeeper, EntryDigest(digest, password), master_key(password))
        try:
            await peer.bookies.start()
            async with asyncio.timeout(HANG_SECONDS):
                while len(peer.bookies.writable()) < 3:
                    await asyncio.sleep(0.05)
                return await test(peer)
        finally:
            await peer.bookies.close()
            await zookeeper.close()

    return asyncio.run(main())


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """The class path of LedgerPeer, compiled."""
    if shutil.which("javac") is None:
        pytest.skip("there is no javac (a JDK)")
    target = tmp_path_factory.mktemp("classes")
    found = class_path("bookkeeper")
    subprocess.run(["javac", "-cp", found, "-d", str(target), str(SOURCE)], check=True)
    return f"{found}:{target}"


def uri(bookkeeper):
    return f"zk+longhierarchical://{bookkeeper.zookeeper.hosts}/ledgers"


def java_writes(bookkeeper, classes, digest, password, count, size, how):
    said = java(
        classes, "LedgerPeer", "write", uri(bookkeeper), digest.replace("HMAC", "MAC"), password, str(count), str(size),
        how,
    )  # fmt: skip
    return int(re.search(r"^ledger (\d+)$", said, re.MULTILINE)[1])


def java_reads(bookkeeper, classes, ledger, how):
    """(last entry, length, payloads) as the Java client reads them."""
    said = java(classes, "LedgerPeer", "read", uri(bookkeeper), "CRC32C", "", str(ledger), how)
    last, length = re.search(r"^last (-?\d+) length (\d+)$", said, re.MULTILINE).groups()
    entries = re.findall(r"^entry (\d+) (\S+)$", said, re.MULTILINE)
    assert [int(entry) for entry, _ in entries] == list(range(int(last) + 1))
    return int(last), int(length), [base64.b64decode(text) for _, text in entries]


def test_entries_are_stored_read_fenced_and_recovered_on_real_bookies(bookkeeper):
    async def test(peer):
        ledger, _, metadata = await peer.new_ledger()
        length = await peer.write(ledger, metadata)
        for bookie in metadata.ensemble_at(0):
            for entry, payload in enumerate(PAYLOADS):
                found = await peer.read(bookie, ledger, entry)
                assert (found.code, bytes(found.payload)) == (Code.OK, payload)
            last = await peer.read(bookie, ledger, -1)
            assert (last.entry, last.last_add_confirmed, last.length) == (9, 8, length)
            assert (await peer.read(bookie, ledger, 10)).code is Code.NO_ENTRY
            assert (await peer.read(bookie, 1 << 61, 0)).code is Code.NO_LEDGER
            # The same entry again keeps the bytes that are there.
            assert await peer.add(bookie, ledger, 0, b"other", length=5) is Code.OK
            assert bytes((await peer.read(bookie, ledger, 0)).payload) == PAYLOADS[0]
            assert (await peer.read(bookie, ledger, -1, fence=True)).entry == 9
            assert await peer.add(bookie, ledger, 10) is Code.FENCED
            assert await peer.add(bookie, ledger, 10, length=1 << 20, recovery=True) is Code.OK
            assert (await peer.read(bookie, ledger, 10, fence=True)).code is Code.OK

    run(bookkeeper, test)


def test_entries_up_to_the_bound_of_a_frame_are_taken(bookkeeper):
    async def test(peer):
        ledger, _, metadata = await peer.new_ledger()
        payload = bytes(range(256)) * 4096 * 4 + bytes(1_000_000)
        for bookie in metadata.ensemble_at(0):
            assert await peer.add(bookie, ledger, 0, payload) is Code.OK
            found = await peer.read(bookie, ledger, 0)
            assert found.payload == payload

    run(bookkeeper, test)


def test_a_master_key_of_another_password_is_refused(bookkeeper):
    async def ours(peer):
        ledger, _, metadata = await peer.new_ledger()
        await peer.write(ledger, metadata)
        return ledger, metadata.ensemble_at(0)

    ledger, ensemble = run(bookkeeper, ours)

    async def theirs(peer):
        for bookie in ensemble:
            assert (await peer.read(bookie, ledger, -1, fence=True)).code is Code.UNAUTHORIZED
            assert (await peer.read(bookie, ledger, 3)).code is Code.OK

    run(bookkeeper, theirs, password=b"other")


def test_the_java_client_and_the_shell_read_a_ledger_of_ours(bookkeeper, classes):
    async def test(peer):
        ledger, version, metadata = await peer.new_ledger(container=b"3")
        length = await peer.write(ledger, metadata)
        closed = replace(metadata, state=LedgerState.CLOSED, last_entry=9, length=length)
        assert await peer.ledgers.set(ledger, closed, version) == 1
        return ledger, length

    ledger, length = run(bookkeeper, test)
    assert java_reads(bookkeeper, classes, ledger, "plain") == (9, length, PAYLOADS)
    said = bookkeeper.shell("readledger", "-ledgerid", str(ledger), "-m")
    assert all(payload.decode() in said for payload in PAYLOADS)
    said = bookkeeper.shell("ledgermetadata", "-ledgerid", str(ledger))
    assert "state=CLOSED" in said
    assert "lastEntryId=9" in said


def test_the_java_client_recovers_an_open_ledger_of_ours_and_fences_us(bookkeeper, classes):
    async def write(peer):
        ledger, version, metadata = await peer.new_ledger()
        length = await peer.write(ledger, metadata)
        # One more entry, on two bookies: it may have been acknowledged.
        for bookie in metadata.ensemble_at(0)[:2]:
            assert await peer.add(bookie, ledger, 10, b"last", length=length + 4) is Code.OK
        return ledger, version, metadata, length + 4

    ledger, version, metadata, length = run(bookkeeper, write)
    assert java_reads(bookkeeper, classes, ledger, "recover") == (10, length, [*PAYLOADS, b"last"])

    async def after(peer):
        for bookie in metadata.ensemble_at(0):
            assert await peer.add(bookie, ledger, 11) is Code.FENCED
            assert bytes((await peer.read(bookie, ledger, 10)).payload) == b"last"
        with pytest.raises(Conflict):
            await peer.ledgers.set(ledger, metadata, version)
        found, _ = await peer.ledgers.get(ledger)
        assert (found.state, found.last_entry, found.length) == (LedgerState.CLOSED, 10, length)
        assert found.custom == metadata.custom

    run(bookkeeper, after)


@pytest.mark.parametrize("digest", DigestType)
def test_ledgers_of_the_java_client_are_read_and_fenced(bookkeeper, classes, digest):
    ledger = java_writes(bookkeeper, classes, digest.name, "secret", 5, 5000, "open")

    async def test(peer):
        metadata, version = await peer.ledgers.get(ledger)
        stored = await peer.zookeeper.get(path_of(ledger))
        assert encode(metadata) == stored.value
        assert (metadata.state, metadata.digest, metadata.password) == (LedgerState.OPEN, digest, b"secret")
        assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 3, 2)
        assert metadata.custom == {"application": b"java"}
        found = 0
        for bookie in metadata.ensemble_at(0):
            for entry in range(5):
                reply = await peer.read(bookie, ledger, entry)
                # Two of three have it; the third may, too.
                if reply.code is Code.OK:
                    found += 1
                    assert bytes(reply.payload) == bytes([entry]) * 5000
                    assert reply.length == (entry + 1) * 5000
            assert (await peer.read(bookie, ledger, -1, fence=True)).code is Code.OK
        assert found >= 10
        closed = replace(metadata, state=LedgerState.CLOSED, last_entry=4, length=25_000)
        assert await peer.ledgers.set(ledger, closed, version) == version + 1

    run(bookkeeper, test, digest=digest, password=b"secret")


def test_ledger_ids_of_both_clients_are_different(bookkeeper, classes):
    async def create(peer):
        return (await peer.new_ledger())[0]

    ids = [run(bookkeeper, create)]
    for _ in range(2):
        ids.append(java_writes(bookkeeper, classes, "CRC32C", "", 1, 1, "close"))
        ids.append(run(bookkeeper, create))
    assert ids == sorted(set(ids))

    async def delete(peer):
        await peer.ledgers.delete(ids[0], 0)
        with pytest.raises(NotFound):
            await peer.ledgers.get(ids[0])

    run(bookkeeper, delete)


def test_a_killed_bookie_is_lost_and_is_connected_to_again(bookkeeper):
    victim = bookkeeper.bookies[0]

    async def test(peer):
        ledger, _, metadata = await peer.new_ledger()
        length = await peer.write(ledger, metadata)
        others = [bookie for bookie in metadata.ensemble_at(0) if bookie != victim.name]
        changed = asyncio.Event()
        peer.bookies.watch(changed.set)
        payload = bytes(100_000)
        waiting = [
            asyncio.ensure_future(peer.add(bookie, ledger, 10 + number, payload, length=length + 100_000 * number))
            for number in range(1, 101)
            for bookie in (victim.name, *others)
        ]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        victim.kill()
        codes = await asyncio.gather(*waiting)
        assert set(codes[1::3]) == set(codes[2::3]) == {Code.OK}
        assert set(codes[0::3]) <= {Code.OK, Code.LOST}
        assert (await peer.read(victim.name, ledger, 0)).code is Code.LOST
        # Its registration goes with its session, and comes back with the new one.
        while victim.name in peer.bookies.writable():
            changed.clear()
            await changed.wait()
        await asyncio.to_thread(lambda: victim.start().wait())
        while (found := await peer.read(victim.name, ledger, 0)).code is Code.LOST:
            await asyncio.sleep(0.05)
        assert bytes(found.payload) == PAYLOADS[0]
        assert await peer.add(victim.name, ledger, 200, length=1 << 30) is Code.OK
        # What it had acknowledged it has.
        for number, code in enumerate(codes[0::3], 1):
            if code is Code.OK:
                assert (await peer.read(victim.name, ledger, 10 + number)).code is Code.OK
        while victim.name not in peer.bookies.writable():
            changed.clear()
            await changed.wait()

    run(bookkeeper, test)


def test_a_stopped_bookie_is_lost_after_the_time_out(bookkeeper, monkeypatch):
    monkeypatch.setattr(connection_module, "BOOKIE_SILENT_SECONDS", 2.0)
    monkeypatch.setattr(connection_module, "BOOKIE_TICK_SECONDS", 0.1)
    victim = bookkeeper.bookies[1]

    async def test(peer):
        ledger, _, metadata = await peer.new_ledger()
        await peer.write(ledger, metadata)
        clock = real_env().clock
        victim.pause()
        try:
            begun = clock.monotonic()
            assert await peer.add(victim.name, ledger, 10, length=1 << 20) is Code.LOST
            assert clock.monotonic() - begun >= 2.0
        finally:
            victim.resume()
        while (code := await peer.add(victim.name, ledger, 10, length=1 << 20)) is Code.LOST:
            await asyncio.sleep(min(0.05, BOOKIE_MAX_RETRY_SECONDS))
        assert code is Code.OK

    run(bookkeeper, test)


def test_another_layout_is_refused_with_the_reason(tmp_path, bookkeeper):
    async def right(peer):
        await peer.ledgers.check_layout()

    run(bookkeeper, right)
    server = ZooKeeperServer(tmp_path / "zookeeper").start()

    async def wrong():
        zookeeper = await ZooKeeper.connect(server.hosts, 6.0, real_env())
        try:
            with pytest.raises(Invalid, match="no BookKeeper is set up there"):
                await ZooKeeperLedgers(zookeeper).check_layout()
            set_up(server, b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1")
            with pytest.raises(Invalid, match="metadataServiceUri=zk\\+longhierarchical"):
                await ZooKeeperLedgers(zookeeper).check_layout()
        finally:
            await zookeeper.close()

    try:
        asyncio.run(wrong())
    finally:
        server.kill()
