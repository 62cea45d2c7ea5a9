"""Attackers with a log-in, over gRPC and the wire protocol themselves, on a node or cluster however it runs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

import sarit
from sarit.client import aio
from sarit.client.core.login import Tls, UserPassword
from sarit.client.core.rules import change_rules
from sarit.core.names import SegmentId, StreamName, parse_segment_name
from sarit.rpc.generated import controller_pb2 as pb
from sarit.security.permissions import Permission, Rule
from sarit.wire import commands as wire
from tests.security.running import PASSWORD
from tests.unit.store.server.test_connection import Client

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

FIRST = SegmentId(0, 0)
WRITER = b"w" * 16
ATTRIBUTE = b"a" * 16
REFUSED = "AuthTokenCheckFailed"
_READ_WRITE = pb.StreamInfo.READ_WRITE


@dataclass(frozen=True)
class Target:
    """Where an attack goes; `context`: for TLS to the stores."""

    controller: str
    context: ssl.SSLContext | None = None
    ca: str | None = None

    @asynccontextmanager
    async def user(self, name: str, password: str = PASSWORD) -> AsyncIterator[Attacker]:
        """Somebody who has logged in."""
        tls = None if self.ca is None else Tls(self.ca)
        login = UserPassword(name, password)
        async with await aio.connect(self.controller, credentials=login, tls=tls, retry_timeout=5.0) as client:
            attacker = Attacker(self, client)
            yield attacker
            attacker.close()

    async def grant(self, *rules: tuple[str, str, str], remove: bool = False) -> None:
        """Give permissions, or take them away; every controller follows within two seconds."""
        async with self.user("root") as root:
            parsed = [Rule.parse(*rule) for rule in rules]
            if remove:
                parsed = [Rule(rule.subject, rule.pattern, Permission.NONE) for rule in parsed]
            await change_rules(root.client.session.controller, parsed)


class Attacker:
    """A user, whose client is taken for its connection alone."""

    def __init__(self, target: Target, client: Any) -> None:
        self.target = target
        self.client = client
        self._open: dict[tuple[tuple[str, int], int], Client] = {}
        self._endpoints: dict[str, tuple[str, int]] = {}

    async def call(self, name: str, request: Any) -> Any:
        """The reply to a call; the name of the error for one that is refused."""
        controller = self.client.session.controller
        stub = controller.stub if hasattr(controller.stub, name) else controller.sarit_stub
        try:
            return await controller.call(getattr(stub, name), request)
        except (sarit.Forbidden, sarit.Invalid, sarit.NotFound) as error:
            return type(error).__name__

    async def token(self, scope: str, name: str) -> str:
        """The token for a name, asked for as official clients do; empty: refused."""
        request = pb.StreamInfo(scope=scope, stream=name)
        reply = await self.call("getDelegationToken", request)
        return "" if isinstance(reply, str) else reply.delegationToken

    async def ask(self, request: Any, *, version: int = 17) -> str:
        """What the owner of a segment says to a request, by the name of the reply."""
        segment = getattr(request, "segment", "") or getattr(request, "parent_segment", "") or request.target
        key = await self._endpoint(segment), version
        # A connection that was served nothing is ended after a while: the attacker comes back.
        said = await self._ask_once(key, request)
        return said if said != "closed" else await self._ask_once(key, request)

    async def become_known(self, request: Any) -> None:
        """Ask for something that is allowed: frames of strangers are served slowly."""
        assert await self.ask(request) not in (REFUSED, "closed"), request

    async def _ask_once(self, key: tuple[tuple[str, int], int], request: Any) -> str:
        try:
            if key not in self._open:
                (host, port), version = key
                self._open[key] = Client(*await asyncio.open_connection(host, port, ssl=self.target.context))
                await self._open[key].ask(wire.Hello(version, 5))
            return type(await self._open[key].ask(request)).__name__
        except ConnectionError:
            del self._open[key]
            return "closed"

    async def _endpoint(self, segment: str) -> tuple[str, int]:
        if segment not in self._endpoints:
            try:
                found = await self.client.session.controller.endpoint(*parse_segment_name(segment))
            except sarit.SaritError:  # nobody tells him: any store
                async with self.target.user("root") as root:
                    found = await root.client.session.controller.endpoint(StreamName("app", "s"), FIRST)
            self._endpoints[segment] = found
        return self._endpoints[segment]

    def close(self) -> None:
        """End the connections to stores."""
        for client in self._open.values():
            client.writer.close()


async def make_things(target: Target) -> None:
    """Streams, a group and a table, in scopes of two tenants."""
    async with target.user("root") as root:
        for scope in ("app", "other"):
            await root.client.create_scope(scope)
            await root.client.create_stream(f"{scope}/s")
            with suppress(sarit.Exists):
                await root.client.tables.create(f"{scope}/t", primary_key_bytes=4)
            await root.client.table(f"{scope}/t").put(b"key1", b"secret")
            async with root.client.writer(f"{scope}/s") as writer:
                writer.write(b"something to read")
            with suppress(sarit.Exists):
                await root.client.reader_groups.create(f"{scope}/g", f"{scope}/s")


def requests(segment: str, token: str) -> list[Any]:
    """Every request of the wire about a segment."""
    entry, key = (wire.TableEntry(b"key1", -(1 << 63), b"x"),), (wire.TableKey(b"key1", -(1 << 63)),)
    return [
        wire.SetupAppend(1, WRITER, segment, token), wire.CreateTransientSegment(1, WRITER, segment, token),
        wire.CreateSegment(1, segment, 0, 0, token, 0), wire.UpdateSegmentAttribute(1, segment, ATTRIBUTE, 1, 0, token),
        wire.SealSegment(1, segment, token), wire.TruncateSegment(1, segment, 0, token),
        wire.DeleteSegment(1, segment, token), wire.UpdateSegmentPolicy(1, segment, 0, 0, token),
        wire.MergeSegments(1, segment, segment, token, ()), wire.MergeSegmentsBatch(1, segment, (segment,), token),
        wire.CreateTableSegment(1, segment, token), wire.DeleteTableSegment(1, segment, False, token),
        wire.UpdateTableEntries(1, segment, token, entry, -1), wire.RemoveTableKeys(1, segment, token, key, -1),
        wire.ReadSegment(segment, 0, 100, token, 1), wire.GetStreamSegmentInfo(1, segment, token),
        wire.GetSegmentAttribute(1, segment, ATTRIBUTE, token), wire.LocateOffset(1, segment, 0, token),
        wire.GetTableSegmentInfo(1, segment, token), wire.ReadTable(1, segment, token, key),
        wire.ReadTableKeys(1, segment, token, 10, wire.IteratorArgs()),
        wire.ReadTableEntries(1, segment, token, 10, wire.IteratorArgs()),
        wire.ReadTableEntriesDelta(1, segment, token, 0, 10),
    ]  # fmt: skip


async def attack_with_rules_of_one_kind(target: Target) -> None:
    """Dave may change all tables, then all groups, then all streams of `app`, and asks for tokens of any name."""
    segments = {
        "stream": "app/s/0.#epoch.0", "group": "app/_RGg/0.#epoch.0", "marks": "app/_MARKs/0.#epoch.0",
        "table": "app/t_kvtable/0.#epoch.0", "system": "_system/_tables/access",
    }  # fmt: skip
    opens = {
        "key-value-table": {"table"}, "reader-group": {"group"}, "stream": {"stream", "marks"},
    }  # fmt: skip
    served = {
        "key-value-table": ("t", wire.GetTableSegmentInfo(1, segments["table"], "")),
        "reader-group": ("_RGg", wire.GetStreamSegmentInfo(1, segments["group"], "")),
        "stream": ("s", wire.GetStreamSegmentInfo(1, segments["stream"], "")),
    }
    for kind, may in opens.items():
        rule = ("user:dave", f"prn::/scope:app/{kind}:*", "READ_UPDATE")
        await target.grant(rule)
        async with target.user("dave") as dave:
            names = ("*", "s", "_RGg", "_MARKs", "t", "t_kvtable", "s/stream:s", "", "_", "*_kvtable", "_RG*")
            tokens = {await dave.token("app", asked): asked for asked in names}
            name, request = served[kind]
            await dave.become_known(replace(request, token=await dave.token("app", name)))
            for token, asked in tokens.items():
                for which, segment in segments.items():
                    for request in requests(segment, token) if which not in may else ():
                        said = await dave.ask(request)
                        # Nothing is done to a table that is there, of whatever kind.
                        there = kind == "reader-group" and said == "SegmentAlreadyExists"
                        assert said == REFUSED or there, (kind, asked, type(request).__name__, said)
        await target.grant(rule, remove=True)


async def attack_the_system(target: Target) -> None:
    """Dave has every right on every scope, root is an administrator."""
    rules = [("user:dave", "prn::/scope:*", "READ_UPDATE"), ("user:dave", "prn::/*", "READ")]
    await target.grant(*rules)
    for name in ("dave", "root"):
        async with target.user(name) as attacker:
            for asked in ("_tables", "*", "s", "_RGg", "x_kvtable", "_tables/access"):
                assert await attacker.token("_system", asked) == ""
            for call in ("getCurrentSegments", "sealStream", "deleteStream", "checkStreamExists"):
                found = await attacker.call(call, pb.StreamInfo(scope="_system", stream="_tables"))
                assert found == "Forbidden", call
            token = await attacker.token("app", "s")
            assert token
            await attacker.become_known(wire.GetStreamSegmentInfo(1, "app/s/0.#epoch.0", token))
            for table in ("_system/_tables/access", "_system/_tables/scopes", "_system/_tables/0.#epoch.0"):
                for request in requests(table, token):
                    assert await attacker.ask(request) == REFUSED, type(request).__name__
            merge = wire.MergeSegments(1, "app/s/0.#epoch.0", "_system/_tables/access", token, ())
            assert await attacker.ask(merge) == REFUSED
    await target.grant(*rules, remove=True)


async def attack_as_a_reader(target: Target) -> None:
    """Alice may read all of `app`: by no way does she create, seal or delete."""
    async with target.user("alice") as alice:
        group = await alice.token("app", "_RGg")
        await alice.become_known(wire.GetStreamSegmentInfo(1, "app/s/0.#epoch.0", await alice.token("app", "s")))
        for segment, token in (
            ("app/_RGx/0.#epoch.0", await alice.token("app", "_RGx")), ("app/_RGg/0.#epoch.0", group),
            ("app/s/0.#epoch.0", await alice.token("app", "s")),
            ("app/x_kvtable/0.#epoch.0", await alice.token("app", "x_kvtable")),
            ("app/t_kvtable/0.#epoch.0", await alice.token("app", "t_kvtable")),
        ):  # fmt: skip
            for request in (
                wire.CreateSegment(1, segment, 0, 0, token, 0), wire.CreateTableSegment(1, segment, token),
                wire.SealSegment(1, segment, token), wire.DeleteSegment(1, segment, token),
                wire.DeleteTableSegment(1, segment, False, token),
                wire.CreateTransientSegment(1, WRITER, segment, token),
                wire.UpdateTableEntries(1, segment, token, (wire.TableEntry(b"key1", -1, b"x"),), -1),
            ):  # fmt: skip
                assert await alice.ask(request) == REFUSED, (segment, type(request).__name__)
        for call, request in (
            ("createStream", pb.StreamConfig(streamInfo=pb.StreamInfo(scope="app", stream="_RGx"))),
            ("sealStream", pb.StreamInfo(scope="app", stream="_RGg")),
            ("deleteStream", pb.StreamInfo(scope="app", stream="_RGg")),
            ("truncateStream", pb.StreamCut(streamInfo=pb.StreamInfo(scope="app", stream="_RGg"))),
        ):
            assert await alice.call(call, request) == "Forbidden", call
        # What a reader of a group does: it appends to its state, sets its mark, and truncates it.
        state = "app/_RGg/0.#epoch.0"
        assert await alice.ask(wire.SetupAppend(1, WRITER, state, group)) == "AppendSetup"
        assert await alice.ask(wire.GetSegmentAttribute(1, state, ATTRIBUTE, group)) == "SegmentAttribute"
        assert await alice.ask(wire.TruncateSegment(1, state, 0, group)) == "SegmentTruncated"


async def attack_as_a_writer(target: Target) -> None:
    """Bob may change all of `app`: what is for controllers he does not do by the wire."""
    async with target.user("bob") as bob:
        stream, table = await bob.token("app", "s"), await bob.token("app", "t_kvtable")
        first, partition = "app/s/0.#epoch.0", "app/t_kvtable/0.#epoch.0"
        transaction = f"{first}#transaction.{'a' * 32}"
        for request in (
            wire.CreateSegment(1, "app/s/7.#epoch.0", 0, 0, stream, 0),
            wire.CreateSegment(1, transaction, 0, 0, stream, 0),
            wire.DeleteSegment(1, first, stream), wire.UpdateSegmentPolicy(1, first, 0, 0, stream),
            wire.MergeSegments(1, first, transaction, stream, ()),
            wire.MergeSegments(1, first, "other/s/0", stream, ()),
            wire.MergeSegmentsBatch(1, first, (transaction,), stream), wire.SealSegment(1, transaction, stream),
            wire.TruncateSegment(1, partition, 0, table), wire.SealSegment(1, partition, table),
            wire.CreateTableSegment(1, partition, table, key_length=4),
            wire.CreateTableSegment(1, "app/t_kvtable/1.#epoch.0", table),
            wire.DeleteTableSegment(1, partition, False, table), wire.CreateTableSegment(1, first, stream),
            wire.ReadSegment("other/s/0.#epoch.0", 0, 9, stream, 1),
        ):  # fmt: skip
            assert await bob.ask(request) == REFUSED, request
        assert await bob.ask(wire.CreateTransientSegment(1, WRITER, first, stream)) == "SegmentCreated"
        assert await bob.ask(wire.TruncateSegment(1, first, 0, stream)) == "SegmentTruncated"
        made = "app/made_kvtable/0.#epoch.0"
        token = await bob.token("app", "made_kvtable")
        assert await bob.ask(wire.CreateTableSegment(1, made, token)) in ("SegmentCreated", "SegmentAlreadyExists")
        assert await bob.ask(wire.DeleteTableSegment(1, made, False, token)) == "SegmentDeleted"


async def attack_a_table_as_a_group(target: Target) -> None:
    """Dave has the right on groups.  Rust and Python keep theirs in tables: he opens these, and no key-value table."""
    rules = [("user:dave", "prn::/scope:app/reader-group:*", "READ_UPDATE")]
    await target.grant(*rules)
    async with target.user("dave") as dave, target.user("root") as root:
        entry = (wire.TableEntry(b"key1", -(1 << 63), b"x"),)
        for version in (17, 5):  # Rust's requests are sent on to the owner of a table
            table, token = "app/t_kvtable/0.#epoch.0", await dave.token("app", "t_kvtable")
            for request in (
                wire.ReadTable(1, table, token, (wire.TableKey(b"key1"),)), wire.GetTableSegmentInfo(1, table, token),
                wire.UpdateTableEntries(1, table, token, entry, -1), wire.DeleteTableSegment(1, table, False, token),
                wire.ReadTableEntriesDelta(1, table, token, 0, 10),
            ):  # fmt: skip
                assert await dave.ask(request, version=version) == REFUSED, type(request).__name__
        own, token = "app/dave_kvtable/0.#epoch.0", await dave.token("app", "dave_kvtable")
        assert await dave.ask(wire.CreateTableSegment(1, own, token)) in ("SegmentCreated", "SegmentAlreadyExists")
        assert await dave.ask(wire.UpdateTableEntries(1, own, token, entry, -1)) == "TableEntriesUpdated"
        # A table that is created where he waits is not served: he would read and change what is in it.
        assert await dave.ask(wire.CreateTableSegment(1, own, token)) == "SegmentAlreadyExists"
        with pytest.raises(sarit.Forbidden, match="delete the table"):
            await root.client.tables.create("app/dave", primary_key_bytes=4)
        await root.client.tables.delete("app/dave")
        await root.client.tables.create("app/dave", primary_key_bytes=4)
        for number in range(3):  # numbers of partitions are not used twice
            partition = f"app/dave_kvtable/{number}.#epoch.0"
            said = await dave.ask(wire.UpdateTableEntries(1, partition, token, entry, -1))
            assert said in (REFUSED, "NoSuchSegment"), said
        await root.client.tables.delete("app/dave")
    await target.grant(*rules, remove=True)


async def attack_groups_of_others(target: Target) -> None:
    """Alice, who may read `app`, deletes the group of somebody else, and holds the data of another tenant."""
    cut = pb.StreamCut(streamInfo=pb.StreamInfo(scope="other", stream="s"))
    own = pb.ReaderGroupInfo(scope="app", readerGroup="alice")
    async with target.user("alice") as alice, target.user("bob") as bob, target.user("root") as root:
        theirs = pb.ReaderGroupInfo(scope="app", readerGroup="g")
        config = (await alice.call("getReaderGroupConfig", theirs)).config
        assert await alice.call("deleteReaderGroup", theirs) == "Forbidden"
        theirs.readerGroupId = config.readerGroupId
        assert await alice.call("deleteReaderGroup", theirs) == "Forbidden"
        for field in ("startingStreamCuts", "endingStreamCuts"):
            foreign = pb.ReaderGroupConfiguration(
                scope="app", readerGroupName="alice", retentionType=2, readerGroupId="i", **{field: [cut]}
            )
            assert await alice.call("createReaderGroup", foreign) == "Forbidden"
            foreign.CopyFrom(config)
            getattr(foreign, field).append(cut)
            assert await alice.call("updateReaderGroup", foreign) == "Forbidden"
        # Her own group she creates, and deletes; the owner of the stream sees it, and ends its hold.
        cut.streamInfo.scope = "app"
        mine = pb.ReaderGroupConfiguration(
            scope="app", readerGroupName="alice", retentionType=2, readerGroupId="mine", startingStreamCuts=[cut],
            endingStreamCuts=[cut],
        )  # fmt: skip
        assert (await alice.call("createReaderGroup", mine)).status == pb.CreateReaderGroupResponse.SUCCESS
        assert "app/alice" in await bob.client.stream("app/s").subscribers()
        with pytest.raises(sarit.Forbidden):
            await alice.client.stream("app/s").drop_subscriber("app/alice")
        assert await bob.client.stream("app/s").drop_subscriber("app/alice")
        assert not await bob.client.stream("app/s").drop_subscriber("app/alice")
        assert "app/alice" not in await bob.client.stream("app/s").subscribers()
        assert (await alice.call("deleteReaderGroup", own)).status == pb.DeleteReaderGroupStatus.SUCCESS
        # The next group of the name is not hers, nor anybody's whose right ends.
        await root.client.reader_groups.create("app/alice", "app/s")
        assert await alice.call("deleteReaderGroup", own) == "Forbidden"
        assert (await bob.call("deleteReaderGroup", own)).status == pb.DeleteReaderGroupStatus.SUCCESS


async def attack_what_is_hidden(target: Target) -> None:
    """Alice may not know that scope `other` is there, nor whose groups read a stream."""
    rules = [
        ("user:dave", "prn::/scope:other/reader-group:*", "READ"),
        ("user:dave", "prn::/scope:app/stream:s", "READ"),
    ]
    await target.grant(*rules)
    async with target.user("dave") as dave, target.user("alice") as alice:
        cut = pb.StreamCut(streamInfo=pb.StreamInfo(scope="app", stream="s"))
        group = pb.ReaderGroupConfiguration(
            scope="other", readerGroupName="dave", retentionType=2, readerGroupId="d", startingStreamCuts=[cut]
        )
        assert (await dave.call("createReaderGroup", group)).status == pb.CreateReaderGroupResponse.SUCCESS
        reply = await alice.call("listSubscribers", pb.StreamInfo(scope="app", stream="s"))
        assert "other" not in str(reply)
        token = ""
        while True:
            reply = await alice.call(
                "listScopes", pb.ScopesRequest(continuationToken=pb.ContinuationToken(token=token))
            )
            assert "other" not in str(reply)
            if not reply.scopes:
                break
            token = reply.continuationToken.token
        dropped = pb.ReaderGroupInfo(scope="other", readerGroup="dave")
        assert (await dave.call("deleteReaderGroup", dropped)).status == pb.DeleteReaderGroupStatus.SUCCESS
    await target.grant(*rules, remove=True)


ATTACKS = (
    attack_groups_of_others, attack_what_is_hidden,
    attack_with_rules_of_one_kind, attack_the_system, attack_as_a_reader, attack_as_a_writer, attack_a_table_as_a_group,
)  # fmt: skip
