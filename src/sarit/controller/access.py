"""Who may make which call of the controller's API: one table, and its use.

`NEEDS` says for each rpc which resource it is about, and which permission it needs.  A call without an entry cannot be
served while access is checked.  What Pravega requires is required here, with two differences, both in favour of those
who only read: a token carries the permission that its caller has, so asking for the segments of a stream needs READ
alone; and a list shows what its caller may read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Forbidden, Unauthenticated
from sarit.core.names import MARK_PREFIX, SYSTEM_SCOPE, TABLE_SUFFIX
from sarit.rpc.generated import controller_pb2 as pb
from sarit.security.audit import Audit, NoAudit
from sarit.security.permissions import (
    ROOT,
    Caller,
    Permission,
    Rules,
    group_resource,
    needed_to_ask,
    needed_to_change,
    owner_resource,
    scope_resource,
    stream_resource,
    table_resource,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sarit.env.ports import Env
    from sarit.security.login import Logins
    from sarit.security.tokens import TokenKeys

READ: Final = Permission.READ
UPDATE: Final = Permission.READ_UPDATE

_Access = pb.StreamInfo.AccessOperation

# What a client may ask of a token; a request that says nothing gets what the caller may do.
_ASKED: Final[Mapping[Any, Permission]] = {
    _Access.READ: READ,
    _Access.WRITE: UPDATE,
    _Access.READ_WRITE: UPDATE,
}


@dataclass(frozen=True, slots=True)
class Need:
    """What a call needs: `permission(request)` on one of `resources(request)`.

    `stream`: the stream that a token in the reply is for, if it has one.  `listed`: the field of the reply that lists
    things, with the resource of one of them.  `go_on`: makes the request for the next page of what it was for one."""

    permission: Callable[[Any], Permission]
    resources: Callable[[Any], Sequence[str]]
    stream: Callable[[Any], tuple[str, str]] | None = None
    listed: tuple[str, Callable[[Any, Any], str]] | None = None
    go_on: Callable[[Any, Any], None] = lambda request, reply: request.continuationToken.CopyFrom(
        reply.continuationToken
    )
    anonymous: bool = False


def _none(_: Any) -> Permission:
    return Permission.NONE


def _read(_: Any) -> Permission:
    return READ


def _update(_: Any) -> Permission:
    return UPDATE


def _change(request: Any) -> Permission:
    return needed_to_change(_name(request)[1])


def _read_unless_system(request: Any) -> Permission:
    # Our client asks for the system's scope to find out whether a controller knows it.
    return Permission.NONE if request.scope == SYSTEM_SCOPE else READ


def _asked(request: Any) -> Permission:
    return needed_to_ask(request.stream, _ASKED.get(request.accessOperation, READ))


def _root(_: Any) -> Sequence[str]:
    return (ROOT,)


def _scope(request: Any) -> Sequence[str]:
    scope = request.scope
    return (scope_resource(scope if isinstance(scope, str) else scope.scope),)


def _name(request: Any) -> tuple[str, str]:
    """Scope and stream of a request, wherever it has them."""
    for field in ("streamInfo", "stream"):
        inner = getattr(request, field, None)
        if isinstance(inner, pb.StreamInfo):
            return inner.scope, inner.stream
    for field in ("position", "streamCut"):
        inner = getattr(request, field, None)
        if isinstance(inner, pb.StreamCut):
            return inner.streamInfo.scope, inner.streamInfo.stream
    return request.scope, request.stream


def _stream(request: Any) -> Sequence[str]:
    return (owner_resource(*_name(request)),)


def _stream_or_table(request: Any) -> Sequence[str]:
    # Clients ask for the address and the token of a table as if it were a stream.
    scope, name = _name(request)
    return owner_resource(scope, name), table_resource(scope, name.removesuffix(TABLE_SUFFIX))


def _creation(request: Any) -> Sequence[str]:
    scope, stream = _name(request)
    # The stream of a reader group is created by who creates the group.
    return scope_resource(scope), owner_resource(scope, stream)


def _group(request: Any) -> Sequence[str]:
    name = getattr(request, "readerGroupName", "") or getattr(request, "readerGroup", "")
    return scope_resource(request.scope), group_resource(request.scope, name)


def _table(request: Any) -> Sequence[str]:
    return (table_resource(request.scope, request.kvtName),)


def _new_table(request: Any) -> Sequence[str]:
    return scope_resource(request.scope), table_resource(request.scope, request.kvtName)


def _table_name(request: Any) -> tuple[str, str]:
    return request.scope, request.kvtName


def _of_stream(permission: Callable[[Any], Permission], *, token: bool = False) -> Need:
    return Need(permission, _stream, _name if token else None)


def _listed_stream(info: pb.StreamInfo) -> str:
    # In lists, as in Pravega, the stream of marks has its own name: who may read a stream does not see it.
    if info.stream.startswith(MARK_PREFIX):
        return stream_resource(info.scope, info.stream)
    return owner_resource(info.scope, info.stream)


_LISTED_STREAMS: Final = ("streams", lambda _, item: _listed_stream(item))

NEEDS: Final[Mapping[str, Need]] = {
    # Clients look for controllers before they log in.
    "getControllerServerList": Need(_none, _root, anonymous=True),
    "getControllerToBucketMapping": Need(_update, _root),
    "createScope": Need(_update, lambda r: (ROOT, scope_resource(r.scope))),
    "deleteScope": Need(_update, lambda r: (ROOT, scope_resource(r.scope))),
    "deleteScopeRecursive": Need(_update, lambda r: (ROOT, scope_resource(r.scope))),
    "checkScopeExists": Need(_read_unless_system, _scope),
    "listScopes": Need(_none, _root, listed=("scopes", lambda _, item: scope_resource(item))),
    "listStreamsInScope": Need(_read, _scope, listed=_LISTED_STREAMS),
    "listStreamsInScopeForTag": Need(_read, _scope, listed=_LISTED_STREAMS),
    "createStream": Need(_change, _creation),
    "updateStream": _of_stream(_change),
    "getStreamConfiguration": _of_stream(_read),
    "truncateStream": _of_stream(_change),
    "sealStream": _of_stream(_change),
    "deleteStream": _of_stream(_change),
    "checkStreamExists": _of_stream(_read),
    "getCurrentSegments": _of_stream(_read, token=True),
    "getEpochSegments": _of_stream(_read, token=True),
    "getSegments": _of_stream(_read, token=True),
    "getSegmentsImmediatlyFollowing": _of_stream(_read, token=True),
    "getSegmentsImmediatelyFollowing": _of_stream(_read, token=True),
    "getSegmentsBetween": _of_stream(_read, token=True),
    "scale": _of_stream(_change),
    "checkScale": _of_stream(_read),
    "getURI": Need(_read, _stream_or_table),
    "isSegmentValid": _of_stream(_read),
    "isStreamCutValid": _of_stream(_read),
    "createTransaction": _of_stream(_change, token=True),
    "pingTransaction": _of_stream(_change),
    "commitTransaction": _of_stream(_change),
    "abortTransaction": _of_stream(_change),
    "checkTransactionState": _of_stream(_read),
    "listCompletedTransactions": _of_stream(_read),
    "getDelegationToken": Need(_asked, _stream_or_table, _name),
    "noteTimestampFromWriter": _of_stream(_change),
    "removeWriter": _of_stream(_change),
    "createKeyValueTable": Need(_update, _new_table),
    "getCurrentSegmentsKeyValueTable": Need(_read, _table, _table_name),
    "listKeyValueTablesInScope": Need(
        _read, _scope, listed=("kvtables", lambda _, item: table_resource(item.scope, item.kvtName))
    ),
    "getKeyValueTableConfiguration": Need(_read, _table),
    "deleteKeyValueTable": Need(_update, _table),
    "listSubscribers": _of_stream(_read),
    "updateSubscriberStreamCut": _of_stream(_change),
    "createReaderGroup": Need(_read, _group),
    "getReaderGroupConfig": Need(_read, _group),
    "updateReaderGroup": Need(_read, _group),
    "deleteReaderGroup": Need(_read, _group),
    "cutAt": _of_stream(_read),
    "streamConfigs": Need(
        _read,
        _scope,
        listed=("streams", lambda _, item: _listed_stream(item.streamInfo)),
        go_on=lambda request, reply: setattr(request, "after", reply.streams[-1].streamInfo.stream),
    ),
    "scalingEvents": _of_stream(_read),
    "listRules": Need(_update, _root),
    "changeRules": Need(_update, _root),
    "listQuotas": Need(_update, _root),
    "changeQuotas": Need(_update, _root),
    "quotaUse": Need(_update, _root),
}


def _plain(user: str) -> str:
    """A user as a token names it: its middle part must be standard base64, too, which these would not be."""
    return re.sub("[>?~\x7f]", "_", user)


class Access:
    """Checks each call of a controller.

    `keys`: signs tokens, as of now; `seconds`: how long they are valid."""

    def __init__(
        self, env: Env, logins: Logins, keys: Callable[[], TokenKeys], seconds: int, audit: Audit | None = None
    ) -> None:
        self._env = env
        self._logins = logins
        self._keys = keys
        self._seconds = seconds
        self._audit = audit or NoAudit()
        self.rules = Rules()

    def __repr__(self) -> str:
        return f"<Access, {self.rules!r}>"

    async def close(self) -> None:
        """End its thread."""
        await self._logins.close()

    def use(self, rules: Rules) -> None:
        """Decide by these rules from now on."""
        self.rules = rules

    async def caller(self, call: str, authorization: str | None, peer: str) -> Caller | None:
        """Who makes a call; None where anybody may.  Raises Unauthenticated, Unavailable."""
        if NEEDS[call].anonymous:
            return None
        try:
            return await self._logins.caller(authorization, peer)
        except Unauthenticated as error:
            self._audit.note(who="", what=call, resource="", peer=peer, allowed=False, why=str(error))
            raise

    async def carry_out(
        self, call: str, method: Callable[[Any], Awaitable[Any]], request: Any, caller: Caller | None, peer: str
    ) -> Any:
        """The reply of `method` to what the caller may see.  Raises Forbidden, and what the method does."""
        need = NEEDS[call]
        if caller is None:
            return await method(request)
        had = self._authorize(call, need, request, caller, peer)
        if need.listed is not None:
            return await self._listed(need.listed, need.go_on, method, request, caller)
        reply = await method(request)
        if need.stream is not None:
            reply.delegationToken = self._token(need.stream(request), request, had, caller)
        return reply

    def _authorize(self, call: str, need: Need, request: Any, caller: Caller, peer: str) -> Permission:
        """The permission that the caller has."""
        resources = need.resources(request)
        wanted = need.permission(request)
        had = max((self.rules.of(caller, resource) for resource in resources), default=Permission.NONE)
        allowed = had >= wanted
        self._audit.note(who=caller.name, what=call, resource=resources[-1], peer=peer, allowed=allowed)
        if not allowed:
            raise Forbidden(
                f"{caller.name} may not {'read' if wanted is READ else 'change'} {resources[-1]}: an administrator "
                f"gives the permission with `sarit acl grant user:{caller.name} {resources[-1]} {wanted.name}`"
            )
        return had

    def _token(self, name: tuple[str, str], request: Any, had: Permission, caller: Caller) -> str:
        has = UPDATE if had >= needed_to_change(name[1]) else had
        granted = min(has, _ASKED.get(getattr(request, "accessOperation", None), has))
        now = self._env.clock.wall_ms() // 1000
        return self._keys().sign({stream_resource(*name): granted}, now, self._seconds, _plain(caller.name))

    async def _listed(
        self, listed: tuple[str, Callable[[Any, Any], str]], go_on: Callable[[Any, Any], None],
        method: Callable[[Any], Awaitable[Any]], request: Any, caller: Caller,
    ) -> Any:  # fmt: skip
        """The first page with something that the caller may read: clients stop at an empty one."""
        field, resource = listed
        while True:
            reply = await method(request)
            items = getattr(reply, field)
            seen = [item for item in items if self.rules.of(caller, resource(request, item)) >= READ]
            if seen or not items:
                del items[:]
                items.extend(seen)
                return reply
            go_on(request, reply)


__all__ = ["NEEDS", "Access", "Need"]
