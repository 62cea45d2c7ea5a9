"""A program of a user, with every part of the client: `test_user_program.py` checks its types, and runs it on a node.

`assert_type` fails for a result whose type a type checker does not know."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias, assert_type
from uuid import UUID

import sarit
from sarit import aio

Totals: TypeAlias = dict[str, int]


def names(scope: str) -> sarit.StreamName:
    return sarit.StreamName(scope, "numbers")


def write_and_read(client: sarit.Client, scope: str) -> None:
    stream = names(scope)
    scaling = sarit.ScalingPolicy(sarit.ScaleType.FIXED, min_segments=2)
    retention = sarit.RetentionPolicy(sarit.RetentionType.SIZE, 1 << 30)
    assert_type(client.create_stream(stream, scaling=scaling, retention=retention, tags=["blue"]), bool)
    with client.writer(stream) as writer:
        assert_type(writer, sarit.EventWriter)
        writer.write("one", key="a")
        writer.write(sarit.Envelope(b"two", key="b"))
        writer.write_many(["three", "four"], ["a", "b"])
        writer.flush()
    info = client.stream_info(stream)
    assert_type(info, sarit.StreamInfo)
    assert_type(info.config, sarit.StreamConfig)
    assert_type(info.segments, tuple[sarit.SegmentRange, ...])
    assert_type(info.tail, sarit.StreamCut)
    reader = client.reader(stream, end="tail")
    assert_type(reader, sarit.EventReader)
    assert_type(reader.read(timeout=5), bytes | None)
    assert_type(reader.read_events(10, timeout=5), list[bytes])
    assert_type(reader.position(), sarit.StreamCut)
    for event in reader:
        assert_type(event, bytes)
    assert reader.at_end
    handle = client.stream(stream)
    assert_type(handle, sarit.Stream)
    assert_type(handle.segments(), list[sarit.SegmentRange])
    assert_type(handle.jobs(), list[sarit.JobInfo])
    assert_type(handle.epochs(), list[sarit.Epoch])
    batch = handle.batch()
    assert_type(batch, sarit.BatchReader)
    assert_type(batch.slices, tuple[sarit.Slice, ...])
    assert_type(batch.read(timeout=5), bytes | None)
    windows = handle.time_windows()
    assert_type(windows, sarit.TimeWindows)
    assert_type(windows.at(info.head), sarit.TimeWindow)
    assert_type(client.segment_infos(stream, [one.segment for one in info.segments])[info.segments[0].segment],
                sarit.SegmentInfo)  # fmt: skip
    assert_type(client.successors(stream, info.segments[0].segment), list[sarit.Successor])
    for name in client.list_streams(scope):
        assert_type(name, sarit.StreamName)
    assert_type(client.list_scopes(), Iterator[str])


def mirror_streams(client: sarit.Client, scope: str) -> None:
    links = client.links
    assert_type(links, sarit.Links)
    settings = sarit.LinkSettings(
        sarit.LinkDirection.PUSH, "127.0.0.1:1", include=(f"{scope}/*",), overflow=sarit.HoldOverflow.THROTTLE
    )
    made = links.create(f"to-{scope}", settings, paused=True)
    assert_type(made, sarit.LinkInfo)
    assert_type(made.status, sarit.LinkStatus)
    assert_type(made.status.problems, tuple[sarit.StreamProblem, ...])
    assert made.state is sarit.LinkState.PAUSED
    assert made.role is sarit.LinkRole.ACTIVE
    assert_type(links.list(), tuple[sarit.LinkInfo, ...])
    assert_type(links.promote(made.name, planned=True), sarit.LinkPromotion)
    links.delete(made.name)


def ask_all_the_time(client: sarit.Client, scope: str) -> None:
    asked = client.continuous
    assert_type(asked, sarit.ContinuousQueries)
    if scope not in client.list_scopes():  # a program for the type checker: this node runs no jobs
        made = asked.create(f"{scope}/lines", "errors", "error", f"{scope}/alerts", with_event=True)
        assert_type(made, sarit.ContinuousQuery)
        assert_type(made.holds_from, sarit.StreamCut | None)
        assert_type(asked.list(f"{scope}/lines"), tuple[sarit.ContinuousQuery, ...])
        assert_type(asked.progress(f"{scope}/lines"), sarit.ContinuousProgress)
        asked.delete(f"{scope}/lines", made.name)


def search_events(client: sarit.Client, scope: str) -> None:
    client.create_stream(scope, "searched")
    assert_type(client.search, sarit.Searches)
    info = client.search.info(f"{scope}/searched")
    assert_type(info, sarit.SearchInfo)
    if info.searchable:  # a program for the type checker: this node runs no jobs
        found = client.search(f"{scope}/searched", "error", start_ms=0, limit=10, bucket_ms=60_000, facets=["level"])
        assert_type(found, sarit.SearchResult)
        assert_type(found.hits, tuple[sarit.SearchHit, ...])
        assert_type(found.hits[0].event, bytes | None)
        assert_type(found.cut, sarit.StreamCut | None)
        client.search(f"{scope}/searched", "error", page=found.page)


def copy_bytes(client: sarit.Client, scope: str) -> None:
    client.create_stream(scope, "video")
    with client.byte_writer(f"{scope}/video") as writer:
        assert_type(writer, sarit.ByteWriter)
        assert_type(writer.write(b"frame"), int)
    with client.byte_reader(f"{scope}/video") as reader:
        assert_type(reader, sarit.ByteReader)
        assert_type(reader.read(100, timeout=5), bytes)


def read_in_a_group(client: sarit.Client, scope: str) -> None:
    groups = client.reader_groups
    assert_type(groups, sarit.ReaderGroups)
    start: sarit.CutLike = "head"
    group = groups.create(f"{scope}/group", names(scope), start=start, automatic_checkpoint=None)
    assert_type(group, sarit.ReaderGroup)
    with group.reader("reader") as reader:
        found = reader.read(timeout=5)
        assert_type(found, sarit.GroupEvent | sarit.CheckpointEvent | None)
        if isinstance(found, sarit.GroupEvent):
            assert_type(found.position, sarit.Position)
            assert_type(found.pointer, sarit.EventPointer)
            assert_type(client.stream(names(scope)).fetch_event(found.pointer), bytes)
        assert_type(reader.read_batch(10, timeout=5), sarit.EventBatch | sarit.CheckpointEvent | None)
        assert_type(reader.segments, list[sarit.GroupSegment])
    info = group.info()
    assert_type(info, sarit.GroupInfo)
    assert_type(info.config, sarit.GroupConfig)
    assert_type(group.progress(), list[sarit.SegmentProgress])
    checkpoint = group.checkpoint("before")
    assert_type(checkpoint, sarit.Checkpoint)
    group.reset(checkpoint)
    groups.delete(group.name)


def use_tables(client: sarit.Client, scope: str) -> None:
    tables = client.tables
    assert_type(tables, sarit.Tables)
    assert_type(tables.create(f"{scope}/totals", primary_key_bytes=8), bool)
    table = client.table(f"{scope}/totals")
    assert_type(table, sarit.Table)
    assert_type(table.config(), sarit.TableConfig)
    key: sarit.Key = "account1"
    version = table.insert(key, "1")
    assert_type(version, int)
    changes: list[sarit.Change] = [sarit.Replace(key, "2", version), sarit.Put("account2", "1")]
    changes.append(sarit.Insert("account3", "1"))
    assert_type(table.update(changes), list[int])
    table.update([sarit.Remove("account2")])
    beginning: sarit.Part = "account"
    assert [found.key for found in table.scan(prefix=beginning)] == [b"account1", b"account3"]
    entry = table.get(key)
    assert_type(entry, sarit.Entry | None)
    assert entry is not None
    assert entry.value == b"2"


def write_transactions(client: sarit.Client, scope: str) -> None:
    with client.transactional_writer(names(scope)) as writer:
        assert_type(writer, sarit.TransactionalWriter)
        with writer.begin() as transaction:
            assert_type(transaction, sarit.Transaction)
            assert_type(transaction.id, UUID)
            transaction.write("five", key="a")
        assert_type(writer.status(transaction.id), sarit.TransactionStatus)


def added(totals: Totals, update: bytes, _: sarit.Revision) -> Totals:
    return {**totals, update.decode(): totals.get(update.decode(), 0) + 1}


def share_state(client: sarit.Client, scope: str) -> None:
    coordination = client.coordination
    assert_type(coordination, sarit.Coordination)
    entries = coordination.revisioned(f"{scope}/entries")
    assert_type(entries, sarit.RevisionedStream)
    assert_type(entries.fetch_latest(), sarit.Revision)
    shared = coordination.synchronizer(f"{scope}/shared", lambda _: Totals(), added)
    assert_type(shared, sarit.StateSynchronizer[Totals])
    shared.initialize(b"")
    shared.update(lambda state: [] if "a" in state else [b"a"])
    assert_type(shared.fetch(), Totals)
    with coordination.membership(f"{scope}/members") as membership:
        assert_type(membership, sarit.Membership)
        assert_type(membership.members, tuple[sarit.Member, ...])
    with coordination.shared_configuration(f"{scope}/settings", {"limit": 5}) as settings:
        assert_type(settings, sarit.SharedConfiguration)
        settings.set("limit", 6)


class Number:
    def serialize(self, value: int) -> bytes:
        return b"%d" % value

    def deserialize(self, payload: bytes) -> int:
        return int(payload)


def share_structures(client: sarit.Client, scope: str) -> None:
    structures = client.structures
    assert_type(structures, sarit.Structures)
    visits = structures.counter(f"{scope}/visits")
    assert_type(visits, sarit.SharedCounter)
    assert_type(visits.add(2), int)
    assert_type(visits.value(), int)
    for value in visits.watch():
        assert_type(value, int)
        break
    prices = structures.map(f"{scope}/prices", serializer=Number(), deserializer=Number())
    assert_type(prices, sarit.SharedMap[int])
    assert_type(prices.put("bread", 3), int)
    entry = prices.get("bread")
    assert_type(entry, sarit.MapEntry[int] | None)
    assert entry == sarit.MapEntry("bread", 3, 1)
    for change in prices.watch():
        assert_type(change, sarit.MapChange[int])
        break
    seen = structures.set(f"{scope}/seen")
    assert_type(seen, sarit.SharedSet)
    assert_type(seen.add(b"1"), bool)
    assert_type(seen.items(), list[bytes])
    for added in seen.watch():
        assert_type(added, sarit.SetChange)
        break
    log = structures.list(f"{scope}/log", serializer=Number(), deserializer=Number())
    assert_type(log, sarit.SharedList[int])
    assert_type(log.append(7), int)
    for item in log.items():
        assert_type(item, sarit.ListItem[int])
    work = structures.queue(f"{scope}/work", lease_seconds=60)
    assert_type(work, sarit.SharedQueue)
    work.put(b"a task", priority=2)
    taken = work.take(timeout=5)
    assert_type(taken, sarit.QueueItem | None)
    assert taken is not None
    work.done(taken)


def fails(call: Callable[[], object], expected: type[Exception], kind: type[sarit.SaritError]) -> bool:
    """Whether a call raises an error of Python that is of a kind of Sarit's."""
    try:
        call()
    except expected as error:
        return isinstance(error, kind)
    return False


def handle_errors(client: sarit.Client, scope: str) -> None:
    idle = client.reader_groups.create(f"{scope}/idle", names(scope))
    assert fails(lambda: client.stream_info(f"{scope}/none"), LookupError, sarit.NotFound)
    assert fails(lambda: client.create_scope("no good"), ValueError, sarit.Invalid)
    assert fails(lambda: sarit.connect("127.0.0.1:1", retry_timeout=0), ConnectionError, sarit.Unreachable)
    assert fails(lambda: idle.end_of_data(timeout=0.1), TimeoutError, sarit.TimedOut)


# What needs other servers, Arrow, or an accident: for the type checker alone.
KINDS: tuple[type[sarit.SaritError], ...] = (
    *(sarit.Conflict, sarit.Corrupt, sarit.Exists, sarit.Fenced, sarit.Forbidden, sarit.Sealed, sarit.Truncated),
    *(sarit.Unauthenticated, sarit.Unavailable),
)


def log_in(address: str) -> sarit.Client:
    credentials: sarit.Credentials = sarit.BearerToken(lambda: "a token")
    return sarit.connect(address, credentials=credentials, tls=sarit.Tls(ca_file="ca.pem"), wait=60)


def read_arrow(reader: sarit.GroupReader, events: sarit.EventReader) -> None:
    assert_type(reader.read_arrow(timeout=5), sarit.ArrowBatch | sarit.CheckpointEvent | None)
    assert_type(events.next_events(), sarit.Events | None)


def lead(client: sarit.Client, scope: str) -> None:
    election = client.coordination.leader_election(f"{scope}/leader")
    assert_type(election, sarit.LeaderElection)
    assert_type(election.lead(), int)


def position_of(segment: sarit.GroupSegment, keys: sarit.KeyPart) -> sarit.Position:
    return sarit.Position({segment: 0}, {segment: keys})


def cut_of(client: sarit.Client, cut: sarit.Cut, first: sarit.SegmentId) -> sarit.StreamCut | None:
    return client.cut("a/b", cut) or sarit.StreamCut(sarit.StreamName("a", "b"), {first: 0})


async def on_asyncio(scope: str) -> None:
    async with aio.connect() as client:
        assert_type(client, aio.Client)
        info = await client.stream_info(names(scope))
        assert_type(info, sarit.StreamInfo)
        async with client.writer(names(scope)) as writer:
            assert_type(writer, aio.EventWriter)
            writer.write("six", key="a")
            await writer.flush()
        reader = client.reader(names(scope), start=info.tail)
        assert_type(await reader.read(timeout=5), bytes | None)
        assert_type(await client.tables.create(f"{scope}/more", primary_key_bytes=1), bool)
        assert_type(await client.reader_groups.create(f"{scope}/other", names(scope)), aio.ReaderGroup)
        assert_type(await client.coordination.revisioned(f"{scope}/entries"), aio.RevisionedStream)
        assert_type(await client.structures.counter(f"{scope}/visits"), aio.SharedCounter)
    waiting: aio.Connecting = aio.connect(credentials=sarit.UserPassword("ann", "secret"), tls=None)
    waiting.close()
    client = await aio.connect()
    await client.close()


def main(scope: str) -> None:
    assert_type(sarit.__version__, str)
    with sarit.connect() as client:
        assert_type(client, sarit.Client)
        client.create_scope(scope)
        write_and_read(client, scope)
        mirror_streams(client, scope)
        ask_all_the_time(client, scope)
        search_events(client, scope)
        copy_bytes(client, scope)
        read_in_a_group(client, scope)
        use_tables(client, scope)
        write_transactions(client, scope)
        share_state(client, scope)
        share_structures(client, scope)
        handle_errors(client, scope)
    asyncio.run(on_asyncio(scope))


if __name__ == "__main__":
    main(sys.argv[1])
    print("done")
