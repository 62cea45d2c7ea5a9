"""The index of a stream on a real node: events are in it within its interval, however often the node starts again."""

from __future__ import annotations

import asyncio

import pytest

import sarit
from sarit.client.aio import connect
from sarit.controller.jobs import JobKey, JobTable
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from sarit.search.documents import Place
from sarit.search.mapping import Kind
from sarit.search.ports import ShardQuestion
from sarit.search.query import ALL_TEXT, Equals, Everything, Phrase, Range, Term
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from sarit.search.shard_files import download, read_file
from sarit.search.state import IndexState, decode_shards
from tests.limits import HANG_SECONDS

NAME = StreamName("shop", "orders")
KEY = JobKey(SEARCH_KIND, NAME, SEARCH_JOB)
EVER = (-(1 << 63), 1 << 63)
EVERYTHING = Everything()
SOON = SearchSettings(interval_seconds=1).encode()


def on_node(path, work):
    async def main():
        env = real_env()
        node = await open_node(NodeConfig(str(path), controller_port=0, store_port=0, jobs=True).validated(), env)
        await node.start()
        try:
            async with asyncio.timeout(HANG_SECONDS), connect(f"127.0.0.1:{node.controller_port}") as client:
                return await work(node, client)
        finally:
            await node.stop()

    return asyncio.run(main())


async def state_of(node) -> IndexState:
    found = await JobTable(node.controller.catalog).find(KEY)
    return IndexState() if found is None else IndexState.decode(found.job.state)


async def indexed(node, events: int) -> IndexState:
    """Wait until the index has so many events."""
    while (found := await state_of(node)).events < events:
        await asyncio.sleep(0.05)
    return found


async def hits(node, tmp_path, query=EVERYTHING):
    """Return what an index finds, by the state of its job and its blobs alone."""
    site, state, worker = node.controller_role.site, await state_of(node), real_env().threads.worker("test")
    shards = [] if state.closed is None else decode_shards(await read_file(site.blobs, state.closed))
    found = []
    for number, shard in enumerate([*shards, *([state.growing] if state.growing else [])]):
        directory = tmp_path / f"copy-{state.commits}-{number}-{query}"[:80]
        await download(site.blobs, shard.files, directory, real_env().files, worker)
        reader = site.engine().open(directory, shard.mapping)
        found += reader.search(ShardQuestion(query, *EVER, "oldest", 10**6)).hits
        reader.close()
    await worker.close()
    return found


async def places(client) -> set[Place]:
    """Return where the events of the stream are, by reading them."""
    found = set()
    async with client.reader(str(NAME), start="head", end="tail", skip_truncated=True) as reader:
        while (batch := await reader.read_arrow()) is not None:
            columns = batch["segment"].to_pylist(), batch["offset"].to_pylist()
            found |= {Place(*pair) for pair in zip(*columns, strict=True)}
    return found


async def write(client, *events: bytes) -> None:
    async with client.writer(str(NAME)) as writer:
        for number, event in enumerate(events):
            writer.write(event, f"key {number}")
        await writer.flush()


def test_events_are_in_the_index_and_stay_there(tmp_path):
    data = tmp_path / "node"

    async def first(node, client):
        await client.create_scope("shop")
        await client.create_stream(str(NAME), segments=3)
        await write(client, *(b"payment %d failed" % number for number in range(100)))
        assert await client.stream(str(NAME)).create_job(SEARCH_KIND, SOON, SEARCH_JOB)
        state = await indexed(node, 100)
        assert {hit.place for hit in await hits(node, tmp_path)} == await places(client)
        (job,) = await client.stream(str(NAME)).jobs()
        assert (job.state["events"], job.state["shards"], job.problem) == ("100", "1", "")
        await write(client, b"one more")
        assert (await indexed(node, 101)).commits > state.commits

    async def second(node, client):
        # The node was stopped: its files are gone, and the index goes on with those that are stored.
        await write(client, b"another one")
        state = await indexed(node, 102)
        assert state.growing.events == 102
        assert {hit.place for hit in await hits(node, tmp_path)} == await places(client)
        assert len(await hits(node, tmp_path, Term(ALL_TEXT, "one"))) == 2
        assert len(await hits(node, tmp_path, Term(ALL_TEXT, "failed"))) == 100

    on_node(data, first)
    on_node(data, second)


def test_scaled_and_truncated_stream_is_indexed_as_far_as_it_is_there(tmp_path):
    async def work(node, client):
        await client.create_scope("shop")
        await client.create_stream(str(NAME), segments=1)
        stream = client.stream(str(NAME))
        await write(client, *[b"before the cut"] * 10)
        cut = await client.stream_cut_tail(str(NAME))
        await write(client, *[b"after the cut"] * 10)
        await client.truncate_stream(str(NAME), cut=cut)
        assert await stream.scale(2)
        await write(client, *[b"after the scale"] * 10)
        assert await stream.create_job(SEARCH_KIND, SOON, SEARCH_JOB)
        await indexed(node, 20)
        assert {hit.place for hit in await hits(node, tmp_path)} == await places(client)

    on_node(tmp_path / "node", work)


def test_index_of_a_stream_that_is_not_searchable_any_more_is_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr("sarit.search.indexer.HOUSEKEEPING_SECONDS", 0.5)

    async def work(node, client):
        site = node.controller_role.site
        await site.sweep_once()
        await client.create_scope("shop")
        await client.create_stream(str(NAME), segments=1)
        await write(client, b"one")
        stream = client.stream(str(NAME))
        await stream.create_job(SEARCH_KIND, SOON, SEARCH_JOB)
        await indexed(node, 1)
        await site.sweep_once()
        (blob,) = await site.blobs.names("")
        await stream.delete_job(SEARCH_KIND, SEARCH_JOB)
        await site.sweep_once()
        assert await site.blobs.names("") == []
        with pytest.raises(sarit.NotFound):
            await site.blobs.read(blob, 0, 1)
        assert await site.rows.scan(b"i/") == []
        # It can be made again.
        await stream.create_job(SEARCH_KIND, SOON, SEARCH_JOB)
        await indexed(node, 1)
        assert len(await hits(node, tmp_path)) == 1
        await client.seal_stream(str(NAME))
        await client.delete_stream(str(NAME))
        await site.sweep_once()
        assert await site.blobs.names("") == []

    on_node(tmp_path / "node", work)


def test_shards_are_closed_and_dropped_and_old_blobs_deleted(tmp_path, monkeypatch):
    for name, seconds in (("HOUSEKEEPING_SECONDS", 0.2), ("GARBAGE_SECONDS", 0.2), ("OLD_BLOB_SECONDS", 1.0)):
        monkeypatch.setattr(f"sarit.search.indexer.{name}", seconds)
    monkeypatch.setattr("sarit.search.index_plan.MAX_SHARD_EVENTS", 20)

    async def work(node, client):
        await client.create_scope("shop")
        await client.create_stream(str(NAME), segments=2)
        await client.stream(str(NAME)).create_job(SEARCH_KIND, SOON, SEARCH_JOB)
        cuts = []
        for part in range(4):
            await write(client, *(b"part %d event %d" % (part, number) for number in range(25)))
            await indexed(node, 25 * (part + 1))
            cuts.append(await client.stream_cut_tail(str(NAME)))
        while (state := await state_of(node)).closed_shards < 4:
            await asyncio.sleep(0.05)
        assert (state.growing, state.events) == (None, 100)
        assert {hit.place for hit in await hits(node, tmp_path)} == await places(client)
        blobs = node.controller_role.site.blobs
        # A blob for each shard, and one with their list.
        while len(await blobs.names("")) > 5:
            await asyncio.sleep(0.05)
        assert {hit.place for hit in await hits(node, tmp_path / "again")} == await places(client)
        await client.truncate_stream(str(NAME), cut=cuts[1])
        while (await state_of(node)).closed_shards > 2:
            await asyncio.sleep(0.05)
        while len(await blobs.names("")) > 3:
            await asyncio.sleep(0.05)
        assert {hit.place for hit in await hits(node, tmp_path / "at last")} == await places(client)
        assert not [path for path in (tmp_path / "node" / "search").rglob("*") if path.is_file()]

    on_node(tmp_path / "node", work)
    assert not (tmp_path / "node" / "search").exists()


def test_fields_are_inferred_and_kept_in_the_shard(tmp_path):
    async def work(node, client):
        await client.create_scope("shop")
        await client.create_stream(str(NAME), segments=1)
        await write(
            client,
            b'{"at": "2026-01-02T03:04:05Z", "timestamp": "2026-05-06T07:08:09Z", "user": {"id": "bob"}, "paid": true}',
            b'{"at": "2026-01-02T03:04:06Z", "note": "payment failed", "amount": 12.5, "timestamp": 3}',
            b"no document",
        )
        await client.stream(str(NAME)).create_job(SEARCH_KIND, SOON, SEARCH_JOB)
        state = await indexed(node, 3)
        kinds = {field.path: field.kind for field in state.growing.mapping.fields}
        assert (kinds["user.id"], kinds["note"], kinds["amount"], kinds["paid"], kinds["at"]) == (
            Kind.KEYWORD, Kind.TEXT, Kind.NUMBER, Kind.BOOLEAN, Kind.TIME,
        )  # fmt: skip
        assert len(await hits(node, tmp_path, Equals("user.id", "bob"))) == 1
        assert len(await hits(node, tmp_path, Phrase("note", ("payment", "failed")))) == 1
        assert len(await hits(node, tmp_path, Range("amount", 12, None))) == 1
        assert len(await hits(node, tmp_path, Term(ALL_TEXT, "document"))) == 1
        # New fields come with the next shard; those of the shard stay what they are, for whoever takes over.
        await write(client, b'{"later": "x"}')
        assert (await indexed(node, 4)).growing.mapping == state.growing.mapping

    on_node(tmp_path / "node", work)


def test_settings_that_no_index_takes_are_refused(tmp_path):
    async def work(node, client):
        await client.create_scope("shop")
        await client.create_stream(str(NAME), segments=1)
        with pytest.raises(sarit.Invalid, match="is named index, not main"):
            await client.stream(str(NAME)).create_job(SEARCH_KIND, b"{}")
        with pytest.raises(sarit.Invalid, match="unknown field"):
            await client.stream(str(NAME)).create_job(SEARCH_KIND, b'{"x": 1}', SEARCH_JOB)

    on_node(tmp_path / "node", work)
