"""Access checks of a store: each request must carry a token with the permission that the request needs on its segment.

A token is verified once on a connection; later requests with it cost a look-up.  A writer is checked when it is set up,
as Pravega does it, and its connection ends when the token expires: the client reconnects with a new one.

*Which commands are public.*  `NEEDS` names the commands that clients send, and the kinds of segments for which they
send each.  A controller sends the same commands and more, on connections that have introduced themselves with the
secret of the installation (`internal_handler.py`): these are not checked.  The uses of the commands by clients:

    SetupAppend                       writers; transactions; large events; synchronizers and readers of a group
    CreateTransientSegment, Merge…    large events (Java, Rust, ours): merged are a segment and a transient one of it
    UpdateSegmentAttribute            synchronizers (the mark), readers of a group, index streams of Rust
    TruncateSegment                   synchronizers, readers of a group, byte streams
    SealSegment                       byte streams (Java, Rust)
    Create-, DeleteTableSegment       groups and synchronizers of Rust and Python, which have no call of a controller:
                                      the one segment of `X_kvtable`, with keys of any length
    Read…, Get…, LocateOffset         readers, batch clients, tables

Only controllers create, delete and configure segments, merge transactions, and reach the tables of the system's scope.
This also holds in an installation without users, where there are no tokens: it checks only the use of each command.
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
# How many characters of a segment's name a refusal shows, since the name comes from outside.
_SHOWN_CHARACTERS: Final = 80


class Kind(Enum):
    """The kind of a segment, by its name."""

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
    """Parse the name of a segment.  Returns None for a name that no client uses."""
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

# The commands of clients that carry a token.  Others are the blocks of a writer that was set up, KeepAlive, Hello, and
# internal commands, whose connections introduce themselves.
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
# The commands that are refused on a connection that has not introduced itself.
CONTROLLERS_ONLY: Final = (
    wire.CreateSegment, wire.DeleteSegment, wire.UpdateSegmentPolicy, wire.MergeSegmentsBatch,
)  # fmt: skip
_SUBJECTS: Final = ("segment", "parent_segment", "target", "source")


class Checks(Protocol):
    """The access checks of one connection.  `user`: the user of the connection, empty until a token names it.

    `groups_alone`: whether the last admitted request may only change the table of a group, and no key-value table."""

    user: str
    groups_alone: bool

    def admit(self, command: wire.Command, connection: Peer) -> bool:
        """Return whether a request is allowed; if not, send the refusal."""

    def expires(self, token: str) -> float:
        """Return when an accepted token expires, in seconds since 1970."""

    def connection_closed(self) -> None:
        """Release timers, since the connection has ended."""


class NoTokens:
    """The checks of an installation without users: whether any client has a use for the request."""

    user = ""
    groups_alone = False

    def admit(self, command: wire.Command, connection: Peer) -> bool:
        """Return whether a request is allowed; if not, send the refusal."""
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
            # Check changes only: a read of a name that no client uses is answered that there is no such segment.
            if need.permission is Permission.READ_UPDATE:
                checked_use(command, need)
        except TokenRefused as error:
            connection.send(encode(_failed(command, error)))
            return False
        return True

    def expires(self, token: str) -> float:
        """Return infinity, since there are no tokens."""
        return inf

    def connection_closed(self) -> None:
        """Do nothing: there are no timers."""


NO_TOKENS: Final = NoTokens()


class TokenChecks:
    """The access checks of one connection, with the tokens that were verified on it."""

    __slots__ = ("_audit", "_clock", "_expiry", "_keys", "_peer", "_verified", "groups_alone", "user")

    def __init__(self, keys: Callable[[], TokenKeys], clock: Clock, audit: Audit, peer: str) -> None:
        self._keys = keys
        self._clock = clock
        self._audit = audit
        self._peer = peer
        self.user = ""  # the user of the first token
        self.groups_alone = False
        self._verified: dict[str, Grant] = {}
        self._expiry: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<TokenChecks, {len(self._verified)} verified>"

    def refusal(self, command: wire.Command) -> wire.AuthTokenCheckFailed | None:
        """Return the refusal of a request that its token does not allow, None when it is allowed.

        Commands that carry no token are allowed."""
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
        """Return whether a request of `connection` has a token that allows it; if not, send the refusal."""
        refused = self.refusal(command)
        if refused is None:
            if isinstance(command, wire.SetupAppend):
                self._end_with(command.token, connection)
            return True
        connection.send(encode(refused))
        if refused.error_code == TOKEN_EXPIRED:
            connection.close()  # without a line in the log, since this happens to every client
        return False

    def expires(self, token: str) -> float:
        """Return when an accepted token expires, in seconds since 1970; 0 when the token was forgotten."""
        grant = self._verified.get(token)
        return 0.0 if grant is None else grant.expires

    def connection_closed(self) -> None:
        """Cancel the timer that ends the connection when a token expires."""
        if self._expiry is not None:
            self._expiry.cancel()

    def _check(self, command: Any, need: Need, grant: Grant) -> None:
        """Check that a token gives the permission that a command needs.  Raises TokenRefused."""
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
        """End the connection when the token expires, since appends carry none; an earlier expiry stays."""
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
    """Return the parsed name of a request's segment.  Raises TokenRefused if no client has a use for this request."""
    segment = getattr(command, need.field)
    named = parse(segment)
    if named is None or named.kind not in need.kinds:
        raise _refused_name(segment)
    if isinstance(command, wire.MergeSegments) and not _is_own_transient(command.source, segment):
        raise TokenRefused("a client merges a segment with a transient one of it, and with no other")
    if makes_or_deletes_table(command):
        # Refuse other tables: only a controller creates the partitions of key-value tables, with keys of one length.
        one_length = isinstance(command, wire.CreateTableSegment) and command.key_length
        if one_length or not segment.endswith(_ONLY_TABLE_SEGMENT):
            raise TokenRefused("key-value tables are created and deleted by calls of the controller")
    return named


def makes_or_deletes_table(command: wire.Command) -> bool:
    """Return whether a request creates or deletes a table by itself, without a controller."""
    return isinstance(command, wire.CreateTableSegment | wire.DeleteTableSegment)


def _table_permissions(grant: Grant, named: Named) -> tuple[Permission, Permission]:
    """Return the permissions that a token gives on a table, as a key-value table and as a group of that name."""
    bare = named.name.removesuffix(TABLE_SUFFIX)
    table, group = table_resource(named.scope, bare), group_resource(named.scope, bare)
    if table not in grant.permissions and group not in grant.permissions:
        # A controller of the previous version names tables like streams in its tokens.
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
