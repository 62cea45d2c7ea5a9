"""Every call of the controller, and every command of the wire, for callers of each kind, beside the tables by hand."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from dataclasses import replace
from typing import Any, ClassVar

import jwt
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from sarit.controller.access import NEEDS, Access
from sarit.core.errors import Forbidden, Invalid, Unauthenticated
from sarit.env.real import real_env
from sarit.rpc.methods import PRAVEGA, SARIT
from sarit.rpc.mirror_methods import MIRROR
from sarit.rpc.search_methods import SEARCH
from sarit.security.audit import NoAudit
from sarit.security.permissions import Caller, Permission, Rule, Rules, scope_resource
from sarit.security.tokens import ALGORITHM, AUDIENCE, TokenKeys
from sarit.store.server.access import NO_TOKENS, TOKEN_EXPIRED, TokenChecks
from sarit.wire import commands as wire
from tests.unit.security.expected import (
    ABOUT_SYSTEM,
    ADMIN,
    ANYBODY,
    CALLS,
    COLUMNS,
    COMMANDS,
    LOGGED_IN,
    MIRROR_READS,
    MIRROR_WRITES,
    MIRRORS_OF_SYSTEM,
    NAMES,
    NO_TOKEN_COMMANDS,
    NOT_EVEN_ADMIN,
    ODD_NAMES,
    SEGMENTS,
    TABLE_COMMANDS,
    WITH_TOKEN,
    WRITES,
)
from tests.unit.wire.golden import GOLDEN

RULES = Rules(
    replace(Rule.parse("*", *rule[1:]), subject=rule[0])
    for rule in [
        ("user:stranger", "prn::/scope:other", "READ_UPDATE"), ("user:stranger", "prn::/scope:other/*", "READ_UPDATE"),
        ("user:reader", "prn::/scope:app", "READ"), ("user:reader", "prn::/scope:app/*", "READ"),
        ("user:observer", "prn::*", "READ"), ("user:all", "prn::/scope:*", "READ_UPDATE"),
        ("user:of stream", "prn::/scope:app/stream:*", "READ_UPDATE"),
        ("user:of group", "prn::/scope:app/reader-group:*", "READ_UPDATE"),
        ("user:of table", "prn::/scope:app/key-value-table:*", "READ_UPDATE"),
        ("user:writer", "prn::/scope:app", "READ_UPDATE"), ("user:writer", "prn::/scope:app/*", "READ_UPDATE"),
        ("user:core", "prn::/mirror:app", "READ"), ("user:edge", "prn::/mirror:a*", "READ_UPDATE"),
        ("user:other link", "prn::/mirror:other", "READ_UPDATE"),
    ]
)  # fmt: skip
SERVICES = PRAVEGA.service, SARIT.service, MIRROR.service, SEARCH.service
METHODS = {method.name: method for service in SERVICES for method in service.methods}
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


def _asked(name: str, change: Any = None) -> Any:
    request = _fill(GetMessageClass(METHODS[name].input_type)())
    if change is not None:
        change(request)
    return request


async def _outcome(name: str, user: str | None, change: Any = None) -> tuple[str, Any]:
    method = METHODS[name]
    request = _asked(name, change)
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
    except Invalid:
        assert not served
        return "i", None
    assert served
    return "+", reply


def _named(scope: str, name: str) -> Any:
    """A change of a request: all names in it are these, wherever it has them."""

    def change(message: Any) -> None:
        for field in message.DESCRIPTOR.fields:
            if field.is_repeated:
                continue
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                change(getattr(message, field.name))
            elif field.name == "subscriber":
                setattr(message, field.name, "app/g")
            elif field.type == FieldDescriptor.TYPE_STRING:
                setattr(message, field.name, scope if field.name == "scope" else name)

    return change


async def _row(call: str, scope: str, name: str) -> str:
    return "".join([(await _outcome(call, user, _named(scope, name)))[0] for user in COLUMNS])


def _about_nothing(call: str) -> bool:
    return CALLS[call] in (ANYBODY, LOGGED_IN, ADMIN) and call not in MIRROR_READS | MIRROR_WRITES


def test_table_has_every_call():
    assert set(METHODS) == set(CALLS)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_call_gives_each_caller_what_the_table_says(name):
    async def main() -> None:
        of_table = "KeyValueTable" in name or name == "creationId"  # its last field is a table
        for thing in [each for each in NAMES if each != "s_kvtable"] if of_table else NAMES:
            wanted = CALLS[name]
            if name == "createStream" and thing.startswith("_"):
                wanted = NOT_EVEN_ADMIN
            assert await _row(name, "app", thing) == wanted, thing

    asyncio.run(main())


@pytest.mark.parametrize("name", sorted(METHODS))
def test_call_about_the_system_is_for_nobody(name):
    async def main() -> None:
        for thing in ("s", "_tables", "_RGs"):
            wanted = CALLS[name] if _about_nothing(name) else ABOUT_SYSTEM.get(name, NOT_EVEN_ADMIN)
            assert await _row(name, "_system", thing) == wanted, thing
            if wanted == NOT_EVEN_ADMIN:
                assert (await _outcome(name, "all", _named("_system", thing)))[0] == "x"

    asyncio.run(main())


@pytest.mark.parametrize("name", sorted(name for name in METHODS if not _about_nothing(name)))
def test_name_that_nothing_has_is_covered_by_no_rule(name):
    # An administrator learns by the call itself, or by the refusal to sign, that it is no name.
    administrator = ADMIN[:-1] + ("i" if name in WITH_TOKEN else "+")

    async def main() -> None:
        for odd in ODD_NAMES:
            if not NEEDS[name].of_users:
                assert await _row(name, odd, "s") == administrator, odd
            odd_name = _named("app", odd)
            resources = NEEDS[name].resources(_asked(name, odd_name))
            if scope_resource("app") in resources:
                # Who has the right on the scope learns it, too.
                assert (await _outcome(name, "stranger", odd_name))[0] == "x", odd
            elif resources != NEEDS[name].resources(_asked(name, _named("app", "s"))):
                assert await _row(name, "app", odd) == administrator, odd

    asyncio.run(main())


@pytest.mark.parametrize("name", sorted(MIRROR_READS | MIRROR_WRITES))
def test_call_of_a_link_needs_the_permission_of_links_on_its_scope(name):
    async def main() -> None:
        may = {"edge", "root"} if name in MIRROR_WRITES else {"core", "edge", "observer", "root"}
        for user in ("core", "edge", "other link", "observer", "all", "writer", "root"):
            assert (await _outcome(name, user))[0] == ("+" if user in may else "x"), user
            of_system = user == "root" or (user == "observer" and name in MIRROR_READS)
            wanted = "+" if of_system and name in MIRRORS_OF_SYSTEM else "x"
            assert (await _outcome(name, user, _named("_system", "s")))[0] == wanted, user

    asyncio.run(main())


@pytest.mark.parametrize("name", sorted(set(METHODS) - MIRROR_READS - MIRROR_WRITES))
def test_permission_of_links_opens_nothing_else(name):
    wanted = "+" if CALLS[name] in (ANYBODY, LOGGED_IN) else "x"
    assert asyncio.run(_outcome(name, "edge"))[0] == wanted


def test_link_sees_the_scopes_that_it_may_copy():
    async def main() -> None:
        pages = iter([["other", "x"], ["abc", "app", "other"], []])

        async def serve(_: Any) -> Any:
            return GetMessageClass(METHODS["mirrorScopes"].output_type)(scopes=next(pages))

        reply = await _access().carry_out("mirrorScopes", serve, _asked("mirrorScopes"), Caller("edge"), "1.2.3.4:5")
        assert list(reply.scopes) == ["abc", "app"]

    asyncio.run(main())


@pytest.mark.parametrize(
    "name", sorted(name for name in METHODS if CALLS[name] in (WRITES, ADMIN) and name not in MIRROR_READS)
)
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
            stream, table = "prn::/scope:app/stream:s", "prn::/scope:app/key-value-table:s"
            wanted = {table: asked} if name == "getCurrentSegmentsKeyValueTable" else {stream: asked}
            # Java asks for the token of a table by its bare name, too.
            assert grant.permissions == ({stream: asked, table: asked} if name == "getDelegationToken" else wanted)
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
        grant = KEYS.verify(reply.delegationToken, NOW)
        assert grant.permissions == {"prn::/scope:app/stream:_RGg": Permission.READ_UPDATE}

    asyncio.run(main())


def test_streams_of_the_system_are_changed_by_the_right_to_change_what_they_belong_to():
    async def main() -> None:
        for name in ("sealStream", "deleteStream", "truncateStream", "scale", "createTransaction", "updateStream"):
            for stream in ("_MARKs", "_RGs"):
                assert await _row(name, "app", stream) == WRITES, (name, stream)

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
    transient = f"{segment}#transient.{'d' * 32}.{'e' * 32}"
    places = {
        "segment": segment, "parent_segment": segment, "target": segment, "source": transient, "sources": (transient,),
        "token": token, "key_length": 0,
    }  # fmt: skip
    return replace(EXAMPLES[name], **{key: value for key, value in places.items() if key in fields})


def _sign(resource: str, permission: Permission, keys: TokenKeys = KEYS, at: int = NOW) -> str:
    return keys.sign({resource: permission}, at, 600)


def _signed_by_an_earlier_version(**permissions: str) -> str:
    """A token whose names nobody checked."""
    claims = {"sub": "old", "aud": AUDIENCE, "iat": NOW, "exp": NOW + 600}
    return jwt.encode(claims | permissions, b"k" * 64, algorithm=ALGORITHM)


STREAM = "prn::/scope:app/stream:s"


def _bad_tokens() -> dict[str, str]:
    update = Permission.READ_UPDATE
    everything = ("*", "prn::*", "prn::/*", "prn::/", "prn::/scope:*", "prn::/scope:app", "prn::/scope:app/*",
                  "prn::/scope:app/stream:*", f"{STREAM}*", f"{STREAM}/*", f"{STREAM}/0.#epoch.0", "app/s")  # fmt: skip
    return {
        "nobody": "",
        "garbage": "a.b.c",
        "other stream": _sign("prn::/scope:app/stream:s2", update),
        "other kind": _sign("prn::/scope:app/reader-group:g2", update),
        "other key": _sign(STREAM, update, TokenKeys([os.urandom(64)])),
        "expired": _sign(STREAM, update, at=NOW - 600),
        **{pattern: _signed_by_an_earlier_version(**{pattern: "READ_UPDATE"}) for pattern in everything},
    }


async def _token_of(user: str, name: str) -> str | None:
    """What the controller gives a user for a name; None: nothing."""
    found, reply = await _outcome("getDelegationToken", user, _named("app", name))
    return reply.delegationToken if found == "+" else None


def _refused(command: Any, clock: Clock | None = None, checks: TokenChecks | None = None) -> Any:
    return (checks or TokenChecks(lambda: KEYS, clock or Clock(), NoAudit(), "p")).refusal(command)


def test_table_has_every_command_with_a_token():
    with_token = {
        name for name, command in EXAMPLES.items() if "token" in {field.name for field in dataclasses.fields(command)}
    }
    not_served = {"FlushToStorage", "ListStorageChunks", "CheckChunkExistence", "GetTableSegmentInfoInternal"}
    assert with_token - not_served == set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_command_is_served_with_the_token_of_the_name_and_of_no_other(name):
    """All commands, with every token that a user can get, for segments of each kind."""

    async def main() -> None:
        users = ("nobody", "stranger", "reader", "observer", "writer", "root")
        tokens = {(user, asked): await _token_of(user, asked) for user in users for asked in ("s", *NAMES)}
        for kind, (named, segment) in SEGMENTS.items():
            right = COMMANDS[name].get(kind, "")
            may = {"r": {"reader", "observer", "writer", "root"}, "w": {"writer", "root"}, "": set()}[right]
            for (user, asked), token in tokens.items():
                if token is None:
                    continue
                refused = _refused(_command(name, token, segment))
                # A token for `s` is for the stream and the table of the name.
                same = asked == named or (asked, named) == ("s", "s_kvtable")
                assert (refused is None) == (same and user in may), (kind, user, asked, refused)

    asyncio.run(main())


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_token_that_is_bad_opens_nothing(name):
    for who, token in _bad_tokens().items():
        for kind, (_, segment) in SEGMENTS.items():
            refused = _refused(_command(name, token, segment))
            assert type(refused) is wire.AuthTokenCheckFailed, (who, kind)
            assert (refused.error_code == TOKEN_EXPIRED) == (who == "expired" and bool(COMMANDS[name]))
            assert not token or token not in repr(refused)


def test_rules_of_one_kind_open_nothing_of_another():
    """Who may change all streams, all groups, or all tables, asking for whatever name."""

    async def main() -> None:
        opens = {"of stream": {"stream", "transaction", "transient"}, "of group": {"group", "table", "partition"},
                 "of table": {"table", "partition"}}  # fmt: skip
        for user, kinds in opens.items():
            opened = set()
            for asked in (*NAMES, *ODD_NAMES):
                token = await _token_of(user, asked)
                for name, of in COMMANDS.items() if token is not None else ():
                    for kind, (_, segment) in SEGMENTS.items():
                        checks = TokenChecks(lambda: KEYS, Clock(), NoAudit(), "p")
                        if _refused(_command(name, token, segment), checks=checks) is None:
                            assert kind in of
                            opened.add(kind)
                            # The right on a group opens a table of the name only where that is no key-value table.
                            made = name in ("CreateTableSegment", "DeleteTableSegment")
                            assert checks.groups_alone == (name in TABLE_COMMANDS and (made or user == "of group"))
            assert opened - kinds - {"marks"} == set(), user
            assert kinds - opened == set(), user

    asyncio.run(main())


def test_table_of_another_size_or_number_is_not_created_by_a_client():
    token = _sign("prn::/scope:app/key-value-table:s", Permission.READ_UPDATE)
    command = _command("CreateTableSegment", token, "app/s_kvtable/0.#epoch.0")
    assert _refused(command) is None
    assert _refused(replace(command, key_length=8)) is not None
    for other in ("app/s_kvtable/1.#epoch.0", "app/s_kvtable/0.#epoch.1", "app/s_kvtable/0", "app/s/0.#epoch.0"):
        assert _refused(replace(command, segment=other)) is not None


def test_token_of_a_controller_of_the_version_before_opens_what_it_names():
    for name, segment in (("s", "app/s/0.#epoch.0"), ("_RGs", "app/_RGs/0.#epoch.0")):
        token = _signed_by_an_earlier_version(**{f"prn::/scope:app/stream:{name}": "READ_UPDATE"})
        assert _refused(_command("SetupAppend", token, segment)) is None
    table = _signed_by_an_earlier_version(**{"prn::/scope:app/stream:s_kvtable": "READ_UPDATE"})
    assert _refused(_command("UpdateTableEntries", table, "app/s_kvtable/0.#epoch.0")) is None


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_where_there_are_no_users_a_client_changes_what_clients_have_to(name):
    class Connection:
        sent: ClassVar[list[bytes]] = []

        def send(self, frame: bytes) -> None:
            self.sent.append(frame)

        def close(self) -> None:
            pass

    connection, reads = Connection(), name.startswith(("Read", "Get", "Locate"))
    for kind, (_, segment) in SEGMENTS.items():
        served = NO_TOKENS.admit(_command(name, "", segment), connection)
        assert served == (kind in COMMANDS[name] or (reads and not segment.startswith("_system"))), kind
        assert NO_TOKENS.groups_alone == (name in ("CreateTableSegment", "DeleteTableSegment"))
    if name == "CreateTableSegment":
        assert not NO_TOKENS.admit(replace(_command(name, "", "app/s_kvtable/0.#epoch.0"), key_length=8), connection)
    connection.sent.clear()
    for table in ("_system/_tables/access", "_system/_tables/app/0011223344556677", "_system/s/0.#epoch.0"):
        assert not NO_TOKENS.admit(_command(name, "", table), connection)
    assert len(connection.sent) == 3
    if name == "MergeSegments":
        for source in ("_system/_tables/access", "app/s/1.#epoch.0"):
            assert not NO_TOKENS.admit(replace(_command(name, ""), source=source), connection)


def test_merge_is_of_a_segment_and_its_own_transient_one():
    token = _sign(STREAM, Permission.READ_UPDATE)
    command = _command("MergeSegments", token)
    assert _refused(command) is None
    for source in ("other/s/0.#epoch.0", "app/s/1.#epoch.0", "app/s/0.#epoch.0", "_system/_tables/access",
                   "app/s/0.#epoch.0#transaction." + "a" * 32,
                   "app/s/1.#epoch.0#transient." + "b" * 32 + "." + "c" * 32):  # fmt: skip
        assert _refused(replace(command, source=source)) is not None, source
    assert _refused(replace(command, target="other/s/0.#epoch.0")) is not None


@pytest.mark.parametrize(
    "segment",
    ["app/s/../../other/s/0", "../app/s/0", "app/../s/0", "_system/_tables/access", "app/s", "app/s/0/1", "/app/s", "",
     "app/s2/0.#epoch.0", "app/s%2f0", "app\\s\\0", "APP/s/0.#epoch.0", "app/s/0.#epoch.0\n", "app/s/*", "app/*/0",
     "app/s/0.#epoch.0#transaction.", "app/s/0.#epoch.0#transaction.*", "app/s/0.#epoch.0/", "a" * 60_000,
     "app/s/-1.#epoch.0", "app/s/0.#epoch.0\0", "app/s/\u0660.#epoch.0"],
)  # fmt: skip
def test_segment_of_another_name_is_not_opened_by_a_token_of_a_stream(segment):
    for name in ("ReadSegment", "SetupAppend", "TruncateSegment"):
        refused = _refused(_command(name, _sign(STREAM, Permission.READ_UPDATE), segment))
        assert refused is not None
        assert len(refused.server_message if hasattr(refused, "server_message") else repr(refused)) < 500


def test_token_that_was_verified_is_refused_when_it_has_expired():
    clock = Clock()
    checks = TokenChecks(lambda: KEYS, clock, NoAudit(), "p")
    command = _command("ReadSegment", _sign(STREAM, Permission.READ_UPDATE))
    assert _refused(command, checks=checks) is None
    clock.now = NOW + 599.9
    assert _refused(command, checks=checks) is None
    clock.now = NOW + 600.0
    assert _refused(command, checks=checks).error_code == TOKEN_EXPIRED
    assert _refused(command, checks=TokenChecks(lambda: KEYS, clock, NoAudit(), "q")).error_code == TOKEN_EXPIRED


@pytest.mark.parametrize("name", sorted(NO_TOKEN_COMMANDS & set(EXAMPLES)))
def test_command_without_a_token_is_not_asked_for_one(name):
    assert _refused(EXAMPLES[name]) is None
