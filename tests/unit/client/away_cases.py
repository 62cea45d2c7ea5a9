"""One call of every public method of the client that asks the node: for `test_node_away.py`.

A case prepares what it needs while the node is there, and returns the call that is made when it is not.  The same cases
run on the asyncio client and on the blocking one: `wait` takes what either returns."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sarit.client.reader.pointers import EventPointer
from sarit.client.tables.changes import Put
from sarit.core.links import LinkDirection, LinkSettings
from sarit.core.names import SegmentId, StreamName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FIRST: Final = SegmentId(0, 0)
LEASE: Final = 1.0


async def wait(result: Any) -> Any:
    """The result of a call: awaited, or the first of an iterator, or itself."""
    if inspect.isawaitable(result):
        return await result
    if hasattr(result, "__anext__"):
        return await anext(result)
    if hasattr(result, "__next__"):
        return next(result)
    return result


class World:
    """A client, asyncio or blocking, and names of its own."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.stream = f"s/{name}"
        self.writers: list[Any] = []  # referenced, as a user would

    async def with_stream(self, segments: int = 1) -> str:
        """A stream with one event for each of some keys."""
        await wait(self.client.create_stream(self.stream, segments=segments))
        writer = self.client.writer(self.stream)
        for number in range(4):
            writer.write(f"{number}", key=f"{number}")
        await wait(writer.close())
        return self.stream

    async def with_table(self) -> Any:
        """A table with one entry."""
        await wait(self.client.tables.create(self.stream, primary_key_bytes=1))
        table = self.client.table(self.stream)
        await wait(table.put("a", "1"))
        return table

    async def with_group(self) -> Any:
        """A group of a stream."""
        await self.with_stream()
        name = self.stream + "-group"
        return await wait(self.client.reader_groups.create(name, self.stream, retention="manual"))

    async def with_state(self) -> Any:
        """A shared state."""
        make = self.client.coordination.synchronizer
        state = await wait(make(self.stream, bytes, lambda state, update, _: state + update))
        await wait(state.initialize(b"0"))
        return state


RAISES, RAISES_SOONER, ENDS = "raises Unavailable", "raises Unavailable, perhaps sooner", "ends without an error"
# Class.method -> what prepares its call, and how it ends.
CASES: dict[str, tuple[Callable[[World], Awaitable[Callable[[], Any]]], str]] = {}


def case(*names: str, how: str = RAISES) -> Any:
    """Register a case for methods `Class.name`."""

    def register(prepare: Any) -> Any:
        for name in names:
            assert name not in CASES
            CASES[name] = (lambda world, name=name: prepare(world, name.partition(".")[2]), how)
        return prepare

    return register


# -- the client -------------------------------------------------------------------------------------


@case("Client.create_scope", "Client.delete_scope", "Client.list_streams")
async def on_scope(world: World, method: str) -> Any:
    return lambda: getattr(world.client, method)("s")


@case("Client.list_scopes")
async def list_scopes(world: World, _: str) -> Any:
    return world.client.list_scopes


@case(
    *("Client.create_stream", "Client.update_stream", "Client.stream_info", "Client.seal_stream"),
    *("Client.delete_stream", "Client.stream_cut_head", "Client.stream_cut_tail"),
)
async def on_stream(world: World, method: str) -> Any:
    await world.with_stream()
    return lambda: getattr(world.client, method)(world.stream)


@case("Client.truncate_stream")
async def truncate_stream(world: World, _: str) -> Any:
    await world.with_stream()
    cut = await wait(world.client.stream_cut_tail(world.stream))
    return lambda: world.client.truncate_stream(world.stream, cut=cut)


@case("Client.cut")
async def cut(world: World, _: str) -> Any:
    await world.with_stream()
    return lambda: world.client.cut(world.stream, "head")


@case("Client.sql")
async def sql(world: World, _: str) -> Any:
    await world.with_stream()
    scope, name = world.stream.split("/")
    return lambda: world.client.sql(f'SELECT count(*) FROM "{scope}"."{name}"')


@case("Client.segment_infos")
async def segment_infos(world: World, _: str) -> Any:
    await world.with_stream()
    return lambda: world.client.segment_infos(world.stream, [FIRST])


@case("Client.successors", "Client.segment_batches")
async def on_segment(world: World, method: str) -> Any:
    await world.with_stream()
    return lambda: getattr(world.client, method)(world.stream, FIRST)


@case("Client.close", how=ENDS)
async def close(world: World, _: str) -> Any:
    await world.with_stream()
    return world.client.close


# -- writers and readers ----------------------------------------------------------------------------


@case("EventWriter.flush", "EventWriter.close", "EventWriter.drain")
async def event_writer(world: World, method: str) -> Any:
    await world.with_stream()
    writer = world.client.writer(world.stream, buffer_bytes=1)
    writer.write("first")
    await wait(writer.flush())

    def act() -> Any:
        writer.write("second")
        return getattr(writer, method)()

    return act


@case("EventWriter.note_time")
async def note_time(world: World, _: str) -> Any:
    await world.with_stream()
    writer = world.client.writer(world.stream, name="w")
    return lambda: writer.note_time(1)


@case("EventReader.__iter__", "EventReader.batches", "EventReader.arrow_batches")
async def event_reader_iterators(world: World, method: str) -> Any:
    reader = await at_tail(world)
    method = method if hasattr(reader, method) else "__aiter__"
    return getattr(reader, method)


@case("EventReader.read", "EventReader.read_events", "EventReader.read_arrow", "EventReader.next_events")
async def event_reader(world: World, method: str) -> Any:
    return getattr(await at_tail(world), method)


async def at_tail(world: World) -> Any:
    """A reader that has read everything."""
    await world.with_stream()
    reader = world.client.reader(world.stream)
    await wait(reader.read_events())
    return reader


@case("ByteWriter.flush", "ByteWriter.close", "ByteWriter.tell", "ByteWriter.head_offset", "ByteWriter.truncate")
async def byte_writer(world: World, method: str) -> Any:
    await wait(world.client.create_stream(world.stream))
    writer = world.client.byte_writer(world.stream)
    writer.write(b"first")
    await wait(writer.flush())

    def act() -> Any:
        writer.write(b"second")
        return getattr(writer, method)(*([1] if method == "truncate" else []))

    return act


@case("ByteReader.read", "ByteReader.read_exactly", "ByteReader.head_offset", "ByteReader.tail_offset")
async def byte_reader(world: World, method: str) -> Any:
    await world.with_stream()
    reader = world.client.byte_reader(world.stream)
    while len(await wait(reader.read())) < 1:
        pass
    return lambda: getattr(reader, method)(*([1000] if method == "read_exactly" else []))


# -- one stream -------------------------------------------------------------------------------------


@case(
    *(
        f"Stream.{each}"
        for each in ("segments", "epochs", "batch", "creation_id", "properties", "link", "subscribers", "jobs")
    )
)
async def stream(world: World, method: str) -> Any:
    await world.with_stream()
    return getattr(world.client.stream(world.stream), method)


@case(
    *("Stream.scale", "Stream.split", "Stream.merge", "Stream.next_cut", "Stream.fetch_event", "Stream.read_slice"),
    *("Stream.boundaries", "Stream.event_ends", "Stream.cut_at", "Stream.set_properties", "Stream.drop_subscriber"),
    *("Stream.create_job", "Stream.delete_job"),
)
async def stream_with_arguments(world: World, method: str) -> Any:
    await world.with_stream(segments=2)
    handle = world.client.stream(world.stream)
    slices = (await wait(handle.batch())).slices
    arguments = {
        "scale": [3],
        "split": [FIRST],
        "merge": [[FIRST, SegmentId(0, 1)]],
        "next_cut": ["head", 10],
        **{each: [FIRST, 0, 1000, 10] for each in ("boundaries", "event_ends")},
        **{"cut_at": [1_700_000_000_000], "drop_subscriber": ["s/g"]},
        **{"create_job": ["count", b"{}"], "delete_job": ["count"]},
        "set_properties": [{"time-unit": "seconds"}],
        "fetch_event": [EventPointer(StreamName.parse(world.stream), FIRST, 0, 9)],
        "read_slice": slices[:1],
    }[method]
    return lambda: getattr(handle, method)(*arguments)


@case("BatchReader.__iter__", "BatchReader.batches", "BatchReader.arrow_batches", "BatchReader.read")
async def batch_reader(world: World, method: str) -> Any:
    await world.with_stream()
    batch = await wait(world.client.stream(world.stream).batch())
    return getattr(batch, method if hasattr(batch, method) else "__aiter__")


@case("TimeWindows.at")
async def time_windows(world: World, _: str) -> Any:
    await world.with_stream()
    windows = world.client.stream(world.stream).time_windows()
    position = await wait(world.client.stream_cut_head(world.stream))
    return lambda: windows.at(position)


@case("Stream.nodes")
async def nodes(world: World, _: str) -> Any:
    await wait(world.client.create_stream(world.stream))  # the endpoint of a segment that was used is known
    return lambda: world.client.stream(world.stream).nodes([FIRST])


# -- links ------------------------------------------------------------------------------------------


@case(*(f"Links.{each}" for each in ("create", "get", "change", "pause", "resume", "delete", "promote", "list")))
async def links(world: World, method: str) -> Any:
    await wait(world.client.create_stream(world.stream))
    settings = LinkSettings(LinkDirection.PUSH, "127.0.0.1:1")
    arguments: dict[str, list[Any]] = {"create": ["a", settings], "change": ["a", settings], "list": []}
    named = {"planned": True} if method == "promote" else {}
    return lambda: getattr(world.client.links, method)(*arguments.get(method, ["a"]), **named)


@case(*(f"ContinuousQueries.{each}" for each in ("create", "get", "change", "delete", "list", "progress")))
async def continuous(world: World, method: str) -> Any:
    await wait(world.client.create_stream(world.stream))
    more = {"create": ["a", "red", world.stream], "change": ["a", "red"], "list": [], "progress": []}.get(method, ["a"])
    return lambda: getattr(world.client.continuous, method)(world.stream, *more)


# -- tables -----------------------------------------------------------------------------------------


@case("Tables.create", "Tables.delete", "Tables.list", "Tables.creation_id")
async def tables(world: World, method: str) -> Any:
    await world.with_table()
    arguments: dict[str, Any] = {"primary_key_bytes": 1} if method == "create" else {}
    return lambda: getattr(world.client.tables, method)("s" if method == "list" else world.stream, **arguments)


@case("Table.config", "Table.partitions")
async def table_layout(world: World, method: str) -> Any:
    await world.with_table()
    return getattr(world.client.table(world.stream), method)


@case(
    *("Table.put", "Table.replace", "Table.remove", "Table.update", "Table.put_many"),
    *("Table.get", "Table.get_many", "Table.scan", "Table.scan_keys", "Table.scan_pages", "Table.remove_many"),
)
async def table(world: World, method: str) -> Any:
    handle = await world.with_table()
    arguments: dict[str, list[Any]] = {
        "put": ["a", "2"],
        "replace": ["a", "2", 0],
        "remove": ["a"],
        "update": [[Put("a", "2")]],
        "put_many": [[("a", "2")]],
        "remove_many": [["a"]],
        "get": ["a"],
        "get_many": [["a"]],
    }
    return lambda: getattr(handle, method)(*arguments.get(method, []))


@case("Table.insert", how=RAISES_SOONER)  # once it may have been applied, it is not sent again
async def insert(world: World, _: str) -> Any:
    handle = await world.with_table()
    return lambda: handle.insert("b", "2")


@case("Table.insert_many", how=RAISES_SOONER)
async def insert_many(world: World, _: str) -> Any:
    handle = await world.with_table()
    return lambda: handle.insert_many([("b", "2")])


# -- transactions -----------------------------------------------------------------------------------


@case(
    *("TransactionalWriter.begin", "TransactionalWriter.take_up", "TransactionalWriter.status"),
    *(f"TransactionalWriter.{name}" for name in ("renew", "commit", "abort", "completed")),
)
async def transactional_writer(world: World, method: str) -> Any:
    await world.with_stream()
    writer = world.client.transactional_writer(world.stream)
    begun = await wait(writer.begin())
    world.writers += [writer, begun]
    return lambda: getattr(writer, method)(*([] if method in ("begin", "completed") else [begun.id]))


@case("TransactionalWriter.close", how=ENDS)
async def close_transactional_writer(world: World, _: str) -> Any:
    await world.with_stream()
    writer = world.client.transactional_writer(world.stream)
    await wait(writer.begin())
    return writer.close


@case("Transaction.flush", "Transaction.commit", "Transaction.abort", "Transaction.status")
async def transaction(world: World, method: str) -> Any:
    await world.with_stream()
    writer = world.client.transactional_writer(world.stream)
    begun = await wait(writer.begin())
    world.writers += [writer, begun]

    def act() -> Any:
        begun.write("1")
        return getattr(begun, method)()

    return act


# -- shared state -----------------------------------------------------------------------------------


@case(
    *("Coordination.revisioned", "Coordination.membership", "Coordination.leader_election"),
    "Coordination.shared_configuration",
)
async def coordination(world: World, method: str) -> Any:
    return lambda: getattr(world.client.coordination, method)(world.stream)


@case("Coordination.synchronizer")
async def synchronizer(world: World, _: str) -> Any:
    return lambda: world.client.coordination.synchronizer(world.stream, bytes, lambda state, *_: state)


@case(
    *("RevisionedStream.fetch_latest", "RevisionedStream.oldest", "RevisionedStream.get_mark"),
    *("RevisionedStream.read_from", "RevisionedStream.write_conditionally", "RevisionedStream.write_unconditionally"),
    *("RevisionedStream.compare_and_set_mark", "RevisionedStream.truncate"),
)
async def revisioned(world: World, method: str) -> Any:
    entries = await wait(world.client.coordination.revisioned(world.stream))
    await wait(entries.write_unconditionally(b"1"))
    at, oldest = await wait(entries.fetch_latest()), await wait(entries.oldest())
    arguments: dict[str, list[Any]] = {
        "read_from": [oldest],
        "write_conditionally": [at, b"2"],
        "write_unconditionally": [b"2"],
        "compare_and_set_mark": [None, at],
        "truncate": [at],
    }
    return lambda: getattr(entries, method)(*arguments.get(method, []))


@case(
    *("StateSynchronizer.fetch", "StateSynchronizer.initialize", "StateSynchronizer.update"),
    *("StateSynchronizer.update_unconditionally", "StateSynchronizer.compact"),
)
async def state(world: World, method: str) -> Any:
    shared = await world.with_state()
    arguments: dict[str, list[Any]] = {
        "initialize": [b"0"],
        "update": [lambda state: [b"1"]],
        "update_unconditionally": [[b"1"]],
        "compact": [lambda state: state],
    }
    return lambda: getattr(shared, method)(*arguments.get(method, []))


@case("Membership.changed", "Membership.joined", "Membership.describe")
async def membership(world: World, method: str) -> Any:
    join = world.client.coordination.membership
    first = await wait(join(world.stream, "one", lease_seconds=LEASE))
    second = await wait(join(world.stream, "one", lease_seconds=LEASE))  # its name is taken: it waits
    world.writers += [first, second]
    if method == "joined":
        return second.joined
    return lambda: getattr(first, method)(first.members if method == "changed" else "data")


@case("LeaderElection.lead", "LeaderElection.resign")
async def election(world: World, method: str) -> Any:
    elect = world.client.coordination.leader_election
    first = await wait(elect(world.stream, "one", lease_seconds=LEASE))
    await wait(first.lead())
    second = await wait(elect(world.stream, "two", lease_seconds=LEASE))
    world.writers += [first, second]
    return second.lead if method == "lead" else first.resign


@case("LeaderElection.lost")
async def lost(world: World, _: str) -> Any:
    # Its lease outlives the retries: otherwise it returns, for it does not lead any more.
    leader = await wait(world.client.coordination.leader_election(world.stream, "one", lease_seconds=30.0))
    token = await wait(leader.lead())
    world.writers.append(leader)
    return lambda: leader.lost(token)


@case("Membership.close", how=ENDS)
async def leave(world: World, _: str) -> Any:
    return (await wait(world.client.coordination.membership(world.stream, "one"))).close


@case("LeaderElection.close", how=ENDS)
async def give_up(world: World, _: str) -> Any:
    return (await wait(world.client.coordination.leader_election(world.stream, "one"))).close


@case("SharedConfiguration.refresh", "SharedConfiguration.edit", "SharedConfiguration.set")
@case("SharedConfiguration.remove", "SharedConfiguration.changed", "SharedConfiguration.watch")
async def configuration(world: World, method: str) -> Any:
    shared = await wait(world.client.coordination.shared_configuration(world.stream, {"a": 1}))
    world.writers.append(shared)
    if method == "watch":
        watching = shared.watch()
        await wait(watching)  # the settings as they are
        return lambda: watching
    arguments: dict[str, list[Any]] = {
        "edit": [lambda values: values.clear()],
        "set": ["a", 2],
        "remove": ["a"],
        "changed": [shared.version],
    }
    return lambda: getattr(shared, method)(*arguments.get(method, []))


@case("SharedConfiguration.close", how=ENDS)
async def close_configuration(world: World, _: str) -> Any:
    return (await wait(world.client.coordination.shared_configuration(world.stream))).close


# -- shared data structures -------------------------------------------------------------------------


@case(*(f"Structures.{each}" for each in ("counter", "map", "set", "list", "queue")))
async def structures(world: World, method: str) -> Any:
    return lambda: getattr(world.client.structures, method)(world.stream)


@case("SharedCounter.add", "SharedCounter.value", "SharedCounter.watch")
async def counter(world: World, method: str) -> Any:
    shared = await wait(world.client.structures.counter(world.stream))
    await wait(shared.add(1))
    if method == "watch":
        watching = shared.watch()
        await wait(watching)  # the value as it is
        return lambda: watching
    return getattr(shared, method)


@case(*(f"SharedMap.{each}" for each in ("put", "put_many", "remove", "get", "items", "size", "watch")))
async def shared_map(world: World, method: str) -> Any:
    shared = await wait(world.client.structures.map(world.stream))
    await wait(shared.put("a", b"1"))
    if method == "watch":
        watching = shared.watch()
        await wait(watching)  # the entry as it is
        return lambda: watching
    arguments: dict[str, list[Any]] = {"put": ["a", b"2"], "put_many": [{"b": b"2"}], "remove": ["a"], "get": ["a"]}
    return lambda: getattr(shared, method)(*arguments.get(method, []))


@case(*(f"SharedSet.{each}" for each in ("add", "add_many", "discard", "contains", "items", "size", "watch")))
async def shared_set(world: World, method: str) -> Any:
    shared = await wait(world.client.structures.set(world.stream))
    await wait(shared.add(b"a"))
    if method == "watch":
        watching = shared.watch()
        await wait(watching)  # the item as it is
        return lambda: watching
    arguments: dict[str, list[Any]] = {"add": [b"b"], "add_many": [[b"b"]], "discard": [b"a"], "contains": [b"a"]}
    return lambda: getattr(shared, method)(*arguments.get(method, []))


@case(*(f"SharedList.{each}" for each in ("append", "extend", "get", "bounds", "length", "items", "watch")))
@case("SharedList.remove_before")
async def shared_list(world: World, method: str) -> Any:
    shared = await wait(world.client.structures.list(world.stream))
    await wait(shared.append(b"1"))
    if method == "watch":
        watching = shared.watch(0)
        await wait(watching)  # the item as it is
        return lambda: watching
    arguments: dict[str, list[Any]] = {"append": [b"2"], "extend": [[b"2"]], "get": [0], "remove_before": [1]}
    return lambda: getattr(shared, method)(*arguments.get(method, []))


@case(*(f"SharedQueue.{each}" for each in ("put", "put_many", "take", "peek", "size", "done", "give_back", "renew")))
async def shared_queue(world: World, method: str) -> Any:
    shared = await wait(world.client.structures.queue(world.stream))
    await wait(shared.put(b"1"))
    item = await wait(shared.take()) if method in ("done", "give_back", "renew") else None
    arguments: dict[str, list[Any]] = {"put": [b"2"], "put_many": [[b"2"]]}
    return lambda: getattr(shared, method)(*arguments.get(method, [] if item is None else [item]))


# -- reader groups ----------------------------------------------------------------------------------


@case("GroupReader.read", "GroupReader.read_batch", "GroupReader.read_arrow", "GroupReader.__iter__")
@case("GroupReader.close", "GroupReader.time_window")
async def group_reader(world: World, method: str) -> Any:
    group = await world.with_group()
    reader = await wait(group.reader("one"))
    for _ in range(4):
        assert await wait(reader.read()) is not None
    world.writers.append(reader)
    if method == "time_window":
        return lambda: reader.time_window(world.stream)
    return getattr(reader, method if hasattr(reader, method) else "__aiter__")


@case(
    *("ReaderGroup.progress", "ReaderGroup.online_readers", "ReaderGroup.info", "ReaderGroup.creation_id"),
    *("ReaderGroup.stream_cuts", "ReaderGroup.last_checkpoint"),
    *("ReaderGroup.give_up_checkpoints", "ReaderGroup.unread_bytes", "ReaderGroup.reset", "ReaderGroup.delete"),
    *("ReaderGroup.end_of_data", "ReaderGroup.reader", "ReaderGroup.reader_offline", "ReaderGroup.checkpoint"),
    *("ReaderGroup.update_retention_cut", "ReaderGroup.segments_changed"),
)
async def reader_group(world: World, method: str) -> Any:
    group = await world.with_group()
    cut = await wait(world.client.stream_cut_tail(world.stream))
    if method == "segments_changed":
        changes = group.segments_changed()
        await wait(changes)  # the numbers as they are
        return lambda: changes
    arguments = {"reader": ["one"], "reader_offline": ["one"], "checkpoint": ["c"], "update_retention_cut": [cut]}
    return lambda: getattr(group, method)(*arguments.get(method, []))


@case("ReaderGroups.create", "ReaderGroups.open", "ReaderGroups.list", "ReaderGroups.delete")
async def reader_groups(world: World, method: str) -> Any:
    await world.with_group()
    arguments = {"create": [world.stream + "-group", world.stream], "list": ["s"]}
    return lambda: getattr(world.client.reader_groups, method)(*arguments.get(method, [world.stream + "-group"]))


assert pa  # loaded here: the first Arrow batch would be late otherwise
