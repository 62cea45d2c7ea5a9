"""Which requests a store serves: each must carry a token that gives its permission on its segments.

A token is verified once on a connection; later requests with it cost a look-up.  A writer is checked when it is set up,
as Pravega does it, and its connection ends when the token expires: the client comes back with a new one.

*Which commands are public.*  `NEEDS` names the commands that clients send, and for each the segments that they send it
for.  A controller has the same commands and more, on connections that know the secret of the installation
(`internal_handler.py`), which are not asked.  What clients need them for:

    SetupAppend                       writers; transactions; large events; synchronizers and readers of a group
    CreateTransientSegment, Merge…    large events (Java, Rust, ours): merged are a segment and a transient one of it
    UpdateSegmentAttribute            synchronizers (the mark), readers of a group, index streams of Rust
    TruncateSegment                   synchronizers, readers of a group, byte streams
    SealSegment                       byte streams (Java, Rust)
    Create-, DeleteTableSegment       groups and synchronizers of Rust and Python, which have no call of a controller:
                                      the one segment of `X_kvtable`, with keys of any length
    Read…, Get…, LocateOffset         readers, batch clients, tables

Creating, deleting and configuring segments, and merging transactions, is for controllers.  Nobody but them reaches the
tables of the system's scope.  Both hold with and without users; what has no token to check has its use checked alone.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

from sarit.core.names import (
    EPOCH_DELIMITER,
    MARK_PREFIX,
    READER_GROUP_PREFIX,
    SYSTEM_SCOPE,
    TABLE_SUFFIX,
    TRANSACTION_DELIMITER,
    TRANSIENT_DELIMITER,
    is_user_name,
)
from sarit.security.permissions import Permission, group_resource, stream_resource, table_resource
from sarit.security.tokens import Grant, TokenRefused
from sarit.store.limits import MAX_TOKEN_BYTES, MAX_VERIFIED_TOKENS
from sarit.wire import commands as wire
from sarit.wire.commands import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.env.ports import Clock
    from sarit.security.audit import Audit
    from sarit.security.tokens import TokenKeys
    from sarit.store.server.connection_budget import Peer

TOKEN_EXPIRED: Final = 1
_REFUSED: Final = 0
_SYSTEM: Final = f"{SYSTEM_SCOPE}/"
_NAME: Final = r"_?[A-Za-z0-9.\-]{1,255}"
_SEGMENT: Final = re.compile(
    rf"(?P<scope>{_NAME})/(?P<name>{_NAME}(?:{TABLE_SUFFIX})?)/[0-9]{{1,10}}(?:{re.escape(EPOCH_DELIMITER)}[0-9]{{1,10}})?"
    rf"(?P<transaction>{re.escape(TRANSACTION_DELIMITER)}[0-9a-f]{{32}})?"
    rf"(?P<transient>{re.escape(TRANSIENT_DELIMITER)}[0-9a-f]{{32}}\.[0-9a-f]{{32}})?"
)
_ONLY_TABLE_SEGMENT: Final = f"/0{EPOCH_DELIMITER}0"
# Of a name in a refusal: it came from outside.
_SHOWN_CHARACTERS: Final = 80


class Kind(Enum):
    """The kind of thing that a segment belongs to, by its name."""

    STREAM = auto()
    TRANSACTION = auto()
    TRANSIENT = auto()
    GROUP = auto()  # the state of a reader group
    MARKS = auto()  # the watermarks of a stream
    TABLE = auto()  # a key-value table, or a table or group of Rust and Python


@dataclass(frozen=True, slots=True)
class Named:
    """The parts of a segment's name."""

    kind: Kind
    scope: str
    name: str


def parse(segment: str) -> Named | None:
    """Parse the name of a segment; None for a name that no client has to use."""
    match = _SEGMENT.fullmatch(segment)
    if match is None or match["scope"] == SYSTEM_SCOPE:
        return None
    scope, name = match["scope"], match["name"]
    derived = Kind.TRANSIENT if match["transient"] else Kind.TRANSACTION if match["transaction"] else None
    if name.endswith(TABLE_SUFFIX):
        kind = Kind.TABLE if is_user_name(name.removesuffix(TABLE_SUFFIX)) else None
    elif name.startswith(READER_GROUP_PREFIX):
        kind = Kind.GROUP
    elif name.startswith(MARK_PREFIX):
        kind = Kind.MARKS
    else:
        return Named(derived or Kind.STREAM, scope, name)
    return None if kind is None or derived is not None else Named(kind, scope, name)


@dataclass(frozen=True, slots=True)
class Need:
    """The need of a command: a permission on the segment in `field`, which is one of `kinds`."""

    permission: Permission
    kinds: frozenset[Kind]
    field: str = "segment"


def _update(*kinds: Kind, field: str = "segment") -> Need:
    return Need(Permission.READ_UPDATE, frozenset(kinds), field)


_WRITTEN: Final = (Kind.STREAM, Kind.TRANSACTION)
_READ: Final = Need(Permission.READ, frozenset((Kind.STREAM, Kind.GROUP, Kind.MARKS)))
_READ_TABLE: Final = Need(Permission.READ, frozenset((Kind.TABLE,)))

# The commands of clients.  Requests without a token are not here: the blocks of a writer that was set up, KeepAlive,
# Hello, and the internal commands, whose connections introduce themselves.
NEEDS: Final[Mapping[type[wire.Command], Need]] = {
    wire.SetupAppend: _update(*_WRITTEN, Kind.TRANSIENT, Kind.GROUP),
    wire.CreateTransientSegment: _update(*_WRITTEN, field="parent_segment"),
    wire.MergeSegments: _update(*_WRITTEN, field="target"),
    wire.UpdateSegmentAttribute: _update(Kind.STREAM, Kind.GROUP),
    wire.TruncateSegment: _update(Kind.STREAM, Kind.GROUP),
    wire.SealSegment: _update(Kind.STREAM),
    wire.CreateTableSegment: _update(Kind.TABLE),
    wire.DeleteTableSegment: _update(Kind.TABLE),
    wire.UpdateTableEntries: _update(Kind.TABLE),
    wire.RemoveTableKeys: _update(Kind.TABLE),
    wire.ReadSegment: _READ,
    wire.GetStreamSegmentInfo: _READ,
    wire.GetSegmentAttribute: _READ,
    wire.LocateOffset: _READ,
    wire.GetTableSegmentInfo: _READ_TABLE,
    wire.ReadTable: _READ_TABLE,
    wire.ReadTableKeys: _READ_TABLE,
    wire.ReadTableEntries: _READ_TABLE,
    wire.ReadTableEntriesDelta: _READ_TABLE,
}
# What a connection that has not introduced itself is refused.
CONTROLLERS_ONLY: Final = (
    wire.CreateSegment, wire.DeleteSegment, wire.UpdateSegmentPolicy, wire.MergeSegmentsBatch,
)  # fmt: skip
_SUBJECTS: Final = ("segment", "parent_segment", "target", "source")


class Checks(Protocol):
    """The access checks of one connection's requests; `user`: whose it is, empty while nobody said so.

    `groups_alone`: whether the request that was admitted last may change a group's table, and no key-value table."""

    user: str
    groups_alone: bool

    def admit(self, command: wire.Command, connection: Peer) -> bool:
        """Return whether a request is to be served; if not, it is answered."""

    def expires(self, token: str) -> float:
        """When a token that was accepted expires, in seconds since 1970."""

    def connection_closed(self) -> None:
        """The connection has ended."""


class NoTokens:
    """The checks where there are no users: whether a client has to do what a request changes."""

    user = ""
    groups_alone = False

    def admit(self, command: wire.Command, connection: Peer) -> bool:
        """Return whether a request is to be served; if not, it is answered."""
        need = NEEDS.get(type(command))
        if need is None and not isinstance(command, CONTROLLERS_ONLY):
            return True
        self.groups_alone = makes_or_deletes_table(command)
        try:
            named = (getattr(command, field, "") for field in _SUBJECTS)
            if any(segment.startswith(_SYSTEM) for segment in named):
                raise _refused_name(_SYSTEM)
            if need is None:
                raise _for_processes(command)
            # A read of a name that no client uses finds nothing, and says so.
            if need.permission is Permission.READ_UPDATE:
                checked_use(command, need)
        except TokenRefused as error:
            connection.send(encode(_failed(command, error)))
            return False
        return True

    def expires(self, token: str) -> float:
        """When a token that was accepted expires: never."""
        return inf

    def connection_closed(self) -> None:
        """The connection has ended."""


NO_TOKENS: Final = NoTokens()


class TokenChecks:
    """The tokens of one connection."""

    __slots__ = ("_audit", "_clock", "_expiry", "_keys", "_peer", "_verified", "groups_alone", "user")

    def __init__(self, keys: Callable[[], TokenKeys], clock: Clock, audit: Audit, peer: str) -> None:
        self._keys = keys
        self._clock = clock
        self._audit = audit
        self._peer = peer
        self.user = ""  # the first that a token named
        self.groups_alone = False
        self._verified: dict[str, Grant] = {}
        self._expiry: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<TokenChecks, {len(self._verified)} verified>"

    def refusal(self, command: wire.Command) -> wire.AuthTokenCheckFailed | None:
        """Return the reply to a request that its token does not allow; None: serve it.

        Controllers' connections and what carries no token are not asked."""
        need = NEEDS.get(type(command))
        segment = who = ""
        try:
            if need is not None:
                segment = getattr(command, need.field)
                grant = self._grant(command.token)  # type: ignore[attr-defined]
                who = grant.user
                self._check(command, need, grant)
            elif isinstance(command, CONTROLLERS_ONLY):
                raise _for_processes(command)
        except TokenRefused as error:
            what = type(command).__name__
            self._audit.note(who=who, what=what, resource=segment, peer=self._peer, allowed=False, why=str(error))
            return _failed(command, error)
        return None

    def admit(self, command: wire.Command, connection: Peer) -> bool:
        """Return whether a request of `connection` has a token that allows it; if not, it is answered."""
        refused = self.refusal(command)
        if refused is None:
            if isinstance(command, wire.SetupAppend):
                self._end_with(command.token, connection)
            return True
        connection.send(encode(refused))
        if refused.error_code == TOKEN_EXPIRED:
            connection.close()  # without a word in the log: every client meets it
        return False

    def expires(self, token: str) -> float:
        """When a token that was accepted expires, in seconds since 1970; 0: it was forgotten."""
        grant = self._verified.get(token)
        return 0.0 if grant is None else grant.expires

    def connection_closed(self) -> None:
        """No token expires any more."""
        if self._expiry is not None:
            self._expiry.cancel()

    def _check(self, command: Any, need: Need, grant: Grant) -> None:
        """Raises TokenRefused."""
        named = checked_use(command, need)
        self.groups_alone = makes_or_deletes_table(command)
        if named.kind is not Kind.TABLE:
            resource = stream_resource(named.scope, named.name)
            if grant.on(resource) < need.permission:
                raise TokenRefused(f"the token does not give {need.permission.name} on {resource}")
            return
        table, group = _table_permissions(grant, named)
        if table < need.permission:
            if group < need.permission:
                bare = named.name.removesuffix(TABLE_SUFFIX)
                either = f"{table_resource(named.scope, bare)} or {group_resource(named.scope, bare)}"
                raise TokenRefused(f"the token does not give {need.permission.name} on {either}")
            self.groups_alone = True

    def _end_with(self, token: str, connection: Peer) -> None:
        """End the connection when the token expires, unless another one does earlier: blocks carry none."""
        loop = asyncio.get_running_loop()
        at = loop.time() + self._verified[token].expires - self._clock.wall_ms() / 1000
        if self._expiry is None or at < self._expiry.when():
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = loop.call_at(at, connection.close)

    def _grant(self, token: str) -> Grant:
        now = self._clock.wall_ms() / 1000
        grant = self._verified.get(token)
        if grant is None:
            if not token:
                raise TokenRefused("the request has no token: log in at the controller")
            if len(token) > MAX_TOKEN_BYTES:
                raise TokenRefused(f"the token has more than {MAX_TOKEN_BYTES} characters")
            grant = self._keys().verify(token, now)
            if len(self._verified) >= MAX_VERIFIED_TOKENS:
                del self._verified[next(iter(self._verified))]
            self._verified[token] = grant
            self.user = self.user or grant.user
        if grant.expires <= now:
            del self._verified[token]
            raise TokenRefused("the token has expired", expired=True)
        return grant


def checked_use(command: Any, need: Need) -> Named:
    """Return the parts of the name that a request is about.  Raises TokenRefused where no client has to make this
    request."""
    segment = getattr(command, need.field)
    named = parse(segment)
    if named is None or named.kind not in need.kinds:
        raise _refused_name(segment)
    if isinstance(command, wire.MergeSegments) and not _is_own_transient(command.source, segment):
        raise TokenRefused("a client merges a segment with a transient one of it, and with no other")
    if makes_or_deletes_table(command):
        # Others are a controller's, which counts them: partitions of key-value tables, whose keys have one length.
        one_length = isinstance(command, wire.CreateTableSegment) and command.key_length
        if one_length or not segment.endswith(_ONLY_TABLE_SEGMENT):
            raise TokenRefused("key-value tables are created and deleted by calls of the controller")
    return named


def makes_or_deletes_table(command: wire.Command) -> bool:
    """Return whether a request creates or deletes a table: of a client that is none of the controller's tables."""
    return isinstance(command, wire.CreateTableSegment | wire.DeleteTableSegment)


def _table_permissions(grant: Grant, named: Named) -> tuple[Permission, Permission]:
    """Return the permissions that a token gives on a table: by the right on the key-value table, and by the one on the
    group of the name."""
    bare = named.name.removesuffix(TABLE_SUFFIX)
    table, group = table_resource(named.scope, bare), group_resource(named.scope, bare)
    if table not in grant.permissions and group not in grant.permissions:
        # A token of a controller of the version before, which knows tables by no other name.
        return grant.on(stream_resource(named.scope, named.name)), Permission.NONE
    return grant.on(table), grant.on(group)


def _is_own_transient(source: str, target: str) -> bool:
    named = parse(source)
    return named is not None and named.kind is Kind.TRANSIENT and source.rpartition(TRANSIENT_DELIMITER)[0] == target


def _for_processes(command: wire.Command) -> TokenRefused:
    return TokenRefused(f"{type(command).__name__} is for the processes of this installation")


def _refused_name(segment: str) -> TokenRefused:
    return TokenRefused(f"no client does this with {segment[:_SHOWN_CHARACTERS]!r}")


def _failed(command: Any, error: TokenRefused) -> wire.AuthTokenCheckFailed:
    return wire.AuthTokenCheckFailed(command.request_id, str(error), TOKEN_EXPIRED if error.expired else _REFUSED)
