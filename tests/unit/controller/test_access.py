"""What readers of a stream may do with its internal streams, by the table of calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sarit.controller.access import Access
from sarit.core.errors import Forbidden
from sarit.env.real import real_env
from sarit.rpc.generated import controller_pb2 as pb
from sarit.security.login import Logins
from sarit.security.permissions import Caller, Permission, Rule, Rules, stream_resource
from sarit.security.tokens import TokenKeys

READ, UPDATE = Permission.READ, Permission.READ_UPDATE
READER = Caller("reader")
RULES = Rules([Rule("user:reader", "prn::/scope:app*", READ)])
KEYS = TokenKeys([b"k" * 64])


def carry_out(call: str, request: Any, reply: Any = None, rules: Rules = RULES) -> Any:
    async def serve(_: Any) -> Any:
        return reply

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


def test_reader_creates_the_stream_of_its_group():
    reply = pb.CreateStreamStatus()
    assert carry_out("createStream", pb.StreamConfig(streamInfo=info("_RGteam")), reply) is reply


@pytest.mark.parametrize(("stream", "given"), [("s", READ), ("_MARKs", READ), ("_RGteam", UPDATE)])
def test_token_of_a_reader_changes_the_stream_of_its_group_alone(stream, given):
    asked = info(stream)
    if stream != "s":  # official clients ask to write where they only read
        asked.accessOperation = pb.StreamInfo.READ_WRITE
    reply = carry_out("getDelegationToken", asked, pb.DelegationToken())
    grant = KEYS.verify(reply.delegationToken, 0)
    resource = stream_resource("app", stream)
    assert grant.allows(resource, READ)
    assert grant.allows(resource, UPDATE) is (given is UPDATE)


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
