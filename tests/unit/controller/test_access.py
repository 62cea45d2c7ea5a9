"""What readers of a stream may do with its internal streams, by the table of calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sarit.controller import keys
from sarit.controller.access import Access
from sarit.controller.authorized_caller import Authorized, current_authorized
from sarit.controller.calls.groups import GroupCalls
from sarit.controller.model import codec
from sarit.controller.model.records import MakerRecord
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Forbidden, Invalid, NotFound
from sarit.core.policies import StreamConfig
from sarit.env.real import real_env
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.generated import sarit_pb2
from sarit.security.login import Logins
from sarit.security.permissions import Caller, Permission, Rule, Rules, stream_resource
from sarit.security.tokens import TokenKeys
from sarit.wire.limits import NO_VERSION
from tests.unit.controller.world import STREAM, World

READ, UPDATE = Permission.READ, Permission.READ_UPDATE
READER = Caller("reader")
RULES = Rules([Rule("user:reader", "prn::/scope:app*", READ)])
KEYS = TokenKeys([b"k" * 64])


def carry_out(call: str, request: Any, reply: Any = None, rules: Rules = RULES) -> Any:
    """The reply to a reader; `reply`: what the method returns, or the method."""

    async def serve(given: Any) -> Any:
        return reply(given) if callable(reply) else reply

    async def main() -> Any:
        env = real_env()
        access = Access(env, Logins(env, {}), lambda: KEYS, 60)
        access.use(rules)
        try:
            return await access.carry_out(call, serve, request, READER, "peer")
        finally:
            await access.close()

    return asyncio.run(main())


def info(stream: str) -> pb.StreamInfo:
    return pb.StreamInfo(scope="app", stream=stream)


@pytest.mark.parametrize("call", ["sealStream", "deleteStream"])
def test_reader_of_a_stream_cannot_end_its_marks(call):
    for stream in ("s", "_MARKs"):
        with pytest.raises(Forbidden, match="reader may not change prn::/scope:app/stream:s"):
            carry_out(call, info(stream))


def test_reader_of_a_stream_cannot_configure_or_create_its_marks():
    for call in ("updateStream", "createStream"):
        for stream in ("s", "_MARKs"):
            with pytest.raises(Forbidden):
                carry_out(call, pb.StreamConfig(streamInfo=info(stream)))


def test_stream_of_a_group_is_created_by_the_call_for_groups_alone():
    with pytest.raises(Forbidden, match="by the call for groups"):
        carry_out("createStream", pb.StreamConfig(streamInfo=info("_RGteam")))


@pytest.mark.parametrize(("stream", "given"), [("s", READ), ("_MARKs", READ), ("_RGteam", UPDATE)])
def test_token_of_a_reader_changes_the_stream_of_its_group_alone(stream, given):
    asked = info(stream)
    if stream != "s":  # official clients ask to write where they only read
        asked.accessOperation = pb.StreamInfo.READ_WRITE
    reply = carry_out("getDelegationToken", asked, pb.DelegationToken())
    grant = KEYS.verify(reply.delegationToken, 0)
    resource = stream_resource("app", stream)
    assert grant.on(resource) is given


@pytest.mark.parametrize("rules", [RULES, Rules([])])
@pytest.mark.parametrize(("name", "resource"), [("s", "stream:s"), ("s_kvtable", "key-value-table:s")])
def test_refusal_of_a_revoked_writer_names_the_stream(rules, name, resource):
    asked = pb.StreamInfo(scope="app", stream=name, accessOperation=pb.StreamInfo.READ_WRITE)
    with pytest.raises(Forbidden, match=rf"may not change prn::/scope:app/{resource}: .* READ_UPDATE`$"):
        carry_out("getDelegationToken", asked, pb.DelegationToken(), rules)


@pytest.mark.parametrize("call", ["listStreamsInScope", "listStreamsInScopeForTag"])
@pytest.mark.parametrize(
    ("rules", "seen"),
    [
        (["stream:s", "stream:t", "reader-group:g"], ["_RGg", "s", "t"]),
        (["stream:s", "stream:_MARKs"], ["_MARKs", "s"]),
        (["stream:*"], ["_MARKs", "_MARKt", "s", "t"]),
        (["*"], ["_MARKs", "_MARKt", "_RGg", "s", "t"]),
    ],
)
def test_stream_of_marks_is_listed_for_who_may_read_that_name(call, rules, seen):
    names = ["_MARKs", "_MARKt", "_RGg", "s", "t"]
    reply = pb.StreamsInScopeResponse(streams=[info(name) for name in names])
    given = Rules([Rule("*", "prn::/scope:app", READ), *(Rule("*", f"prn::/scope:app/{rule}", READ) for rule in rules)])
    request = pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope="app"))
    assert [found.stream for found in carry_out(call, request, reply, given).streams] == seen


def _rules(*rules: tuple[str, Permission]) -> Rules:
    return Rules([Rule("user:reader", pattern, permission) for pattern, permission in rules])


@pytest.mark.parametrize("call", ["createReaderGroup", "updateReaderGroup"])
@pytest.mark.parametrize("field", ["startingStreamCuts", "endingStreamCuts"])
def test_group_of_streams_that_one_may_not_read_is_refused(call, field):
    def config(*streams: tuple[str, str]) -> pb.ReaderGroupConfiguration:
        cuts = [pb.StreamCut(streamInfo=pb.StreamInfo(scope=scope, stream=stream)) for scope, stream in streams]
        return pb.ReaderGroupConfiguration(scope="app", readerGroupName="g", **{field: cuts})

    assert carry_out(call, config(("app", "s"), ("app", "s2")), "served") == "served"
    for hidden in (("other", "s"), ("other", "_RGg"), ("_system", "s"), ("app", "*"), ("other/x", "s"), ("", "s")):
        with pytest.raises(Forbidden):
            carry_out(call, config(("app", "s"), hidden), "served")


def test_continuation_token_names_nothing_that_is_hidden():
    """Pages of three of which the reader may see one, the first or none."""
    pages = {"": ["app1", "secret1", "secret2"], "secret2": ["secret3", "secret4"], "secret4": ["app5"],
             "app1": ["secret1", "secret2"], "app5": []}  # fmt: skip

    def serve(request: pb.ScopesRequest) -> pb.ScopesResponse:
        names = pages[request.continuationToken.token]
        last = names[-1] if names else request.continuationToken.token
        return pb.ScopesResponse(scopes=names, continuationToken=pb.ContinuationToken(token=last))

    seen, token = [], ""
    while True:
        reply = carry_out("listScopes", pb.ScopesRequest(continuationToken=pb.ContinuationToken(token=token)), serve)
        assert "secret" not in str(reply)
        if not reply.scopes:
            break
        seen, token = [*seen, *reply.scopes], reply.continuationToken.token
    assert (seen, token) == (["app1", "app5"], "app5")
    pages["app5"] = ["secret6"]
    pages["secret6"] = []
    reply = carry_out("listScopes", pb.ScopesRequest(continuationToken=pb.ContinuationToken(token="app5")), serve)
    assert (list(reply.scopes), reply.continuationToken.token) == ([], "app5")


def test_subscribers_are_shown_to_who_may_read_them_and_to_the_owner():
    subscribers = ["app/g", "other/secret"]

    def serve(_: Any) -> pb.SubscribersResponse:
        return pb.SubscribersResponse(subscribers=subscribers)

    assert list(carry_out("listSubscribers", info("s"), serve).subscribers) == ["app/g"]
    owner = _rules(("prn::/scope:app/stream:s", UPDATE))
    assert list(carry_out("listSubscribers", info("s"), serve, owner).subscribers) == subscribers


def test_group_releases_for_itself_and_the_owner_of_the_stream_for_all():
    def release(subscriber: str) -> pb.SubscriberStreamCut:
        return pb.SubscriberStreamCut(subscriber=subscriber, streamCut=pb.StreamCut(streamInfo=info("s")))

    reader = _rules(("prn::/scope:app/stream:s", READ), ("prn::/scope:app/reader-group:g", READ))
    assert carry_out("updateSubscriberStreamCut", release("app/g"), "served", reader) == "served"
    for other in ("app/g2", "other/g", "app/*", "", "app/g/x"):
        with pytest.raises(Forbidden):
            carry_out("updateSubscriberStreamCut", release(other), "served", reader)
    owner = _rules(("prn::/scope:app/stream:s", UPDATE))
    assert carry_out("updateSubscriberStreamCut", release("other/g"), "served", owner) == "served"


OWN = pb.ReaderGroupInfo(scope="s", readerGroup="g")


def _as(user: str, permission: Permission) -> None:
    current_authorized.set(Authorized(user, permission))


def test_group_is_deleted_by_who_has_created_it_or_may_change_it():
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await controller.scopes.create("s")
        calls = GroupCalls(controller.groups)
        request = pb.ReaderGroupConfiguration(scope="s", readerGroupName="g", readerGroupId="one")
        deleted = pb.DeleteReaderGroupStatus(status=pb.DeleteReaderGroupStatus.SUCCESS)
        _as("alice", READ)
        missing = pb.DeleteReaderGroupStatus(status=pb.DeleteReaderGroupStatus.RG_NOT_FOUND)
        assert await calls.deleteReaderGroup(OWN) == missing
        await calls.createReaderGroup(request)
        _as("bob", READ)
        await calls.createReaderGroup(request)  # it is there: bob has not created it
        with pytest.raises(Forbidden, match="somebody else created"):
            await calls.deleteReaderGroup(OWN)
        _as("alice", READ)
        assert await calls.deleteReaderGroup(OWN) == deleted
        assert not [key for key in world.scopes()["s"] if key.startswith(keys.MAKERS)]
        # One of before, or of a controller without users, has no maker.
        current_authorized.set(None)
        await calls.createReaderGroup(request)
        for user in ("alice", ""):
            _as(user, READ)
            with pytest.raises(Forbidden):
                await calls.deleteReaderGroup(OWN)
        _as("bob", UPDATE)
        assert await calls.deleteReaderGroup(OWN) == deleted
        await controller.stop()

    asyncio.run(main())


def test_maker_of_an_earlier_group_is_not_that_of_the_next_one():
    """A controller of the version before deletes a group and leaves the row of its maker."""

    async def main() -> None:
        world = World()
        controller = await world.controller()
        await controller.scopes.create("s")
        left = codec.encode_maker(MakerRecord("one", "alice"))
        await controller.catalog.update("s", [TableUpdate(keys.maker_key("g"), left, NO_VERSION)])
        current_authorized.set(None)
        request = pb.ReaderGroupConfiguration(scope="s", readerGroupName="g", readerGroupId="two")
        calls = GroupCalls(controller.groups)
        await calls.createReaderGroup(request)
        _as("alice", READ)
        with pytest.raises(Forbidden):
            await calls.deleteReaderGroup(OWN)
        await controller.stop()

    asyncio.run(main())


def test_subscriber_is_dropped_once_and_reads_on():
    async def main() -> None:
        world = World()
        controller = await world.controller()
        await controller.scopes.create("s")
        await controller.streams.create(STREAM, StreamConfig())
        calls = GroupCalls(controller.groups)
        cut = pb.StreamCut(streamInfo=pb.StreamInfo(scope="s", stream="t"))
        request = pb.ReaderGroupConfiguration(
            scope="s", readerGroupName="g", readerGroupId="one", retentionType=2, startingStreamCuts=[cut]
        )
        await calls.createReaderGroup(request)
        drop = sarit_pb2.DropSubscriberRequest(scope="s", stream="t", subscriber="s/g")
        assert list((await calls.listSubscribers(cut.streamInfo)).subscribers) == ["s/g"]
        assert (await calls.dropSubscriber(drop)).dropped
        assert not (await calls.dropSubscriber(drop)).dropped
        assert not (await calls.listSubscribers(cut.streamInfo)).subscribers
        assert (await calls.getReaderGroupConfig(OWN)).status == pb.ReaderGroupConfigResponse.SUCCESS
        for subscriber in ("", "g", "s/*", "s/g/x", "a" * 300 + "/g"):
            with pytest.raises(Invalid):
                await calls.dropSubscriber(
                    sarit_pb2.DropSubscriberRequest(scope="s", stream="t", subscriber=subscriber)
                )
        with pytest.raises(NotFound):
            await calls.dropSubscriber(sarit_pb2.DropSubscriberRequest(scope="s", stream="x", subscriber="s/g"))
        await controller.stop()

    asyncio.run(main())
