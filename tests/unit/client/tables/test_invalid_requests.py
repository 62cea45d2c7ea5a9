"""What a store answers to requests about tables that are wrong (wire.md par. 5 and 6); nothing of them is done."""

from sarit.core.limits import MAX_TABLE_VALUE_BYTES, MIB, NOT_EXISTS
from sarit.wire import commands as wire
from sarit.wire.limits import NO_VERSION
from tests.unit.client.nodes import on_node

SEGMENT = "s/t_kvtable/0.#epoch.0"
ANY = "s/any_kvtable/0.#epoch.0"


async def opened(node):
    """A connection; table `s/t` with keys of 2 bytes holds aa=1 and bb=2, `s/any` takes keys of any length."""
    await node.client.tables.create("s/t", primary_key_bytes=2)
    table = node.client.table("s/t")
    await table.put_many([("aa", "1"), ("bb", "2")])
    (partition,) = table._partitions.values()
    connection = await partition._connect_once()
    await connection.ask(lambda i: wire.CreateTableSegment(i, ANY, ""))
    return connection, table


def entries(*items):
    return tuple(wire.TableEntry(key, version, value) for key, value, version in items)


def keys(*items):
    return tuple(wire.TableKey(*item) for item in items)


GOOD = (b"aa", b"changed", NO_VERSION)

WRONG = {
    "a key too long": (
        lambda i: wire.UpdateTableEntries(i, SEGMENT, "", entries(GOOD, (b"ccc", b"", NO_VERSION))),
        wire.ErrorMessage,
    ),
    "an empty key": (
        lambda i: wire.UpdateTableEntries(i, SEGMENT, "", entries(GOOD, (b"", b"", NO_VERSION))),
        wire.ErrorMessage,
    ),
    "a value too large": (
        lambda i: wire.UpdateTableEntries(
            i, SEGMENT, "", entries(GOOD, (b"cc", bytes(MAX_TABLE_VALUE_BYTES + 1), NO_VERSION))
        ),
        wire.ErrorMessage,
    ),
    "a version that is not the key's": (
        lambda i: wire.UpdateTableEntries(i, SEGMENT, "", entries(GOOD, (b"bb", b"", 1 << 40))),
        wire.TableKeyBadVersion,
    ),
    "a key that should be absent": (
        lambda i: wire.UpdateTableEntries(i, SEGMENT, "", entries(GOOD, (b"bb", b"", NOT_EXISTS))),
        wire.TableKeyBadVersion,
    ),
    "a version of an absent key": (
        lambda i: wire.UpdateTableEntries(i, SEGMENT, "", entries(GOOD, (b"cc", b"", 0))),
        wire.TableKeyBadVersion,
    ),
    "removal of a version of an absent key": (
        lambda i: wire.RemoveTableKeys(i, SEGMENT, "", keys((b"aa", NO_VERSION), (b"cc", 0))),
        wire.TableKeyDoesNotExist,
    ),
    "removal of another version": (
        lambda i: wire.RemoveTableKeys(i, SEGMENT, "", keys((b"aa", NO_VERSION), (b"bb", 1 << 40))),
        wire.TableKeyBadVersion,
    ),
    "removal of a key too long": (
        lambda i: wire.RemoveTableKeys(i, SEGMENT, "", keys((b"aa", NO_VERSION), (b"ccc", NO_VERSION))),
        wire.ErrorMessage,
    ),
    "a table of another length": (
        lambda i: wire.UpdateTableEntries(i, SEGMENT, "", entries(GOOD), 12345),
        wire.SegmentIsTruncated,
    ),
    "a table that is not there": (
        lambda i: wire.UpdateTableEntries(i, "s/none_kvtable/0.#epoch.0", "", entries(GOOD)),
        wire.NoSuchSegment,
    ),
    "a page by token": (
        lambda i: wire.ReadTableEntries(i, SEGMENT, "", 10, wire.IteratorArgs(continuation_token=b"x")),
        wire.ErrorMessage,
    ),
    "a page of nothing": (
        lambda i: wire.ReadTableKeys(i, SEGMENT, "", 0, wire.IteratorArgs()),
        wire.ErrorMessage,
    ),
    "a range of keys of any length": (
        lambda i: wire.ReadTableKeys(i, ANY, "", 10, wire.IteratorArgs(from_key=b"a")),
        wire.ErrorMessage,
    ),
    "delta of keys of one length": (
        lambda i: wire.ReadTableEntriesDelta(i, SEGMENT, "", 0, 10),
        wire.OperationUnsupported,
    ),
    "delta from after the end": (
        lambda i: wire.ReadTableEntriesDelta(i, ANY, "", 1 << 40, 10),
        wire.ErrorMessage,
    ),
    "deletion of a key-value table": (
        lambda i: wire.DeleteTableSegment(i, SEGMENT, True, ""),
        wire.AuthTokenCheckFailed,
    ),
    "a key longer than any may be": (
        lambda i: wire.UpdateTableEntries(i, ANY, "", entries((bytes(8193), b"", NO_VERSION))),
        wire.ErrorMessage,
    ),
    "a table that exists": (
        lambda i: wire.CreateTableSegment(i, SEGMENT, ""),
        wire.SegmentAlreadyExists,
    ),
    "a table with keys of one length": (
        lambda i: wire.CreateTableSegment(i, "s/new_kvtable/0.#epoch.0", "", False, 8),
        wire.AuthTokenCheckFailed,
    ),
}


@on_node
async def test_invalid_requests_get_an_error_and_change_nothing(node):
    connection, table = await opened(node)
    before = [entry async for entry in table.scan()]
    for name, (request, kind) in WRONG.items():
        assert type(await connection.ask(request)) is kind, name
        assert [entry async for entry in table.scan()] == before, name


@on_node
async def test_wrong_key_length_is_refused_with_the_right_one(node):
    connection, table = await opened(node)
    info = await connection.ask(lambda i: wire.GetTableSegmentInfo(i, SEGMENT, ""))
    assert (info.entry_count, info.key_length) == (2, 2)
    reply = await connection.ask(lambda i: wire.UpdateTableEntries(i, SEGMENT, "", entries(GOOD), 7))
    assert (reply.start_offset, reply.offset) == (info.length, 7)
    reply = await connection.ask(lambda i: wire.UpdateTableEntries(i, SEGMENT, "", entries(GOOD), info.length))
    assert reply.versions == (info.length,)


@on_node
async def test_oversized_reply_does_not_end_the_connection(node):
    connection, table = await opened(node)
    await table.put("aa", bytes(MIB // 2))
    reply = await connection.ask(lambda i: wire.ReadTable(i, SEGMENT, "", keys(*[(b"aa",)] * 40)))
    assert type(reply) is wire.ErrorMessage
    assert not connection.closed


@on_node
async def test_request_without_changes_changes_nothing(node):
    connection, _ = await opened(node)
    assert (await connection.ask(lambda i: wire.UpdateTableEntries(i, SEGMENT, "", ()))).versions == ()
    assert type(await connection.ask(lambda i: wire.RemoveTableKeys(i, SEGMENT, "", ()))) is wire.TableKeysRemoved
    assert (await connection.ask(lambda i: wire.ReadTable(i, SEGMENT, "", ()))).entries == ()
