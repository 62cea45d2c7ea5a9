"""What an operator gets wrong with a cluster: one error that says what to do, and nothing half done."""

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sarit.cluster import creation as cluster_init
from sarit.cluster.creation import check_storage, init_cluster
from sarit.cluster.release import check_clock, check_release, raise_release
from sarit.cluster.settings import META
from sarit.coordination.memory import MemoryCoordination
from sarit.core.errors import Invalid, Unavailable
from sarit.env.real import real_env
from sarit.process.ownership.claims import storage_owner
from sarit.process.places import bookkeeper_logs as log_place
from sarit.storage.open import open_storage
from tests.contract.s3 import binary_of, s3_server
from tests.limits import HANG_SECONDS
from tests.unit.cluster.test_settings import meta


def files_of(directory) -> list[str]:
    return sorted(
        str(path.relative_to(directory)) for path in directory.rglob("*") if path.suffix != ".lock" and path.is_file()
    )


@asynccontextmanager
async def made_cluster(tmp_path):
    """A cluster, and a second coordination service in which a second one is to be made."""
    env = real_env()
    storage = await open_storage(f"file://{tmp_path}/chunks", env)
    made = await init_cluster(MemoryCoordination().client("a", env.clock), env, meta(tmp_path), storage)
    yield env, MemoryCoordination().client("b", env.clock), storage, made
    await storage.close()


def test_log_of_another_cluster_is_refused_and_nothing_is_written(tmp_path):
    async def main():
        async with made_cluster(tmp_path) as (env, registers, _, made):
            before = files_of(tmp_path)
            asked = replace(meta(tmp_path), storage=f"file://{tmp_path}/others")
            storage = await open_storage(asked.storage, env)
            with pytest.raises(Invalid) as raised:
                await init_cluster(registers, env, asked, storage)
            assert str(raised.value) == (
                f"{tmp_path}/log is the log of the cluster {made.cluster}, not of a new one: choose another --log"
            )
            assert await registers.get(META) is None
            assert files_of(tmp_path) == before
            await storage.close()

    asyncio.run(main())


def test_log_with_files_of_anybody_is_refused_and_nothing_is_written(tmp_path):
    async def main():
        env = real_env()
        registers = MemoryCoordination().client("a", env.clock)
        (tmp_path / "log").mkdir()
        (tmp_path / "log" / "other").touch()
        storage = await open_storage(f"file://{tmp_path}/chunks", env)
        with pytest.raises(Invalid, match="there are files in it; a new cluster needs an empty directory"):
            await init_cluster(registers, env, meta(tmp_path), storage)
        assert await registers.get(META) is None
        assert files_of(tmp_path) == ["log/other"]
        await storage.close()

    asyncio.run(main())


def test_index_among_files_of_somebody_else_is_refused(tmp_path):
    async def main():
        env = real_env()
        registers = MemoryCoordination().client("a", env.clock)
        (tmp_path / "index").mkdir()
        (tmp_path / "index" / "passwd").touch()
        storage = await open_storage(f"file://{tmp_path}/chunks", env)
        with pytest.raises(Invalid, match="is not empty and not Sarit's .it holds passwd"):
            await init_cluster(registers, env, meta(tmp_path), storage)
        assert await registers.get(META) is None
        await storage.close()

    asyncio.run(main())


def test_two_clusters_on_one_place_in_storage_are_refused_and_nothing_is_written(tmp_path):
    async def main():
        async with made_cluster(tmp_path) as (env, registers, storage, made):
            asked = replace(meta(tmp_path), log=f"file://{tmp_path}/log2")
            before = files_of(tmp_path)
            with pytest.raises(Invalid) as raised:
                await init_cluster(registers, env, asked, storage)
            assert str(raised.value) == (
                f"--storage {asked.storage} belongs to {made.cluster}, another cluster or node: they would delete each "
                "other's chunks; give each a place of its own"
            )
            assert await registers.get(META) is None
            assert files_of(tmp_path) == before
            assert not (tmp_path / "log2").exists()

    asyncio.run(main())


def test_store_of_another_cluster_is_refused_by_the_mark_in_storage(tmp_path):
    async def main():
        async with made_cluster(tmp_path) as (env, _, storage, made):
            await check_storage(env, storage, made)
            with pytest.raises(
                Invalid, match=f"long-term storage belongs to the node {made.cluster}, this is {'d' * 32}"
            ):
                await check_storage(env, storage, replace(made, cluster="d" * 32))

    asyncio.run(main())


def test_failure_while_marks_are_written_leaves_nothing(tmp_path):
    async def main():
        env = real_env()
        registers = MemoryCoordination().client("a", env.clock)
        storage = await open_storage(f"file://{tmp_path}/chunks", env)
        write = storage.write

        async def refuse(*_):
            raise Unavailable("read-only")

        storage.write = refuse
        with pytest.raises(Unavailable, match="read-only"):
            await init_cluster(registers, env, meta(tmp_path), storage)
        assert await registers.get(META) is None
        assert not [name for name in files_of(tmp_path) if name.startswith("log/")]
        storage.write = write
        await init_cluster(registers, env, meta(tmp_path), storage)
        await storage.close()

    asyncio.run(main())


def test_failure_after_storage_is_marked_keeps_the_id_for_the_next_run(tmp_path, monkeypatch):
    async def main():
        env = real_env()
        registers = MemoryCoordination().client("a", env.clock)
        storage = await open_storage(f"file://{tmp_path}/chunks", env)
        claim = cluster_init._claim_index

        async def refuse(*_, **__):
            raise Unavailable("the index is away")

        monkeypatch.setattr(cluster_init, "_claim_index", refuse)
        with pytest.raises(Unavailable, match="the index is away"):
            await init_cluster(registers, env, meta(tmp_path), storage)
        marked = await storage_owner(storage)
        monkeypatch.setattr(cluster_init, "_claim_index", claim)
        assert (await init_cluster(registers, env, meta(tmp_path), storage)).cluster == marked
        await storage.close()

    asyncio.run(main())


@pytest.mark.skipif(binary_of("versitygw") is None, reason="moto checks no credentials")
@pytest.mark.parametrize(
    ("changes", "bucket", "message"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "sarit-test", "the object store refuses that: are the credentials right"),
        ({}, "missing", "there is no such bucket: create it, or correct the address"),
    ],
)
def test_wrong_credentials_and_a_missing_bucket_are_one_error(tmp_path, monkeypatch, changes, bucket, message):
    async def main(environ):
        for name, value in {**environ, **changes}.items():
            monkeypatch.setenv(name, value)
        env = real_env()
        registers = MemoryCoordination().client("a", env.clock)
        asked = replace(meta(tmp_path), storage=f"s3://{bucket}/x")
        storage = await open_storage(asked.storage, env)
        with pytest.raises(Unavailable, match=message) as raised:
            await init_cluster(registers, env, asked, storage)
        assert f"s3://{bucket}/x" in str(raised.value)
        assert "\n" not in str(raised.value)
        assert await registers.get(META) is None
        assert not (tmp_path / "log").exists()
        await storage.close()

    (tmp_path / "s3").mkdir()
    with s3_server(tmp_path / "s3") as server:
        asyncio.run(main(server.environ))


def test_too_few_bookies_for_an_acknowledgement_are_refused_and_fewer_than_a_ledger_has_are_a_warning(caplog):
    place = log_place.parse_log_url("bookkeeper://zk:2181/ledgers")
    with pytest.raises(Unavailable) as raised:
        log_place._require_bookies(place, 1)
    assert str(raised.value) == (
        "1 bookies are registered as writable at zk:2181/ledgers, and an entry needs 2: start more of them, or check "
        "the path"
    )
    log_place._require_bookies(place, 3)
    assert not caplog.records
    log_place._require_bookies(place, 2)
    (record,) = caplog.records
    assert record.getMessage() == "2 bookies are registered as writable, and a ledger has 3: entries have fewer copies"


class Registered:
    """Bookies that register while a node starts."""

    def __init__(self, *names):
        self.names, self.watches = frozenset(names), []

    def writable(self):
        return self.names

    def watch(self, changed):
        self.watches.append(changed)
        return SimpleNamespace(close=lambda: self.watches.remove(changed))

    def register(self, name):
        self.names |= {name}
        for changed in list(self.watches):
            changed()


def test_start_waits_for_bookies_that_start_too(caplog):
    place = log_place.parse_log_url("bookkeeper://zk:2181/ledgers")

    async def main():
        bookies = Registered()
        waiting = asyncio.ensure_future(log_place._wait_for_bookies(place, bookies))
        for name in ("a", "b"):
            await asyncio.sleep(0)
            assert not waiting.done()
            bookies.register(name)
        await asyncio.wait_for(waiting, HANG_SECONDS)
        assert not bookies.watches

    asyncio.run(main())
    waits, fewer = caplog.messages
    assert waits == (
        "0 bookies are registered as writable at zk:2181/ledgers, and an entry needs 2: waiting for more, 60 s at most"
    )
    assert "entries have fewer copies" in fewer


def test_start_says_what_is_missing_when_no_bookies_come(monkeypatch):
    monkeypatch.setattr(log_place, "BOOKIES_WAIT_SECONDS", 0.01)
    place = log_place.parse_log_url("bookkeeper://zk:2181/ledgers")
    bookies = Registered("a")
    with pytest.raises(Unavailable, match="1 bookies are registered as writable .* start more of them"):
        asyncio.run(log_place._wait_for_bookies(place, bookies))
    assert not bookies.watches


# -- releases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "highest"),
    [("0.4.0", "0.4.7"), ("0.4.2", "0.3.0"), ("0.3.9", "0.4.0"), ("1.0.0", "0.9.3"), ("0.9.3", "1.0.1")],
)
def test_one_release_apart_works(own, highest):
    check_release(own, highest)


@pytest.mark.parametrize(
    ("own", "highest", "message"),
    [
        ("0.2.0", "0.4.0", "release 0.4 has served this cluster, and this is 0.2.0: run release 0.3 or newer"),
        (
            "0.9.0",
            "2.0.0",
            "release 2.0 has served this cluster, and this is 0.9.0: run release 1.x, the last, or newer",
        ),
        (
            "0.4.0",
            "0.2.5",
            "release 0.2 was the newest to serve this cluster, and this is 0.4.0: run release 0.3 first",
        ),
        (
            "1.1.0",
            "0.9.0",
            "release 0.9 was the newest to serve this cluster, and this is 1.1.0: run release 1.0 first",
        ),
    ],
)
def test_two_releases_apart_are_refused(own, highest, message):
    with pytest.raises(Invalid) as raised:
        check_release(own, highest)
    assert message in str(raised.value)


def test_cluster_remembers_the_newest_release_that_served_it():
    async def main():
        env = real_env()
        coordination = MemoryCoordination()
        one, other = coordination.client("a", env.clock), coordination.client("b", env.clock)
        await raise_release(one, "0.3.1")
        await asyncio.gather(raise_release(one, "0.4.0"), raise_release(other, "0.3.2"))
        await raise_release(other, "0.3.2")
        with pytest.raises(Invalid, match="release 0.4 has served this cluster, and this is 0.2.9"):
            await raise_release(other, "0.2.9")
        with pytest.raises(Invalid, match="this is 0.6.0: run release 0.5 first"):
            await raise_release(other, "0.6.0")
        await raise_release(other, "0.5.0")
        with pytest.raises(Invalid, match="release 0.5 has served this cluster"):
            await raise_release(other, "0.3.2")

    asyncio.run(main())


# -- clocks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "server", "after"), [(0, 0, 0), (1000, 900, 1000), (0, 3000, 6000), (0, 5000, 0)])
def test_clocks_that_agree_give_no_warning(caplog, before, server, after):
    check_clock(before, server, after)
    assert not caplog.records


@pytest.mark.parametrize(
    ("server", "text"), [(0, "60 s ahead of that of ZooKeeper"), (120_000, "60 s behind that of ZooKeeper")]
)
def test_clocks_apart_by_a_minute_give_a_warning(caplog, server, text):
    with caplog.at_level(logging.WARNING):
        check_clock(60_000, server, 60_010)
    (record,) = caplog.records
    assert f"the clock of this machine is {text}" in record.getMessage()
