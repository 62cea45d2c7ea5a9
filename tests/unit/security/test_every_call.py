"""Every call of the controller, and every command of the wire, for callers of each kind: what each gets.

The tables below are written by hand.  A column is nobody, a stranger (who may do everything in another scope), a
reader, a writer, an administrator; `+` is allowed, `x` forbidden, `-` asked to log in.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from sarit.controller.access import Access
from sarit.controller.service import PRAVEGA, SARIT
from sarit.core.errors import Forbidden, Unauthenticated
from sarit.env.real import real_env
from sarit.security.audit import NoAudit
from sarit.security.permissions import Caller, Permission, Rule, Rules
from sarit.security.tokens import TokenKeys
from sarit.store.server.access import TOKEN_EXPIRED, TokenChecks
from sarit.wire import commands as wire
from tests.unit.wire.golden import GOLDEN

COLUMNS = (None, "stranger", "reader", "writer", "root")
ANYBODY, LOGGED_IN, READS, WRITES, ADMIN = "+++++", "-++++", "-x+++", "-xx++", "-xxx+"

CALLS = {
    "getControllerServerList": ANYBODY,
    "listScopes": LOGGED_IN,
    "getControllerToBucketMapping": ADMIN, "listRules": ADMIN, "changeRules": ADMIN, "listQuotas": ADMIN,
    "changeQuotas": ADMIN, "quotaUse": ADMIN,
    "checkScopeExists": READS, "listStreamsInScope": READS, "listStreamsInScopeForTag": READS, "streamConfigs": READS,
    "listKeyValueTablesInScope": READS, "getStreamConfiguration": READS, "checkStreamExists": READS,
    "getCurrentSegments": READS, "getEpochSegments": READS, "getSegments": READS,
    "getSegmentsImmediatlyFollowing": READS, "getSegmentsImmediatelyFollowing": READS, "getSegmentsBetween": READS,
    "checkScale": READS, "getURI": READS, "isSegmentValid": READS, "isStreamCutValid": READS,
    "checkTransactionState": READS, "listCompletedTransactions": READS, "getDelegationToken": READS,
    "getCurrentSegmentsKeyValueTable": READS, "getKeyValueTableConfiguration": READS, "listSubscribers": READS,
    "createReaderGroup": READS, "getReaderGroupConfig": READS, "updateReaderGroup": READS, "deleteReaderGroup": READS,
    "cutAt": READS, "scalingEvents": READS,
    "createScope": WRITES, "deleteScope": WRITES, "deleteScopeRecursive": WRITES, "createStream": WRITES,
    "updateStream": WRITES, "truncateStream": WRITES, "sealStream": WRITES, "deleteStream": WRITES, "scale": WRITES,
    "createTransaction": WRITES, "pingTransaction": WRITES, "commitTransaction": WRITES, "abortTransaction": WRITES,
    "noteTimestampFromWriter": WRITES, "removeWriter": WRITES, "createKeyValueTable": WRITES,
    "deleteKeyValueTable": WRITES, "updateSubscriberStreamCut": WRITES,
}  # fmt: skip
WITH_TOKEN = {
    "getCurrentSegments", "getEpochSegments", "getSegments", "getSegmentsImmediatlyFollowing",
    "getSegmentsImmediatelyFollowing", "getSegmentsBetween", "createTransaction", "getDelegationToken",
    "getCurrentSegmentsKeyValueTable",
}  # fmt: skip

READ_COMMANDS = {
    "ReadSegment", "GetStreamSegmentInfo", "GetSegmentAttribute", "LocateOffset", "GetTableSegmentInfo", "ReadTable",
    "ReadTableKeys", "ReadTableEntries", "ReadTableEntriesDelta",
}  # fmt: skip
WRITE_COMMANDS = {
    "SetupAppend", "CreateTransientSegment", "CreateSegment", "UpdateSegmentAttribute", "SealSegment",
    "TruncateSegment", "DeleteSegment", "UpdateSegmentPolicy", "MergeSegments", "MergeSegmentsBatch",
    "CreateTableSegment", "DeleteTableSegment", "UpdateTableEntries", "RemoveTableKeys",
}  # fmt: skip
# Of no stream: a connection says hello, keeps alive, and sends blocks for a writer that was set up.
NO_TOKEN_COMMANDS = {"Hello", "KeepAlive", "AppendBlock", "AppendBlockEnd", "ConditionalAppend"}

RULES = Rules(
    Rule.parse(*rule)
    for rule in [
        ("user:stranger", "prn::/scope:other", "READ_UPDATE"), ("user:stranger", "prn::/scope:other/*", "READ_UPDATE"),
        ("user:reader", "prn::/scope:app", "READ"), ("user:reader", "prn::/scope:app/*", "READ"),
        ("user:observer", "prn::*", "READ"),
        ("user:writer", "prn::/scope:app", "READ_UPDATE"), ("user:writer", "prn::/scope:app/*", "READ_UPDATE"),
    ]
)  # fmt: skip
METHODS = {method.name: method for service in (PRAVEGA, SARIT) for method in service.methods}
KEYS = TokenKeys([b"k" * 64])
NOW = 1_700_000_000


class Names:
    """Log-ins that believe every name."""

    async def caller(self, authorization: str | None, peer: str) -> Caller:
        if authorization is None:
            raise Unauthenticated("log in")
        return Caller(authorization, frozenset({"admin"} if authorization == "root" else ()))

    async def close(self) -> None:
        pass


class Clock:
    now = float(NOW)

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


def _fill(message: Any) -> Any:
    """Every name in a request is of scope `app`: stream, group and table `s`."""
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            _fill(getattr(message, field.name))
            getattr(message, field.name).SetInParent()
        elif field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, "app" if field.name == "scope" else "s")
    return message


def _access() -> Access:
    access = Access(replace(real_env(), clock=Clock()), Names(), lambda: KEYS, 600)  # type: ignore[arg-type]
    access.use(RULES)
    return access


async def _outcome(name: str, user: str | None, change: Any = None) -> tuple[str, Any]:
    method = METHODS[name]
    request = _fill(GetMessageClass(method.input_type)())
    if change is not None:
        change(request)
    served = []

    async def serve(given: Any) -> Any:
        served.append(given)
        return GetMessageClass(method.output_type)()

    access = _access()
    try:
        caller = await access.caller(name, user, "1.2.3.4:5")
        reply = await access.carry_out(name, serve, request, caller, "1.2.3.4:5")
    except (Unauthenticated, Forbidden) as error:
        assert not served, "it was carried out before it was refused"
        return "-" if isinstance(error, Unauthenticated) else "x", None
    assert served
    return "+", reply


def test_table_has_every_call():
    assert set(METHODS) <= set(CALLS)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_call_gives_each_caller_what_the_table_says(name):
    async def main() -> str:
        return "".join([(await _outcome(name, user))[0] for user in COLUMNS])

    assert asyncio.run(main()) == CALLS[name]


@pytest.mark.parametrize("name", sorted(name for name in METHODS if CALLS[name] in (WRITES, ADMIN)))
def test_who_may_read_everything_changes_nothing(name):
    assert asyncio.run(_outcome(name, "observer"))[0] == "x"


@pytest.mark.parametrize("name", sorted(WITH_TOKEN))
def test_token_in_a_reply_is_for_the_stream_alone_with_the_permission_of_its_caller(name):
    async def main() -> None:
        for user, permission in (("reader", Permission.READ), ("writer", Permission.READ_UPDATE)):
            if CALLS[name] == WRITES and user == "reader":
                continue
            grant = KEYS.verify((await _outcome(name, user))[1].delegationToken, NOW)
            asked = Permission.READ if name == "getDelegationToken" and permission is Permission.READ else permission
            assert {(rule.pattern, rule.permission) for rule in grant.rules} == {("prn::/scope:app/stream:s", asked)}
            assert grant.expires == NOW + 600

    asyncio.run(main())


def test_reader_cannot_ask_for_a_token_that_writes_but_for_the_stream_of_a_group():
    def ask(stream: str) -> Any:
        def change(request: Any) -> None:
            request.stream, request.accessOperation = stream, request.WRITE

        return change

    async def main() -> None:
        assert (await _outcome("getDelegationToken", "reader", ask("s")))[0] == "x"
        assert (await _outcome("getDelegationToken", "stranger", ask("_RGg")))[0] == "x"
        found, reply = await _outcome("getDelegationToken", "reader", ask("_RGg"))
        assert found == "+"
        (rule,) = KEYS.verify(reply.delegationToken, NOW).rules
        assert (rule.pattern, rule.permission) == ("prn::/scope:app/stream:_RGg", Permission.READ_UPDATE)

    asyncio.run(main())


def test_reader_changes_the_stream_of_a_group_and_not_the_one_of_marks():
    async def main() -> None:
        for name in ("createStream", "sealStream", "deleteStream", "truncateStream", "scale", "createTransaction"):
            for stream, outcome in (("_MARKs", "x"), ("_RGg", "+")):

                def change(request: Any, stream: str = stream) -> None:
                    (request if hasattr(request, "stream") else request.streamInfo).stream = stream

                assert (await _outcome(name, "reader", change))[0] == outcome, (name, stream)
                assert (await _outcome(name, "stranger", change))[0] == "x"

    asyncio.run(main())


PATHS = ["../other", "app/../other", "..", "app/stream:s", "app*", "*", "", "a\0b", "%2e%2e", "app\n"]


@pytest.mark.parametrize("scope", PATHS)
def test_name_that_is_a_path_or_a_pattern_gives_nothing_to_who_has_no_rule_for_all(scope):
    async def main() -> None:
        for name in ("checkStreamExists", "sealStream", "getCurrentSegments", "deleteStream"):
            found, _ = await _outcome(name, "stranger", lambda request: setattr(request, "scope", scope))
            assert found == "x", name

    asyncio.run(main())


# -- the wire -----------------------------------------------------------------------------------

EXAMPLES = {type(command).__name__: command for command, _ in GOLDEN}


def _command(name: str, token: str, segment: str = "app/s/0.#epoch.0") -> Any:
    fields = {field.name for field in dataclasses.fields(EXAMPLES[name])}
    places = {
        "segment": segment, "parent_segment": segment, "target": segment, "source": segment, "sources": (segment,),
        "token": token,
    }  # fmt: skip
    return replace(EXAMPLES[name], **{key: value for key, value in places.items() if key in fields})


def _tokens() -> dict[str, str]:
    def sign(resource: str, permission: Permission, keys: TokenKeys = KEYS, at: int = NOW) -> str:
        return keys.sign({resource: permission}, at, 600)

    stream, update = "prn::/scope:app/stream:s", Permission.READ_UPDATE
    return {
        "nobody": "",
        "garbage": "a.b.c",
        "other stream": sign("prn::/scope:app/stream:s2", update),
        "other scope": sign("prn::/scope:other/*", update),
        "other key": sign(stream, update, TokenKeys([os.urandom(64)])),
        "expired": sign(stream, update, at=NOW - 600),
        "reader": sign(stream, Permission.READ),
        "writer": sign(stream, update),
        "admin": sign("prn::/*", update),
    }


def _refused(command: Any, clock: Clock | None = None, checks: TokenChecks | None = None) -> Any:
    return (checks or TokenChecks(lambda: KEYS, clock or Clock(), NoAudit(), "p")).refusal(command)


def test_table_has_every_command_with_a_token():
    with_token = {
        name for name, command in EXAMPLES.items() if "token" in {field.name for field in dataclasses.fields(command)}
    }
    not_served = {"FlushToStorage", "ListStorageChunks", "CheckChunkExistence", "GetTableSegmentInfoInternal"}
    assert with_token - not_served <= READ_COMMANDS | WRITE_COMMANDS
    assert with_token >= READ_COMMANDS | WRITE_COMMANDS


@pytest.mark.parametrize("name", sorted(READ_COMMANDS | WRITE_COMMANDS))
def test_command_is_served_only_with_a_token_that_gives_it(name):
    may = {"writer", "admin"} | ({"reader"} if name in READ_COMMANDS else set())
    for who, token in _tokens().items():
        refused = _refused(_command(name, token))
        assert (refused is None) == (who in may), who
        if refused is not None:
            assert type(refused) is wire.AuthTokenCheckFailed
            assert (refused.error_code == TOKEN_EXPIRED) == (who == "expired")
            assert not token or token not in repr(refused)


@pytest.mark.parametrize("name", ["MergeSegments", "MergeSegmentsBatch"])
def test_merge_needs_the_token_for_every_segment_of_it(name):
    command = _command(name, _tokens()["writer"])
    other = {"source": "other/s/0.#epoch.0"} if name == "MergeSegments" else {"sources": ("other/s/0.#epoch.0",)}
    assert _refused(replace(command, **other)) is not None
    assert _refused(replace(command, target="other/s/0.#epoch.0")) is not None


@pytest.mark.parametrize(
    "segment",
    ["app/s/../../other/s/0", "../app/s/0", "app/../s/0", "_system/_tables/access", "app/s", "app/s/0/1", "/app/s", "",
     "app/s2/0.#epoch.0", "app/s%2f0", "app\\s\\0", "APP/s/0.#epoch.0"],
)  # fmt: skip
def test_segment_of_another_name_is_not_opened_by_a_token_of_a_stream(segment):
    for name in ("ReadSegment", "SetupAppend", "DeleteSegment"):
        assert _refused(_command(name, _tokens()["writer"], segment)) is not None


def test_token_that_was_verified_is_refused_when_it_has_expired():
    clock = Clock()
    checks = TokenChecks(lambda: KEYS, clock, NoAudit(), "p")
    command = _command("ReadSegment", _tokens()["writer"])
    assert _refused(command, checks=checks) is None
    clock.now = NOW + 599.9
    assert _refused(command, checks=checks) is None
    clock.now = NOW + 600.0
    assert _refused(command, checks=checks).error_code == TOKEN_EXPIRED
    assert _refused(command, checks=TokenChecks(lambda: KEYS, clock, NoAudit(), "q")).error_code == TOKEN_EXPIRED


@pytest.mark.parametrize("name", sorted(NO_TOKEN_COMMANDS & set(EXAMPLES)))
def test_command_without_a_token_is_not_asked_for_one(name):
    assert _refused(EXAMPLES[name]) is None
